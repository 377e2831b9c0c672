"""Real held jobs of every scenario on one pool, and people who do literally what they are told.

Each batch of the lab's scenarios is made with one proc, and with luck under control: chances
come out badly until the test says otherwise, and a job that works on some execution points
only starts on one where it does not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from condor_advice.lab.fileserver import FileServer
from condor_advice.lab.pool import EventLog, ExecutionPoint, Pool
from condor_advice.lab.run import AD_ATTRIBUTES, LabSettings, make_points, pool_config
from condor_advice.lab.scenarios import Scenario, load_scenarios
from condor_advice.lab.world import Batch, Cause, Point, Trouble, World, healthy_batch

OWNER = "amara"
# Waiting times of what people do stay short; causes end when the test says so.
FOR_EVER = 1e4
PERSONALITIES = ("steady", "bare", "flaky", "flaky", "flaky")
# Each trouble of an execution point has a point to itself.
TROUBLED = {"host_black_hole": 2, "host_hook_fails": 3, "host_wrapper_fails": 4}
PEOPLE_ACT = ("staff_holds", "user_holds", "policy_after_eviction", "host_restarts")
ON_SOME_POINTS = ("duration_slow_hosts", "executable_on_some_hosts", "exit_on_some_hosts",
                  "output_on_some_hosts")  # fmt: skip
HELD, COMPLETED, REMOVED = 5, 4, 3


class Server(FileServer):
    """A file server whose troubles end at a word rather than at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.well = False

    def add_fault(
        self,
        path: str,
        status: int,
        until: float | None = None,
        since: float = 0.0,
        unless: Callable[[], bool] = lambda: False,
    ) -> None:
        """Keep what lasts for ever for ever."""
        ends = until is not None
        super().add_fault(path, status, unless=lambda: unless() or (ends and self.well))


@dataclass
class Held:
    """One job of one scenario."""

    scenario: Scenario
    batch: Batch
    cause: Cause
    cluster: int
    job: str = ""  # the held one; of a DAG it is a node's
    answers: list[dict[str, Any]] = field(default_factory=list)

    @property
    def answer(self) -> dict[str, Any]:
        """The last advice."""
        return self.answers[-1]


class Town:
    """The pool, the world around it, and the jobs of one owner."""

    def __init__(self, directory: Path, pool_of: Callable[..., Pool], server: Server) -> None:
        self.directory, self.server = directory, server
        settings = LabSettings(minutes=5, seed=3, personalities=PERSONALITIES, owners=1)
        self.points = make_points(settings, directory)
        self._shift = 0.0
        self.world = World(
            directory, "3", server, self.points, clock=lambda: time.time() + self._shift
        )
        # One project is over its share from the start; the policy cannot be changed later.
        self.share_ends = time.time() + 90
        self.world.over_share.append(Trouble("mesh", "share", time.time(), self.share_ends))
        self.luck = directory / "luck"
        self.pool = pool_of(
            directory=directory / "pool",
            config=pool_config(settings, self.world) + "\n" + EXTRA,
            execution_points=[_execution_point(point) for point in self.points],
            event_log=EventLog(format_options="ISO_DATE, UTC", ad_attributes=AD_ATTRIBUTES),
        )
        self.store = directory / "store.sqlite"
        self.jobs: dict[str, Held] = {}

    # ---- making holds

    def submit(self, name: str, number: int) -> None:
        """Submit one job of a scenario."""
        scenario = load_scenarios()[name]
        world = self.world
        world.pace = 1.0
        batch = healthy_batch(world, number, OWNER)
        _plain(batch)
        if name not in PEOPLE_ACT:
            world.pace = FOR_EVER
        places = self.points[:2] if name not in TROUBLED else [self.points[TROUBLED[name]]]
        world.points = places
        cause = scenario.set_up(batch, world)
        world.points = self.points
        world.pace = 1.0
        batch.procs = 1
        batch.work = [_steady(line, self.luck) for line in batch.work]
        batch.begin.insert(0, f"chance() {{ [ ! -e {self.luck} ]; }}")
        good, bad = self.points[0].name, ""
        if name in TROUBLED:
            bad = places[0].name
        elif name in ON_SOME_POINTS:
            bad = _bad_point(batch, self)
            good = next(point.name for point in self.points[:2] if point.name != bad)
        starts = 3 if name in TROUBLED else 1
        where = f'regexp("@{good}@", TARGET.Name)'
        if bad:
            first = f'regexp("@{bad}@", TARGET.Name)'
            where = f"ifThenElse((MY.NumShadowStarts ?: 0) < {starts}, {first}, {where})"
        if name in ("policy_after_eviction", "host_restarts", "host_wrapper_fails"):
            # The policy must see it idle before it starts again.
            idle = "time() - MY.EnteredCurrentStatus > 6"
            where = f"({where}) && ((MY.NumShadowStarts ?: 0) == 0 || {idle})"
        batch.submit["requirements"] = where
        batch.write_program()
        description = batch.path("job.sub")
        description.write_text(batch.description())
        spool = ["-spool"] if batch.spool else []
        argv = ["condor_submit", *spool, "-terse", description.name]
        if batch.dag:
            batch.path("flow.dag").write_text("JOB A job.sub\nJOB B job.sub\nPARENT A CHILD B\n")
            variable = f"_CONDOR_SEC_CLAIMTOBE_USER={OWNER}"
            argv = ["condor_submit_dag", "-f", "-insert_env", variable, "flow.dag"]
        done = self.run(argv, batch.directory)
        assert done.returncode == 0, (name, done.stdout, done.stderr)
        cluster = _cluster(done.stdout)
        self.jobs[name] = Held(scenario, batch, cause, cluster)
        if cause.on_submit is not None:
            if name not in PEOPLE_ACT:
                world.pace = FOR_EVER
            cause.on_submit(cluster)
            world.pace = 1.0

    def live(self) -> None:
        """Let what is due happen, and people type what they have decided to."""
        self.world.run_due()
        for user, argv in self.world.commands:
            self.run(argv, user=user)
        self.world.commands.clear()
        assert not self.world.starters_to_kill or self.world.starters_to_kill.clear() is None

    def queue(self) -> dict[int, dict[str, Any]]:
        """The jobs by cluster, in the queue or as they left it; nodes count for their DAG."""
        found: dict[int, dict[str, Any]] = {}
        for ad in self.pool.jobs():
            found[ad["ClusterId"]] = ad
        return found

    def wait_for_holds(self, seconds: float) -> list[str]:
        """Wait until every job is held; return the names of those that are not."""
        deadline = time.monotonic() + seconds
        while True:
            self.live()
            ads = self.queue()
            missing = []
            for name, held in self.jobs.items():
                node = next(
                    (ad for ad in ads.values()
                     if ad.get("DAGManJobId") == held.cluster and ad["JobStatus"] == HELD),
                    ads.get(held.cluster, {}),
                )  # fmt: skip
                if node.get("JobStatus") == HELD:
                    held.job = f"{node['ClusterId']}.{node['ProcId']}"
                else:
                    missing.append(name)
            if not missing or time.monotonic() > deadline:
                return missing
            time.sleep(1)

    # ---- asking and following

    def ask(self, *arguments: str) -> list[dict[str, Any]]:
        """Ask `condor-advice` as the owner of the jobs would."""
        gathered = self.advice("gather", "--store", str(self.store), str(self.pool.event_log))
        assert gathered.returncode == 0, gathered.stderr
        done = self.advice("--json", *arguments)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def advice(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `condor-advice`."""
        return self.run([sys.executable, "-m", "condor_advice", *arguments])

    def change_for_the_better(self) -> None:
        """End every cause that ends by itself, and turn the luck."""
        self.server.well = True
        self.luck.touch()
        self._shift = 1e8
        self.live()

    def run(
        self, argv: Sequence[str], cwd: Path | None = None, user: str = OWNER
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as somebody."""
        return subprocess.run(
            self.pool.command(argv),
            env=self.environ(user),
            cwd=cwd or self.directory,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )

    def environ(self, user: str = OWNER) -> Mapping[str, str]:
        """What a user's shell has."""
        state = self.directory / "home-of" / user
        return {
            **self.pool.environ,
            "_CONDOR_SEC_CLAIMTOBE_USER": user,
            "CONDOR_ADVICE_STORE": str(self.store),
            "XDG_STATE_HOME": str(state / "state"),
            "XDG_CONFIG_HOME": str(state / "config"),
            "XDG_DATA_HOME": str(state / "data"),
            "COLUMNS": "100",
            "TZ": "UTC",
            "OMP_NUM_THREADS": "1",
        }

    def wait_for_ends(self, names: Sequence[str], seconds: float) -> dict[str, dict[str, Any]]:
        """Wait until jobs have left the queue or are held again; return their last ads."""
        deadline = time.monotonic() + seconds
        while True:
            self.live()
            ads = self.queue()
            ends = {}
            for name in names:
                held = self.jobs[name]
                ad = ads[held.cluster]
                again = [
                    one for one in ads.values()
                    if one.get("DAGManJobId") == held.cluster and one["JobStatus"] == HELD
                ]  # fmt: skip
                ends[name] = again[0] if again else ad
            undone = [
                name
                for name, ad in ends.items()
                if ad["JobStatus"] not in (HELD, COMPLETED, REMOVED)
            ]
            if not undone or time.monotonic() > deadline:
                return ends
            time.sleep(1)


EXTRA = """
NEGOTIATOR_PRE_JOB_RANK = 0
CLAIM_WORKLIFE = 0
"""


def _execution_point(point: Point) -> ExecutionPoint:
    environment = {}
    if point.personality == "flaky":
        environment = {
            "_CONDOR_USER_JOB_WRAPPER": str(point.directory / "wrapper"),
            "_CONDOR_STARTER_DEFAULT_JOB_HOOK_KEYWORD": "SITE",
            "_CONDOR_SITE_HOOK_PREPARE_JOB": str(point.directory / "hook"),
        }
    return ExecutionPoint(
        point.name,
        cpus=64,
        memory_mb=32768,
        config={
            "STARTD_ATTRS": "SoftwareDirectory",
            "SoftwareDirectory": f'"{point.directory / "opt"}"',
        },
        environment=environment,
    )


def _plain(batch: Batch) -> None:
    """Take away what a healthy batch has by chance: only the scenario's own fault counts."""
    batch.spool = False
    batch.initialdir = ""
    batch.project = "orbit"  # not the one that is over its share
    batch.end.clear()
    batch.seconds = 1.0
    for name in ("on_exit_hold", "on_exit_hold_reason", "allowed_execute_duration",
                 "periodic_hold", "max_retries"):  # fmt: skip
        batch.submit.pop(name, None)


def _steady(line: str, luck: Path) -> str:
    """Let a leak take its whole time until the luck turns."""
    return line.replace("os.urandom(1)[0] % 12", f'12 * (not os.path.exists("{luck}"))')


def _bad_point(batch: Batch, town: Town) -> str:
    if "SoftwareDirectory" in batch.submit.get("executable", ""):
        return next(point.name for point in town.points if not point.has_software)
    [line] = [line for line in (*batch.work, *batch.end) if "case $(point)" in line]
    return next(point.name for point in town.points if point.name in line)


def _cluster(text: str) -> int:
    first = text.strip().split(".")[0]
    if first.isdigit():
        return int(first)
    [line] = [line for line in text.splitlines() if "submitted to cluster" in line]
    return int(line.rstrip(". ").split()[-1])


def follow(town: Town, held: Held) -> list[subprocess.CompletedProcess[str]]:
    """Type the printed commands into a shell, in the job's directory, one after the other."""
    shell = os.environ.get("SHELL", "/bin/sh")
    return [
        town.run([shell, "-c", command], held.batch.directory)
        for command in held.answer["remedy"]["commands"]
    ]
