"""History features know what an observer knew at that moment, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from condor_advice.gather.workloads.table import JobState, JobTable, UsageSamples, blocks
from condor_advice.lab.workload import simulate_jobs
from condor_advice.preprocess.jobs import history as history_module
from condor_advice.preprocess.jobs.history import STATE_FIELDS, History
from condor_advice.preprocess.jobs.horizons import (
    Horizon,
    JobDataset,
    JobFeatures,
    Labels,
    TimeSplit,
)

PREDICTIVE = [horizon for horizon in Horizon if horizon is not Horizon.POST_MORTEM]


@pytest.fixture(scope="module")
def table() -> JobTable:
    jobs = simulate_jobs(1500, seed=3)
    rng = np.random.default_rng(0)
    rows = np.sort(rng.integers(0, len(jobs), 2000))
    seconds = jobs["start_time"][rows] + rng.integers(1, 2000, 2000)
    known = np.isfinite(seconds) & (seconds < jobs["end_time"][rows])
    samples = UsageSamples(rows[known], seconds[known], rng.random(int(known.sum())) * 1000.0)
    return replace(jobs, samples=samples).take(np.arange(len(jobs)))


def assert_same_as_when_cut(table: JobTable, moment: float, maker: JobFeatures) -> int:
    """Compare, bit by bit, features asked before `moment` with those of the table as known then."""
    compared = 0
    whole = maker.datasets(table, PREDICTIVE)
    cut = maker.datasets(table.known_at(moment), PREDICTIVE)
    for horizon in PREDICTIVE:
        ours, theirs = (_before(data[horizon], moment) for data in (whole, cut))
        assert np.array_equal(ours.row, theirs.row)
        assert ours.features.tobytes() == theirs.features.tobytes(), (
            f"{horizon}: a feature at a moment changes with what came after it"
        )
        compared += len(ours)
    return compared


def _before(data: JobDataset, moment: float) -> JobDataset:
    return data.take(data.asked < moment)


@pytest.mark.parametrize("share", [0.1, 0.37, 0.8])
def test_features_do_not_change_when_the_future_is_cut_off(table: JobTable, share: float) -> None:
    moment = float(np.quantile(table["submit_time"], share))
    maker = JobFeatures.for_table(table)
    assert assert_same_as_when_cut(table, moment, maker) > 400


def test_a_planted_leak_is_caught(table: JobTable, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = JobFeatures.for_table(table)
    moment = float(np.quantile(table["submit_time"], 0.5))
    honest = history_module._events

    def leaky(facts, questions, first_row):  # type: ignore[no-untyped-def]
        """Let outcomes be known ten minutes before the job ends."""
        early = history_module.Facts(
            facts.keys,
            facts.submit,
            facts.start,
            np.maximum(facts.end - 600.0, facts.submit),
            facts.outcome,
            facts.cpus,
            facts.requested_seconds,
            facts.static,
        )
        return honest(early, questions, first_row)

    monkeypatch.setattr(history_module, "_events", leaky)
    with pytest.raises(AssertionError, match="changes with what came after"):
        assert_same_as_when_cut(table, moment, maker)


def test_a_feature_made_from_the_outcome_is_caught(
    table: JobTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = JobFeatures.for_table(table)
    honest = JobFeatures.facts

    def leaky(self, jobs):  # type: ignore[no-untyped-def]
        facts = honest(self, jobs)
        facts.static[:, 0] = np.nan_to_num(jobs["cpu_seconds"], nan=-1.0)
        return facts

    monkeypatch.setattr(JobFeatures, "facts", leaky)
    with pytest.raises(AssertionError, match="changes with what came after"):
        assert_same_as_when_cut(table, float(np.quantile(table["submit_time"], 0.5)), maker)


def test_streaming_in_blocks_gives_bit_by_bit_what_one_block_gives(table: JobTable) -> None:
    maker = JobFeatures.for_table(table)
    whole = list(maker.stream([table], [Horizon.START]))
    parts = list(maker.stream(blocks(table, 170), [Horizon.START]))
    assert len(whole) == len(parts)
    for one, other in zip(whole, parts, strict=True):
        assert one.features.tobytes() == other.features.tobytes()
        assert np.array_equal(one.row, other.row)


def test_features_are_the_same_whatever_the_step(
    table: JobTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = JobFeatures.for_table(table)
    facts = maker.facts(table)
    rows = np.arange(len(table))
    asked = [history_module.Questions(rows, table["submit_time"], history_module.ASK_AT_SUBMIT)]
    answers = [
        np.concatenate(
            [
                part
                for _, part in history_module.stream(
                    [(facts, asked)], History(maker.levels), events_per_step=step
                )
            ]
        )
        for step in (97, 100_000)
    ]
    assert np.allclose(answers[0], answers[1], rtol=1e-5, atol=1e-6, equal_nan=True)


def test_counts_and_streaks_match_a_plain_loop_over_the_jobs(table: JobTable) -> None:
    small = table.take(np.arange(600))
    maker = JobFeatures.for_table(small)
    data = maker.datasets(small, [Horizon.SUBMIT])[Horizon.SUBMIT]
    label = Labels().of(small)
    user, submit = small.text["user"], small["submit_time"]
    start, end = small["start_time"], small["end_time"]
    for position in range(0, 600, 7):
        row = int(data.row[position])
        now = submit[row]
        mine = user == user[row]
        known = np.flatnonzero(mine & (end < now) & np.isfinite(label))
        known = known[np.lexsort((known, end[known]))]
        outcomes = label[known]
        before = mine & ((submit < now) | ((submit == now) & (np.arange(600) < row)))
        began = before & (start <= now) & ((start < now) | (np.arange(600) < row))
        gone = before & (end < now)

        def value(name: str, position: int = position) -> float:
            return float(data.column(f"user.{name}")[position])

        assert value("outcomes") == pytest.approx(np.log1p(len(known)))
        streak = 0
        for outcome in outcomes[::-1]:
            if not outcome:
                break
            streak += 1
        assert value("failure_streak") == streak
        running = int(np.sum(began & ~gone & np.isfinite(start)))
        queued = int(np.sum(before & ~gone)) - running
        assert value("running") == pytest.approx(np.log1p(running))
        assert value("queued") == pytest.approx(np.log1p(queued))
        if len(known):
            weights = 0.8 ** np.arange(len(known))[::-1]
            assert value("fail_few") == pytest.approx(
                float(np.sum(weights * outcomes) / np.sum(weights)), abs=1e-5
            )
            fade = 0.5 ** ((now - end[known]) / 3600.0)
            if np.sum(fade) > 1e-3:
                assert value("fail_hour") == pytest.approx(
                    float(np.sum(fade * outcomes) / np.sum(fade)), abs=1e-4
                )
            assert (value("fail_last") >= 0.5) == bool(outcomes[-1])


def test_an_outcome_is_not_known_in_the_second_in_which_the_job_ends() -> None:
    table = simulate_jobs(2, seed=1)
    numbers = {name: values.copy() for name, values in table.numbers.items()}
    numbers["submit_time"][:] = [1000.0, 2000.0]
    numbers["start_time"][:] = [1000.0, 2000.0]
    numbers["state"][:] = JobState.FAILED
    text = {name: np.full(2, codes[0]) for name, codes in table.text.items()}
    for end, outcomes in ((1999.0, 1), (1999.9, 1), (2000.0, 0), (2001.0, 0)):
        numbers["end_time"][:] = [end, 3000.0]
        jobs = JobTable(
            table.job,
            {name: values.copy() for name, values in numbers.items()},
            text,
            table.vocabularies,
        )
        maker = JobFeatures.for_table(jobs)
        data = maker.datasets(jobs, [Horizon.SUBMIT])[Horizon.SUBMIT]
        assert data.column("user.outcomes")[1] == pytest.approx(np.log1p(outcomes)), end


def test_only_jobs_still_running_are_asked_about_after_two_minutes(table: JobTable) -> None:
    data = JobFeatures.for_table(table).datasets(table, [Horizon.TWO_MINUTES, Horizon.RUNNING])
    two = data[Horizon.TWO_MINUTES]
    assert np.all(table.run_seconds[two.row] > 120.0)
    assert len(two) == np.sum(table.run_seconds > 120.0)
    running = data[Horizon.RUNNING]
    assert np.all(running.asked < table["end_time"][running.row])


def test_no_feature_of_the_submit_horizon_speaks_of_start_or_age(table: JobTable) -> None:
    names = JobFeatures.for_table(table).names(Horizon.SUBMIT)
    for word in ("execution_point", "log_wait", "log_age", "age_over", "allocated", "over_wait"):
        assert not [name for name in names if word in name]
    later = JobFeatures.for_table(table).names(Horizon.TWO_MINUTES)
    assert {"log_wait", "log_age", "allocated_over_requested"} <= set(later)


def test_a_missing_allocation_looks_like_a_usual_one(table: JobTable) -> None:
    maker = JobFeatures.for_table(table)
    data = maker.datasets(table, [Horizon.START])[Horizon.START]
    assert not maker.cpus_from_allocation
    assert np.all(data.column("allocated_over_requested") == 1.0)


def test_the_last_usage_measured_before_the_question_is_a_feature(table: JobTable) -> None:
    data = JobFeatures.for_table(table).datasets(table, [Horizon.RUNNING])[Horizon.RUNNING]
    samples = table.samples
    assert samples is not None
    memory = np.expm1(data.column("sample.log_memory").astype(np.float64))
    assert np.isfinite(memory).sum() > 50
    for position in range(0, len(data), 11):
        mine = (samples.row == data.row[position]) & (samples.time < data.asked[position])
        if not mine.any():
            assert np.isnan(memory[position])
        else:
            assert memory[position] == pytest.approx(samples.memory_mb[mine][-1], rel=1e-4)


def test_past_and_future_share_no_job_and_the_past_had_ended(table: JobTable) -> None:
    split = TimeSplit.at_share(table, 0.6)
    data = JobFeatures.for_table(table).datasets(table, [Horizon.SUBMIT])[Horizon.SUBMIT]
    past, future = split.past(data), split.future(data)
    assert not np.any(past & future)
    assert np.all(table["end_time"][data.row[past]] < split.moment)
    assert np.all(table["submit_time"][data.row[future]] >= split.moment)
    straddling = (data.submit < split.moment) & (data.end >= split.moment)
    assert np.any(straddling)
    assert not np.any(straddling & (past | future))


def test_a_saved_history_answers_as_the_running_one_would(table: JobTable) -> None:
    maker = JobFeatures.for_table(table)
    seen, new = table.take(np.arange(1499)), table.take([1499])
    moment = float(new["submit_time"][0])
    history = History(maker.levels)
    maker.datasets(seen.known_at(moment), [Horizon.SUBMIT], history)
    restored = History.from_arrays(history.arrays(), maker.levels)
    asked = maker.at_submit(new, restored, moment)
    expected = maker.datasets(table, [Horizon.SUBMIT])[Horizon.SUBMIT]
    wanted = expected.features[expected.row == 1499]
    assert np.allclose(asked.features, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_a_level_forgets_the_keys_that_were_not_used_for_long() -> None:
    jobs = simulate_jobs(1500, seed=5, users=400)
    maker = JobFeatures.for_table(jobs)
    small = History(maker.levels, max_keys=60)
    for _ in history_module.stream([(maker.facts(jobs), [])], small, events_per_step=50):
        pass
    for level in small.levels.values():
        assert len(level.index) <= 60
        assert level.state.shape[1] == len(STATE_FIELDS)
