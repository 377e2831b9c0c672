"""Event logs at scale, in HTCondor's own format, from causes that the log does not name.

Users with habits submit clusters; a cluster may have a fault; execution points have bad
hours, file servers outages, users deadlines. A held job waits for its owner, who acts on
what the hold looks like. The profile says how often things happen, and two controllers
keep the share of held jobs and the holds per held job at its targets.

The work goes cluster by cluster in the order of submission. Events that lie after the next
submission wait in memory, so that the log is written in order, in one pass, and memory does
not grow with the number of jobs.
"""

from __future__ import annotations

import bisect
import json
import math
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

import numpy as np

from condor_advice.gather.errors import UsageError
from condor_advice.lab import names
from condor_advice.lab.truth import Truth, utc

PROFILES = Path(__file__).parents[1] / "profiles"
_BLOCK_JOBS = 20_000
_HOUR, _DAY = 3600, 86400


# ---- the profile ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Targets:
    """What the result should look like."""

    jobs_per_day: float
    held_share: float
    holds_per_held_job: float


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes and rates of everything; see profiles/ospool.toml for what each means."""

    access_points: int
    start: str
    users: int
    user_exponent: float
    cluster_exponent: float
    largest_cluster: int
    single_job_share: float
    run_minutes_median: float
    run_minutes_sigma: float
    wait_minutes_median: float
    execution_points: int
    bad_execution_points: float
    outages_per_week: float
    outage_hours: float
    outage_severity: float
    old_wordings: float
    upgrade_after_days: float
    evictions_per_run: float
    failing_share: float


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How the event log is written."""

    iso_dates: bool
    ad_information: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """All that a simulation needs besides the number of jobs and the seed."""

    targets: Targets
    shape: Shape
    log: LogSettings
    faults: Mapping[str, float]

    @classmethod
    def read(cls, path: Path | None = None) -> Profile:
        """Read a TOML file; without one, the OSPool profile. Unknown keys are errors."""
        path = path or PROFILES / "ospool.toml"
        try:
            tables = tomllib.loads(path.read_text())
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"{path}: cannot be read as a profile: {error}") from error
        unknown = set(tables) - {field.name for field in fields(cls)}
        if unknown or len(tables) < 4:
            raise UsageError(
                f"{path}: a profile has [targets], [shape], [log] and [faults]; "
                f"not {', '.join(sorted(unknown)) or 'fewer'}"
            )
        faults = tables["faults"]
        if wrong := sorted(set(faults) - set(FAULTS)):
            raise UsageError(
                f"{path}: no such fault: {', '.join(wrong)}; there are {', '.join(FAULTS)}"
            )
        return cls(
            _table(path, Targets, tables["targets"]),
            _table(path, Shape, tables["shape"]),
            _table(path, LogSettings, tables["log"]),
            faults,
        )


def _table(path: Path, kind: Any, values: dict[str, Any]) -> Any:
    known = {field.name for field in fields(kind)}
    if wrong := sorted(known ^ set(values)):
        raise UsageError(
            f"{path}: [{kind.__name__.lower()}] has unknown or missing keys: {', '.join(wrong)}"
        )
    return kind(**values)


# ---- faults and their wordings -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wording:
    """How one version of HTCondor says it; {braces} are filled in for each job."""

    code: int
    subcode: int
    text: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A cause: where in a run it strikes, whether it passes, and what the log says.

    `stage` is how far a run gets: "idle" (no start), "input", "exec", "run", "output" or
    "exit". `nature` is "always", "ends" (at a time), "chance" (anew in each run) or "host".
    """

    family: str
    stage: str
    nature: str
    what: str
    old: tuple[Wording, ...]
    new: tuple[Wording, ...]
    fixable: bool = True


_OLD_INPUT = Wording(
    13,
    2,
    "Error from {slot}: SHADOW at {ap_ip} failed to send file(s) to "
    "<{ip}:{port}>: error reading from {home}/{data}: (errno 2) No such file or "
    "directory; STARTER failed to receive file(s) from <{ap_ip}:9618>",
)
_NEW_INPUT = Wording(
    13,
    2,
    "Transfer input files failure at access point {ap} while sending "
    "files to execution point {slot}. Details: reading from file {home}/{data}: "
    "(errno 2) No such file or directory",
)
_OLD_OUTPUT = Wording(
    13,
    2,
    "Error from {slot}: STARTER at {ip} failed to send file(s) to "
    "<{ap_ip}:9618>: error reading from {scratch}/{data}: (errno 2) No such "
    "file or directory; SHADOW failed to receive file(s) from <{ip}:{port}>",
)
_NEW_OUTPUT = Wording(
    12,
    2,
    "Transfer output files failure at execution point {slot} while "
    "sending files to access point {ap}. Details: reading from file "
    "{scratch}/{data}: (errno 2) No such file or directory",
)
_URL = (
    "Transfer input files failure at execution point {slot} using protocol http. Details: "
    "The requested URL returned error: %d ( URL file = http://data.example.org/{data} )"
)
_OLD_URL = (
    "Error from {slot}: FILETRANSFER:1:non-zero exit (1) from "
    "/usr/libexec/condor/curl_plugin. |Error: The requested URL returned error: %d "
    "( URL file = http://data.example.org/{data} )|"
)
_OLD_MEMORY = (
    Wording(
        34,
        0,
        "Error from {slot}: Job has gone over memory limit of {request} megabytes. "
        "Peak usage: {used} megabytes.",
    ),
    Wording(26, 0, "The job's memory usage of {used} MB exceeds its request of {request} MB"),
)
_NEW_MEMORY = (
    Wording(
        34,
        102,
        "Error from {slot}: Job has gone over cgroup memory limit of {request} "
        "megabytes. Last measured usage: {used} megabytes.  Consider resubmitting with a "
        "higher request_memory.",
    ),
    Wording(21, 102, "Error from {slot}: memory usage exceeded request_memory"),
)
_EXEC = "Error from {slot}: Failed to execute '{scratch}/{program}': (errno=%d: '%s')"
_ON_EXIT = (
    Wording(3, 0, "The job attribute OnExitHold expression 'ExitCode =!= 0' evaluated to TRUE"),
    Wording(3, 0, "exited with code {exit}"),
)

FAULTS: Mapping[str, Fault] = {
    "input_missing": Fault(
        "input", "input", "always", "an input file does not exist", (_OLD_INPUT,), (_NEW_INPUT,)
    ),
    "input_late": Fault(
        "input",
        "input",
        "ends",
        "an input file is not written yet",
        (_OLD_INPUT,),
        (_NEW_INPUT,),
        fixable=False,
    ),
    "url_outage": Fault(
        "url",
        "input",
        "ends",
        "the file server is down",
        (Wording(12, 256, _OLD_URL % 503),),
        (Wording(13, 256, _URL % 503),),
        fixable=False,
    ),
    "url_wrong": Fault(
        "url",
        "input",
        "always",
        "the URL is wrong",
        (Wording(12, 256, _OLD_URL % 404),),
        (Wording(13, 256, _URL % 404),),
    ),
    "credential_expired": Fault(
        "url",
        "input",
        "ends",
        "the credential has expired",
        (Wording(12, 256, _OLD_URL % 403),),
        (Wording(13, 256, _URL % 403),),
    ),
    "output_missing": Fault(
        "output",
        "output",
        "always",
        "an output file is never written",
        (_OLD_OUTPUT,),
        (_NEW_OUTPUT,),
    ),
    "output_sometimes": Fault(
        "output",
        "output",
        "chance",
        "an output file is sometimes written",
        (_OLD_OUTPUT,),
        (_NEW_OUTPUT,),
        fixable=False,
    ),
    "output_quota": Fault(
        "output",
        "output",
        "ends",
        "the owner is over quota",
        (
            Wording(
                12,
                122,
                "Error from {slot}: STARTER at {ip} failed to send file(s) to "
                "<{ap_ip}:9618>; SHADOW at {ap_ip} failed to write to file {home}/{data}: "
                "(errno 122) Disk quota exceeded",
            ),
        ),
        (
            Wording(
                12,
                122,
                "Transfer output files failure at access point {ap} while receiving "
                "files from execution point {slot}. Details: writing to file {home}/{data}: "
                "(errno 122) Disk quota exceeded",
            ),
        ),
    ),
    "executable_missing": Fault(
        "executable",
        "exec",
        "always",
        "the program is installed nowhere",
        (Wording(6, 2, _EXEC % (2, "No such file or directory")),),
        (Wording(6, 2, _EXEC % (2, "No such file or directory")),),
    ),
    "executable_on_some_hosts": Fault(
        "executable",
        "exec",
        "host",
        "some execution points do not have the program",
        (Wording(6, 2, _EXEC % (2, "No such file or directory")),),
        (Wording(6, 2, _EXEC % (2, "No such file or directory")),),
        fixable=False,
    ),
    "exec_format": Fault(
        "executable",
        "exec",
        "always",
        "the executable is for another architecture",
        (Wording(6, 8, _EXEC % (8, "Exec format error")),),
        (Wording(6, 8, _EXEC % (8, "Exec format error")),),
    ),
    "interpreter": Fault(
        "executable",
        "exec",
        "always",
        "the interpreter does not exist",
        (Wording(6, 2, _EXEC % (2, "No such file or directory")),),
        (
            Wording(
                6,
                2,
                "Error from {slot}: Failed to execute '{scratch}/{program}': invalid "
                "interpreter (/usr/bin/python2) specified on first line of script (errno=2: "
                "'No such file or directory')",
            ),
        ),
    ),
    "memory_always": Fault(
        "memory",
        "run",
        "always",
        "the job always needs more memory than requested",
        _OLD_MEMORY,
        _NEW_MEMORY,
    ),
    "memory_by_input": Fault(
        "memory",
        "run",
        "chance",
        "some runs need more memory than requested",
        _OLD_MEMORY,
        _NEW_MEMORY,
    ),
    "disk_always": Fault(
        "disk",
        "run",
        "always",
        "the job always needs more disk than requested",
        (Wording(21, 0, "Error from {slot}: Policy violation. Disk usage exceeded the request"),),
        (Wording(34, 104, "Error from {slot}: disk usage exceeded allocated disk"),),
    ),
    "duration": Fault(
        "time",
        "run",
        "always",
        "the job is longer than allowed",
        (Wording(26, 0, "The job exceeded the allowed run time"),),
        (Wording(47, 0, "The job exceeded allowed execute duration of 20:00:00"),),
    ),
    "run_hangs": Fault(
        "policy",
        "run",
        "chance",
        "some runs hang",
        (
            Wording(
                3,
                0,
                "The job attribute PeriodicHold expression '(JobStatus == 2) && "
                "(time() - EnteredCurrentStatus > 36000)' evaluated to TRUE",
            ),
        ),
        (Wording(3, 0, "ran too long"),),
        fixable=False,
    ),
    "exit_bug": Fault("exit", "exit", "always", "a bug in the program", _ON_EXIT, _ON_EXIT),
    "exit_by_chance": Fault(
        "exit", "exit", "chance", "the program fails by chance", _ON_EXIT, _ON_EXIT, fixable=False
    ),
    "exit_service_down": Fault(
        "exit",
        "exit",
        "ends",
        "a service of the program is down",
        _ON_EXIT,
        _ON_EXIT,
        fixable=False,
    ),
    "user_holds": Fault(
        "people",
        "idle",
        "ends",
        "the owner held it",
        (Wording(1, 0, "via condor_hold (by user {owner})"),),
        (Wording(1, 0, "via condor_hold (by user {owner})"),),
        fixable=False,
    ),
    "restarts": Fault(
        "host",
        "idle",
        "always",
        "too many restarts for the site policy",
        (
            Wording(
                26,
                0,
                "The system macro SYSTEM_PERIODIC_HOLD expression 'NumJobStarts > 10' "
                "evaluated to TRUE",
            ),
        ),
        (Wording(26, 0, "Job restarted too many times"),),
    ),
}
# What an execution point in its bad hours does to any job.
_BAD_HOST = Fault(
    "host",
    "input",
    "host",
    "an execution point in trouble",
    (
        Wording(
            13,
            28,
            "Error from {slot}: STARTER at {ip} failed to write to file "
            "{scratch}/{data}: (errno 28) No space left on device; SHADOW at {ap_ip} failed to "
            "send file(s) to <{ip}:{port}>",
        ),
    ),
    (
        Wording(
            13,
            28,
            "Transfer input files failure at execution point {slot} while receiving "
            "files from access point {ap}. Details: writing to file {scratch}/{data}: (errno 28) "
            "No space left on device",
        ),
    ),
    fixable=False,
)


# ---- the world ----------------------------------------------------------------------------


@dataclass(slots=True)
class _User:
    name: str
    weight: float
    faults: list[float]  # propensity, in the order of the profile's faults
    visit_hours: float  # mean time until they look at a hold
    release: float  # how likely a look ends in a release
    fix: float  # how likely they try to fix first
    skill: float
    automatic: float  # share of clusters with a periodic_release
    deadlines: list[float]  # in whose last two days they hurry


@dataclass(slots=True)
class _Host:
    name: str
    ip: str
    address: str
    old: bool
    bad: list[tuple[float, float]]  # sorted, apart from each other


@dataclass(slots=True)
class _Cluster:
    number: int
    user: _User
    submit: int
    procs: int
    memory: int
    disk: int
    run_seconds: float
    uses_url: bool
    automatic: bool
    batch: str
    program: str
    data: str
    fault: str | None = None
    hits: int = 0
    ends: float = math.inf  # of the cause, if it passes
    chance: float = 0.0
    tables: dict[bool, str] = field(default_factory=dict)  # of the usage; see _resources
    factor: float = 1.5  # memory used over memory requested, when it is too much


@dataclass(slots=True)
class Result:
    """What came out, and how it compares with the profile."""

    directory: Path
    seconds: float
    jobs: int = 0
    events: int = 0
    bytes: int = 0
    held_jobs: int = 0
    holds: int = 0
    days: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    users: Counter[str] = field(default_factory=Counter)
    largest_cluster: int = 0
    access_points: int = 1

    def comparison(self, targets: Targets) -> dict[str, dict[str, float]]:
        """Measured against wanted."""
        jobs, held, holds = max(self.jobs, 1), max(self.held_jobs, 1), max(self.holds, 1)
        return {
            "jobs_per_day": {
                "wanted": targets.jobs_per_day,
                "measured": self.jobs / self.access_points / max(self.days, 1e-9),
            },
            "held_share": {"wanted": targets.held_share, "measured": self.held_jobs / jobs},
            "holds_per_held_job": {
                "wanted": targets.holds_per_held_job,
                "measured": self.holds / held,
            },
            "repeat_share": {
                "wanted": 1 - 1 / targets.holds_per_held_job,
                "measured": 1 - self.held_jobs / holds,
            },
        }

    def as_json(self, profile: Profile) -> dict[str, Any]:
        """All figures as plain values."""
        busiest = sum(count for _, count in self.users.most_common(max(1, len(self.users) // 10)))
        return {
            "directory": str(self.directory),
            "jobs": self.jobs,
            "events": self.events,
            "bytes": self.bytes,
            "days": round(self.days, 3),
            "held_jobs": self.held_jobs,
            "holds": self.holds,
            "seconds": round(self.seconds, 2),
            "jobs_per_second": round(self.jobs / max(self.seconds, 1e-9)),
            "comparison": self.comparison(profile.targets),
            "share_of_busiest_tenth_of_users": round(busiest / max(self.jobs, 1), 3),
            "largest_cluster": self.largest_cluster,
            "holds_by_code": dict(self.codes.most_common()),
            "outcomes": dict(self.outcomes.most_common()),
        }


def simulate(jobs: int, seed: int, out: Path, profile: Profile) -> Result:
    """Write `out`/apN/EventLog for each access point and `out`/truth.jsonl."""
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty; name a new directory for the logs")
    out.mkdir(parents=True, exist_ok=True)
    result = Result(out, seconds=0.0, access_points=profile.shape.access_points)
    began = time.perf_counter()
    with (out / "truth.jsonl").open("w") as truth:
        for number in range(1, profile.shape.access_points + 1):
            share = jobs // profile.shape.access_points
            share += number <= jobs % profile.shape.access_points
            name = f"ap{number}"
            (out / name).mkdir()
            with (out / name / "EventLog").open("wb") as log:
                _AccessPoint(name, share, seed, profile, log, truth.write, result).run()
    result.seconds = time.perf_counter() - began
    (out / "manifest.json").write_text(
        json.dumps({"seed": seed, "profile": asdict(profile), **result.as_json(profile)}, indent=1)
        + "\n"
    )
    return result


class _AccessPoint:
    """One access point's log, from the first submission to the last event."""

    def __init__(
        self,
        name: str,
        jobs: int,
        seed: int,
        profile: Profile,
        log: BinaryIO,
        tell: Callable[[str], object],
        result: Result,
    ) -> None:
        self.name, self.jobs, self.profile, self.result = name, jobs, profile, result
        self.shape, self.targets = profile.shape, profile.targets
        self.log, self.tell = log, tell
        self.rng = Random(f"{seed}/{name}")
        self.numpy = np.random.default_rng([seed, int(name[2:])])
        self.start = int(datetime.fromisoformat(self.shape.start).replace(tzinfo=UTC).timestamp())
        self.upgrade = self.start + self.shape.upgrade_after_days * _DAY
        span = jobs / self.targets.jobs_per_day * _DAY * 1.5 + 30 * _DAY
        # Execution points and outages belong to the pool: every access point meets the same.
        world = Random(f"{seed}/world")
        self.hosts = [
            _draw_host(world, number, self.shape, self.start, span)
            for number in range(self.shape.execution_points)
        ]
        self.outages = _windows(
            world,
            self.start,
            span,
            7 * _DAY / max(self.shape.outages_per_week, 1e-9),
            self.shape.outage_hours * _HOUR,
        )
        self.outage_starts = [since for since, _ in self.outages]
        self.fault_names = list(profile.faults)
        weights = [profile.faults[fault] for fault in self.fault_names]
        self.users = [
            _draw_user(self.rng, rank, self.shape, weights, self.start, span)
            for rank in range(self.shape.users)
        ]
        self.user_weights = [user.weight for user in self.users]
        self.address = (
            f"<10.0.0.{name[2:]}:9618?addrs=10.0.0.{name[2:]}-9618&alias={name}"
            f".example.org&noUDP&sock=schedd_1201_{seed % 65536:04x}>"
        )
        self.stamps = _Stamps(profile.log.iso_dates)
        self.times: list[int] = []
        self.texts: list[str] = []
        self.held_jobs = self.holds = self.seen = 0
        self.expected_mean_size = _mean_cluster_size(self.shape)

    # -- the stream

    def run(self) -> None:
        """Go through all clusters, a block at a time."""
        self._header()
        clusters = self._clusters()
        pending: _Cluster | None = next(clusters, None)
        last = self.start
        while pending is not None:
            block_jobs = 0
            while pending is not None and block_jobs < _BLOCK_JOBS:
                self._simulate(pending)
                block_jobs += pending.procs
                last = pending.submit
                pending = next(clusters, None)
            self._flush(pending.submit if pending is not None else None)
        self.result.days = max(self.result.days, (last - self.start) / _DAY)

    def _header(self) -> None:
        text = (
            f"008 (-01.-01.-01) {self.stamps(self.start)} Global JobLog: ctime={self.start} "
            f"id=1.1201.{self.start}.0.1.{self.start}.0 sequence=1 size=0 events=0 offset=0 "
            f"event_off=0 max_rotation=1 creator_name=<{self.name}>"
        )
        self._emit(self.start, text.ljust(255) + "\n...\n", 1)

    def _clusters(self) -> Iterator[_Cluster]:
        now, done, number = float(self.start), 0, 1
        rate = self.targets.jobs_per_day / _DAY
        while done < self.jobs:
            cluster = self._draw_cluster(number, now, self.jobs - done)
            done += cluster.procs
            yield cluster
            number += self.rng.choice((1, 1, 1, 2))  # some ids never reach the queue
            # Big clusters are followed by calmer times, so that days come out right.
            ahead = done - rate * (now - self.start)
            calm = min(max(1 + ahead / (0.1 * self.targets.jobs_per_day), 0.2), 8.0)
            busy = 1 + 0.6 * math.sin((now % _DAY / _DAY - 0.3) * 2 * math.pi)
            now += self.rng.expovariate(1) * self.expected_mean_size / rate * calm / busy

    def _draw_cluster(self, number: int, now: float, left: int) -> _Cluster:
        rng, shape = self.rng, self.shape
        [user] = rng.choices(self.users, self.user_weights)
        procs = 1
        if rng.random() > shape.single_job_share:
            procs = int(1 + rng.paretovariate(shape.cluster_exponent))
        procs = min(procs, shape.largest_cluster, left)
        run = shape.run_minutes_median * 60 * rng.lognormvariate(0, shape.run_minutes_sigma)
        cluster = _Cluster(
            number,
            user,
            int(now),
            procs,
            memory=rng.choice((1024, 2048, 2048, 4096, 8192)),
            disk=rng.choice((1, 2, 4, 10)) << 20,
            run_seconds=min(max(run, 20.0), 40.0 * _HOUR),
            uses_url=rng.random() < 0.5,
            automatic=rng.random() < user.automatic,
            batch=names.batch(rng),
            program=names.program(rng),
            data=names.data(rng),
        )
        self.result.users[user.name] += procs
        self.result.largest_cluster = max(self.result.largest_cluster, procs)
        self._draw_fault(cluster)
        return cluster

    def _draw_fault(self, cluster: _Cluster) -> None:
        """Decide whether the cluster has a fault, steered to the target share of held jobs."""
        rng = self.rng
        wanted = self.targets.held_share * (self.seen + cluster.procs)
        deficit = wanted - self.held_jobs
        self.seen += cluster.procs
        if deficit < 0.5 or rng.random() < 0.6:
            return
        [cluster.fault] = rng.choices(self.fault_names, cluster.user.faults)
        fault = FAULTS[cluster.fault]
        # A wrong path hits all jobs of a cluster, a bad input some of them.
        hit = cluster.procs if rng.random() < 0.35 else rng.random() * cluster.procs
        cluster.hits = max(1, min(cluster.procs, int(hit), int(2 * deficit) + 1))
        if fault.nature == "ends":
            cluster.ends = cluster.submit + _HOUR * rng.lognormvariate(0.9, 1.2)
        cluster.chance = rng.choice((0.2, 0.4, 0.6, 0.8))
        cluster.factor = rng.uniform(1.02, 2.2)

    @property
    def tenacity(self) -> float:
        """What is added to the log odds of a release, to bring holds per held job to target."""
        lacking = self.targets.holds_per_held_job * self.held_jobs - self.holds
        return min(max(lacking / 80, -5.0), 3.0)

    def _emit(self, when: int, text: str, events: int) -> None:
        self.times.append(when)
        self.texts.append(text)
        self.result.events += events

    def _flush(self, horizon: int | None) -> None:
        """Write what nothing can precede any more: everything before the next submission."""
        times = np.asarray(self.times, dtype=np.int64)
        order = np.argsort(times, kind="stable")
        ready = len(times) if horizon is None else int(np.searchsorted(times[order], horizon))
        texts = self.texts
        data = "".join([texts[i] for i in order[:ready].tolist()]).encode()
        self.log.write(data)
        self.result.bytes += len(data)
        kept = order[ready:].tolist()
        self.times = [self.times[i] for i in kept]
        self.texts = [texts[i] for i in kept]

    # -- jobs

    def _simulate(self, cluster: _Cluster) -> None:
        """Draw all first runs of a cluster at once; go through the unlucky ones by hand."""
        n, rng = cluster.procs, self.numpy
        # Jobs of a large cluster start one after the other as slots become free.
        wait = (
            self.shape.wait_minutes_median * 60 * rng.lognormal(0, 1.0, n)
            + np.arange(n) * rng.exponential(1.5)
        ).astype(np.int64) + 2
        run = np.maximum(cluster.run_seconds * rng.lognormal(0, 0.35, n), 5).astype(np.int64)
        host = rng.integers(0, len(self.hosts), n)
        slot = rng.integers(1, 48, n)
        used = np.maximum(cluster.memory * rng.uniform(0.05, 0.9), 2) * rng.uniform(0.8, 1.1, n)
        bad_exit = rng.random(n) < self.shape.failing_share
        evicted = rng.random(n) < self.shape.evictions_per_run
        hits = set()
        if cluster.fault:
            hits = set(rng.choice(n, size=cluster.hits, replace=False).tolist())
        # Plain lists: indexing them is what the loop below spends its time on.
        waits, runs, hosts, slots = wait.tolist(), run.tolist(), host.tolist(), slot.tolist()
        useds, bad_exits = used.astype(np.int64).tolist(), bad_exit.tolist()
        evictions = evicted.tolist()
        self.result.jobs += n
        for proc in range(n):
            begin = cluster.submit + waits[proc]
            outage = cluster.uses_url and self._in_outage(begin)
            if (
                proc in hits
                or evictions[proc]
                or outage
                or self._host_is_bad(self.hosts[hosts[proc]], begin)
            ):
                _Life(self, cluster, proc, proc in hits, evictions[proc], outage).live(
                    begin, runs[proc], hosts[proc], slots[proc], useds[proc], bad_exits[proc]
                )
            else:
                self._plain_job(
                    cluster,
                    proc,
                    begin,
                    runs[proc],
                    self.hosts[hosts[proc]],
                    slots[proc],
                    useds[proc],
                    bad_exits[proc],
                )

    def _host_is_bad(self, host: _Host, when: float) -> bool:
        return any(since <= when < until for since, until in host.bad)

    def _in_outage(self, when: float) -> bool:
        """Whether a transfer at that time fails: some do in an outage, most find a way round."""
        nth = bisect.bisect_right(self.outage_starts, when) - 1
        return (
            nth >= 0
            and when < self.outages[nth][1]
            and self.rng.random() < self.shape.outage_severity
        )

    def _plain_job(
        self,
        cluster: _Cluster,
        proc: int,
        begin: int,
        run: int,
        host: _Host,
        slot: int,
        used: int,
        bad_exit: bool,
    ) -> None:
        """The eight events of a job with which nothing happens; by far the most frequent."""
        job = f"({cluster.number:03d}.{proc:03d}.000)"
        write = _Events(self, cluster, proc, job)
        write.submitted(cluster.submit)
        write.started(begin, host, slot)
        write.image_size(begin + min(8, run), used // 2 + 1)
        if run > 900:
            write.image_size(begin + 600, used)
        write.finished(begin + run + 2, run, used, self._exit_text(cluster, bad_exit))

    def _exit_text(self, cluster: _Cluster, bad_exit: bool) -> str:
        if not bad_exit:
            return "(1) Normal termination (return value 0)"
        if self.rng.random() < 0.25:
            signal = self.rng.choice((6, 9, 11, 15))
            return f"(0) Abnormal termination (signal {signal})\n\t(0) No core file"
        return f"(1) Normal termination (return value {self.rng.choice((1, 1, 2, 127, 139))})"


class _Life:
    """One job to which something happens: holds, releases, evictions, and its end."""

    def __init__(
        self, ap: _AccessPoint, cluster: _Cluster, proc: int, hit: bool, evicted: bool, outage: bool
    ) -> None:
        self.ap, self.cluster, self.proc, self.rng = ap, cluster, proc, ap.rng
        self.hit, self.evicted, self.outage = hit, evicted, outage
        self.fixed: float | None = None
        self.holds: list[tuple[int, int]] = []
        self.causes: list[Fault] = []
        self.write = _Events(ap, cluster, proc, f"({cluster.number:03d}.{proc:03d}.000)")

    def live(
        self, begin: int, run: int, host_number: int, slot: int, used: int, bad_exit: bool
    ) -> None:
        """From submission to the end of the job, or to a hold that nobody ends."""
        ap, rng = self.ap, self.rng
        self.write.submitted(self.cluster.submit)
        when, outcome = begin, "left"
        while True:
            host = ap.hosts[host_number]
            fault = self._fault_now(host, host_number, when)
            if fault is not None:
                when = self._hold(fault, when, run, host, slot, used)
                released = self._owner(fault, when)
                if released is None:
                    outcome = "NEVER_RELEASED"
                    break
                when, removed = released
                if removed:
                    outcome = "REMOVED"
                    break
            else:
                self.write.started(when, host, slot)
                if self.evicted:
                    self.evicted = False
                    when += max(5, int(run * rng.random()))
                    self.write.evicted(when, 1022, 0, "Job vacated by schedd", used)
                else:
                    self.write.image_size(when + min(8, run), used // 2 + 1)
                    self.write.finished(
                        when + run + 2, run, used, ap._exit_text(self.cluster, bad_exit)
                    )
                    outcome = "FAILED" if bad_exit else "SUCCEEDED"
                    break
            when += 2 + int(120 * rng.lognormvariate(0, 1))
            host_number, slot = rng.randrange(len(ap.hosts)), rng.randrange(1, 48)
            run = max(5, int(self.cluster.run_seconds * rng.lognormvariate(0, 0.35)))
            bad_exit = rng.random() < ap.shape.failing_share
        self._account(outcome)

    def _fault_now(self, host: _Host, host_number: int, when: int) -> Fault | None:
        """What holds the job if it starts here and now, if anything does."""
        cluster, ap = self.cluster, self.ap
        if self.hit and cluster.fault and self.fixed is None:
            fault = FAULTS[cluster.fault]
            active = {
                "always": True,
                "ends": when < cluster.ends,
                "chance": not self.holds or self.rng.random() < cluster.chance,
                # The same hosts lack it for the whole cluster.
                "host": not self.holds
                or (host_number * 2654435761 + cluster.number) % 100 < 100 * cluster.chance,
            }[fault.nature]
            if active:
                return fault
        if ap._host_is_bad(host, when):
            return _BAD_HOST
        outage = self.outage or (bool(self.holds) and cluster.uses_url and ap._in_outage(when))
        self.outage = False
        if outage:
            return FAULTS["url_outage"]
        return None

    def _hold(self, fault: Fault, when: int, run: int, host: _Host, slot: int, used: int) -> int:
        """Write the run up to the hold; the time of the hold."""
        ap, cluster, rng, write = self.ap, self.cluster, self.rng, self.write
        old = when < ap.upgrade and host.old
        word = rng.choice(fault.old if old else fault.new)
        if fault.family == "memory":
            used = int(cluster.memory * cluster.factor)
        scratch = f"/var/lib/condor/execute/dir_{rng.randrange(2000, 60000)}"
        details = {
            "slot": f"slot1_{slot}@{host.name}",
            "ap": ap.name,
            "ap_ip": f"10.0.0.{ap.name[2:]}",
            "ip": host.ip,
            "port": rng.randrange(20000, 60000),
            "scratch": scratch,
            "home": f"/home/{cluster.user.name}/{cluster.batch}",
            "data": cluster.data,
            "program": cluster.program,
            "request": cluster.memory,
            "used": used,
            "owner": cluster.user.name,
            "exit": rng.choice((1, 2, 134)),
        }
        reason = word.text.format_map(details)
        starter_says = reason.partition(": ")[2] if reason.startswith("Error from") else reason
        if fault.stage == "input":
            write.transfers_in(when, host, slot)
            when += rng.randrange(2, 30)
        elif fault.stage != "idle":
            write.started(when, host, slot)
            if fault.stage == "exec":
                when += rng.randrange(1, 12)
            else:
                if fault.stage == "run":
                    write.image_size(when + 8, used)
                share = rng.random() if fault.stage == "run" else 1.0
                when += max(10, int(run * share))
                if fault.stage in ("output", "exit"):
                    write.transfers_out(when)
        if fault.stage in ("input", "exec", "output") or word.code in (21, 34):
            write.remote_error(when, details["slot"], starter_says, word.code, word.subcode)
            write.evicted(when + 1, word.code, word.subcode, reason, used)
        write.held(when + 1, reason, word.code, word.subcode)
        self.holds.append((word.code, word.subcode))
        self.causes.append(fault)
        ap.holds += 1
        ap.result.holds += 1
        ap.result.codes[f"{word.code}/{word.subcode}"] += 1
        if len(self.holds) == 1:
            ap.held_jobs += 1
            ap.result.held_jobs += 1
        elif len(self.holds) > 1:
            same = self.holds[-1][0] == self.holds[-2][0]
            ap.result.outcomes["HELD_SAME" if same else "HELD_OTHER"] += 1
        return when + 1

    def _owner(self, fault: Fault, held: int) -> tuple[int, bool] | None:
        """When the job is released, or removed (then True); None when nobody does anything."""
        cluster, rng, user, count = self.cluster, self.rng, self.cluster.user, len(self.holds)
        tenacity = self.ap.tenacity
        if cluster.automatic and fault.family != "people" and count <= 8 and tenacity > -2.5:
            when = held + int(rng.choice((300, 600, 1200, 3600)) * rng.uniform(0.9, 1.2))
            self.write.released(
                when,
                "The job attribute PeriodicRelease expression "
                "'(NumHolds < 9) && (time() - EnteredCurrentStatus > 300)' "
                "evaluated to TRUE",
            )
            return when, False
        hurry = any(0 < deadline - held < 2 * _DAY for deadline in user.deadlines)
        odds = math.log(user.release / (1 - user.release)) + tenacity
        odds += (0.8 if hurry else 0.0) - 0.25 * (count - 1)
        odds -= 0.8 if fault.family in ("memory", "disk", "executable") else 0.0
        delay = user.visit_hours * (0.3 if hurry else 1.0) * rng.expovariate(1) * _HOUR
        hour = (held + delay) % _DAY / _HOUR
        if not 7 <= hour < 22:  # at night nobody looks
            delay += ((31 - hour) % 24) * _HOUR
        when = held + 60 + int(delay)
        if rng.random() < 1 / (1 + math.exp(-odds)):
            if fault.fixable and rng.random() < user.fix:
                when += int(rng.expovariate(1 / 1800))
                if rng.random() < user.skill:
                    self.fixed = when
            self.write.released(when, f"via condor_release (by user {user.name})")
            return when, False
        if rng.random() < 0.6:
            self.write.aborted(when, f"via condor_rm (by user {user.name})")
            self.ap.result.outcomes["NEVER_RELEASED"] += 1
            return when, True
        return None

    def _account(self, outcome: str) -> None:
        """Count the outcome of the last hold, and tell the truth about the job."""
        if not self.holds and not self.hit:
            return
        cluster = self.cluster
        if self.holds and outcome != "REMOVED":
            self.ap.result.outcomes[outcome] += 1
        fault = FAULTS[cluster.fault] if self.hit and cluster.fault else None
        cause = fault or self.causes[0]
        ends = cluster.ends if fault and fault.nature == "ends" else None
        row = Truth(
            cluster.number,
            self.proc,
            cluster.user.name,
            cluster.fault or "healthy",
            cause.family,
            cause.what,
            cause.nature != "always",
            utc(ends),
            utc(self.fixed),
        )
        foreign = [
            {"hold": nth, "cause": each.what}
            for nth, each in enumerate(self.causes, 1)
            if each is not fault
        ]
        row.struck.extend(foreign)
        self.ap.tell(json.dumps({"access_point": self.ap.name, **asdict(row)}) + "\n")


class _Events:
    """The events of one job in the layout of HTCondor's user log."""

    __slots__ = ("ap", "cluster", "holds", "host", "job", "proc", "slot", "starts")

    def __init__(self, ap: _AccessPoint, cluster: _Cluster, proc: int, job: str) -> None:
        self.ap, self.cluster, self.proc, self.job = ap, cluster, proc, job
        self.starts = self.holds = 0
        self.host, self.slot = "", ""

    def _write(self, when: int, *events: tuple[int, str]) -> None:
        """Write events of one moment together: fewer pieces to sort, the same order."""
        stamp = self.ap.stamps(when)
        ads = self.ap.profile.log.ad_information
        text = ""
        for kind, body in events:
            text += f"{kind:03d} {self.job} {stamp} {body}\n...\n"
            if ads:
                text += self._ad(kind, when, stamp)
        self.ap._emit(when, text, len(events) * (1 + ads))

    def _ad(self, kind: int, when: int, stamp: str) -> str:
        """The 028 event that EVENT_LOG_JOB_AD_INFORMATION_ATTRS adds after each event."""
        name, mine = _EVENT_NAMES[kind]
        moment = datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
        holds = f"NumHolds = {self.holds}\n" if self.holds else ""
        return (
            f"028 {self.job} {stamp} Job ad information event triggered.\n"
            f'Cluster = {self.cluster.number}\nEventTime = "{moment}"\nEventTypeNumber = 28\n'
            f'MyType = "{mine}"\n{holds}NumJobStarts = {self.starts}\n'
            f'Owner = "{self.cluster.user.name}"\nProc = {self.proc}\n'
            f"RequestDisk = {self.cluster.disk}\nRequestMemory = {self.cluster.memory}\n"
            f'Subproc = 0\nTriggerEventTypeName = "{name}"\nTriggerEventTypeNumber = {kind}'
            "\n...\n"
        )

    def submitted(self, when: int) -> None:
        self._write(
            when,
            (
                0,
                f"Job submitted from host: {self.ap.address}\n"
                f'    [ JobBatchName = "{self.cluster.batch}" ]',
            ),
        )

    def _transfer_begins(self, when: int, host: _Host, slot: int) -> None:
        self.slot = f"slot1_{slot}@{host.name}"
        self._write(
            when,
            (
                40,
                "Started transferring input files\n\tTransferring to host: "
                f"<{host.ip}:9618?addrs={host.ip}-9618&alias={host.name}&noUDP&"
                f"sock=slot1_{slot}_8021_{slot:04x}>",
            ),
        )

    def transfers_in(self, when: int, host: _Host, slot: int) -> None:
        """An input transfer after which no run follows."""
        self._transfer_begins(when, host, slot)
        self._write(when + 1, (40, "Finished transferring input files"))

    def started(self, when: int, host: _Host, slot: int) -> None:
        self._transfer_begins(when, host, slot)
        cluster = self.cluster
        self._write(
            when + 1,
            (40, "Finished transferring input files"),
            (
                1,
                f"Job executing on host: {host.address}\n\tSlotName: {self.slot}\n"
                f'\tCondorScratchDir = "/var/lib/condor/execute/dir_{when % 58000 + 2000}"\n'
                f"\tCpus = 1\n\tDisk = {cluster.disk}\n\tGPUs = 0\n\tMemory = "
                f"{cluster.memory}",
            ),
        )
        self.starts += 1

    def image_size(self, when: int, used: int) -> None:
        self._write(
            when,
            (
                6,
                f"Image size of job updated: {used * 1100}\n\t{used}  -  "
                f"MemoryUsage of job (MB)\n\t{used * 1021}  -  ResidentSetSize "
                "of job (KB)",
            ),
        )

    def transfers_out(self, when: int) -> None:
        self._write(
            when,
            (40, "Started transferring output files"),
            (40, "Finished transferring output files"),
        )

    def finished(self, when: int, run: int, used: int, exit_text: str) -> None:
        self.transfers_out(when - 1)
        cpu = _cpu(int(run * 0.93))
        cluster = self.cluster
        sent, received = 1000 + run % 9000, 4000 + used * 7
        self._write(
            when,
            (
                5,
                (
                    f"Job terminated.\n\t{exit_text}\n\t\t{cpu}  -  Run Remote Usage\n"
                    f"\t\t{_NO_CPU}  -  Run Local Usage\n\t\t{cpu}  -  Total Remote Usage\n"
                    f"\t\t{_NO_CPU}  -  Total Local Usage\n"
                    f"\t{sent}  -  Run Bytes Sent By Job\n"
                    f"\t{received}  -  Run Bytes Received By Job\n"
                    f"\t{sent}  -  Total Bytes Sent By Job\n"
                    f"\t{received * self.starts}  -  Total Bytes Received By Job\n"
                    f"{_resources(cluster, used, decimals=True)}\n"
                    f"\t   TimeExecute (s)      : {_usage(cluster, run, True)}{_NO_CELLS}\n"
                    f"\t   TimeSlotBusy (s)     : {_usage(cluster, run + 2, True)}{_NO_CELLS}"
                ),
            ),
        )

    def evicted(self, when: int, code: int, subcode: int, reason: str, used: int) -> None:
        self._write(
            when,
            (
                4,
                (
                    f"Job was evicted. Code {code} Subcode {subcode}\n\t(0) CPU times\n"
                    f"\t\t{_NO_CPU}  -  Run Remote Usage\n\t\t{_NO_CPU}  -  Run Local Usage\n"
                    "\t0  -  Run Bytes Sent By Job\n\t0  -  Run Bytes Received By Job\n"
                    f"\tReason: {reason}\n{_resources(self.cluster, used, decimals=False)}"
                ),
            ),
        )

    def remote_error(self, when: int, slot: object, text: str, code: int, subcode: int) -> None:
        self._write(
            when, (21, f"Error from starter on {slot}:\n\t{text}\n\tCode {code} Subcode {subcode}")
        )

    def held(self, when: int, reason: str, code: int, subcode: int) -> None:
        self.holds += 1
        self._write(when, (12, f"Job was held.\n\t{reason}\n\tCode {code} Subcode {subcode}"))

    def released(self, when: int, reason: str) -> None:
        self._write(when, (13, f"Job was released.\n\t{reason}"))

    def aborted(self, when: int, reason: str) -> None:
        self._write(when, (9, f"Job was aborted.\n\t{reason}"))


_NO_CELLS = " " * 20  # times are neither requested nor allocated
_NO_CPU = "Usr 0 00:00:00, Sys 0 00:00:00"
_EVENT_NAMES = {
    0: ("ULOG_SUBMIT", "SubmitEvent"),
    1: ("ULOG_EXECUTE", "ExecuteEvent"),
    4: ("ULOG_JOB_EVICTED", "JobEvictedEvent"),
    5: ("ULOG_JOB_TERMINATED", "JobTerminatedEvent"),
    6: ("ULOG_IMAGE_SIZE", "JobImageSizeEvent"),
    9: ("ULOG_JOB_ABORTED", "JobAbortedEvent"),
    12: ("ULOG_JOB_HELD", "JobHeldEvent"),
    13: ("ULOG_JOB_RELEASED", "JobReleaseEvent"),
    21: ("ULOG_REMOTE_ERROR", "RemoteErrorEvent"),
    40: ("ULOG_FILE_TRANSFER", "FileTransferEvent"),
}


def _cpu(seconds: int) -> str:
    days, rest = divmod(seconds, _DAY)
    hours, rest = divmod(rest, _HOUR)
    return f"Usr {days} {hours:02d}:{rest // 60:02d}:{rest % 60:02d}, Sys 0 00:00:{rest % 50:02d}"


def _usage(cluster: _Cluster, number: int, decimals: bool) -> str:
    """A whole number in the usage column.

    HTCondor aligns that column on the decimal point as soon as one number in it has
    decimals, and widens it for a number that does not fit; the disk is always the longest.
    """
    wide = max(8, len(str(cluster.disk // 9)) + 3 * decimals)
    return f"{number:>{wide - 3}}   " if decimals else f"{number:>{wide}}"


def _resources(cluster: _Cluster, used: int, decimals: bool) -> str:
    """The table of usage, request and allocation that ends a run, without its times."""
    head = cluster.tables.get(decimals)
    if head is None:
        wide = len(_usage(cluster, 0, decimals))
        head = cluster.tables[decimals] = (
            f"\tPartitionable Resources : {'Usage':>{wide}}  Request Allocated \n"
            f"\t   Cpus                 : {'0.93' if decimals else '0':>{wide}} "
            f"       1         1 \n"
            f"\t   Disk (KB)            : {_usage(cluster, cluster.disk // 9, decimals)} "
            f"{cluster.disk:>8} {cluster.disk:>9} \n"
            f"\t   GPUs                 : {'':>{wide}}                  0 \n"
        )
    return (
        f"{head}\t   Memory (MB)          : {_usage(cluster, used, decimals)} "
        f"{cluster.memory:>8} {cluster.memory:>9} "
    )


class _Stamps:
    """Turns Unix times into the log's dates, a day at a time."""

    def __init__(self, iso: bool) -> None:
        self._format = "%Y-%m-%d" if iso else "%m/%d"
        self._clock = [f"{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}" for s in range(_DAY)]
        self._days: dict[int, str] = {}

    def __call__(self, when: int) -> str:
        day, second = divmod(when, _DAY)
        if day not in self._days:
            self._days[day] = datetime.fromtimestamp(day * _DAY, UTC).strftime(self._format)
        return f"{self._days[day]} {self._clock[second]}"


# ---- draws ---------------------------------------------------------------------------------


def _draw_user(
    rng: Random, rank: int, shape: Shape, weights: Sequence[float], start: int, span: float
) -> _User:
    name = names.OWNERS[rank % len(names.OWNERS)]
    if rank >= len(names.OWNERS):
        name += str(rank // len(names.OWNERS) + 1)
    # Everybody has favourite mistakes.
    faults = [weight * rng.gammavariate(0.7, 1 / 0.7) + 1e-9 for weight in weights]
    deadline, deadlines = float(start), []
    while deadline < start + span:
        deadline += rng.uniform(10, 60) * _DAY
        deadlines.append(deadline)
    return _User(
        name,
        (rank + 1) ** -shape.user_exponent,
        faults,
        visit_hours=rng.lognormvariate(0.8, 0.8),
        release=rng.uniform(0.35, 0.95),
        fix=rng.uniform(0.2, 0.7),
        skill=rng.uniform(0.5, 0.95),
        automatic=rng.choice((0, 0, 0, 0, 0.1, 0.4)),
        deadlines=deadlines,
    )


def _draw_host(rng: Random, number: int, shape: Shape, start: int, span: float) -> _Host:
    name = f"e{number:04d}.example.org"
    ip = f"10.{1 + number // 60000}.{number // 250 % 240}.{number % 250 + 1}"
    address = (
        f"<{ip}:9618?addrs={ip}-9618&alias={name}&noUDP&sock=startd_{2000 + number}_"
        f"{rng.getrandbits(16):04x}>"
    )
    old = rng.random() < shape.old_wordings
    bad = rng.random() < shape.bad_execution_points
    return _Host(
        name, ip, address, old, _windows(rng, start, span, 6 * _DAY, 1.5 * _HOUR) if bad else []
    )


def _windows(
    rng: Random, start: float, span: float, between: float, lasting: float
) -> list[tuple[float, float]]:
    found, now = [], start + rng.expovariate(1 / between)
    while now < start + span:
        until = now + lasting * rng.lognormvariate(-0.5, 1)
        found.append((now, until))
        now = until + rng.expovariate(1 / between)
    return found


def _mean_cluster_size(shape: Shape) -> float:
    """The mean of the sizes that `_draw_cluster` draws, by integrating the Pareto tail."""
    sizes = np.arange(2, shape.largest_cluster + 1, dtype=np.float64)
    # P(1 + Pareto >= size), cut at the largest.
    tail = np.where(sizes <= 2, 1.0, np.maximum(sizes - 1, 1.0) ** -shape.cluster_exponent)
    return shape.single_job_share + (1 - shape.single_job_share) * (1 + float(tail.sum()))
