"""Query a running pool: held jobs, earlier runs of a job, the path of the event log.

Each question is one query with a projection, because the schedd serves everybody. htcondor2 is
imported on first use, since most of the project works without a pool.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from condor_advice.gather.errors import AdviceError, Unreachable, UsageError
from condor_advice.gather.events import JobId, JobStatus

# What HTCondor knows about a hold, and what experts check when they assess one.
HOLD_ATTRIBUTES = (
    "ClusterId", "ProcId", "GlobalJobId", "Owner", "User", "JobStatus", "LastJobStatus",
    "JobUniverse", "Cmd", "Arguments", "Args", "Iwd", "Out", "Err", "In", "UserLog",
    "JobBatchName", "DAGManJobId", "DAGNodeName", "QDate", "EnteredCurrentStatus",
    "HoldReason", "HoldReasonCode", "HoldReasonSubCode", "LastHoldReason",
    "LastHoldReasonCode", "LastHoldReasonSubCode", "ReleaseReason", "NumHolds",
    "NumHoldsByReason", "NumSystemHolds", "VacateReason", "VacateReasonCode",
    "VacateReasonSubCode", "NumVacates", "NumVacatesByReason", "NumVacatesPreExecution",
    "NumJobStarts", "NumShadowStarts", "NumShadowExceptions", "NumJobMatches",
    "NumJobReconnects", "NumJobCompletions", "JobCurrentStartDate", "JobStartDate",
    "JobCurrentStartExecutingDate", "JobCurrentStartTransferInputDate", "LastRemoteHost",
    "RemoteHost", "LastMatchTime", "RemoteWallClockTime", "CumulativeRemoteSysCpu",
    "CumulativeRemoteUserCpu", "CommittedTime", "ExitBySignal", "ExitCode", "ExitSignal",
    "ImageSize", "MemoryUsage", "ResidentSetSize", "RequestMemory", "MemoryProvisioned",
    "DiskUsage", "RequestDisk", "DiskProvisioned", "RequestCpus", "CpusUsage",
    "CpusProvisioned", "RequestGPUs", "ScratchDirFileCount", "TransferInput",
    "TransferInputSizeMB", "TransferOutput", "ShouldTransferFiles", "WhenToTransferOutput",
    "TransferInputStats", "TransferOutputStats", "PeriodicHold", "PeriodicRelease",
    "PeriodicRemove", "OnExitHold", "OnExitRemove", "JobMaxRetries", "MaxRetries",
    "AllowedExecuteDuration", "AllowedJobDuration", "CheckpointExitCode",
    "SuccessCheckpointExitCode", "StageInFinish", "SubmitVersion", "CondorVersion",
    "ActivationDuration", "ActivationExecutionDuration", "ActivationSetupDuration",
    "ActivationTeardownDuration", "MachineAttrMachine0", "MachineAttrName0",
    "Requirements", "JobDurationCategory", "TimerRemove",
)  # fmt: skip

# Keep these as expressions: the expression is the job's policy, its current value says little.
POLICY_ATTRIBUTES = frozenset(
    {
        "PeriodicHold", "PeriodicRelease", "PeriodicRemove", "OnExitHold", "OnExitRemove",
        "Requirements",
    }
)  # fmt: skip

# How a job ended.
END_ATTRIBUTES = (
    "ClusterId", "ProcId", "Owner", "JobStatus", "EnteredCurrentStatus", "ExitCode",
    "ExitBySignal", "ExitSignal", "ReleaseReason", "RemoveReason", "HoldReason",
    "HoldReasonCode", "NumHolds", "RemoteWallClockTime", "CompletionDate",
)  # fmt: skip

# What the epoch history records about one run of a job.
EPOCH_ATTRIBUTES = (
    "ClusterId", "ProcId", "RunInstanceId", "EpochWriteDate", "NumShadowStarts",
    "ShadowBday", "JobCurrentStartDate", "JobCurrentStartExecutingDate",
    "RemoteHost", "LastRemoteHost", "RemoteWallClockTime", "ExitBySignal", "ExitCode",
    "ExitSignal", "HoldReason", "HoldReasonCode", "HoldReasonSubCode", "VacateReason",
    "VacateReasonCode", "VacateReasonSubCode", "JobStatus", "ImageSize", "MemoryUsage",
    "ResidentSetSize", "RequestMemory", "MemoryProvisioned", "DiskUsage", "RequestDisk",
    "DiskProvisioned", "RequestCpus", "CpusUsage", "RemoteUserCpu", "RemoteSysCpu",
    "NumHolds", "ActivationDuration", "ActivationExecutionDuration",
)  # fmt: skip


# Users set most attributes of their jobs to what they like. What has not the type and range that
# HTCondor gives it is as if it were absent; attributes in no table here are kept as they are.
_TIMES = frozenset(
    {
        "QDate", "EnteredCurrentStatus", "JobCurrentStartDate", "JobStartDate",
        "JobCurrentStartExecutingDate", "JobCurrentStartTransferInputDate", "LastMatchTime",
        "TimerRemove",
        "StageInFinish", "EpochWriteDate", "ShadowBday", "CompletionDate", "AdviceAt",
    }
)  # fmt: skip
_COUNTS = frozenset(
    {
        "ClusterId", "ProcId", "JobStatus", "LastJobStatus", "JobUniverse", "DAGManJobId",
        "NumHolds", "NumSystemHolds", "NumVacates", "NumVacatesPreExecution", "NumJobStarts",
        "NumShadowStarts", "NumShadowExceptions", "NumJobMatches", "NumJobReconnects",
        "NumJobCompletions", "ScratchDirFileCount", "RunInstanceId", "JobMaxRetries", "MaxRetries",
    }
)  # fmt: skip
_CODES = frozenset(
    {
        "HoldReasonCode", "HoldReasonSubCode", "LastHoldReasonCode", "LastHoldReasonSubCode",
        "VacateReasonCode", "VacateReasonSubCode", "ExitCode", "ExitSignal",
        "CheckpointExitCode", "SuccessCheckpointExitCode",
    }
)  # fmt: skip
_AMOUNTS = frozenset(
    {
        "RemoteWallClockTime", "CumulativeRemoteSysCpu", "CumulativeRemoteUserCpu",
        "CommittedTime", "ImageSize", "MemoryUsage", "ResidentSetSize", "RequestMemory",
        "MemoryProvisioned", "DiskUsage", "RequestDisk", "DiskProvisioned", "RequestCpus",
        "CpusUsage", "CpusProvisioned", "RequestGPUs", "TransferInputSizeMB",
        "AllowedExecuteDuration", "AllowedJobDuration", "ActivationDuration",
        "ActivationExecutionDuration", "ActivationSetupDuration", "ActivationTeardownDuration",
        "RemoteUserCpu", "RemoteSysCpu", "AdviceProbability",
    }
)  # fmt: skip
_TEXTS = frozenset(
    {
        "GlobalJobId", "Owner", "User", "Cmd", "Arguments", "Args", "Iwd", "Out", "Err", "In",
        "UserLog", "JobBatchName", "DAGNodeName", "HoldReason", "LastHoldReason", "ReleaseReason",
        "RemoveReason", "VacateReason", "LastRemoteHost", "RemoteHost", "TransferInput",
        "TransferOutput", "ShouldTransferFiles", "WhenToTransferOutput", "SubmitVersion",
        "CondorVersion", "MachineAttrMachine0", "MachineAttrName0", "JobDurationCategory",
        "AdviceVerdict", "AdviceSource",
    }
)  # fmt: skip
_FLAGS = frozenset({"ExitBySignal"})
_NESTED = frozenset(
    {"NumHoldsByReason", "NumVacatesByReason", "TransferInputStats", "TransferOutputStats"}
)
_SPELLING = {
    name.lower(): name
    for names in (_TIMES, _COUNTS, _CODES, _AMOUNTS, _TEXTS, _FLAGS, _NESTED, POLICY_ATTRIBUTES)
    for name in names
}
LATEST = 1 << 35  # in seconds: some thousand years from now, which a datetime still takes
MOST = 1 << 31
LARGEST_AMOUNT = 1e15
# The smallest and the largest value, and whether only whole numbers make sense.
_LIMITS: dict[str, tuple[float, float, bool]] = {
    name: limits
    for names, limits in (
        (_TIMES, (0, LATEST, False)),
        (_COUNTS, (0, MOST, True)),
        (_CODES, (-MOST, MOST, True)),
        (_AMOUNTS, (0, LARGEST_AMOUNT, False)),
    )
    for name in names
}
LONGEST_REASON = 8192  # characters; what searches a reason must stay quick
LONGEST_VALUE = 1 << 20
LONGEST_EVALUATED = 1 << 16
DEEPEST_AD = 5  # levels of nested ads


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A job as it is in the queue now."""

    job: JobId
    ad: Mapping[str, Any]  # ClassAd spelling kept; expressions evaluated where possible


@dataclass(frozen=True, slots=True)
class HeldSince:
    """A job and the hold it was seen in. Actions apply to that hold only."""

    cluster: int
    proc: int
    entered: int  # EnteredCurrentStatus


@dataclass(frozen=True, slots=True)
class Counts:
    """How many jobs the schedd says it acted on, and for how many it denied permission."""

    done: int
    denied: int


class Refused(AdviceError):
    """HTCondor refused the request."""


@dataclass(frozen=True, slots=True)
class EventLogSetting:
    """Where this machine's HTCondor writes its global event log."""

    path: str
    access_point: str


class AccessPoint:
    """Queries and commands to one schedd."""

    def __init__(self, schedd: Any, name: str) -> None:
        self._schedd = schedd
        self.name = name

    @classmethod
    def find(cls, name: str | None = None, pool: str | None = None) -> AccessPoint:
        """Find the schedd on this machine, or the one called `name` in `pool`."""
        htcondor2 = htcondor2_module()
        try:
            if name is None and pool is None:
                # The address file has the answer, so the collector need not be queried.
                schedd = htcondor2.Schedd()
                return cls(schedd, local_access_point())
            collector = htcondor2.Collector(pool)
            location = collector.locate(htcondor2.DaemonType.Schedd, name)
            if location is None:
                raise ValueError("the collector does not know this access point")
            return cls(htcondor2.Schedd(location), str(location.get("Name", name)))
        except (htcondor2.HTCondorException, RuntimeError, ValueError, OSError) as error:
            raise _unreachable(error, name, pool) from error

    def held_jobs(
        self,
        jobs: Iterable[tuple[int, int | None]] = (),
        *,
        constraint: str | None = None,
        mine: bool = False,
    ) -> list[LiveJob]:
        """Return held jobs, sorted by id, with one query.

        `jobs` are clusters, or clusters with a proc; none means all. With `mine` the schedd
        returns only the caller's jobs.
        """
        wanted = [f"JobStatus == {JobStatus.HELD:d}"]
        if named := _any_of(jobs):
            wanted.append(named)
        if constraint:
            wanted.append(f"({_checked(constraint)})")
        return self._query(" && ".join(wanted), mine)

    def jobs(
        self,
        jobs: Iterable[tuple[int, int | None]],
        attributes: Sequence[str] = HOLD_ATTRIBUTES,
    ) -> list[LiveJob]:
        """Return the named jobs, held or not, to tell "not held" from "no such job"."""
        named = _any_of(jobs)
        return self._query(named, mine=False, attributes=attributes) if named else []

    def select(self, constraint: str, attributes: Sequence[str]) -> list[LiveJob]:
        """Return the jobs that match a constraint, with the given attributes."""
        return self._query(constraint, mine=False, attributes=("ClusterId", "ProcId", *attributes))

    def finished_jobs(self, jobs: Iterable[tuple[int, int | None]], since: float) -> list[LiveJob]:
        """Return the named jobs that left the queue after `since`, from the history.

        The schedd reads its history backwards and stops there, so a query about the last
        hours is cheap however long the history is.
        """
        htcondor2 = htcondor2_module()
        named = _any_of(jobs)
        if not named:
            return []
        # The history is roughly in the order in which jobs ended.
        stop = f"EnteredCurrentStatus < {since - 600:.0f}"
        try:
            ads = self._schedd.history(named, list(END_ATTRIBUTES), since=stop)
            return self._live(ads)
        except (htcondor2.HTCondorException, RuntimeError, OSError) as error:
            raise _unreachable(error, self.name, None) from error

    def epochs(self, cluster: int, proc: int, *, limit: int = 100) -> list[Mapping[str, Any]]:
        """Return the epoch ads of a job's earlier runs, oldest first.

        Empty if the schedd keeps no epoch history, or it no longer goes back that far.
        """
        htcondor2 = htcondor2_module()
        constraint = f"ClusterId == {cluster} && ProcId == {proc}"
        try:
            epochs = self._schedd.jobEpochHistory(constraint, list(EPOCH_ATTRIBUTES), limit)
            ads = [plain(ad) for ad in epochs]
        except (htcondor2.HTCondorException, RuntimeError) as error:
            if "JOB_EPOCH_HISTORY undefined" in str(error):
                return []
            raise _unreachable(error, self.name, None) from error
        return sorted(ads, key=lambda ad: (ad.get("RunInstanceId", 0), ad.get("EpochWriteDate", 0)))

    # These methods change the queue. HTCondor decides whether the caller is allowed to.

    def submit(self, description: Any) -> int:
        """Submit jobs; return their cluster."""
        htcondor2 = htcondor2_module()
        try:
            return int(self._schedd.submit(description).cluster())
        except (htcondor2.HTCondorException, RuntimeError, OSError) as error:
            raise Refused(f"HTCondor did not accept the jobs ({error})") from error

    def remove_cluster(self, cluster: int, reason: str) -> None:
        """Remove all jobs of a cluster, held or not."""
        self._act_on("Remove", f"ClusterId == {cluster}", reason)

    def release(self, jobs: Sequence[HeldSince], reason: str) -> Counts:
        """Release jobs that are still in the hold they were seen in."""
        return self._act("Release", jobs, reason)

    def remove(self, jobs: Sequence[HeldSince], reason: str) -> Counts:
        """Remove jobs that are still in the hold they were seen in."""
        return self._act("Remove", jobs, reason)

    def edit(self, jobs: Sequence[HeldSince], attribute: str, expression: str) -> int:
        """Set an attribute of jobs that are still in the hold they were seen in.

        Returns how many jobs were changed: all of them, or none if the schedd refuses for any.
        Returns 0 if none of the jobs is still in that hold.
        """
        htcondor2 = htcondor2_module()
        try:
            try:
                return int(self._schedd.edit(_still_held(jobs), attribute, expression))
            except htcondor2.HTCondorException:
                # The error is the same for "no job left" and "not allowed"; an edit by job id
                # says which.
                left = [str(live.job) for live in self._query(_still_held(jobs), mine=False)]
                return int(self._schedd.edit(left, attribute, expression)) if left else 0
        except htcondor2.HTCondorException as error:
            raise Refused(f"HTCondor refused to edit {attribute} ({error})") from error
        except (RuntimeError, OSError) as error:
            raise _unreachable(error, self.name, None) from error

    def annotate(
        self, jobs: Sequence[str], attribute: str, expression: str, at_once: int
    ) -> set[str]:
        """Set an attribute of jobs by id, held or not; return the ids the schedd refused.

        Jobs that have left the queue are skipped.
        """
        htcondor2 = htcondor2_module()
        refused: set[str] = set()
        for first in range(0, len(jobs), at_once):
            batch = list(jobs[first : first + at_once])
            try:
                self._schedd.edit(batch, attribute, expression)
            except htcondor2.HTCondorException as error:
                # One refused job fails the whole transaction: halve until it is alone.
                if len(batch) > 1:
                    half = (len(batch) + 1) // 2
                    refused |= self.annotate(batch, attribute, expression, half)
                elif "nonexistent" not in str(error):
                    refused.add(batch[0])
            except (RuntimeError, OSError) as error:
                raise _unreachable(error, self.name, None) from error
        return refused

    def _act(self, action: str, jobs: Sequence[HeldSince], reason: str) -> Counts:
        return self._act_on(action, _still_held(jobs), reason)

    def _act_on(self, action: str, constraint: str, reason: str) -> Counts:
        htcondor2 = htcondor2_module()
        try:
            # The bindings drop a reason without a code.
            totals = self._schedd.act(getattr(htcondor2.JobAction, action), constraint, (reason, 0))
        except (htcondor2.HTCondorException, RuntimeError, OSError) as error:
            raise _unreachable(error, self.name, None) from error
        return Counts(int(totals["TotalSuccess"]), int(totals["TotalPermissionDenied"]))

    def _query(
        self, constraint: str, mine: bool, attributes: Sequence[str] = HOLD_ATTRIBUTES
    ) -> list[LiveJob]:
        htcondor2 = htcondor2_module()
        options = htcondor2.QueryOpts.DefaultMyJobsOnly if mine else htcondor2.QueryOpts.Default
        try:
            ads = self._schedd.query(constraint, list(attributes), opts=options)
        except (htcondor2.HTCondorException, RuntimeError, OSError) as error:
            raise _unreachable(error, self.name, None) from error
        return self._live(ads)

    def _live(self, ads: Iterable[Any]) -> list[LiveJob]:
        jobs = []
        for ad in ads:
            # The schedd sets these two and lets nobody change them.
            job = JobId(self.name, int(ad["ClusterId"]), int(ad["ProcId"]))
            jobs.append(LiveJob(job, plain(ad)))
        return sorted(jobs, key=lambda live: live.job)


def local_access_point() -> str:
    """Return the name of this machine's schedd, whether or not it is running.

    The schedd writes its ad to a file. Its name depends on the user it runs as, so the
    configuration alone does not always determine it.
    """
    htcondor2 = htcondor2_module()
    with contextlib.suppress(OSError):
        path = str(htcondor2.param.get("SCHEDD_DAEMON_AD_FILE") or os.devnull)
        with open(path, encoding="utf-8", errors="replace") as file:
            match = re.search(r'^Name = "(.+)"$', file.read(), re.MULTILINE)
        if match:
            return match[1]
    host = str(htcondor2.param.get("FULL_HOSTNAME") or os.uname().nodename)
    name = str(htcondor2.param.get("SCHEDD_NAME") or "")
    if not name:
        return host
    return name if "@" in name else f"{name}@{host}"


def guess_access_point() -> str:
    """Return the name of the access point whose logs are on this machine, pool or no pool."""
    config = os.environ.get("CONDOR_CONFIG", "/etc/condor/condor_config")
    if config == "ONLY_ENV" or os.path.exists(config):
        return local_access_point()
    return os.uname().nodename


def find_event_log() -> EventLogSetting:
    """Find the global event log in HTCondor's configuration on this machine."""
    htcondor2 = htcondor2_module()
    path = htcondor2.param.get("EVENT_LOG")
    if not path:
        where = os.environ.get("CONDOR_CONFIG", "/etc/condor/condor_config")
        raise AdviceError(
            f"EVENT_LOG is not set in HTCondor's configuration ({where}), so there is no global "
            f"event log; name the logs to gather, or set EVENT_LOG (see docs/administrator.md)"
        )
    return EventLogSetting(str(path), local_access_point())


def plain(ad: Any, depth: int = 0) -> dict[str, Any]:
    """Turn a ClassAd into plain Python values; what is undefined or of a wrong type is left out.

    Its expressions are evaluated, which replaces them in `ad`.
    """
    import classad2

    values: dict[str, Any] = {}
    for name, value in _evaluated(ad).items():
        if isinstance(value, classad2.Value):
            continue
        if type(value) in _SCALARS:
            pass
        elif isinstance(value, classad2.ClassAd):
            if depth >= DEEPEST_AD:
                continue
            value = plain(value, depth + 1)
        elif isinstance(value, list):
            value = [
                plain(item, depth + 1) if isinstance(item, classad2.ClassAd) else item
                for item in value
                if depth < DEEPEST_AD
            ]
        spelled = _SPELLING.get(name.lower(), name)
        if (checked := _checked_value(spelled, value)) is not None:
            values[spelled] = checked
    return values


def _evaluated(ad: Any) -> dict[str, Any]:
    """Evaluate each expression of an ad once; policies, and what has no value, stay text.

    Expressions that refer to one another several times each would take for ever if each reference
    was evaluated anew. So what an expression refers to is evaluated before it, and takes its place.
    """
    import classad2

    values = {name: ad[name] for name in ad}
    waiting = {
        name.lower(): name for name, value in values.items() if isinstance(value, classad2.ExprTree)
    }
    for lowered, name in list(waiting.items()):
        if _SPELLING.get(lowered) in POLICY_ATTRIBUTES:
            values[name] = str(values[name])
            del ad[name], waiting[lowered]

    # The expressions that wait for what they refer to: a stack, as a chain of them may be long.
    begun: list[tuple[str, str, Iterator[str]]] = []

    def begin(lowered: str) -> None:
        name = waiting.pop(lowered)
        text = str(values[name])
        begun.append((name, text, (word[0].lower() for word in _IDENTIFIER.finditer(text))))
        del ad[name]  # a reference back to it is undefined

    while begun or waiting:
        if not begun:
            begin(next(iter(waiting)))
        name, text, words = begun[-1]
        if (reference := next((word for word in words if word in waiting), None)) is not None:
            begin(reference)
            continue
        begun.pop()
        try:
            evaluated = values[name].eval(ad)
        except Exception:  # whatever it is, the expression's own text says more
            evaluated = classad2.Value.Undefined
        if isinstance(evaluated, str) and len(evaluated) > LONGEST_EVALUATED:
            evaluated = classad2.Value.Undefined
        if isinstance(evaluated, bool | int | float | str):
            ad[name] = evaluated
        unknown = isinstance(evaluated, classad2.Value | classad2.ExprTree)
        values[name] = text if unknown else evaluated
    return values


_SCALARS = frozenset({bool, int, float, str})
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


def _checked_value(name: str, value: Any) -> Any:
    """Return an attribute's value if it has its type and range, else None."""
    if (limits := _LIMITS.get(name)) is not None:
        least, most, whole = limits
        # A truth value is no number here, and a comparison with NaN is false.
        if type(value) not in (int, float) or not least <= value <= most:
            return None
        return int(value) if whole else value
    if name in _TEXTS:
        if not isinstance(value, str):
            return None
        if name.endswith("Reason"):
            return value[:LONGEST_REASON]
        return value if len(value) <= LONGEST_VALUE else None
    if name in _NESTED:
        return value if isinstance(value, dict) else None
    if name in _FLAGS:
        return value if isinstance(value, bool) else None
    if name in POLICY_ATTRIBUTES:
        return value if isinstance(value, str | bool | int | float) else None
    return value


def htcondor2_module() -> Any:
    """Import htcondor2, unless CONDOR_CONFIG names a missing file."""
    config = os.environ.get("CONDOR_CONFIG", "ONLY_ENV")
    if config != "ONLY_ENV" and not os.path.exists(config):
        # htcondor2 would end the whole process on first use.
        raise Unreachable(
            f"CONDOR_CONFIG is {config}, but there is no such file; set it to the pool's "
            f"configuration, or unset it"
        )
    import htcondor2

    return htcondor2


def _checked(constraint: str) -> str:
    """Reject a constraint that does not parse: the schedd would just return nothing."""
    import classad2

    try:
        classad2.ExprTree(constraint)
    except (classad2.ClassAdException, ValueError, RuntimeError) as error:
        raise UsageError(f"{constraint!r} is not a ClassAd expression ({error})") from error
    return constraint


def _any_of(jobs: Iterable[tuple[int, int | None]]) -> str:
    """Return a constraint that matches the given jobs and clusters."""
    terms = []
    clusters: dict[int, set[int] | None] = {}
    for cluster, proc in jobs:
        known = clusters.setdefault(cluster, set())
        if proc is None or known is None:
            clusters[cluster] = None
        else:
            known.add(proc)
    for cluster, procs in clusters.items():
        if procs is None:
            terms.append(f"ClusterId == {cluster}")
        elif len(procs) == 1:
            terms.append(f"(ClusterId == {cluster} && ProcId == {min(procs)})")
        else:
            # One term per cluster keeps the constraint short even for many procs.
            listed = ",".join(str(proc) for proc in sorted(procs))
            terms.append(f"(ClusterId == {cluster} && member(ProcId, {{{listed}}}))")
    return f"({' || '.join(terms)})" if terms else ""


def _still_held(jobs: Sequence[HeldSince]) -> str:
    """Return a constraint that matches the jobs only while they stay in the same hold."""
    named = " || ".join(
        f"(ClusterId == {job.cluster} && ProcId == {job.proc}"
        f" && EnteredCurrentStatus == {job.entered})"
        for job in jobs
    )
    return f"JobStatus == {JobStatus.HELD:d} && ({named})"


def _unreachable(error: Exception, name: str | None, pool: str | None) -> Unreachable:
    """Return an error that says which pool did not answer and what to try."""
    who = name or "this machine's schedd"
    where = f" in pool {pool}" if pool else ""
    config = os.environ.get("CONDOR_CONFIG", "")
    # htcondor2 sets CONDOR_CONFIG to /dev/null if it found no configuration.
    configured = config not in ("", "/dev/null")
    hint = f"CONDOR_CONFIG is {config}" if configured else "no HTCondor configuration was found"
    return Unreachable(
        f"{who}{where}: no answer from HTCondor ({error}); {hint}. Is the pool running? "
        f"Event logs can be read without it: --log FILE"
    )
