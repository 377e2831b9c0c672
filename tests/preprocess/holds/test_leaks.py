"""Nothing that was known only later is in a sample: cut at the hold, recompute, compare."""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from leakcheck import SPEC, Cut, cuts, leaks, make_stream, samples, small_blocks

from condor_advice.preprocess.holds.context import HOLD_FACTS, seconds
from condor_advice.preprocess.holds.features import HOLD_FEATURES, Feature, Held
from condor_advice.preprocess.holds.labels import Decisions
from condor_advice.preprocess.holds.steps import Steps
from condor_advice.preprocess.holds.stream import EpisodeStream, _hold_keys
from condor_advice.preprocess.holds.timeline import _YEARLESS

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("ads", [False, True])
def test_simulated_log_cut_at_a_hold_gives_the_same_samples(
    simulated: Callable[..., Path], tmp_path: Path, ads: bool
) -> None:
    assert leaks([simulated(300, ads=ads)], tmp_path, cuts_wanted=5) == []


def test_merged_logs_cut_at_a_hold_give_the_same_samples(
    simulated: Callable[..., Path], tmp_path: Path
) -> None:
    logs = [simulated(300, ads=True), simulated(300, seed=4), simulated(300)]
    assert leaks(logs, tmp_path, cuts_wanted=4) == []


def no_neighbours() -> EpisodeStream:
    """Return a pass that puts the steps of jobs aside until they are held."""
    return EpisodeStream(replace(SPEC, neighbours=0))


def test_logs_cut_at_a_hold_give_the_same_samples_without_neighbours(
    simulated: Callable[..., Path], tmp_path: Path
) -> None:
    logs = [simulated(300, ads=True), simulated(300, seed=4), simulated(300)]
    assert leaks(logs, tmp_path / "merged", cuts_wanted=4, make=no_neighbours) == []
    assert leaks(logs[:1], tmp_path / "ads", cuts_wanted=3, make=no_neighbours) == []


@pytest.mark.parametrize("size", [3_000, 40_000, 1 << 22])
def test_steps_put_aside_until_a_hold_are_those_kept_all_along(
    simulated: Callable[..., Path], size: int
) -> None:
    logs = [simulated(300, ads=True), simulated(300, seed=4)]
    whole = samples(logs)
    with small_blocks(size):
        aside = samples(logs, no_neighbours)
    assert len(whole) > 50
    assert {k: replace(v, neighbours=b"") for k, v in whole.items()} == aside


def test_real_logs_cut_at_a_hold_give_the_same_samples(tmp_path: Path) -> None:
    logs = [
        p
        for p in sorted((ROOT / "tests" / "logs").rglob("*"))
        if p.is_file() and b"\n012 (" in b"\n" + p.read_bytes()
    ]
    if not logs:
        pytest.skip("tests/logs has no log with a hold")
    assert leaks(logs, tmp_path / "together", cuts_wanted=6) == []
    for index, log in enumerate(logs[:12]):
        assert leaks([log], tmp_path / str(index), cuts_wanted=3) == []


def test_lab_recordings_cut_at_a_hold_give_the_same_samples(tmp_path: Path) -> None:
    logs = _recorded_logs(tmp_path / "unpacked")
    if not logs:
        pytest.skip("there are no lab recordings in lab/recordings")
    for recording, paths in list(logs.items())[:2]:
        assert leaks(paths, tmp_path / recording, cuts_wanted=2) == []


def test_public_logs_cut_at_a_hold_give_the_same_samples(shared: Path, tmp_path: Path) -> None:
    archive = shared / "data" / "eventlogs" / "eventlogs.tar.xz"
    logs = []
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isfile() and member.size < 200_000 else None
            data = file.read() if file else b""
            # Years that dates do not have come from the file's own date, which is not the log's.
            if b"\n012 (" in data and not _YEARLESS.search(data):
                logs.append(tmp_path / f"{len(logs):03d}.log")
                logs[-1].write_bytes(data)
            if len(logs) == 40:
                break
    assert leaks(logs, tmp_path / "together", cuts_wanted=4) == []
    for index, log in enumerate(logs[::8]):
        assert leaks([log], tmp_path / str(index), cuts_wanted=2) == []


def test_pool_samples_cut_at_a_hold_give_the_same_samples(shared: Path, tmp_path: Path) -> None:
    logs = [
        p
        for p in sorted((shared / "pool" / "samples").rglob("*"))
        if p.is_file() and b"\n012 (" in p.read_bytes()
    ]
    assert leaks(logs, tmp_path / "together", cuts_wanted=8) == []


def test_batch_borders_have_no_meaning(simulated: Callable[..., Path]) -> None:
    log = simulated(300, ads=True)
    whole = samples([log])
    with small_blocks(40_000):
        assert samples([log]) == whole
    assert len(whole) > 50


@pytest.mark.parametrize("change", ["permuted", "altered", "dropped"])
def test_other_futures_change_nothing(
    simulated: Callable[..., Path], tmp_path: Path, change: str
) -> None:
    log = simulated(300)
    found = cuts([log])
    cut = found[len(found) // 2]
    changed = tmp_path / "changed.log"
    changed.write_bytes(_with_other_future(log.read_bytes(), cut, change))
    before = {k: v for k, v in samples([log]).items() if k <= cut.sequence}
    after = {k: v for k, v in samples([changed]).items() if k <= cut.sequence}
    assert before == after
    assert len(before) > 20


def _with_other_future(data: bytes, cut: Cut, change: str) -> bytes:
    past, future = data[: cut.ends[0]], data[cut.ends[0] :]
    events = [event for event in future.split(b"...\n") if event]
    rng = random.Random(7)
    if change == "permuted":
        rng.shuffle(events)
    elif change == "altered":
        events = [
            event.replace(b"(return value 0)", b"(return value 9)").replace(
                b"Job was released", b"Job was held"
            )
            for event in events
        ]
    else:
        events = [event for event in events if rng.random() < 0.5]
    return past + b"".join(event + b"...\n" for event in events)


def _peek(held: Held) -> np.ndarray:
    """A leak: what kind of event comes after the hold."""
    behind = np.minimum(held.at + 1, len(held.steps) - 1)
    return np.where(behind > held.at, held.kind[behind], -1)


def test_a_planted_peek_is_caught(simulated: Callable[..., Path], tmp_path: Path) -> None:
    peeking = Feature("peek", "", "The next event", "the future", _peek)

    def make() -> EpisodeStream:
        return EpisodeStream(SPEC, (*HOLD_FEATURES, peeking))

    found = leaks([simulated(300)], tmp_path, cuts_wanted=3, make=make)
    assert found
    assert all("peek" in difference for difference in found)


class _Prophet(EpisodeStream):
    """A leak where leaks hide: outcomes count from the hold on, not from what decided them."""

    def _add_hold_facts(self, rows: Steps, new: np.ndarray, decisions: Decisions) -> None:
        super()._add_hold_facts(rows, new, decisions)
        early = decisions.hold[new[decisions.hold] & (decisions.decided >= 0)]
        early = early[np.argsort(rows["sequence"][early])]
        fact = np.full(len(early), HOLD_FACTS.index("bad"))
        self.context.add_holds(
            _hold_keys(rows[early]),
            rows["sequence"][early],
            seconds(rows["clock"][early]),
            fact,
        )


@pytest.mark.filterwarnings("ignore:invalid value encountered in log1p")
def test_an_outcome_that_is_known_too_early_is_caught(
    simulated: Callable[..., Path], tmp_path: Path
) -> None:
    found = leaks([simulated(300)], tmp_path, cuts_wanted=3, make=lambda: _Prophet(SPEC))
    assert any("_bad_" in difference or "_success_rate" in difference for difference in found)


def test_neighbours_are_drawn_by_the_seed(simulated: Callable[..., Path]) -> None:
    log = [simulated(300)]
    once, again = samples(log), samples(log)
    other = samples(log, lambda: EpisodeStream(replace(SPEC, seed=6)))
    assert once == again
    assert any(once[k].neighbours != other[k].neighbours for k in once)
    assert all(once[k].features == other[k].features for k in once)
    assert make_stream().spec == SPEC


def _recorded_logs(directory: Path) -> dict[str, list[Path]]:
    """Event logs of the lab's recordings, unpacked where they are archives."""
    found: dict[str, list[Path]] = {}
    base = ROOT / "lab" / "recordings"
    for path in sorted(base.rglob("*")) if base.is_dir() else []:
        if path.is_file() and ".tar" in path.name:
            target = directory / path.name
            with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as tar:
                tar.extractall(target, filter="data")
            logs = sorted(p for p in target.rglob("EventLog*") if p.is_file())
            if logs:
                found[path.name] = logs[::-1]
    return found
