"""The hook in a program: it saves when due, and never is the cause of a failure."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from condor_checkpoint import AsyncCheckpoint, Checkpoint, checkpointed
from condor_checkpoint.condor import Job
from condor_checkpoint.policy import Alarm, Card, Policy, Weighed
from condor_checkpoint.sample import Sample, Sampler


class Script(Sampler):
    """Samples that are told, not taken."""

    def __init__(self, samples):
        super().__init__(Job({}))
        self.script = iter(samples)

    def take(self):
        return next(self.script)


def growing(limit=100.0, rate=10.0, end=None):
    begun = time.monotonic()
    while True:
        elapsed = time.monotonic() - begun
        yield Sample(time.time(), elapsed, memory=rate * elapsed, memory_limit=limit, end=end)


def work(checkpoint, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.005)
        checkpoint.poll()


def run_program(text, *words, timeout=30, **settings):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        **settings,
    )


def test_saves_come_by_the_period_and_nothing_else_happens():
    reasons = []
    with Checkpoint(reasons.append, period=0.2, interval=0) as checkpoint:
        work(checkpoint, 0.95)
    assert set(reasons) == {"period"}
    assert 2 <= len(reasons) <= 4


def test_no_thread_and_no_handler_is_left_behind():
    before = threading.active_count(), signal.getsignal(signal.SIGTERM)
    with Checkpoint(lambda reason: None, interval=0.05):
        assert signal.getsignal(signal.SIGTERM) != before[1]
        assert threading.active_count() == before[0] + 1
    time.sleep(0.1)
    assert (threading.active_count(), signal.getsignal(signal.SIGTERM)) == before


def test_memory_that_grows_towards_its_limit_is_saved_before_it_gets_there():
    saved = []
    begun = time.monotonic()
    sampler = Script(growing(limit=100.0, rate=25.0))  # reached after 4 s
    checkpoint = Checkpoint(
        lambda reason: saved.append((reason, time.monotonic() - begun)),
        sampler=sampler,
        interval=0.05,
        model=None,
    )
    checkpoint.journal.cost = 0.1  # as measured by an earlier run
    with checkpoint:
        work(checkpoint, 4.0)
    assert saved
    assert saved[0][0] == "predicted failure"
    assert 2.0 < saved[-1][1] < 4.0  # late, but in time


def test_a_time_limit_is_met_at_the_last_safe_moment():
    saved = []
    begun = time.monotonic()
    sampler = Script(growing(rate=0.0, end=time.time() + 2.0))
    checkpoint = Checkpoint(
        lambda reason: saved.append((reason, time.monotonic() - begun)),
        sampler=sampler,
        interval=0.05,
        model=None,
    )
    checkpoint.journal.cost = 0.1
    with checkpoint:
        work(checkpoint, 2.0)
    assert {reason for reason, _ in saved} == {"deadline"}
    assert 1.3 < saved[0][1] < 2.0


def test_a_save_that_raises_is_one_line_and_is_tried_again_later(capsys):
    calls = []

    def save(reason):
        calls.append(reason)
        raise OSError(28, "No space left on device")

    with Checkpoint(save, period=0.1, interval=0) as checkpoint:
        work(checkpoint, 0.5)
    assert len(calls) == 1  # the next try comes after half a minute
    [line] = capsys.readouterr().err.splitlines()
    assert "the save (period) failed: OSError: [Errno 28] No space left on device" in line
    assert "the checkpoint before it stands" in line


def test_a_save_that_hangs_is_broken_off_and_the_job_goes_on():
    # In a process of its own, because pytest's timeouts use the same signal.
    done = run_program("""
        import contextlib, signal, time
        from condor_checkpoint import Checkpoint
        def save(reason):
            with contextlib.suppress(Exception):    # cannot suppress the time limit
                time.sleep(60)
        with Checkpoint(save, period=0.1, interval=0, save_timeout=0.3) as checkpoint:
            for _ in range(60):
                time.sleep(0.01)
                checkpoint.poll()
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
        print("done")
    """)
    assert done.stdout == "done\n"
    assert "SaveTimeout: not done after 0.3 s; the job goes on" in done.stderr


def test_a_time_limit_that_the_program_set_for_itself_is_left_alone():
    done = run_program("""
        import signal, time
        from condor_checkpoint import Checkpoint
        signal.signal(signal.SIGALRM, lambda *_: print("mine", flush=True))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with Checkpoint(lambda reason: time.sleep(0.3), period=0.1, interval=0) as checkpoint:
            time.sleep(0.11)
            checkpoint.poll()
    """)
    assert done.stdout == "mine\n"


def test_a_policy_that_breaks_is_replaced_by_a_plain_period(capsys):
    class Broken(Policy):
        def decide(self, situation):
            raise KeyError("oops")

    with Checkpoint(lambda reason: None, policy=Broken(), interval=0) as checkpoint:
        work(checkpoint, 0.1)
        assert checkpoint.policy.name == "fallback"
    assert "saving every 3600 s" in capsys.readouterr().err


def test_a_watch_that_breaks_leaves_the_period(capsys):
    reasons = []
    with Checkpoint(reasons.append, period=0.2, interval=0.01, sampler=Script([])) as checkpoint:
        work(checkpoint, 0.5)
    assert "period" in reasons
    assert "saving by the period only" in capsys.readouterr().err


def test_a_model_that_cannot_be_read_is_named_and_done_without(tmp_path, capsys):
    model = tmp_path / "model.json"
    model.write_text('{"format": 7}')
    with Checkpoint(lambda reason: None, model=str(model), interval=0) as checkpoint:
        assert checkpoint.risk.trees is None
    assert "unknown format; train it again" in capsys.readouterr().err


def test_the_bundled_model_is_there():
    checkpoint = Checkpoint(lambda reason: None)
    assert checkpoint.risk.trees is not None
    assert len(checkpoint.risk.trees.trees) > 10


SIGTERM_PROGRAM = """
    import os, signal, sys, time
    from condor_checkpoint import Checkpoint
    in_handler = []
    def save(reason):
        frames, frame = [], sys._getframe()
        while frame:
            frames.append(frame.f_code.co_name)
            frame = frame.f_back
        print("saved", reason, "in handler" if "_on_signal" in frames else "at a poll", flush=True)
    {before}
    with Checkpoint(save, interval=0, {settings}) as checkpoint:
        os.kill(os.getpid(), signal.SIGTERM)
        print("still here", flush=True)
        checkpoint.poll()
        print("goes on", flush=True)
"""


def test_sigterm_saves_at_the_next_poll_and_then_ends():
    done = run_program(SIGTERM_PROGRAM.format(before="", settings=""))
    assert done.stdout.splitlines() == ["still here", "saved vacate at a poll"]
    assert done.returncode == 128 + signal.SIGTERM


def test_a_handler_of_the_program_keeps_its_say():
    before = "signal.signal(signal.SIGTERM, lambda *_: print('mine', flush=True))"
    done = run_program(SIGTERM_PROGRAM.format(before=before, settings=""))
    assert done.stdout.splitlines() == ["mine", "still here", "saved vacate at a poll", "goes on"]
    assert done.returncode == 0


def test_exit_after_ends_with_the_code_once_saved():
    done = run_program(SIGTERM_PROGRAM.format(before="", settings="exit_after=85"))
    assert done.returncode == 85


def test_exit_after_is_refused_where_htcondor_would_take_it_for_a_failure(tmp_path, monkeypatch):
    ad = tmp_path / ".job.ad"
    ad.write_text("ClusterId = 1\n")
    environ = {"_CONDOR_JOB_AD": str(ad), "PATH": ""}
    program = """
        from condor_checkpoint import Checkpoint
        with Checkpoint(lambda reason: None, period=0.0, interval=0, exit_after=85) as checkpoint:
            checkpoint.poll()
        print("done")
    """
    done = run_program(program, env=environ)
    assert done.returncode == 0, done.stderr
    assert "does not say checkpoint_exit_code = 85; not exiting" in done.stderr
    ad.write_text("ClusterId = 1\nSuccessCheckpointExitCode = 85\n")
    assert run_program(program, env=environ).returncode == 85


def test_in_a_thread_only_when_asked_for():
    where = []

    def save(reason):
        where.append(threading.current_thread() is threading.main_thread())

    with Checkpoint(save, period=0.1, interval=0.02, threaded=True):
        time.sleep(0.5)
    assert where
    assert not any(where)


def test_a_program_may_save_by_itself():
    with Checkpoint(period=0.1, interval=0) as checkpoint:
        assert checkpoint.due() == ""
        time.sleep(0.12)
        assert not checkpoint.poll()
        assert checkpoint.due() == "period"
        checkpoint.saved(0.01)
        assert checkpoint.due() == ""
        checkpoint.request("because")
        assert checkpoint.due() == "because"


def test_the_decorator_hands_in_the_checkpoint():
    reasons = []

    @checkpointed(save=reasons.append, period=0.05, interval=0)
    def main(steps, checkpoint):
        """Count."""
        for _ in range(steps):
            time.sleep(0.01)
            checkpoint.poll()
        return steps

    assert main(20) == 20
    assert main.__doc__ == "Count."
    assert reasons


def test_an_asynchronous_save_lets_other_tasks_run():
    order = []

    async def save(reason):
        order.append("begin")
        await asyncio.sleep(0.05)
        order.append("end")

    async def other():
        for _ in range(30):
            await asyncio.sleep(0.005)
            order.append("other")

    async def main():
        task = asyncio.ensure_future(other())
        async with AsyncCheckpoint(save, period=0.05, interval=0) as checkpoint:
            for _ in range(10):
                await asyncio.sleep(0.01)
                await checkpoint.apoll()
        await task

    asyncio.run(main())
    begin, end = order.index("begin"), order.index("end")
    assert "other" in order[begin:end]


def test_one_run_tells_the_next_what_a_save_costs_and_that_it_failed(tmp_path):
    directory = str(tmp_path / "checkpoints")
    program = f"""
        import os, signal, time
        from condor_checkpoint import Checkpoint
        checkpoint = Checkpoint(lambda reason: time.sleep(0.1), directory={directory!r},
                                period=0.2, interval=0)
        checkpoint.start()
        for _ in range(50):
            time.sleep(0.01)
            checkpoint.poll()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert run_program(program).returncode == -9
    checkpoint = Checkpoint(lambda reason: None, directory=directory, interval=0)
    assert checkpoint.journal.cost == pytest.approx(0.1, abs=0.05)
    assert len(checkpoint.journal.failures) == 1
    assert isinstance(checkpoint.policy, Weighed)
    assert checkpoint.policy.mtbf < Card().mtbf
    with checkpoint:
        pass
    assert len(Checkpoint(lambda reason: None, directory=directory).journal.failures) == 1


def test_a_failure_that_repeats_is_said_and_not_saved(tmp_path, capsys):
    (tmp_path / "journal.json").write_text(
        json.dumps(
            {
                "point": 100.0,
                "reached": 100.0,
                "alarm": True,
                "cost": 0.01,
                "restart": None,
                "saves": 1,
                "seconds": 200.0,
                "failures": [{"point": 100.0, "announced": True}],
                "false_alarms": 0,
                "starts": None,
                "closed": "",
                "time": time.time(),
            }
        )
    )
    saved = []
    checkpoint = Checkpoint(saved.append, directory=str(tmp_path), interval=0, model=None)
    now = time.monotonic()
    with checkpoint:
        checkpoint._last_save = now - 5.0  # five seconds of work to lose, but fifty past
        checkpoint.journal.point = 95.0
        checkpoint.alarms = (Alarm(0.9, (1.0, 2.0), now, now, "memory"),)
        checkpoint._consider()
        checkpoint.poll()
    assert not saved
    assert (
        "memory is running out again: a save here would only restart into the same failure"
        in capsys.readouterr().err
    )


def test_a_journal_that_was_half_written_is_no_obstacle(tmp_path):
    (tmp_path / "journal.json").write_text('{"point": 1')
    assert Checkpoint(lambda reason: None, directory=str(tmp_path)).journal.point == 0.0


def test_a_directory_that_cannot_be_made_is_no_obstacle(capsys):
    with Checkpoint(lambda reason: None, directory="/proc/nope", interval=0) as checkpoint:
        checkpoint.poll()
    assert "the next run will know nothing of this one" in capsys.readouterr().err


def test_nothing_of_numpy_or_torch_is_loaded():
    done = run_program("""
        import sys, condor_checkpoint, condor_checkpoint.cli
        print([m for m in ("numpy", "torch", "xgboost", "condor_advice") if m in sys.modules])
    """)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("alarm", "line"),
    [
        (None, r"saved in 0\.\d+ s: period; \d\S* s of work since the last save"),
        ("memory", r"saved in \S+ s: alarm \(predicted failure: memory\); 5\S* s of work since"),
        ("time", r"saved in \S+ s: alarm \(deadline: time\); 5\S* s of work since"),
        ("request", r"saved in \S+ s: because; \S+ s of work since"),
    ],
)
def test_each_save_says_why_it_was_made_and_what_it_cost(alarm, line, capsys):
    period = 0.01 if alarm is None else 1000.0
    checkpoint = Checkpoint(lambda reason: time.sleep(0.02), period=period, interval=0, model=None)
    with checkpoint:
        now = time.monotonic()
        if alarm == "request":
            checkpoint.request("because")
        elif alarm:
            checkpoint._last_save = now - 5.0
            checkpoint.journal.cost = 0.01
            checkpoint.alarms = (Alarm(0.99, (0.02, 0.03), now, now, alarm),)
            checkpoint._consider()
        time.sleep(0.02 if alarm is None else 0.0)
        assert checkpoint.poll()
    [message] = capsys.readouterr().err.splitlines()
    assert re.match("condor_checkpoint: " + line, message), message


def test_a_save_at_an_eviction_says_so():
    done = run_program(SIGTERM_PROGRAM.format(before="", settings=""))
    assert re.search(r"saved in \S+ s: eviction \(SIGTERM\); ", done.stderr)
