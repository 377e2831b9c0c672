"""What evidence needs to know of a job: what it runs, how it ran, and whether it was changed."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from leakcheck import small_blocks

from condor_advice.gather.clock import Clock
from condor_advice.gather.events import JobEventType as Kind
from condor_advice.model.held.load import rotations
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.hold_reasons import REPAIR_MARK
from condor_advice.preprocess.holds.job_numbers import cluster_of, job_parts, proc_of
from condor_advice.preprocess.holds.outcomes import Outcome
from condor_advice.preprocess.holds.samples import Samples, collect
from condor_advice.preprocess.holds.steps import stem_of
from condor_advice.preprocess.holds.timeline import LogSource, Timeline, log_blocks, log_timeline

ROOT = Path(__file__).resolve().parents[3]
CLOCK = Clock(UTC)


def write(path: Path, *events: str) -> Path:
    path.write_text("".join(f"{event}\n...\n" for event in events))
    return path


def read(path: Path) -> Samples:
    return collect(log_timeline([path], CLOCK, "ap"))


def unnamed(table: np.ndarray) -> bytes:
    """Return rows without the numbers of names, which are given in the order of reading."""
    table = table.copy()
    for name in {"point", "owner"} & set(table.dtype.names or ()):
        table[name] = 0
    return table.tobytes()


class Job:
    """Writes the events of one job, each with the 028 event behind it."""

    def __init__(self, job: str = "007.001", **ad: object) -> None:
        self.job, self.ad, self.minute = job, {"Owner": '"alice"', **ad}, 0
        self.events: list[str] = []

    def add(self, kind: int, text: str, **changes: object) -> Job:
        self.ad.update(changes)
        self.minute += 1
        when = f"({self.job}.000) 2026-03-02 10:{self.minute:02d}:00"
        ad = "".join(f"\n{name} = {value}" for name, value in self.ad.items())
        self.events += [
            f"{kind:03d} {when} {text}",
            f"028 {when} Job ad information event triggered.{ad}",
        ]
        return self

    def submit(self) -> Job:
        return self.add(0, "Job submitted from host: <10.0.0.1:9618>")

    def start(self, **changes: object) -> Job:
        text = "Job executing on host: <10.0.0.2:9618>\n\tSlotName: slot1@ep1"
        return self.add(1, text, **changes)

    def hold(self, **changes: object) -> Job:
        return self.add(12, "Job was held.\n\tran too long\n\tCode 3 Subcode 0", **changes)

    def release(self, reason: str = "via condor_release (by user alice)", **changes: object) -> Job:
        return self.add(13, f"Job was released.\n\t{reason}", **changes)

    def end(self, status: int = 0) -> Job:
        return self.add(5, f"Job terminated.\n\t(1) Normal termination (return value {status})")


def changed(path: Path, job: Job) -> list[int]:
    found: list[int] = read(write(path, *job.events)).outcomes["changed"].tolist()
    return found


def held_job(**ad: object) -> Job:
    return Job(RequestMemory=128, Cmd='"/home/alice/reco.sh"', **ad).submit().start().hold()


def test_a_release_as_is_is_none_after_a_change(tmp_path: Path) -> None:
    assert changed(tmp_path / "log", held_job().release().start().end()) == [0]


@pytest.mark.parametrize(
    "change",
    [
        {"RequestMemory": 512},
        {"Cmd": '"/home/alice/reco2.sh"'},
        {"Arguments": '"--safe"'},
        {"TransferInput": '"' + "data/part.txt," * 20 + 'b.txt"'},
        {"AllowedExecuteDuration": 7200},
    ],
)
def test_what_is_edited_before_the_next_run_is_a_change(
    tmp_path: Path, change: dict[str, object]
) -> None:
    before = {
        "Arguments": '"--fast"',
        "TransferInput": '"' + "data/part.txt," * 20 + 'a.txt"',
        "AllowedExecuteDuration": 60,
    }
    seen_at_release = held_job(**before).release(**change).start().end()
    assert changed(tmp_path / "log", seen_at_release) == [1]
    assert changed(tmp_path / "log", held_job(**before).release().start(**change).end()) == [1]


def test_what_changes_while_the_job_runs_is_no_change(tmp_path: Path) -> None:
    # RequestDisk is the disk used, unless the owner says otherwise.
    job = held_job(RequestDisk=20).release().start().add(6, "Image size of job updated: 9")
    assert changed(tmp_path / "log", job.hold(RequestDisk=4000).release().start().end()) == [0, 0]


def test_a_change_counts_for_the_hold_before_it_alone(tmp_path: Path) -> None:
    job = held_job().release().start().hold().release(RequestMemory=512).start().end()
    assert changed(tmp_path / "log", job) == [0, 1]


def test_what_is_replaced_in_each_run_is_no_change(tmp_path: Path) -> None:
    job = Job(Cmd='"$$(Software)/reco"').submit().start(Cmd='"/ep1/reco"')
    job.hold(Cmd='"$$(Software)/reco"').release().start(Cmd='"/ep2/reco"').end()
    assert changed(tmp_path / "log", job) == [0]


def test_a_policy_that_is_evaluated_tells_nothing(tmp_path: Path) -> None:
    job = held_job(PeriodicHold="true").release(PeriodicHold="false").start().end()
    assert changed(tmp_path / "log", job) == [0]


@pytest.mark.parametrize(
    ("attribute", "expected"), [("RequestMemory", 1), ("Arguments", 1), ("JobPrio", 0)]
)
def test_an_edit_that_the_log_has_is_a_change(
    tmp_path: Path, attribute: str, expected: int
) -> None:
    text = f"Changing job attribute {attribute} from 1 to 2"
    job = held_job().add(Kind.ATTRIBUTE_UPDATE, text).release().start().end()
    assert changed(tmp_path / "log", job) == [expected]


def test_our_own_release_after_a_repair_is_a_change(tmp_path: Path) -> None:
    fixed = held_job().release(f"{REPAIR_MARK}memory p=0.1 [4711] (by user alice)")
    assert changed(tmp_path / "log", fixed.start().end()) == [1]
    as_is = held_job().release("condor-advice: RELEASE memory p=0.9 [4711] (by user alice)")
    assert changed(tmp_path / "log", as_is.start().end()) == [0]


def test_an_outcome_after_a_change_counts_neither_as_good_nor_as_bad(tmp_path: Path) -> None:
    def counts(*jobs: Job) -> list[float]:
        events = sorted((e for job in jobs for e in job.events), key=lambda event: event[18:37])
        samples = read(write(tmp_path / "log", *events))
        last = int(np.argmax(samples.episodes["sequence"]))
        names = ("template_hold_total", "template_good_total", "template_bad_total")
        return [float(samples.features[last, FEATURE_NAMES.index(name)]) for name in names]

    later = Job("009.001")
    later.minute = 30
    later.submit().start().hold()
    as_is = held_job().release().start().end()
    repaired = held_job().release(RequestMemory=512).start().end()
    repaired_in_vain = held_job().release(RequestMemory=512).start().end(1)
    assert counts(as_is, later) == [2, 1, 0]
    assert counts(repaired, later) == [2, 0, 0]
    assert counts(repaired_in_vain, later) == [2, 0, 0]


def test_a_hold_knows_its_program_its_batch_and_its_last_run(tmp_path: Path) -> None:
    def first_hold(name: str, **ad: object) -> np.void:
        job = Job(name, **ad).submit().start().hold().release().hold().release().start().hold()
        return read(write(tmp_path / "log", *job.events)).episodes

    one = first_hold("001.001", Cmd='"/a/reco.sh"', JobBatchName='"reco-2026-03-02"')
    assert one["run"].tolist() == [60, -1, 60]
    assert one["starts"].tolist() == [1, 1, 2]
    submitted = datetime(2026, 3, 2, 10, 1, tzinfo=UTC).timestamp() * 1e6
    assert one["submitted"].tolist() == [submitted] * 3
    again = first_hold("002.001", Cmd='"/b/reco.sh"', JobBatchName='"reco-2026-04-11"')
    for name in ("program", "stem"):
        assert len({*one[name].tolist(), *again[name].tolist()}) == 1
        assert one[name][0] != 0
    others = first_hold("003.001", Cmd='"/a/reco.sh"', JobBatchName='"reco-1"', Owner='"bob"')
    assert others["program"][0] not in (0, one["program"][0])
    assert others["stem"][0] not in (0, one["stem"][0])
    unknown = first_hold("004.001")
    assert unknown["program"].tolist() == unknown["stem"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("batch", "stem"),
    [
        ("reco-2026-03-02", "reco"),
        ("reco_12", "reco"),
        ("my.dag+4711", "my.dag"),
        ("sim.20260302T101500Z", "sim"),
        ("fit Z", "fit Z"),
        ("2026", ""),
        ("", ""),
    ],
)
def test_the_stem_of_a_batch_name_has_no_number_and_no_date(batch: str, stem: str) -> None:
    assert stem_of(batch) == stem


def test_a_batch_name_in_a_submit_note_has_the_stem_it_has_in_an_ad(tmp_path: Path) -> None:
    note = 'Job submitted from host: <10.0.0.1:9618>\n    [ JobBatchName = "reco-7" ]'
    noted = Job("001.001").add(0, note).start().hold()
    named = Job("002.001", JobBatchName='"reco-8"').submit().start().hold()
    samples = read(write(tmp_path / "log", *noted.events, *named.events))
    first, second = samples.episodes["stem"].tolist()
    assert first == second != 0


def test_ends_are_those_of_jobs_that_were_never_held(simulated: Callable[..., Path]) -> None:
    log = simulated(400)
    samples = read(log)
    blocks = list(log_blocks(log, CLOCK))
    held: set[tuple[int, int]] = set()
    expected = []
    for block in blocks:
        for row in range(len(block)):
            job = int(block.cluster[row]), int(block.proc[row])
            if block.type[row] == Kind.JOB_HELD:
                held.add(job)
            if block.type[row] == Kind.JOB_TERMINATED and job[1] > 0 and job not in held:
                good = block.ad(row).get("ReturnValue") == 0
                expected.append((job[0], int(block.time_us[row]), good))
    ends = samples.ends
    found = zip(ends["cluster"].tolist(), ends["time"].tolist(), ends["good"] == 1, strict=True)
    assert sorted(found) == sorted(expected)
    assert len(expected) > 50
    assert (np.diff(ends["sequence"]) > 0).all()
    with small_blocks(20_000):
        assert unnamed(read(log).ends) == unnamed(ends)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("recording")
    with tarfile.open(ROOT / "lab" / "recordings" / "pool_a.tar.xz") as tar:
        tar.extractall(directory, filter="data")
    return directory / "pool_a"


def read_recording(recording: Path) -> Samples:
    files = rotations(recording / "events" / "EventLog")
    blocks = (block for file in files for block in log_blocks(file, CLOCK))
    return collect(Timeline([LogSource("EventLog", "ap", blocks)]))


def test_changes_that_a_real_log_tells_of_are_repairs_that_were_made(recording: Path) -> None:
    samples = read_recording(recording)
    repaired = set()
    for line in (recording / "truth.jsonl").read_text().splitlines():
        job = json.loads(line)
        if job["fixed"]:
            repaired.add((job["cluster"], job["proc"]))
    told = np.flatnonzero(samples.outcomes["changed"])
    jobs = [job_parts(int(samples.episodes["job"][row]))[1:] for row in told]
    assert len(told) > 50
    assert set(jobs) <= repaired
    succeeded = [samples.outcome(row) is Outcome.SUCCEEDED for row in told.tolist()]
    assert np.mean(succeeded) > 0.5, "repairs help"
    with small_blocks(100_000):
        again = read_recording(recording)
    assert again.outcomes.tobytes() == samples.outcomes.tobytes()
    assert unnamed(again.episodes) == unnamed(samples.episodes)
    assert unnamed(again.ends) == unnamed(samples.ends)
    assert proc_of(samples.episodes["job"]).max() > 0
    assert len(np.intersect1d(samples.ends["cluster"], cluster_of(samples.episodes["job"]))) > 0
