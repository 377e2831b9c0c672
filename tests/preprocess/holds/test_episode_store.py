"""Hold episodes kept in the store are those of a fresh pass, whatever happened in between."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC
from pathlib import Path

import numpy as np
import pytest
from leakcheck import small_blocks

from condor_advice.gather import store as store_module
from condor_advice.gather.clock import Clock
from condor_advice.gather.collect import Collector
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.fresh import FreshBlocks
from condor_advice.gather.store import Store
from condor_advice.preprocess.holds import keeper as keeper_module
from condor_advice.preprocess.holds import timeline as timeline_module
from condor_advice.preprocess.holds.episode_store import (
    KeptEpisodes,
    kept_of,
    pack_features,
    pack_steps,
    unpack_features,
    unpack_steps,
)
from condor_advice.preprocess.holds.facts import Moment
from condor_advice.preprocess.holds.job_numbers import job_parts
from condor_advice.preprocess.holds.keeper import EpisodeKeeper
from condor_advice.preprocess.holds.known import Tally
from condor_advice.preprocess.holds.outcomes import OUTCOMES
from condor_advice.preprocess.holds.samples import Samples, collect
from condor_advice.preprocess.holds.timeline import log_timeline

CLOCK = Clock(UTC)


def gather(store: Store, log: Path) -> None:
    Collector(store, [str(log)], access_point="ap", clock=CLOCK).read()


def same(one: Samples, other: Samples) -> None:
    # Numbers of names are given in the order of reading; the names themselves must agree.
    for column, kind in (("point", "points"), ("owner", "owners")):
        assert named(one, column, kind) == named(other, column, kind)
    assert unnamed(one) == unnamed(other)
    assert one.features.tobytes() == other.features.tobytes()
    assert one.steps.tobytes() == other.steps.tobytes()
    assert one.offsets.tolist() == other.offsets.tolist()
    assert one.outcomes.tobytes() == other.outcomes.tobytes()
    assert one.names.templates == other.names.templates
    assert named_ends(one) == named_ends(other)


def named_ends(samples: Samples) -> list[tuple[object, ...]]:
    names = {number: name for name, number in samples.names.points.items()}
    ends = samples.ends
    points = [names.get(number) for number in ends["point"].tolist()]
    columns = (ends[name].tolist() for name in ("cluster", "sequence", "time", "good"))
    return list(zip(*columns, points, strict=True))


def named(samples: Samples, column: str, kind: str) -> list[str | None]:
    names = {number: name for name, number in getattr(samples.names, kind).items()}
    return [names.get(number) for number in samples.episodes[column].tolist()]


def unnamed(samples: Samples) -> bytes:
    episodes = samples.episodes.copy()
    episodes["point"] = episodes["owner"] = 0
    return episodes.tobytes()


def cuts(data: bytes, count: int) -> list[int]:
    ends = [data.rfind(b"...\n", 0, len(data) * n // count) + 4 for n in range(1, count)]
    return [*ends, len(data)]


def test_what_is_kept_piece_by_piece_equals_a_fresh_pass(
    simulated: Callable[..., Path], tmp_path: Path
) -> None:
    data = simulated(400, ads=True).read_bytes()
    log = tmp_path / "EventLog"
    for number, end in enumerate(cuts(data, 6)):
        log.write_bytes(data[:end])
        with Store(tmp_path / "store.sqlite") as store:
            gather(store, log)
            # Every other process forgets to save the state of its pass, as if it was killed.
            KeptEpisodes(store).take_up(final=number % 2 == 0)
    with Store(tmp_path / "store.sqlite", readonly=True) as store:
        found, kept_sizes = kept_of(store).samples(), sizes(kept_of(store))
    fresh = collect(log_timeline([log], CLOCK, "ap"))
    assert len(fresh) > 50
    same(found, fresh)
    whole = KeptEpisodes.of_timeline(log_timeline([log], CLOCK, "ap"))
    assert kept_sizes == sizes(whole) != []


def sizes(kept: KeptEpisodes) -> list[tuple[int, bytes, int]]:
    found: list[tuple[int, bytes, int]] = kept._tables.rows("SELECT * FROM kept_sizes ORDER BY kin")
    return found


def test_a_clock_that_was_set_back_is_followed_across_processes(
    event_log: Callable[[str], Path], tmp_path: Path
) -> None:
    first = event_log("missing_input.log").read_text()
    later = event_log("released_and_held_again.log").read_text()
    back = first.replace("2026-", "2025-")
    log = tmp_path / "EventLog"
    text = ""
    for part in (later, back, back.replace("(", "(1")):
        text += part
        log.write_text(text)
        with Store(tmp_path / "store.sqlite") as store:
            gather(store, log)
            KeptEpisodes(store).take_up()
    with Store(tmp_path / "store.sqlite", readonly=True) as store:
        same(kept_of(store).samples(), collect(log_timeline([log], CLOCK, "ap")))


def test_an_outcome_that_comes_later_replaces_what_was_known(
    event_log: Callable[[str], Path], tmp_path: Path
) -> None:
    whole = event_log("released_and_succeeded.log").read_bytes()
    held = whole.index(b"...\n", whole.index(b"\n012 (")) + 4
    log = tmp_path / "job.log"
    outcomes = []
    for end in (held, len(whole)):
        log.write_bytes(whole[:end])
        with Store(tmp_path / "store.sqlite") as store:
            gather(store, log)
            kept = KeptEpisodes(store)
            kept.take_up()
            [job] = {int(number) for number in kept.samples().episodes["job"][:1]}
            found = kept.find(*job_parts(job)[1:])
            assert found is not None
            outcomes.append((OUTCOMES[found.outcome].value, found.is_open))
            assert found.reason
            still = [one.episode for one in kept.open_holds()]
            assert (found.episode in still) is found.is_open
    assert outcomes == [("never_released", True), ("succeeded", False)]


def test_holds_are_found_by_job_and_number(
    event_log: Callable[[str], Path], tmp_path: Path
) -> None:
    log = event_log("released_and_held_again.log")
    kept = KeptEpisodes.of_timeline(log_timeline([log], CLOCK, "ap"))
    fresh = collect(log_timeline([log], CLOCK, "ap"))
    _, cluster, proc = job_parts(int(fresh.episodes["job"][0]))
    last, first = kept.find(cluster, proc), kept.find(cluster, proc, 1)
    assert last is not None
    assert first is not None
    assert (first.number, last.number) == (1, len(fresh))
    assert last.features.tobytes() == fresh.features[-1].tobytes()
    assert last.steps.tobytes() == fresh.tensor(len(fresh) - 1).tobytes()
    assert kept.find(cluster, proc, 99) is None
    assert kept.find(cluster, proc, access_point="elsewhere") is None
    assert kept.latest_of([last.job])[last.job].episode == last.episode
    assert [one.number for one in kept.holds_of(cluster, proc, proc)] == [1, 2]
    named = KeptEpisodes.of_timeline(log_timeline([log], CLOCK, "me@ap1.example.org"))
    for name in ("me@ap1.example.org", "ap1.example.org", "ap1"):
        assert named.find(cluster, proc, access_point=name) is not None
    assert named.find(cluster, proc, access_point="ap") is None
    # What became of the first hold was known at the second, and not before it.
    at_last, at_first = (Moment(one.time_us, one.sequence + 1) for one in (last, first))
    assert kept.known.came_back(last.episode, at_last) == 1
    cases = kept.known.like_cases(last.episode, at_last, (3600.0,), 20)
    assert (cases.as_is, cases.changed) == (Tally(1, 0), Tally(0, 0))
    assert kept.known.like_cases(first.episode, at_first, (3600.0,), 20).as_is == Tally(0, 0)


def test_what_finished_jobs_used_is_kept_for_their_kin(
    event_log: Callable[[str], Path], tmp_path: Path
) -> None:
    log = event_log("completed.log")
    with Store(tmp_path / "store.sqlite") as store:
        gather(store, log)
        kept = KeptEpisodes(store)
        kept.take_up()
        cluster = int(log.read_text()[5:8])
        disk = kept.disk_of_mates(cluster)
        ads = [e.ad for p in store.job_pieces(cluster) for e in p.columns.events("ap")]
        used = [ad["DiskUsage"] / 1024 for ad in ads if ad.get("ReturnValue") == 0]
        assert disk.tolist() == pytest.approx(used)
        assert len(disk) > 0


def test_the_memory_of_kin_is_that_of_those_that_succeeded(simulated: Callable[..., Path]) -> None:
    kept = KeptEpisodes.of_timeline(log_timeline([simulated(300)], CLOCK, "ap"))
    episodes = [kept.find(*job_parts(int(job))[1:]) for job in kept.samples().episodes["job"]]
    sizes = [kept.memory_of_kin(one.kin) for one in episodes if one is not None]
    some = [values for values in sizes if len(values)]
    assert some
    assert all(0 < len(values) <= 64 and (values > 0).all() for values in some)
    assert (kept.overruns() >= 1).all()


def test_numbers_survive_packing_to_the_last_bit() -> None:
    rng = np.random.default_rng(5)
    features = rng.normal(size=(50, 231)).astype(np.float32)
    features[rng.random(features.shape) < 0.4] = 0
    features[rng.random(features.shape) < 0.4] = np.nan
    features[0, :4] = [-0.0, np.inf, -np.inf, np.float32(1e-45)]
    back = unpack_features(pack_features(features), 231)
    assert back.tobytes() == features.tobytes()
    offsets = np.array([0, 3, 3, 50])
    packed = pack_steps(features, offsets)
    assert unpack_steps(packed, [3, 0, 47], 231).tobytes() == features.tobytes()
    assert unpack_features([], 231).shape == (0, 231)
    assert unpack_steps([], [], 7).shape == (0, 7)


def test_a_store_without_kept_episodes_says_how_to_make_them(tmp_path: Path) -> None:
    with (
        Store(tmp_path / "store.sqlite") as store,
        pytest.raises(AdviceError, match="run `condor-advice gather` once"),
    ):
        kept_of(store)


def test_what_another_version_kept_is_made_anew(
    simulated: Callable[..., Path], tmp_path: Path
) -> None:
    log, path = simulated(300), tmp_path / "store.sqlite"
    with Store(path) as store:
        gather(store, log)
        count = KeptEpisodes(store).take_up()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE kept_pass SET made_by = '0 of long ago'")
    with Store(path) as store:
        assert not KeptEpisodes(store).ready
        assert KeptEpisodes(store).take_up() == count > 0
        assert KeptEpisodes(store).take_up() == 0
        same(kept_of(store).samples(), collect(log_timeline([log], CLOCK, "ap")))


def in_pieces(
    data: bytes, directory: Path, monkeypatch: pytest.MonkeyPatch, logs: int
) -> list[Path]:
    """Gather logs in pieces each of which is a batch of its own."""
    monkeypatch.setattr(store_module, "MERGE_BYTES", 0)
    monkeypatch.setattr(timeline_module, "BATCH_STEPS", 1)
    paths = [directory / f"EventLog{number}" for number in range(logs)]
    with Store(directory / "store.sqlite") as store:
        for end in cuts(data, 12):
            for path in paths:
                path.write_bytes(data[:end])
                gather(store, path)
    return paths


@pytest.mark.parametrize("logs", [1, 2])
def test_a_pass_that_is_stopped_anywhere_is_gone_on_with(
    simulated: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: int
) -> None:
    paths = in_pieces(simulated(400).read_bytes(), tmp_path, monkeypatch, logs)
    found, saved = [], []
    for patience in (1, 2, 3, 4, 1000):
        with Store(tmp_path / "store.sqlite") as store:
            kept, asked = KeptEpisodes(store), itertools.count(1)
            found.append(kept.take_up(stop=lambda: next(asked) >= patience))  # noqa: B023
            saved.append(sum(piece for piece, _ in kept._after.values()))
    assert found[-1] > 0
    if logs == 1:
        assert saved == sorted(set(saved)), "each time goes on from where the last one stopped"
    with Store(tmp_path / "store.sqlite", readonly=True) as store:
        same(kept_of(store).samples(), collect(log_timeline(paths, CLOCK, "ap")))


@pytest.mark.parametrize("logs", [1, 2])
def test_a_pass_in_many_short_turns_equals_one(
    simulated: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: int
) -> None:
    paths = in_pieces(simulated(400).read_bytes(), tmp_path, monkeypatch, logs)
    with Store(tmp_path / "store.sqlite") as store:
        kept, turns = KeptEpisodes(store), 0
        while turns == 0 or kept.behind:
            kept.take_up(final=False, seconds=-1.0)
            turns += 1
        assert turns > 5 or logs > 1
        assert kept.take_up() == 0, "nothing is left"
        same(kept_of(store).samples(), collect(log_timeline(paths, CLOCK, "ap")))


@pytest.mark.parametrize("damage", ["cut", "flip in the midst", "no archive", "empty"])
def test_a_state_that_was_damaged_is_worked_out_anew(
    simulated: Callable[..., Path], tmp_path: Path, damage: str
) -> None:
    log, path = simulated(300), tmp_path / "store.sqlite"
    with Store(path) as store:
        gather(store, log)
        KeptEpisodes(store).take_up()
    with sqlite3.connect(path) as db:
        [[state]] = db.execute("SELECT state FROM kept_pass").fetchall()
        middle = len(state) // 2
        bad = {
            "cut": state[:middle],
            "flip in the midst": state[:middle] + b"\xff" * 64 + state[middle + 64 :],
            "no archive": b"no archive at all",
            "empty": b"",
        }
        db.execute("UPDATE kept_pass SET state = ?", (bad[damage],))
    with Store(path) as store:
        KeptEpisodes(store).take_up()
        same(kept_of(store).samples(), collect(log_timeline([log], CLOCK, "ap")))


def test_a_window_of_time_is_cut_by_the_holds_themselves(simulated: Callable[..., Path]) -> None:
    kept = KeptEpisodes.of_timeline(log_timeline([simulated(300)], CLOCK, "ap"))
    whole = kept.samples()
    middle = float(whole.episodes["time"][len(whole) // 2]) / 1e6
    before, after = kept.samples(until=middle), kept.samples(since=middle)
    assert 0 < len(before) < len(whole)
    assert len(before) + len(after) == len(whole)
    assert before.episodes["time"].max() < middle * 1e6 <= after.episodes["time"].min()


@pytest.mark.parametrize("logs", [1, 2])
def test_blocks_taken_from_memory_give_the_same_episodes(
    simulated: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: int
) -> None:
    monkeypatch.setattr(keeper_module, "TURN_BYTES", 1)
    data = simulated(400, ads=True).read_bytes()
    paths = [tmp_path / f"EventLog{number}" for number in range(logs)]
    read: list[int] = []
    with Store(tmp_path / "store.sqlite") as store:
        keeper, pieces = EpisodeKeeper(store), store.pieces
        monkeypatch.setattr(store, "pieces", lambda *a: (read.append(1), pieces(*a))[1])
        for end in cuts(data, 5):
            for path in paths:
                path.write_bytes(data[:end])
            names = [str(path) for path in paths]
            Collector(
                store, names, access_point="ap", clock=CLOCK,
                settle=keeper.settle, stored=keeper.stored,
            ).read()  # fmt: skip
        assert not read, "the store was read although the events were in memory"
        same(kept_of(store).samples(), collect(log_timeline(paths, CLOCK, "ap")))


def test_events_wait_for_the_end_of_a_log_if_the_store_has_another(
    simulated: Callable[..., Path], tmp_path: Path
) -> None:
    """After an upgrade the pass begins anew: both logs must be complete to be merged by time."""
    data = simulated(300).read_bytes()
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(data)
    second.write_bytes(data)
    turns: list[str] = []
    with Store(tmp_path / "store.sqlite") as store:
        for log in (first, second):
            Collector(
                store, [str(log)], access_point="ap", clock=CLOCK,
                stored=lambda name=log.name: turns.append(name),
            ).read()  # fmt: skip
    assert set(turns) == {"first"}


def test_blocks_that_do_not_fit_into_memory_come_from_the_store(
    simulated: Callable[..., Path], tmp_path: Path
) -> None:
    data = simulated(400).read_bytes()
    log = tmp_path / "EventLog"
    with Store(tmp_path / "store.sqlite") as store:
        episodes = KeptEpisodes(store)
        store.fresh = FreshBlocks(max_bytes=len(data) // 3)
        for end in cuts(data, 6):  # two of them fit
            log.write_bytes(data[:end])
            gather(store, log)
        assert 0 < store.fresh.bytes <= len(data) // 3
        episodes.take_up()
        assert store.fresh.bytes == 0
        same(kept_of(store).samples(), collect(log_timeline([log], CLOCK, "ap")))


@pytest.mark.slow
def test_a_follower_killed_at_any_moment_loses_and_doubles_nothing(
    simulated: Callable[..., Path], tmp_path: Path
) -> None:
    data = simulated(400, ads=True).read_bytes()
    log, path = tmp_path / "EventLog", tmp_path / "store.sqlite"
    log.write_bytes(b"")
    command = [
        sys.executable, "-c",
        "import condor_advice.preprocess.holds.keeper as k; k.KEEP_SECONDS = 0.01;"
        "k.KEEP_SHARE = 1.0; from condor_advice.advise.commands.gather import gather; gather()",
        "--follow", "--poll", "--store", str(path), "--access-point", "ap", "--zone", "UTC",
        str(log),
    ]  # fmt: skip
    done = 0
    for round_, end in enumerate(cuts(data, 5)):
        follower = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        with log.open("ab") as file:
            while done < end:
                step = min(end, done + len(data) // 40)
                file.write(data[done:step])
                file.flush()
                done = step
                time.sleep(0.03)
        time.sleep(0.7 + 0.23 * round_)
        os.kill(follower.pid, signal.SIGKILL)
        follower.wait()
    with Store(path) as store:
        gather(store, log)
        KeptEpisodes(store).take_up()
        same(kept_of(store).samples(), collect(log_timeline([log], CLOCK, "ap")))
        whole = KeptEpisodes.of_timeline(log_timeline([log], CLOCK, "ap"))
        assert sizes(kept_of(store)) == sizes(whole)


def test_a_hold_that_waits_for_another_log_keeps_its_reason(
    simulated: Callable[..., Path],
) -> None:
    logs = [simulated(300), simulated(300, seed=4)]
    with small_blocks(20_000):
        kept = KeptEpisodes.of_timeline(log_timeline(logs, CLOCK))
    holds = kept.numbered_holds(1)
    assert len(holds) > 50
    assert all(hold.reason for hold in holds)
