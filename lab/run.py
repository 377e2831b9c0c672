"""Make real hold episodes on a private pool, with faults and with owners who act; record them.

`run_lab` starts a pool with several execution points, submits batches of jobs as made-up
owners, starts and ends the scenarios' causes, lets the owners act on each hold, and leaves a
recording: event logs, job ads, truth and a manifest (see recording.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from condor_advice.gather.errors import UsageError
from condor_advice.lab import names
from condor_advice.lab.fileserver import FileServer
from condor_advice.lab.kinds import PoolKind, load_kind
from condor_advice.lab.owners import (
    BEHAVIOURS,
    Owner,
    OwnerDecision,
    RandomisedOwner,
    Sight,
    population,
    population_of_kind,
)
from condor_advice.lab.pool import EventLog, ExecutionPoint, Pool
from condor_advice.lab.programs import Program, draw_programs, program_batch
from condor_advice.lab.recording import Recording, leave_recording
from condor_advice.lab.scenarios import Scenario, load_scenarios
from condor_advice.lab.truth import Truth, utc
from condor_advice.lab.world import (
    SMALL_SCRATCH_MB,
    Cause,
    JobBatch,
    LabPoint,
    LabWorld,
    Trouble,
    healthy_batch,
)

TROUBLES = ("exit", "hook", "scratch", "wrapper")
PERSONALITIES = ("steady", "bare", "flaky", "black-hole", "small")
MEMORY_POLICIES = ("stock", "per-run")

# Attributes of the 028 event after each event: all that features can use.
AD_ATTRIBUTES = (
    "Owner",
    "JobBatchName",
    "ProjectName",
    "Cmd",
    "QDate",
    "JobUniverse",
    "JobPrio",
    "RequestCpus",
    "RequestMemory",
    "RequestDisk",
    "MemoryUsage",
    "DiskUsage",
    "TransferInput",
    "TransferOutput",
    "NumHolds",
    "NumJobStarts",
    "NumShadowStarts",
    "NumSystemHolds",
    "NumVacates",
    "HoldReasonCode",
    "HoldReasonSubCode",
    "LastHoldReasonCode",
    "RemoteHost",
    "LastRemoteHost",
    "RemoteWallClockTime",
    "ExitCode",
    "ExitBySignal",
    "MaxRetries",
    "AllowedExecuteDuration",
    "DAGManJobId",
    "DAGNodeName",
)

# HTCondor's stock policies also see the usage of the previous run, because the job ad keeps it
# until the starter has reported twice. Many sites wait for that, and so does this policy.
_PER_RUN_POLICY = """\
MEMORY_EXCEEDED = (MemoryUsage =!= undefined && MemoryUsage > Memory \
 && time() - JobStart > 7)
DISK_EXCEEDED = (DiskUsage =!= undefined && DiskUsage > Disk \
 && time() - JobStart > 7)
"""
_POLL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class LabSettings:
    """Everything that determines a run, apart from chance in HTCondor itself."""

    minutes: float
    seed: int
    randomised_release: bool = False
    behaviours: Mapping[str, float] = field(default_factory=lambda: dict(BEHAVIOURS))
    personalities: Sequence[str] = ("steady", "steady", "bare", "flaky", "black-hole", "small")
    point_prefix: str = "node"
    memory_policy: str = "stock"
    iso_dates: bool = True
    owners: int = 12
    batches_per_minute: float = 22.0
    pace: float = 1.0
    scenarios: Sequence[str] = ()  # empty: all of them
    kind: str = ""  # of pool; empty: the lab's first set of scenarios, without programs
    randomised_owners: float = 0.0  # share of a kind's owners who release at random moments

    @classmethod
    def of_kind(cls, kind: str, minutes: float, seed: int, **options: Any) -> LabSettings:
        """Return the settings of a kind of pool; `options` override some of them."""
        values = load_kind(kind)
        settings: dict[str, Any] = {
            "behaviours": dict(values.behaviours),
            "personalities": tuple(values.personalities),
            "point_prefix": values.point_prefix,
            "memory_policy": values.memory_policy,
            "iso_dates": values.iso_dates,
            "owners": values.owners,
            "batches_per_minute": values.batches_per_minute,
            "pace": values.pace,
            "randomised_owners": values.randomised_owners,
        }
        if options.get("randomised_release"):
            settings["randomised_owners"] = 1.0
        return cls(minutes, seed, kind=kind, **{**settings, **options})

    @property
    def pool_kind(self) -> PoolKind | None:
        """The kind of pool, if one was chosen."""
        return load_kind(self.kind) if self.kind else None

    def __post_init__(self) -> None:
        for kind in self.personalities:
            if kind not in PERSONALITIES:
                raise UsageError(
                    f"unknown kind of execution point {kind!r}; "
                    f"choose from {', '.join(PERSONALITIES)}"
                )
        if self.memory_policy not in MEMORY_POLICIES:
            raise UsageError(
                f"unknown memory policy {self.memory_policy!r}; "
                f"choose from {', '.join(MEMORY_POLICIES)}"
            )
        if set(self.behaviours) != set(BEHAVIOURS) or sum(self.behaviours.values()) <= 0:
            raise UsageError(f"give a share for each behaviour: {', '.join(BEHAVIOURS)}")
        if self.kind:
            load_kind(self.kind)
        known = load_scenarios(self.kind)
        for name in self.scenarios:
            if name not in known:
                raise UsageError(
                    f"unknown scenario {name!r}; `condor-advice lab scenarios` lists them"
                )


def run_lab(settings: LabSettings, out: Path, say: Callable[[str], None] = print) -> Recording:
    """Run the lab for `settings.minutes` and leave a recording in `out`."""
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty; name a new directory for the recording")
    out.mkdir(parents=True, exist_ok=True)
    work = (out / "work").resolve()
    work.mkdir()
    with _utc(), FileServer() as server:
        points = make_points(settings, work)
        world = LabWorld(work, str(settings.seed), server, points, settings.pace)
        world.changes = world.began + 30 * settings.minutes
        plan_shares(world, settings)
        pool = Pool(
            work / "pool",
            config=pool_config(settings, world),
            execution_points=[_execution_point(point) for point in points],
            event_log=EventLog(
                max_size_bytes=2_000_000,
                max_rotations=99,
                format_options="ISO_DATE" if settings.iso_dates else "",
                ad_attributes=AD_ATTRIBUTES,
            ),
        )
        with pool:
            say(f"pool of {len(points)} execution points in {work / 'pool'}")
            lab = _Lab(settings, world, pool, say)
            lab.run()
            ads, epochs = lab.collect()
            version = pool.run(["condor_version"]).stdout.splitlines()[0].strip("$ ")
        recording = leave_recording(
            out,
            work,
            pool.htcondor.bin.parent,
            lab.truths(ads),
            ads,
            epochs,
            world,
            settings,
            version,
        )
    shutil.rmtree(work, ignore_errors=True)
    return recording


@contextlib.contextmanager
def _utc() -> Iterator[None]:
    """Set the time zone to UTC, so that the zone of the pool's logs is known."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


# ---- the pool ---------------------------------------------------------------------------


def make_points(settings: LabSettings, work: Path) -> list[LabPoint]:
    """Make the execution points, with their software, wrappers and hooks on disk."""
    points = []
    for number, personality in enumerate(settings.personalities, start=1):
        name = f"{settings.point_prefix}{number:02d}"
        directory = work / "points" / name
        (directory / "ctl").mkdir(parents=True)
        (directory / "opt").mkdir()
        point = LabPoint(
            name,
            personality,
            directory,
            work / "pool" / "execute" / name,
            has_software=personality not in ("bare", "black-hole"),
        )
        if personality == "small" and _can_mount():
            point.pid_file = directory / "pid"
        _write_scripts(point)
        points.append(point)
    return points


def _can_mount() -> bool:
    """Return whether a process may mount a small file system in its own namespace."""
    probe = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "mount",
        "-t",
        "tmpfs",
        "tmpfs",
        "/mnt",
    ]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def _write_scripts(point: LabPoint) -> None:
    controls = point.directory / "ctl"
    scripts = {
        "wrapper": f"""\
[ -e {controls}/wrapper ] && {{
    echo "the job environment cannot be set up" > "$_CONDOR_WRAPPER_ERROR_FILE"; exit 1; }}
[ -e {controls}/exit ] && exit 1
exec "$@"
""",
        "hook": f"cat > /dev/null\n[ -e {controls}/hook ] && exit 1\nexit 0\n",
    }
    for name, body in scripts.items():
        script = point.directory / name
        script.write_text("#!/bin/sh\n" + body)
        script.chmod(0o755)


def _execution_point(point: LabPoint) -> ExecutionPoint:
    config = {
        "STARTD_ATTRS": "SoftwareDirectory",
        "SoftwareDirectory": f'"{point.directory / "opt"}"',
    }
    environment = {}
    if point.personality in ("flaky", "black-hole"):
        environment["_CONDOR_USER_JOB_WRAPPER"] = str(point.directory / "wrapper")
    if point.personality == "flaky":
        environment |= {
            "_CONDOR_STARTER_DEFAULT_JOB_HOOK_KEYWORD": "SITE",
            "_CONDOR_SITE_HOOK_PREPARE_JOB": str(point.directory / "hook"),
        }
    return ExecutionPoint(
        point.name, cpus=16, memory_mb=16384, config=config, environment=environment
    )


def plan_shares(world: LabWorld, settings: LabSettings) -> None:
    """Choose when each project is over its share; the policy is fixed before the start."""
    if settings.kind:
        return  # kinds of pools have policies of their own
    now, end = world.clock(), world.clock() + settings.minutes * 60
    for project in world.rng.sample(names.PROJECTS, k=3):
        since = now + world.pace * world.rng.uniform(10, 200)
        while since < end:
            until = since + world.pace * world.rng.uniform(30, 110)
            world.over_share.append(Trouble(project, "share", since, until))
            since = until + world.pace * world.rng.uniform(200, 420)


def pool_config(settings: LabSettings, world: LabWorld) -> str:
    """Return the pool's configuration: policies, identities, small scratch file systems."""
    over = (
        " || ".join(
            f'(ProjectName == "{period.point}" && time() > {period.since:.0f} '
            f"&& time() < {period.until:.0f})"
            for period in world.over_share
        )
        or "false"
    )
    fresh = " && time() - JobCurrentStartDate > 9" if settings.memory_policy == "per-run" else ""
    lines = [
        _PER_RUN_POLICY if settings.memory_policy == "per-run" else "",
        # Owners are who they claim to be, and staff may hold any job. That is safe: the pool
        # is private and listens on loopback only.
        "QUEUE_ALL_USERS_TRUSTED = true",
        "SEC_DEFAULT_AUTHENTICATION_METHODS = FS, CLAIMTOBE",
        "SEC_CLIENT_AUTHENTICATION_METHODS = CLAIMTOBE",
        # HTCondor's other plug-ins lack what they need here and would only log errors.
        "FILETRANSFER_PLUGINS = $(LIBEXEC)/curl_plugin, $(LIBEXEC)/data_plugin",
        "NEGOTIATOR_PRE_JOB_RANK = random(1000)",
        "JOB_EPOCH_HISTORY = $(SPOOL)/epoch_history",
        "MAX_EPOCH_HISTORY_LOG = 500000000",
        "MAX_HISTORY_LOG = 500000000",
    ]
    kind = settings.pool_kind
    if kind is not None:
        lines += [kind.config(world)] if kind.config is not None else []
    else:
        lines += _first_policies(over, fresh)
    for point in world.points:
        if point.pid_file is not None:
            lines.append(f"STARTD_{point.name.upper()} = {_small_startd(point)}")
    return "\n".join(lines)


def _first_policies(over: str, fresh: str) -> list[str]:
    """Return the site's policies of a pool without a kind."""
    return [
        "SYSTEM_PERIODIC_HOLD_NAMES = share memory restarts",
        f"SYSTEM_PERIODIC_HOLD_share = JobStatus == 2 && ({over})",
        'SYSTEM_PERIODIC_HOLD_share_REASON = "Project is over its share"',
        "SYSTEM_PERIODIC_HOLD_share_SUBCODE = 41",
        "SYSTEM_PERIODIC_HOLD_memory = JobStatus == 2 && MemoryUsage > 2.4 * RequestMemory" + fresh,
        'SYSTEM_PERIODIC_HOLD_memory_REASON = strcat("Memory usage of ", MemoryUsage, '
        '" MB is far above the request of ", RequestMemory, " MB")',
        "SYSTEM_PERIODIC_HOLD_restarts = JobStatus == 1 && NumJobStarts > RestartLimit",
        'SYSTEM_PERIODIC_HOLD_restarts_REASON = "Job restarted too many times"',
        "SYSTEM_PERIODIC_HOLD_restarts_SUBCODE = 43",
        "SYSTEM_PERIODIC_RELEASE = HoldReasonCode == 26 && HoldReasonSubCode == 41"
        " && time() - EnteredCurrentStatus > 40",
    ]


def _small_startd(point: LabPoint) -> Path:
    """Write a startd wrapper that mounts a small scratch file system, so that it can fill up.

    The mount needs a user namespace in which we are root; a second one makes us the pool's
    account again.
    """
    script = point.directory / "startd"
    script.write_text(f"""\
#!/bin/sh
echo $$ > {point.pid_file}
exec unshare --user --map-root-user --mount sh -c '
    mount -t tmpfs -o size={SMALL_SCRATCH_MB}m,mode=755 tmpfs {point.execute}
    exec unshare --user --map-user='$(id -u)' --map-group='$(id -g)' -- \\
        "$(condor_config_val SBIN)/condor_startd" "$@"
' sh "$@"
""")
    script.chmod(0o755)
    return script


# ---- the loop ---------------------------------------------------------------------------


@dataclass(slots=True)
class _Submitted:
    batch: JobBatch
    scenario: Scenario
    cause: Cause
    owner: Owner | RandomisedOwner
    cluster: int
    program: Program | None = None
    replaces: int | None = None  # the cluster that its owner removed before
    is_replaced: bool = False
    fixed_at: dict[int, float] = field(default_factory=dict)  # proc -> when


@dataclass(slots=True)
class _Held:
    entered: int
    holds: int
    sight: Sight


class _Lab:
    """Submits batches, watches the queue and lets owners act, in one loop and one thread."""

    def __init__(
        self, settings: LabSettings, world: LabWorld, pool: Pool, say: Callable[[str], None]
    ) -> None:
        self.settings, self.world, self.pool, self.say = settings, world, pool, say
        self.rng = Random(f"{settings.seed}/lab")
        seed, self.kind = str(settings.seed), settings.pool_kind
        self.programs: list[Program] = []
        if self.kind is None:
            self.owners = population(
                settings.owners, seed, settings.behaviours, settings.randomised_release
            )
        else:
            self.owners = population_of_kind(
                self.kind, settings.owners, seed, settings.behaviours, settings.randomised_owners
            )
            self.programs = draw_programs(self.kind, self.owners, seed)
        chosen = load_scenarios(settings.kind)
        if settings.scenarios:
            chosen = {name: chosen[name] for name in settings.scenarios}
        self.scenarios = list(chosen.values())
        self.healthy = load_scenarios(settings.kind)["healthy"]
        self.clusters: dict[int, _Submitted] = {}
        self.held: dict[tuple[int, int], _Held] = {}
        self.hold_count: Counter[tuple[int, int]] = Counter()
        self.released: dict[tuple[int, int], tuple[Sight, Owner | RandomisedOwner]] = {}
        self.running: dict[int, str] = {}  # cluster -> slot of one of its jobs
        self.idle = 0
        self.seen_holds = 0
        self.batches = 0
        self.last_submit = 0.0
        self._children: list[subprocess.Popen[bytes]] = []

    def run(self) -> None:
        """Run for the given minutes; submit nothing in the last part, so that jobs can end."""
        start = self.world.clock()
        end = start + 60 * self.settings.minutes
        self.last_submit = end - min(0.2 * (end - start), 240 * self.settings.pace)
        self._plan_troubles(end)
        try:
            self._loop(start, end)
        except KeyboardInterrupt:
            self.say("stopped early; the recording ends here")
        for child in self._children:
            child.wait()

    def _loop(self, start: float, end: float) -> None:
        next_poll = next_batch = start
        report = start + 60
        while (now := self.world.clock()) < end:
            self.world.run_due()
            self._start_commands()
            if now >= next_batch and now < self.last_submit:
                if self.idle < 80:  # wait while the pool is busy
                    self._submit_next()
                next_batch += self.rng.expovariate(self.settings.batches_per_minute / 60)
            if now >= next_poll:
                self._watch()
                next_poll = self.world.clock() + _POLL_SECONDS
            if now >= report:
                report += 60
                self.say(
                    f"{(now - start) / 60:5.1f} min: {len(self.clusters)} clusters, "
                    f"{self.seen_holds} holds, {len(self.held)} held, {self.idle} idle"
                )
            time.sleep(0.05)

    def _plan_troubles(self, end: float) -> None:
        """Schedule troubles of the execution points, independent of any scenario."""
        for point in self.world.points:
            kinds = [kind for kind in TROUBLES if point.can(kind)]
            when = self.world.clock()
            while kinds:
                when += self.world.pace * self.rng.uniform(90, 300)
                until = when + self.world.pace * self.rng.uniform(15, 60)
                if until > end:
                    break
                kind = self.rng.choice(kinds)
                self.world.at(when, partial(self.world.trouble, point, kind, until))
                when = until

    # -- submitting

    def _submit_next(self) -> None:
        """Draw an owner or one of their programs, and what is wrong; submit it."""
        self.batches += 1
        rng = Random(f"{self.settings.seed}/choice/{self.batches}")
        if self.kind is not None:
            [program] = rng.choices(self.programs, [p.activity for p in self.programs])
            scenario = program.next_scenario(rng, self.scenarios, self.kind.persistence)
            self._submit_program(program, scenario)
            return
        owner = rng.choice(list(self.owners.values()))
        [scenario] = rng.choices(self.scenarios, [s.weight for s in self.scenarios])
        self._submit(healthy_batch(self.world, self.batches, owner.name), scenario)

    def _submit_program(
        self, program: Program, scenario: Scenario, replaces: int | None = None
    ) -> None:
        assert self.kind is not None
        batch = program_batch(self.world, self.batches, program, self.kind)
        self._submit(batch, scenario, program, replaces)

    def _submit(
        self,
        batch: JobBatch,
        scenario: Scenario,
        program: Program | None = None,
        replaces: int | None = None,
    ) -> None:
        owner = self.owners[batch.owner]
        cause = scenario.set_up(batch, self.world)
        argv = batch.write_submit_files()
        if batch.dag:
            argv = self._write_dag(batch)
        done = self._as(owner.name, argv, batch.directory)
        cluster = _cluster_of(done)
        if cluster is None:
            # One refused batch must not end a long run.
            self.say(
                f"{scenario.name}: condor_submit failed: {(done.stderr or done.stdout).strip()}"
            )
            return
        self.clusters[cluster] = _Submitted(
            batch, scenario, cause, owner, cluster, program, replaces
        )
        if cause.on_submit is not None:
            cause.on_submit(cluster)

    def _resubmit(self, submitted: _Submitted, is_mended: bool) -> None:
        """Submit the program of a removed cluster again, with its fault or without."""
        program = submitted.program
        if program is None or self.world.clock() > self.last_submit:
            return
        self.batches += 1
        scenario = self.healthy if is_mended else submitted.scenario
        program.scenario = scenario
        self._submit_program(program, scenario, replaces=submitted.cluster)

    @staticmethod
    def _write_dag(batch: JobBatch) -> list[str]:
        nodes = ["A", "B", "C"][: batch.rng.randrange(2, 4)]
        lines = [f"JOB {node} job.sub" for node in nodes]
        lines.append(f"PARENT {nodes[0]} CHILD {' '.join(nodes[1:])}")
        batch.path("flow.dag").write_text("\n".join([*lines, ""]))
        return [
            "condor_submit_dag",
            "-f",
            "-insert_env",
            f"_CONDOR_SEC_CLAIMTOBE_USER={batch.owner}",
            "flow.dag",
        ]

    # -- watching

    def _watch(self) -> None:
        """Query the queue once for new holds, jobs that left it, and outcomes of releases."""
        listing = self.pool.run(
            [
                "condor_q",
                "-allusers",
                "-af",
                "ClusterId",
                "ProcId",
                "JobStatus",
                "EnteredCurrentStatus",
                "DAGManJobId",
                "HoldReasonCode",
                "HoldReasonSubCode",
                "RemoteHost",
                "HoldReason",
            ],
            check=False,
        ).stdout
        in_queue = set()
        self.idle = 0
        self.running.clear()
        for line in listing.splitlines():
            cluster, proc, status, entered, dagman, code, subcode, slot, reason = line.split(" ", 8)
            job = (int(cluster), int(proc))
            if status == "4":  # completed; kept for its spooled files only
                continue
            in_queue.add(job)
            if job[0] not in self.clusters and dagman.isdigit():
                parent = self.clusters.get(int(dagman))
                if parent is not None:
                    self.clusters[job[0]] = parent
            self.idle += status == "1"
            if status == "2":
                self.running[job[0]] = slot
            if status != "5":
                self.held.pop(job, None)
                continue
            before = self.held.get(job)
            if before is None or before.entered != int(entered):
                self.hold_count[job] += 1
                number = self.hold_count[job]
                sight = Sight(_int(code), _int(subcode), reason, number)
                self.held[job] = _Held(int(entered), number, sight)
                self.seen_holds += 1
                self._answer(job, sight)
        for job in [job for job in self.released if job not in in_queue]:
            sight, owner = self.released.pop(job)
            owner.learn(sight, succeeded=True)
            self.held.pop(job, None)
        for job in [job for job in self.held if job not in in_queue]:
            del self.held[job]

    def _answer(self, job: tuple[int, int], sight: Sight) -> None:
        """Let the owner decide about a new hold, and schedule what they do."""
        submitted = self.clusters.get(job[0])
        if submitted is None:
            return
        owner = submitted.owner
        if job in self.released:
            before, _ = self.released.pop(job)
            owner.learn(before, succeeded=False)
        decision = owner.decide(sight)
        if isinstance(owner, RandomisedOwner):
            low, high = self.kind.randomised_releases if self.kind else (3, 7)
            allowed = Random(f"{self.settings.seed}/releases/{job}").randint(low, high)
            if sight.holds > allowed:
                decision = OwnerDecision("remove", decision.delay)
        entered = self.held[job].entered
        self.world.at(
            self.world.clock() + self.world.pace * decision.delay,
            lambda: self._act(job, entered, sight, decision),
        )

    def _act(
        self, job: tuple[int, int], entered: int, sight: Sight, decision: OwnerDecision
    ) -> None:
        held = self.held.get(job)
        if held is None or held.entered != entered:
            return  # somebody else acted first
        submitted = self.clusters[job[0]]
        owner, name = submitted.owner, f"{job[0]}.{job[1]}"
        if decision.action == "ignore":
            return
        if decision.action == "remove":
            self._remove(submitted, name)
            return
        jobs = [job]
        if decision.whole_cluster and not submitted.batch.dag:
            jobs = [other for other in self.held if other[0] == job[0]]
        if decision.action == "fix":
            self._fix(submitted, jobs)
        for other in jobs:
            self.released[other] = (self.held[other].sight, owner)
            del self.held[other]
        self.world.queue_command(owner.name, "condor_release", *(f"{c}.{p}" for c, p in jobs))

    def _remove(self, submitted: _Submitted, name: str) -> None:
        """Remove a job; or its cluster, to submit the program again."""
        kind, owner = self.kind, submitted.owner
        rng = Random(f"{self.settings.seed}/removal/{submitted.batch.number}/{name}")
        if kind is None or submitted.is_replaced or rng.random() >= kind.resubmits:
            self.world.queue_command(owner.name, "condor_rm", name)
            return
        submitted.is_replaced = True
        self.world.queue_command(owner.name, "condor_rm", str(submitted.cluster))
        is_mended = rng.random() < kind.mended
        self.world.at(self.world.after(3, 40, rng), partial(self._resubmit, submitted, is_mended))

    def _fix(self, submitted: _Submitted, jobs: list[tuple[int, int]]) -> None:
        fix, owner = submitted.cause.fix, submitted.owner
        if fix is None or not owner.gets_it_right():
            return  # the fix has no effect
        now = self.world.clock()
        if submitted.program is not None:
            submitted.program.scenario = self.healthy  # the owner fixes the next clusters, too
        if fix.mend is not None:
            fix.mend()
            for proc in range(submitted.batch.procs):
                submitted.fixed_at.setdefault(proc, now)
        for cluster, proc in jobs:
            for attribute, value in fix.edits.items():
                self._as(owner.name, ["condor_qedit", f"{cluster}.{proc}", attribute, value])
            submitted.fixed_at.setdefault(proc, now)

    # -- commands

    def _as(
        self, user: str, argv: Sequence[str], cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv,
            env=self._environ(user),
            cwd=cwd or self.world.root,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )

    def _environ(self, user: str) -> dict[str, str]:
        return {**self.pool.environ, "_CONDOR_SEC_CLAIMTOBE_USER": user}

    def _start_commands(self) -> None:
        """Start the commands queued by owners and scenarios, without waiting for them."""
        self._children = [child for child in self._children if child.poll() is None]
        for user, argv in self.world.commands:
            self._children.append(
                subprocess.Popen(
                    argv,
                    env=self._environ(user),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
        self.world.commands.clear()
        for cluster in self.world.starters_to_kill:
            if slot := self.running.get(cluster):
                self._kill_starter(slot)
        self.world.starters_to_kill.clear()

    def _kill_starter(self, slot: str) -> None:
        slot_name, point = slot.split("@")[:2]
        # A starter's command line names its slot, its startd's names the execution point.
        startds = {pid for pid, words in self._processes("condor_startd") if point.upper() in words}
        for pid, words in self._processes("condor_starter"):
            with contextlib.suppress(OSError):
                parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
                if slot_name in words and parent in startds:
                    os.kill(pid, signal.SIGKILL)

    def _processes(self, program: str) -> Iterator[tuple[int, list[str]]]:
        """Yield id and command line of each process of a daemon of this pool.

        They are recognised by the configuration in their environment.
        """
        config = f"CONDOR_CONFIG={self.pool.config_file}".encode()
        for process in Path("/proc").iterdir():
            if not process.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if words[0].endswith(program) and config in (
                    process / "environ"
                ).read_bytes().split(b"\0"):
                    yield int(process.name), words

    # -- the recording

    def collect(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the last ad of every job, and one ad for each run."""
        for pid, _ in self._processes("condor_dagman"):
            os.kill(pid, signal.SIGSTOP)  # so that DAGMan submits no node after the query
        time.sleep(1)
        ads = {(ad["ClusterId"], ad["ProcId"]): ad for ad in self.pool.jobs()}
        epochs = json.loads(self.pool.run(["condor_history", "-epochs", "-json"]).stdout or "[]")
        return [ads[job] for job in sorted(ads)], list(reversed(epochs))

    def truths(self, ads: list[dict[str, Any]]) -> list[Truth]:
        """Return the truth about every job that was ever in the queue."""
        rows = []
        for ad in ads:
            cluster, proc = ad["ClusterId"], ad["ProcId"]
            submitted = self.clusters.get(cluster) or self.clusters.get(ad.get("DAGManJobId", -1))
            if submitted is None:
                raise RuntimeError(f"job {cluster}.{proc} belongs to no batch")
            cause, scenario = submitted.cause, submitted.scenario
            manager = submitted.batch.dag and "DAGManJobId" not in ad
            ended = cause.ends if cause.ends is not None and cause.ends < time.time() else None
            rows.append(
                Truth(
                    cluster,
                    proc,
                    submitted.owner.name,
                    scenario.name,
                    scenario.family,
                    "none (DAGMan itself)" if manager else cause.description,
                    cause.transient,
                    utc(ended),
                    utc(submitted.fixed_at.get(proc)),
                    submitted.replaces,
                )
            )
        return rows


def _int(word: str) -> int:
    return int(word) if word.lstrip("-").isdigit() else 0


def _cluster_of(done: subprocess.CompletedProcess[str]) -> int | None:
    """Return the cluster id that condor_submit or condor_submit_dag printed."""
    if done.returncode != 0:
        return None
    first = done.stdout.strip().splitlines()[0].split(".")[0] if done.stdout.strip() else ""
    if first.isdigit():
        return int(first)
    for line in done.stdout.splitlines():
        if "submitted to cluster" in line:
            return int(line.rstrip(". ").split()[-1])
    return None
