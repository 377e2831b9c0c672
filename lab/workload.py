"""Simulated job tables with habits, bursts and bad days, for tests and benchmarks.

Nothing here is fitted to real data. The tables have what a causal history must cope with: jobs
that end long after others were submitted, equal times, jobs that never start, and outcomes
that depend on the user's recent past.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from condor_advice.gather.workloads.table import (
    NUMBER_COLUMNS,
    TEXT_COLUMNS,
    JobState,
    JobTable,
    Vocabulary,
    concatenate,
    new_vocabularies,
)

FIRST_SUBMIT = 1_700_000_000.0
REQUESTS_SECONDS = np.array([600.0, 3600.0, 14400.0, 86400.0])
PROGRAMS_PER_USER = 4


def simulate_jobs(count: int, seed: int = 0, users: int = 40) -> JobTable:
    """Return `count` jobs in submit order."""
    return concatenate(list(simulated_blocks(count, seed, users, block=count)))


def simulated_blocks(
    count: int,
    seed: int = 0,
    users: int = 40,
    block: int = 20_000,
) -> Iterator[JobTable]:
    """Yield `count` jobs in blocks, with one block in memory at a time."""
    rng = np.random.default_rng(seed)
    vocabularies = new_vocabularies()
    clock = FIRST_SUBMIT
    for first in range(0, count, block):
        size = min(block, count - first)
        table = _block(rng, size, users, clock, first, vocabularies)
        clock = float(table["submit_time"][-1])
        yield table


def _block(
    rng: np.random.Generator,
    size: int,
    users: int,
    clock: float,
    first: int,
    vocabularies: dict[str, Vocabulary],
) -> JobTable:
    # Bursts: one user submits a handful of similar jobs within seconds.
    burst = np.repeat(np.arange(size), rng.integers(1, 9, size))[:size]
    user = rng.integers(0, users, size)[burst]
    program = rng.integers(0, PROGRAMS_PER_USER, size)[burst]
    gap = np.where(
        np.r_[True, burst[1:] != burst[:-1]], rng.exponential(400.0, size), rng.integers(0, 3, size)
    )
    submit = np.floor(clock + np.cumsum(gap))
    request = REQUESTS_SECONDS[(user + program) % len(REQUESTS_SECONDS)]
    cpus = 2.0 ** ((3 * user + program) % 4)
    wait = np.floor(rng.exponential(900.0, size))
    # A program is good or broken for about a day at a time.
    day = np.floor(submit / 86400.0)
    broken = np.sin(12.9898 * user + 78.233 * program + 37.719 * day) > 0.55
    failed = rng.random(size) < np.where(broken, 0.85, 0.06)
    run = np.floor(
        np.where(
            failed & (rng.random(size) < 0.6),
            rng.exponential(90.0, size),
            request * rng.beta(2.0, 5.0, size),
        )
    )
    late = failed & (rng.random(size) < 0.2)
    run = np.where(late, request, run)
    never = rng.random(size) < 0.03
    state = np.where(failed, JobState.FAILED, JobState.SUCCEEDED).astype(np.float64)
    state[late] = JobState.TIMEOUT
    state[never] = JobState.CANCELLED
    start = np.where(never, np.nan, submit + wait)
    memory = 500.0 * (1.0 + program) * rng.lognormal(0.0, 0.2, size)
    numbers = {
        "submit_time": submit,
        "start_time": start,
        "end_time": np.where(never, submit + wait, start + run),
        "state": state,
        "requested_cpus": cpus,
        "requested_seconds": request,
        "requested_memory_mb": 1000.0 * (1.0 + program),
        "requested_disk_mb": np.full(size, 1024.0),
        "allocated_cpus": np.where(never, np.nan, cpus),
        "cpu_seconds": np.where(never, np.nan, 0.9 * run),
        "used_memory_mb": np.where(never, np.nan, memory),
        "used_disk_mb": np.where(never, np.nan, 100.0 + 0.1 * memory),
    }
    names = {
        "user": [f"user{number}" for number in user],
        "group": [f"group{number % 5}" for number in user],
        "executable": [
            f"/home/user{owner}/bin/step{step}.sh"
            for owner, step in zip(user, program, strict=True)
        ],
        "queue": ["vanilla"] * size,
        "execution_point": [
            "" if never_started else f"ep{number}"
            for never_started, number in zip(never, rng.integers(0, 12, size), strict=True)
        ],
    }
    empty = np.full(size, np.nan)
    unknown = np.full(size, -1, dtype=np.int32)
    text = {
        name: np.array([vocabularies[name].code(word) for word in words], dtype=np.int32)
        for name, words in names.items()
    }
    return JobTable(
        np.arange(first, first + size).astype(np.str_),
        {name: numbers.get(name, empty) for name in NUMBER_COLUMNS},
        {name: text.get(name, unknown) for name in TEXT_COLUMNS},
        vocabularies,
    )
