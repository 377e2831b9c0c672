"""On a real pool: held, evicted and troubled jobs resume from where the hook saved them."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from condor_advice.gather.events import JobStatus

ROOT = Path(__file__).resolve().parents[2]
TOTAL = 200
# What makes a checkpoint outlive a hold (exit code 85) and an eviction (ON_EXIT_OR_EVICT).
ON_HOLD = """
checkpoint_exit_code = 85
transfer_checkpoint_files = checkpoints
"""
ON_EVICTION = """
when_to_transfer_output = ON_EXIT_OR_EVICT
transfer_output_files = checkpoints
"""
# A shell program that saves on USR1 and knows nothing of the hook.
SHELL = """#!/bin/sh
step=$(cat checkpoints/step 2>/dev/null || echo 0)
echo start at $step
mkdir -p checkpoints
trap 'echo $step > checkpoints/new; mv checkpoints/new checkpoints/step; echo saved' USR1
while [ $step -lt 200 ]; do sleep 0.1; step=$((step + 1)); echo $step >> $1; done
echo done $step
"""
RECIPES = {"hook": ON_HOLD + ON_EVICTION, "trouble": ON_EVICTION, "plain": ""}
KINDS = {
    # name: (megabytes per step, mode)
    "leak-hook": (0.8, "hook"),
    "leak-plain": (0.8, "plain"),
    "evicted-hook": (0.0, "hook"),
    "evicted-plain": (0.0, "plain"),
    "trouble": (0.0, "trouble"),
}


class Mix:
    """The same mix of jobs with and without the hook, brought to its end."""

    def __init__(self, pool, directory):
        self.directory = directory
        subprocess.run(
            [sys.executable, ROOT / "tools/make_pyz.py", directory / "condor_checkpoint.pyz"],
            check=True,
        )
        (directory / "shell.sh").write_text(SHELL)
        directory.chmod(0o777)
        clusters = {name: pool.submit(self.describe(name), cwd=directory) for name in KINDS}
        clusters["shell"] = pool.submit(self.describe_shell(), cwd=directory)
        for name in self.in_order_of_steps(80, "evicted-hook", "evicted-plain", "trouble", "shell"):
            pool.run(["condor_vacate_job", str(clusters[name])])
        self.holds = {}
        for name in ("leak-hook", "leak-plain"):
            [self.holds[name]] = pool.wait_for(clusters[name], JobStatus.HELD, 90)
            pool.run(["condor_qedit", str(clusters[name]), "RequestMemory", "512"])
            pool.run(["condor_release", str(clusters[name])])
        self.ads = {
            name: pool.wait_for(cluster, JobStatus.COMPLETED, 120)[0]
            for name, cluster in clusters.items()
        }

    def describe(self, name):
        megabytes, mode = KINDS[name]
        return f"""
executable = {sys.executable}
transfer_executable = false
arguments = steps_job.py {TOTAL} {megabytes} {self.directory}/{name}.steps {mode}
environment = "PYTHONPATH=condor_checkpoint.pyz"
transfer_input_files = {Path(__file__).with_name("steps_job.py")}, condor_checkpoint.pyz
{self.rest(name)}
{RECIPES[mode]}
queue
"""

    def describe_shell(self):
        wrap = "condor_checkpoint.pyz run --signal USR1 --wait-for checkpoints/step"
        return f"""
executable = {sys.executable}
transfer_executable = false
arguments = {wrap} --interval 0.5 -- sh shell.sh {self.directory}/shell.steps
transfer_input_files = shell.sh, condor_checkpoint.pyz
{ON_EVICTION}
{self.rest("shell")}
queue
"""

    def rest(self, name):
        return f"""
should_transfer_files = YES
request_memory = 128
request_disk = 20MB
+WantIOProxy = true
output = {name}.out
error = {name}.err
log = {name}.log
"""

    def in_order_of_steps(self, count, *names):
        """Yield each job once it has done so many steps."""
        left, until = list(names), time.monotonic() + 90
        while left:
            assert time.monotonic() < until, {name: len(self.steps(name)) for name in left}
            for name in [name for name in left if len(self.steps(name)) >= count]:
                left.remove(name)
                yield name
            time.sleep(0.2)

    def steps(self, name):
        path = self.directory / f"{name}.steps"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def lost(self, name):
        """Seconds of work that were done more than once."""
        steps = self.steps(name)
        return 0.1 * (len(steps) - len(set(steps)))

    def out(self, name):
        return (self.directory / f"{name}.out").read_text()

    def error(self, name):
        return (self.directory / f"{name}.err").read_text()


@pytest.fixture(scope="module")
def mix(pool, tmp_path_factory):
    return Mix(pool, tmp_path_factory.mktemp("mix"))


@pytest.mark.slow
def test_every_job_ends_well(mix):
    assert {name: ad["ExitCode"] for name, ad in mix.ads.items()} == dict.fromkeys(mix.ads, 0)


@pytest.mark.slow
def test_a_job_whose_memory_grows_saves_in_time_and_resumes_after_the_fix(mix):
    hold = mix.holds["leak-hook"]
    assert (hold["HoldReasonCode"], hold["HoldReasonSubCode"]) in [(21, 102), (34, 102)]
    out = mix.out("leak-hook")
    assert "predicted failure" in out
    assert out.count("start at 0\n") == 1  # and never again, also after the hold
    assert f"done {TOTAL}" in out
    assert mix.lost("leak-hook") < 0.7 * mix.lost("leak-plain")


@pytest.mark.slow
def test_the_access_point_is_told_of_the_checkpoint(mix):
    ad = mix.ads["leak-hook"]
    assert ad["ChirpCheckpointReason"] == "predicted failure"
    assert ad["ChirpCheckpointTime"] > ad["QDate"]


@pytest.mark.slow
def test_an_evicted_job_resumes(mix):
    assert "saved" in mix.out("evicted-hook")
    assert mix.lost("evicted-hook") < 1.0
    assert mix.lost("evicted-plain") > 7.0


@pytest.mark.slow
def test_a_wrapped_shell_program_resumes(mix):
    steps = mix.steps("shell")
    assert steps[-1] == TOTAL
    assert mix.lost("shell") < 1.0
    assert f"done {TOTAL}" in mix.out("shell")


@pytest.mark.slow
def test_saves_that_raise_hang_or_fill_the_disk_do_not_kill_the_job(mix):
    # The first save was good; all that came after failed, and the job went on regardless.
    steps = mix.steps("trouble")
    assert steps[-1] == TOTAL
    restart = next(i for i in range(1, len(steps)) if steps[i] <= steps[i - 1])
    assert 5 < steps[restart] < 40  # from the first checkpoint, not from zero
    assert restart >= 80


@pytest.mark.slow
def test_the_hook_saves_most_of_the_work_that_the_same_mix_loses_without_it(mix):
    without = mix.lost("leak-plain") + mix.lost("evicted-plain")
    with_hook = mix.lost("leak-hook") + mix.lost("evicted-hook")
    assert with_hook < 0.5 * without
