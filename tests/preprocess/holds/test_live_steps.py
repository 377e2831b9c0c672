"""Whatever is put in and taken out again: nothing is lost, doubled or out of order."""

from __future__ import annotations

import numpy as np
import pytest

from condor_advice.preprocess.holds import live_steps as live_steps_module
from condor_advice.preprocess.holds.live_steps import LiveSteps
from condor_advice.preprocess.holds.steps import Steps, empty_steps


def steps_of(jobs: dict[int, list[int]]) -> Steps:
    found = empty_steps(sum(map(len, jobs.values())))
    found["job"] = [job for job, sequence in jobs.items() for _ in sequence]
    found["sequence"] = [number for sequence in jobs.values() for number in sequence]
    return found


def by_job(steps: Steps) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    last = None
    for job, number in zip(steps["job"].tolist(), steps["sequence"].tolist(), strict=True):
        assert job == last or job not in found, "a job's steps are together"
        found.setdefault(job, []).append(number)
        last = job
    return found


@pytest.mark.parametrize("size", [1, 40, 1 << 15])
@pytest.mark.parametrize("seed", range(5))
def test_live_steps_hold_what_was_put_in(
    monkeypatch: pytest.MonkeyPatch, seed: int, size: int
) -> None:
    monkeypatch.setattr(live_steps_module, "CHUNK_STEPS", size)
    rng = np.random.default_rng(seed)
    held, there, number = LiveSteps(), dict[int, list[int]](), 0
    for _ in range(60):
        news = np.unique(rng.integers(0, 80, rng.integers(0, 25)))
        out = by_job(held.take_out(news))
        assert out == {job: there.pop(job) for job in news.tolist() if job in there}
        for job in news.tolist():
            count = int(rng.integers(1, 4))
            out.setdefault(job, []).extend(range(number, number + count))
            number += count
        held.put(steps_of(out))
        there |= out
        if rng.random() < 0.2:
            even = rng.integers(0, 2)
            held.keep(lambda steps, even=even: steps["job"] % 2 == even)  # type: ignore[misc]
            there = {job: sequence for job, sequence in there.items() if job % 2 == even}
        assert len(held) == sum(map(len, there.values()))
        assert by_job(held.everything()) == there
        assert sorted(held.jobs().tolist()) == sorted(there)


def test_there_are_few_chunks_however_many_batches_come() -> None:
    held = LiveSteps()
    for job in range(5000):
        held.put(steps_of({job: [job]}))
    assert len(held._chunks) == 1
