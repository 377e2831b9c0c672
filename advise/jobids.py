"""Job ids as people paste them: 1234, 1234.7, 1234.0-9, ap1#1234.7."""

from __future__ import annotations

import re
from dataclasses import dataclass

from condor_advice.gather.errors import UsageError
from condor_advice.gather.events import MAX_ID

_JOB_ID = re.compile(
    r"(?:(?P<ap>[^#\s]+)#)?(?P<cluster>\d+)(?:\.(?P<first>\d+)(?:-(?P<last>\d+))?)?\.?"
)


@dataclass(frozen=True, slots=True)
class WantedJobs:
    """One job, a range of a cluster's procs, or a whole cluster."""

    cluster: int
    first: int | None = None  # None: all procs
    last: int | None = None
    access_point: str | None = None

    def includes(self, cluster: int, proc: int) -> bool:
        """Tell whether a job is among these."""
        if cluster != self.cluster:
            return False
        return self.first is None or self.first <= proc <= (self.last or self.first)

    def __str__(self) -> str:
        if self.first is None:
            return str(self.cluster)
        procs = str(self.first) if self.last in (None, self.first) else f"{self.first}-{self.last}"
        return f"{self.cluster}.{procs}"


def is_job_id(text: str) -> bool:
    """Tell whether a word is a job id."""
    return _match(text) is not None


_USER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", re.ASCII)


def is_user_name(text: str) -> bool:
    """Tell whether a word that is no job id may be the name of an account."""
    return _USER_NAME.fullmatch(text) is not None and not is_job_id(text)


def is_account(name: str) -> bool:
    """Tell whether a word names an account of this machine; its jobs are meant then."""
    import pwd

    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError):
        return False
    return True


def _match(text: str) -> re.Match[str] | None:
    return _JOB_ID.fullmatch(re.sub(r"#\d{9,}$", "", text.strip().rstrip(",")))


def parse_job_id(text: str) -> WantedJobs:
    """Parse one job id; the `#time` at the end of a GlobalJobId is accepted too."""
    match = _match(text)
    if not match:
        raise UsageError(f"{text!r} is not a job id; write 1234, 1234.7, 1234.0-9 or ap1#1234.7")
    for digits in filter(None, match.group("cluster", "first", "last")):
        # Python refuses to read a number of many thousand digits.
        if len(digits.lstrip("0")) > len(str(MAX_ID)) or int(digits) > MAX_ID:
            raise UsageError(f"{text[:40]!r} is not a job id; its numbers go up to {MAX_ID}")
    first = int(match["first"]) if match["first"] else None
    last = int(match["last"]) if match["last"] else first
    if first is not None and last is not None and last < first:
        raise UsageError(f"{text!r}: the range ends before it begins")
    return WantedJobs(int(match["cluster"]), first, last, match["ap"])
