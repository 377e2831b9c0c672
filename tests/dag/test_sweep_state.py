"""The state loses, doubles and strands no trial, whatever is killed at any time."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from condor_advice.dag.state import SweepState, Trial, TrialState
from condor_advice.dag.sweepfile import Metric
from condor_advice.gather.errors import Unreachable

METRIC = Metric("loss")


def finished(_trials: list[Trial], _trial: Trial) -> tuple[TrialState, str]:
    return TrialState.FINISHED, ""


def test_asking_again_gives_the_same_parameters(tmp_path):
    answers = iter([{"x": 1}, {"x": 2}])
    with SweepState.create(tmp_path, 2) as state:
        first = state.ask(0, lambda _: next(answers))
        again = state.ask(0, lambda _: next(answers))
        other = state.ask(1, lambda _: next(answers))
    assert first.parameters == again.parameters == {"x": 1}
    assert (first.runs, again.runs) == (1, 2)
    assert other.parameters == {"x": 2}


def test_a_search_sees_results_and_running_trials(tmp_path):
    with SweepState.create(tmp_path, 3) as state:
        state.ask(0, lambda _: {"x": 1})
        state.tell(0, {1: {"loss": 0.5}, 2: {"loss": 0.25}}, finished)
        state.ask(1, lambda _: {"x": 2})
        seen: list[Trial] = []
        state.ask(2, lambda trials: seen.extend(trials) or {"x": 3})
    known = [trial.known(METRIC) for trial in seen]
    assert [(k.number, k.best, k.running) for k in known] == [(0, 0.25, False), (1, None, True)]


def test_reporting_twice_changes_nothing(tmp_path):
    with SweepState.create(tmp_path, 1) as state:
        state.ask(0, lambda _: {"x": 1})
        first = state.tell(0, {1: {"loss": 0.5}}, finished)
        second = state.tell(0, {1: {"loss": 9.0}}, finished)
        asked = state.ask(0, lambda _: pytest.fail("a trial that is over is not asked for"))
    assert first == second == asked


def test_each_job_counts_as_one_failure_however_often_it_is_reported(tmp_path):
    with SweepState.create(tmp_path, 1) as state:
        state.ask(0, lambda _: {"x": 1})
        for _ in range(5):
            trial = state.tell_failure(0, "12.0", "exit status 1", allowed=2)
        assert (trial.state, trial.failures) == (TrialState.RUNNING, 1)
        state.tell_failure(0, "13.0", "exit status 1", allowed=2)
        trial = state.tell_failure(0, "14.0", "exit status 1", allowed=2)
        assert (trial.state, trial.failures) == (TrialState.FAILED, 3)
        assert state.reopen() == 1
        again = state.ask(0, lambda _: pytest.fail("its parameters are kept"))
    assert (again.state, again.failures, again.parameters) == (TrialState.RUNNING, 0, {"x": 1})


def test_a_search_that_fails_leaves_the_state_as_it_was(tmp_path):
    with SweepState.create(tmp_path, 1) as state:
        before = state.trials()
        with pytest.raises(ZeroDivisionError):
            state.ask(0, lambda _: {"x": 1 / 0})
        assert state.trials() == before
        assert state.ask(0, lambda _: None).state is TrialState.SKIPPED


def test_a_directory_without_a_sweep_says_so(tmp_path):
    with pytest.raises(Unreachable, match=r"no sweep here .*sweep init"):
        SweepState(tmp_path)


# A worker does what DAGMan's scripts do for its trials, over and over, and logs the parameters
# it gets. Parameters come from a counter in the state itself, so two trials with the same ones
# mean a doubled proposal.
WORKER = """
import sys, time
from pathlib import Path
from condor_advice.dag.state import SweepState, TrialState
directory, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
for number in range(first, last):
    with SweepState(directory) as state:
        trial = state.ask(number, lambda trials: {"x": len(trials)})
    with open(directory / f"given-{number}", "a") as file:
        file.write(f"{trial.parameters['x']}\\n")
    with SweepState(directory) as state:
        state.tell(number, {1: {"loss": 1.0}}, lambda trials, trial: (TrialState.FINISHED, ""))
    print(number, flush=True)
"""


def start_worker(directory: Path, first: int, last: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(directory), str(first), str(last)],
        stdout=subprocess.PIPE,
    )


def check_all_told_once(directory: Path, count: int) -> None:
    with SweepState(directory) as state:
        trials = state.trials()
    assert {trial.state for trial in trials} == {TrialState.FINISHED}
    taken = Counter(trial.parameters["x"] for trial in trials)
    assert sorted(taken) == list(range(count)), "every proposal was handed out once"
    for trial in trials:
        given = (directory / f"given-{trial.number}").read_text().split()
        assert set(given) == {str(trial.parameters["x"])}, "a trial always has the same parameters"


def test_scripts_at_the_same_time_take_turns(tmp_path):
    SweepState.create(tmp_path, 40).close()
    workers = [start_worker(tmp_path, first, first + 20) for first in (0, 20)]
    for worker in workers:
        assert worker.wait(timeout=120) == 0
    check_all_told_once(tmp_path, 40)


def test_scripts_killed_anywhere_lose_and_double_nothing(tmp_path):
    count, kills, done = 60, 0, 0
    SweepState.create(tmp_path, count).close()
    draws = random.Random(1)
    while done < count:
        # Start one trial before the last reported one, so that some ask and report again.
        with start_worker(tmp_path, max(0, done - 1), count) as worker:
            # Wait until it has reported a trial, then kill it somewhere in the next one.
            for _ in range(draws.randrange(1, 8)):
                told = worker.stdout.readline()
                done = int(told) + 1 if told else done
            if not told:  # the worker has finished
                assert worker.wait(timeout=60) == 0
                continue
            time.sleep(draws.uniform(0, 0.02))
            os.kill(worker.pid, signal.SIGKILL)
            kills += 1
    assert kills >= 5, "the test proves nothing unless something was killed"
    check_all_told_once(tmp_path, count)
