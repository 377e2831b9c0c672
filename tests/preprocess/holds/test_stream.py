"""The one pass over all events agrees with the plain per-job reading, and can be taken up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC
from pathlib import Path

import numpy as np
import pytest
from leakcheck import small_blocks

from condor_advice.gather.clock import Clock
from condor_advice.gather.collect import Collector
from condor_advice.gather.sequences import read_log, sequences
from condor_advice.gather.store import Store
from condor_advice.preprocess.holds.episodes import hold_episodes, outcome_of
from condor_advice.preprocess.holds.features import FEATURE_NAMES, HOLD_FEATURES
from condor_advice.preprocess.holds.job_numbers import job_parts
from condor_advice.preprocess.holds.labels import LABELS, NO_LABEL, label_of, labels_of
from condor_advice.preprocess.holds.outcomes import OUTCOMES, Outcome
from condor_advice.preprocess.holds.stream import EpisodeBatch, EpisodeStream
from condor_advice.preprocess.holds.tensors import STEP_COLUMNS, TensorSpec, padded
from condor_advice.preprocess.holds.timeline import log_timeline, store_timeline

CLOCK = Clock(UTC)
Key = tuple[int, int, int]


def run(paths: list[Path]) -> tuple[EpisodeStream, list[EpisodeBatch]]:
    stream = EpisodeStream()
    return stream, list(stream.run(log_timeline(paths, CLOCK, names=stream.names)))


def outcomes_by_hold(batches: list[EpisodeBatch]) -> dict[Key, Outcome]:
    key: dict[int, Key] = {}
    found: dict[Key, Outcome] = {}
    for batch in batches:
        for episode in batch.episodes:
            _, cluster, proc = job_parts(int(episode["job"]))
            key[int(episode["episode"])] = (cluster, proc, int(episode["number"]))
        for told in batch.outcomes:
            found[key[int(told["episode"])]] = OUTCOMES[told["outcome"]]
    return found


def outcomes_of_plain_reading(path: Path) -> dict[Key, Outcome]:
    return {
        (sequence.job.cluster, sequence.job.proc, episode.number): outcome_of(episode)
        for sequence in sequences(read_log(path, CLOCK).events())
        for episode in hold_episodes(sequence)
    }


def test_outcomes_agree_with_the_plain_reading_of_each_job(simulated: Callable[..., Path]) -> None:
    log = simulated(300)
    expected = outcomes_of_plain_reading(log)
    with small_blocks(50_000):  # outcomes arrive long after their holds
        _, batches = run([log])
    assert outcomes_by_hold(batches) == expected
    assert {Outcome.SUCCEEDED, Outcome.HELD_SAME, Outcome.NEVER_RELEASED} <= set(expected.values())


def test_outcomes_of_real_holds_agree_with_the_plain_reading(shared: Path) -> None:
    logs = [
        p
        for p in sorted((shared / "pool" / "samples").glob("*.log"))
        if b"\n012 (" in p.read_bytes()
    ]
    for log in logs:
        assert outcomes_by_hold(run([log])[1]) == outcomes_of_plain_reading(log), log.name
    assert len(logs) > 10


def test_labels_never_come_from_censored_episodes() -> None:
    censored = {Outcome.REMOVED, Outcome.NEVER_RELEASED, Outcome.UNKNOWN}
    assert set(LABELS) | censored == set(Outcome)
    assert not set(LABELS) & censored
    for index, outcome in enumerate(OUTCOMES):
        label = labels_of(np.array([index]), np.array([False]))[0]
        assert (label == NO_LABEL) == (outcome in censored)
        assert label_of(outcome) == (None if outcome in censored else label)


def test_features_have_unique_names_units_and_sources() -> None:
    assert len(set(FEATURE_NAMES)) == len(FEATURE_NAMES)
    for feature in HOLD_FEATURES:
        assert feature.meaning, feature.name
        assert feature.source, feature.name
    assert len({column.name for column in STEP_COLUMNS}) == len(STEP_COLUMNS)


LOG = """000 (001.000.000) 2026-03-02 10:00:00 Job submitted from host: <10.0.0.1:9618>
...
001 (001.000.000) 2026-03-02 10:01:00 Job executing on host: <10.0.1.1:9618>
\tSlotName: slot1_1@ep1
...
006 (001.000.000) 2026-03-02 10:01:30 Image size of job updated: 2048
\t900  -  MemoryUsage of job (MB)
\t900000  -  ResidentSetSize of job (KB)
...
012 (001.000.000) 2026-03-02 10:05:00 Job was held.
\tError from slot1_1@ep1: Job has gone over memory limit of 1024 MB. Peak usage: 1536 MB.
\tCode 34 Subcode 0
...
013 (001.000.000) 2026-03-02 10:10:00 Job was released.
\tvia condor_release (by user anna)
...
012 (001.000.000) 2026-03-02 10:12:00 Job was held.
\tError from slot1_2@ep1: Job has gone over memory limit of 1024 MB. Peak usage: 1600 MB.
\tCode 34 Subcode 0
...
013 (001.000.000) 2026-03-02 11:00:00 Job was released.
\tThe job attribute PeriodicRelease expression 'true' evaluated to TRUE
...
001 (001.000.000) 2026-03-02 11:01:00 Job executing on host: <10.0.1.2:9618>
\tSlotName: slot1_1@ep2
...
005 (001.000.000) 2026-03-02 11:30:00 Job terminated.
\t(1) Normal termination (return value 0)
...
000 (002.000.000) 2026-03-02 11:31:00 Job submitted from host: <10.0.0.1:9618>
...
012 (002.000.000) 2026-03-02 11:32:00 Job was held.
\tError from slot1_7@ep1: Job has gone over memory limit of 512 MB. Peak usage: 600 MB.
\tCode 34 Subcode 0
...
"""


@pytest.fixture
def three_holds(tmp_path: Path) -> dict[str, list[float]]:
    """Features of the three holds above, by name."""
    log = tmp_path / "three.log"
    log.write_text(LOG)
    _, batches = run([log])
    table = np.concatenate([batch.features for batch in batches])
    return {name: table[:, column].tolist() for column, name in enumerate(FEATURE_NAMES)}


def test_features_say_what_happened(three_holds: dict[str, list[float]]) -> None:
    def first(name: str) -> float:
        return three_holds[name][0]

    assert (first("hold_code"), first("hold_subcode"), first("hold_number")) == (34, 0, 1)
    assert (first("hold_used_mb"), first("hold_limit_mb"), first("hold_used_over_limit")) == (
        1536,
        1024,
        1.5,
    )
    assert (first("job_age"), first("job_wait_for_start"), first("job_run_last")) == (300, 60, 240)
    assert (first("job_memory_peak"), first("job_starts"), first("job_points")) == (900, 1, 1)
    assert np.isnan(first("past_since_hold"))
    assert np.isnan(first("job_memory_request"))
    assert np.isnan(first("owner_hold_1h"))  # nobody said whose job it is
    second = {name: values[1] for name, values in three_holds.items()}
    assert (second["past_since_hold"], second["past_since_release"], second["past_held"]) == (
        420,
        120,
        300,
    )
    assert (second["past_quick_holds"], second["past_starts_since_release"]) == (0, 0)
    assert (second["past_holds_same_template"], second["past_releases_by_user"]) == (1, 1)


def test_an_outcome_is_known_only_from_the_event_that_decides_it(
    three_holds: dict[str, list[float]],
) -> None:
    # The second hold itself tells that the first release ended badly; at 11:30 the second
    # release is known to have ended well, and the third hold sees both.
    assert three_holds["template_bad_total"] == [0, 1, 1]
    assert three_holds["template_good_total"] == [0, 0, 1]
    assert np.isnan(three_holds["template_last_outcome"][0])
    assert three_holds["template_last_outcome"][1:] == [0, 1]
    assert three_holds["template_quick_1h"] == [0, 1, 0]
    assert three_holds["point_hold_total"] == [1, 2, 3]
    assert three_holds["share_on_point_1h"] == [1, 1, 1]
    assert three_holds["pool_success_rate"] == pytest.approx([2 / 4, 2 / 5, 3 / 6])


def test_the_last_row_of_a_tensor_is_the_hold_and_padding_is_in_front(tmp_path: Path) -> None:
    log = tmp_path / "three.log"
    log.write_text(LOG)
    _, [batch] = run([log])
    spec = TensorSpec(max_steps=5)
    tensor = padded(batch.steps, batch.offsets, spec.max_steps)
    assert tensor.shape == (3, 5, spec.num_features)
    assert tensor[:, -1, spec.column("is_held")].tolist() == [1, 1, 1]
    assert tensor[:, -1, spec.column("before_hold")].tolist() == [0, 0, 0]
    assert np.count_nonzero(tensor[0, 0]) == 0
    assert tensor[0, 1, spec.column("is_submit")] == 1
    assert tensor[0, 3, spec.column("memory")] == pytest.approx(np.log1p(900))


def write(path: Path, *events: str) -> Path:
    path.write_text("".join(f"{event}\n...\n" for event in events))
    return path


def test_logs_without_holds_have_no_episodes(tmp_path: Path) -> None:
    log = write(tmp_path / "a.log", "000 (001.000.000) 2026-03-02 10:00:00 Job submitted")
    stream, [batch] = run([log])
    assert len(batch.episodes) == len(batch.features) == len(batch.outcomes) == 0
    assert stream.counts["holds"] == 0
    stream, batches = run([write(tmp_path / "empty.log")])
    assert batches == []


def test_odd_input_is_counted_and_survived(tmp_path: Path) -> None:
    held = "012 (007.000.000) {} Job was held.\n\tno reason\n\tCode 3 Subcode 0"
    log = write(
        tmp_path / "odd.log",
        held.format("2026-03-02 10:00:00"),  # submit never seen
        held.format("2026-03-02 10:00:00"),  # written twice
        "013 (007.000.000) 2026-03-02 09:59:00 Job was released.",  # out of order
        "005 (007.000.000) 2026-03-01 07:00:00 Job terminated.\n"  # the clock was set back
        "\t(0) Abnormal termination (signal 9)",
        "012 (-01.-01.-01) 2026-03-01 07:00:00 Job was held.",  # of no job
    )
    stream, batches = run([log])
    counts = stream.counts
    assert (counts["holds"], counts["duplicates"], counts["submits_not_seen"]) == (1, 1, 1)
    assert (counts["out_of_order"], counts["clock_steps"]) == (2, 1)
    assert outcomes_by_hold(batches) == {(7, 0, 1): Outcome.FAILED}
    table = batches[0].features
    assert np.isnan(table[0, FEATURE_NAMES.index("job_age")])
    assert not np.isinf(table).any()


def test_years_before_1970_do_no_harm(tmp_path: Path) -> None:
    # An unpacked log without years may be dated 1970 itself; then its year is guessed as 1969.
    log = tmp_path / "old.log"
    log.write_text(LOG.replace("2026-", "1969-"))
    _, [batch] = run([log])
    then = batch.features
    log.write_text(LOG)
    _, [batch] = run([log])
    same = [n for n in FEATURE_NAMES if not n.startswith("hold_weekday")]
    columns = [FEATURE_NAMES.index(name) for name in same]
    assert then[:, columns].tobytes() == batch.features[:, columns].tobytes()


def test_a_cluster_id_that_is_submitted_again_begins_another_life(tmp_path: Path) -> None:
    submit = "000 (001.000.000) 2026-03-02 {} Job submitted from host: <10.0.0.1:9618>"
    held = "012 (001.000.000) 2026-03-02 {} Job was held.\n\tran too long\n\tCode 3 Subcode 0"
    log = write(
        tmp_path / "lives.log",
        submit.format("10:00:00"),
        held.format("10:01:00"),
        submit.format("11:00:00"),
        held.format("11:01:00"),
    )
    stream, [batch] = run([log])
    assert batch.episodes["number"].tolist() == [1, 1]
    assert [OUTCOMES[o] for o in batch.outcomes["outcome"]] == [Outcome.NEVER_RELEASED] * 2
    assert stream.counts["jobs"] == 2


def test_the_same_events_from_two_logs_count_once(
    simulated: Callable[..., Path], tmp_path: Path
) -> None:
    log = simulated(300)
    copy = tmp_path / "copy.log"
    copy.write_bytes(log.read_bytes())
    _, once = run([log])
    stream, twice = run([log, copy])
    features = [np.concatenate([batch.features for batch in batches]) for batches in (once, twice)]
    assert features[0].tobytes() == features[1].tobytes()
    assert stream.counts["duplicates"] * 2 == stream.counts["events"]


def test_a_saved_pass_goes_on_where_it_was(simulated: Callable[..., Path], tmp_path: Path) -> None:
    data = simulated(300, ads=True).read_bytes()
    log, path = tmp_path / "EventLog", tmp_path / "store.sqlite"
    state = tmp_path / "pass.npz"
    after: dict[str, tuple[int, int]] = {}
    stream, found = EpisodeStream(), []
    for share in (0.2, 0.5, 1.0):
        end = data.rfind(b"...\n", 0, int(share * len(data)) + 4) + 4
        log.write_bytes(data[:end])
        with Store(path) as store:
            Collector(store, [str(log)], access_point="ap", clock=CLOCK).read()
        with Store(path, readonly=True) as store:
            if state.exists():
                stream, after = EpisodeStream.load(state)
            found += list(stream.run(store_timeline(store, after, stream.names)))
        stream.save(state, after)
    assert state.stat().st_mode & 0o777 == 0o600
    _, whole = run([log])
    for name in ("features", "steps"):
        parts = [np.concatenate([getattr(b, name) for b in batches]) for batches in (found, whole)]
        assert parts[0].tobytes() == parts[1].tobytes()
    assert outcomes_by_hold(found) == outcomes_by_hold(whole)


def test_memory_stays_flat(simulated: Callable[..., Path]) -> None:
    stream = EpisodeStream()
    sizes = []
    with small_blocks(100_000):
        for _ in stream.run(log_timeline([simulated(3000, seed=9)], CLOCK, names=stream.names)):
            sizes.append(len(stream.live) + len(stream.unheld))
    # The simulation submits at a steady rate: what is live late is as much as early.
    assert max(sizes[len(sizes) // 2 :]) < 0.6 * stream.counts["events"]
    outcomes = Counter(np.sign(sizes))
    assert outcomes[1] >= len(sizes) - 1


def test_reports_of_the_image_size_go_whatever_the_batches(
    event_log: Callable[[str], Path], tmp_path: Path
) -> None:
    log = event_log("missing_output.log").read_text()
    events = log.split("...\n")[:-1]
    held = next(n for n, event in enumerate(events) if event.startswith("012"))
    head, hold = events[held].split("\n")[0], events[held]
    stamp = head[18:37]
    job, day, hour = head[4:17], stamp[:11], stamp[11:13]
    reports = [
        f"006 {job} {day}{hour}:{second // 60:02d}:{second % 60:02d} Image size of job updated: 9\n"
        f"\t{memory}  -  MemoryUsage of job (MB)\n"
        for memory, second in ((5, 0), (9, 30), (6, 50), (7, 200), (8, 230))
    ]
    path = tmp_path / "log"
    path.write_text("...\n".join([*reports, hold.replace(stamp, f"{day}{hour}:05:00"), ""]))
    [batch] = log_timeline([path], CLOCK).batches()
    found = []
    for size in (1, 2, 3, len(batch)):
        stream = EpisodeStream()
        parts = [batch[at : at + size] for at in range(0, len(batch), size)]
        batches = [stream.advance(part) for part in parts]
        found.append(b"".join(one.steps.tobytes() + one.features.tobytes() for one in batches))
        assert sum(len(one.steps) for one in batches) == 4  # first, two that are fresh, hold
    assert len(set(found)) == 1


def test_a_hold_in_a_second_life_sees_nothing_of_the_first(
    event_log: Callable[[str], Path], tmp_path: Path
) -> None:
    events = event_log("missing_output.log").read_text().split("...\n")[:-1]
    held = next(n for n, event in enumerate(events) if event.startswith("012"))
    year = events[0][18:22]
    later = [event.replace(f" {year}-", f" {int(year) + 1}-") for event in events[: held + 1]]
    path = tmp_path / "log"
    path.write_text("...\n".join([*events[:held], *later, ""]))
    [batch] = log_timeline([path], CLOCK).batches()
    found = set()
    for size in (1, 2, 3, held, len(batch)):
        stream = EpisodeStream()
        parts = [batch[at : at + size].copy() for at in range(0, len(batch), size)]
        batches = [stream.advance(part) for part in parts]
        data = b"".join(one.steps.tobytes() + one.features.tobytes() for one in batches)
        found.add((stream.counts["jobs"], data))
        assert 1 < sum(len(one.steps) for one in batches) <= held + 1
    assert len(found) == 1
