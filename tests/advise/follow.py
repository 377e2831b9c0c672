"""Real held jobs of every scenario on one pool, and people who do literally what they are told.

Each batch of the lab's scenarios is made with one proc, and with luck under control: chances
come out badly until the test says otherwise, and a job that works on some execution points
only starts on one where it does not.
"""

from __future__ import annotations

import json
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
from condor_advice.lab.world import Cause, JobBatch, LabPoint, LabWorld, Trouble, healthy_batch

OWNER = "amara"
# Waiting times of what people do stay short; causes end when the test says so.
FOR_EVER = 1e4
PERSONALITIES = ("steady", "bare", "flaky", "flaky")
# Each trouble of an execution point has a point to itself.
BLACK_HOLE_JOBS = 8
TROUBLED = {"host_black_hole": 2, "host_hook_fails": 3}
# Longer than what they are allowed in the lab, and no longer than twice that: the advice.
TOO_LONG = {"job_duration": 5.0, "duration_always": 7.0}
# So often each is evicted, as soon as it runs.
EVICTED = {"policy_after_eviction": 1, "host_restarts": 3}
ON_SOME_POINTS = ("duration_slow_hosts", "executable_on_some_hosts", "exit_on_some_hosts",
                  "output_on_some_hosts")  # fmt: skip
RUNNING, REMOVED, COMPLETED, HELD = 2, 3, 4, 5


def _never_served(batch: JobBatch, world: LabWorld) -> Cause:
    path = world.publish(batch.data())
    world.server.add_fault(path, 503)  # for ever
    batch.inputs.append(world.server.url(path))
    return Cause("the file server is gone for good", transient=False)


# Not one of the lab's: its owner releases it again and again, and it always comes back.
COMES_BACK = Scenario("comes_back", "url", 1.0, "released in vain", _never_served)
RELEASED_IN_VAIN = 3


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
    batch: JobBatch
    cause: Cause
    cluster: int
    jobs: list[str] = field(default_factory=list)  # the held ones; of a DAG a node's
    answers: list[dict[str, Any]] = field(default_factory=list)  # one for each of them
    releases: int = 0

    @property
    def answer(self) -> dict[str, Any]:
        """The advice on its first job."""
        return self.answers[0]


class Town:
    """The pool, the world around it, and the jobs of one owner."""

    def __init__(self, directory: Path, pool_of: Callable[..., Pool], server: Server) -> None:
        self.directory, self.server = directory, server
        settings = LabSettings(minutes=5, seed=3, personalities=PERSONALITIES, owners=1)
        self.points = make_points(settings, directory)
        self._shift = 0.0
        self.world = LabWorld(
            directory, "3", server, self.points, clock=lambda: time.time() + self._shift
        )
        # One project is over its share from the start; the policy cannot be changed later.
        self.share_ends = time.time() + 70
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
        # What the tests find out.
        self.missing: list[str] = []
        self.wrong: dict[str, list[str]] = {}
        self.ends: dict[str, list[dict[str, Any]]] = {}
        self.site = directory / "site.toml"
        self.site.write_text("retry_minutes = 0.05\n")

    # ---- making holds

    def submit(self, name: str, number: int) -> None:
        """Submit one job of a scenario."""
        scenario = COMES_BACK if name == COMES_BACK.name else load_scenarios()[name]
        world = self.world
        world.pace = 1.0
        batch = healthy_batch(world, number, OWNER)
        _plain(batch)
        world.pace = FOR_EVER
        places = self.points[:2] if name not in TROUBLED else [self.points[TROUBLED[name]]]
        world.points = places
        cause = scenario.set_up(batch, world)
        world.points = self.points
        world.pace = 1.0
        batch.seconds = TOO_LONG.get(name, batch.seconds)
        batch.procs = 1
        if name == "host_black_hole":
            batch.procs = BLACK_HOLE_JOBS
            batch.outputs.clear()  # so that the exit itself is what holds it
            batch.submit["on_exit_hold_reason"] = '"the detector library crashed"'
        batch.work = [_steady(line, self.luck) for line in batch.work]
        batch.begin.insert(0, f"chance() {{ [ ! -e {self.luck} ]; }}")
        good, bad = self.points[0].name, ""
        if name in TROUBLED:
            bad = places[0].name
        elif name in ON_SOME_POINTS:
            bad = _bad_point(batch, self)
            good = next(point.name for point in self.points[:2] if point.name != bad)
        starts = 1
        where = f'regexp("@{good}@", TARGET.Name)'
        if bad:
            first = f'regexp("@{bad}@", TARGET.Name)'
            if name == "host_black_hole":  # nothing but the advice keeps it away the next time
                where = f"({first} || {where})"
                # One after the other, so that the later ones know of the earlier ones.
                first += " && time() - MY.QDate > 3 * MY.ProcId"
            where = f"ifThenElse((MY.NumShadowStarts ?: 0) < {starts}, {first}, {where})"
        if name in EVICTED:
            # Long enough to be evicted, and then idle for long enough that the policy sees it.
            batch.seconds = 1.0
            batch.begin.append(f"[ -e {self.luck} ] || sleep 60")
            few = f"(MY.NumJobStarts ?: 0) < {EVICTED[name]} || (MY.NumHolds ?: 0) > 0"
            where = f"({where}) && ({few} || time() - MY.EnteredCurrentStatus > 40)"
        batch.submit["requirements"] = where
        argv = batch.write_submit_files()
        if batch.dag:
            batch.path("flow.dag").write_text("JOB A job.sub\nJOB B job.sub\nPARENT A CHILD B\n")
            variable = f"_CONDOR_SEC_CLAIMTOBE_USER={OWNER}"
            argv = ["condor_submit_dag", "-f", "-insert_env", variable, "flow.dag"]
        done = self.run(argv, batch.directory)
        assert done.returncode == 0, (name, done.stdout, done.stderr)
        cluster = _cluster(done.stdout)
        self.jobs[name] = Held(scenario, batch, cause, cluster)
        if name == "staff_holds":
            why = "load on the file server, please contact us"
            argv = ["condor_hold", "-reason", why, "-subcode", "77", str(cluster)]
            assert self.run(argv, user="condor").returncode == 0
        elif cause.on_submit is not None and name not in EVICTED:
            world.pace = 1.0 if name == "user_holds" else FOR_EVER
            cause.on_submit(cluster)
        world.pace = 1.0

    def live(self) -> None:
        """Let what is due happen, and people type what they have decided to."""
        self.world.run_due()
        for user, argv in self.world.commands:
            self.run(argv, user=user)
        self.world.commands.clear()
        self.world.starters_to_kill.clear()  # its program fails all the same

    def ads(self) -> dict[int, list[dict[str, Any]]]:
        """The ads of jobs in the queue, or as they left it, by cluster; a DAG's with its nodes'."""
        found: dict[int, list[dict[str, Any]]] = {}
        for ad in self.pool.jobs():
            found.setdefault(ad.get("DAGManJobId", ad["ClusterId"]), []).append(ad)
        return found

    def wait_for_holds(self, seconds: float) -> list[str]:
        """Wait until every job is held; return the names of those that are not."""
        deadline = time.monotonic() + seconds
        while True:
            self.live()
            ads = self.ads()
            self._evict(ads)
            for held in self.jobs.values():
                held.jobs = [
                    f"{ad['ClusterId']}.{ad['ProcId']}"
                    for ad in ads.get(held.cluster, [])
                    if ad["JobStatus"] == HELD
                ]
            again = self.jobs.get(COMES_BACK.name)
            if again and again.jobs and again.releases < RELEASED_IN_VAIN:
                self.run(["condor_release", *again.jobs])
                again.releases += 1
                again.jobs = []
            missing = [
                name for name, held in self.jobs.items() if len(held.jobs) < held.batch.procs
            ]
            if not missing or time.monotonic() > deadline:
                return missing
            time.sleep(1)

    def _evict(self, ads: Mapping[int, list[dict[str, Any]]]) -> None:
        for name, times in EVICTED.items():
            held = self.jobs.get(name)
            for ad in ads.get(held.cluster, []) if held else []:
                if ad["JobStatus"] == RUNNING and ad.get("NumJobStarts", 0) <= times:
                    self.run(["condor_vacate_job", "-fast", str(ad["ClusterId"])], user="condor")

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
            "CONDOR_ADVICE_SITE": str(self.site),
            "COLUMNS": "100",
            "TZ": "UTC",
            "OMP_NUM_THREADS": "1",
        }

    def wait_for_ends(self, seconds: float) -> dict[str, list[dict[str, Any]]]:
        """Wait until jobs have left the queue or are held again; return their last ads."""
        deadline = time.monotonic() + seconds
        while True:
            self.live()
            ads = self.ads()
            ended = (HELD, COMPLETED, REMOVED)
            # A DAG with a held node never ends by itself.
            undone = [
                held.scenario.name
                for held in self.jobs.values()
                if not all(ad["JobStatus"] in ended for ad in ads[held.cluster])
                and not any(ad["JobStatus"] == HELD for ad in ads[held.cluster])
            ]
            if not undone or time.monotonic() > deadline:
                return {name: ads[held.cluster] for name, held in self.jobs.items()}
            time.sleep(1)


EXTRA = """
SYSTEM_PERIODIC_RELEASE = false
NEGOTIATOR_PRE_JOB_RANK = 0
CLAIM_WORKLIFE = 0
"""


def _execution_point(point: LabPoint) -> ExecutionPoint:
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


def _plain(batch: JobBatch) -> None:
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


def _bad_point(batch: JobBatch, town: Town) -> str:
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


def follow(town: Town, held: Held) -> list[str]:
    """Type the printed commands into a shell, in the job's directory; return what went wrong."""
    wrong = []
    for answer in held.answers:
        for command in answer["remedy"]["commands"]:
            done = town.run(["/bin/sh", "-c", command], held.batch.directory)
            if done.returncode != 0:
                wrong.append(f"{command}: {done.returncode} {done.stdout}{done.stderr}".strip())
    return wrong
