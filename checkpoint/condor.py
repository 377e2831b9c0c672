"""What HTCondor tells a running job, and how the job answers.

The starter leaves the job ad and the machine ad in the scratch directory, refreshes
`.update.ad` with the usage that it measures, and runs a chirp proxy if the job asked for one.
Any of these may be missing or damaged: the readers here return nothing rather than raise.
"""

from __future__ import annotations

import os
import re
import socket
import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Union

from condor_checkpoint.robust import finite, read_text

Value = Union[bool, int, float, str]
Ad = Dict[str, Value]

_ATTRIBUTE = re.compile(r"^\s*([A-Za-z_]\w*)\s*=\s*(.*?)\s*$")
_ESCAPE = re.compile(r"\\(.)")

# Seconds that one report to the access point may take, whatever the proxy does.
CHIRP_TIMEOUT = 5.0


def parse_ad(text: str) -> Ad:
    """Read a ClassAd in its long form; leave out attributes that are expressions."""
    ad: Ad = {}
    for line in text.splitlines():
        match = _ATTRIBUTE.match(line)
        if match:
            value = _literal(match.group(2))
            if value is not None:
                ad[match.group(1)] = value
    return ad


def _literal(text: str) -> Optional[Value]:
    if len(text) >= 2 and text[0] == '"' and text[-1] == '"':
        return _ESCAPE.sub(r"\1", text[1:-1])
    lower = text.lower()
    if lower in ("true", "false"):
        return lower == "true"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def read_ad(path: Optional[str]) -> Ad:
    """Read an ad from a file; empty when the file is missing or unreadable."""
    text = read_text(path)
    return parse_ad(text) if text is not None else {}


def number(ad: Mapping[str, Value], name: str) -> Optional[float]:
    """Return a numeric attribute; names compare without regard to case."""
    value = ad.get(name)
    if value is None:
        lower = name.lower()
        value = next((v for k, v in ad.items() if k.lower() == lower), None)
    return finite(value)


class Limits(NamedTuple):
    """What the job may use, in bytes and seconds; None where no limit is known."""

    memory: Optional[float] = None
    disk: Optional[float] = None
    end: Optional[float] = None  # Unix time at which the job will be stopped
    grace: Optional[float] = None  # seconds between SIGTERM and SIGKILL
    cpus: float = 1.0


class Job:
    """The HTCondor job this process is part of, if it is one."""

    def __init__(self, environ: Optional[Mapping[str, str]] = None) -> None:
        environ = os.environ if environ is None else environ
        self.scratch = environ.get("_CONDOR_SCRATCH_DIR")
        self.ad = read_ad(environ.get("_CONDOR_JOB_AD"))
        self.machine = read_ad(environ.get("_CONDOR_MACHINE_AD"))
        self.chirp_config = environ.get("_CONDOR_CHIRP_CONFIG")
        starter = environ.get("CONDOR_STARTER_PID", "")
        self.starter_pid = int(starter) if starter.isdecimal() else None
        self.started = time.time()

    @property
    def is_condor(self) -> bool:
        """Whether HTCondor runs this process."""
        return self.scratch is not None

    def limits(self) -> Limits:
        """Return the limits that the slot and the job's own ad set."""
        memory = (
            number(self.machine, "Memory")
            or number(self.ad, "MemoryProvisioned")
            or number(self.ad, "RequestMemory")
        )
        disk = (
            number(self.machine, "Disk")
            or number(self.ad, "DiskProvisioned")
            or number(self.ad, "RequestDisk")
        )
        grace = number(self.ad, "JobMaxVacateTime")
        machine_grace = number(self.machine, "MachineMaxVacateTime")
        if grace is None or (machine_grace is not None and machine_grace < grace):
            grace = machine_grace
        return Limits(
            memory=memory * 1024.0 * 1024.0 if memory else None,
            disk=disk * 1024.0 if disk else None,
            end=self._end(),
            grace=grace,
            cpus=number(self.machine, "Cpus") or number(self.ad, "RequestCpus") or 1.0,
        )

    def _end(self) -> Optional[float]:
        """Return the earliest time at which something is known to stop the job.

        allowed_execute_duration counts from the start of execution, allowed_job_duration
        from the start of the job (input transfer included). A slot may also say when it will
        go away: a glidein with GLIDEIN_ToDie, a startd with TimeToLive.
        """
        ends: List[float] = []
        executing = number(self.ad, "AllowedExecuteDuration")
        if executing is not None:
            ends.append(self.started + executing)
        whole = number(self.ad, "AllowedJobDuration")
        if whole is not None:
            ends.append((number(self.ad, "JobCurrentStartDate") or self.started) + whole)
        dies = number(self.machine, "GLIDEIN_ToDie")
        if dies is not None:
            ends.append(dies)
        lives = number(self.machine, "TimeToLive")
        if lives is not None and lives < 10 * 365 * 86400:  # the default is 2^31 - 1
            ends.append((number(self.machine, "MyCurrentTime") or self.started) + lives)
        return min(ends) if ends else None

    def usage(self) -> Ad:
        """Return the usage that the starter last wrote; empty before it has written any.

        Since HTCondor 25.4 the file is in `htcondor/` next to the scratch directory.
        """
        if not self.scratch:
            return {}
        for place in (os.path.join(self.scratch, "..", "htcondor"), self.scratch):
            ad = read_ad(os.path.join(place, ".update.ad"))
            if ad:
                return ad
        return {}

    def chirp(self, attributes: Mapping[str, Value]) -> bool:
        """Set attributes of the job ad on the access point, if the starter runs a chirp proxy.

        Delayed updates travel with the starter's next regular update, so they cost the access
        point nothing. HTCondor accepts only names that begin with "Chirp". A proxy that does
        not answer in time is not asked again: every save would wait for it.
        """
        config = read_text(self.chirp_config)
        if config is None:
            return False
        deadline = time.monotonic() + CHIRP_TIMEOUT
        try:
            host, port, cookie = config.split()
            with socket.create_connection((host, int(port)), timeout=CHIRP_TIMEOUT) as connection:
                if not _chirp_command(connection, "cookie " + cookie, deadline):
                    return False
                good = True
                for name, value in attributes.items():
                    text = _chirp_quote(_expression(value))
                    command = f"set_job_attr_delayed {name} {text}"
                    good &= _chirp_command(connection, command, deadline)
                return good
        except socket.timeout:
            self.chirp_config = None
            return False
        except (OSError, ValueError, OverflowError):
            return False


def _expression(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)


def _chirp_quote(text: str) -> str:
    return re.sub(r"([\\ \n\t\r])", r"\\\1", text)


def _chirp_command(connection: socket.socket, command: str, deadline: float) -> bool:
    """Send one line; the answer is a line with a number, negative for an error."""
    connection.sendall(command.encode() + b"\n")
    answer = b""
    while not answer.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0.0 or len(answer) > 256:
            raise socket.timeout
        connection.settimeout(left)
        piece = connection.recv(256)
        if not piece:
            return False
        answer += piece
    return int(answer) >= 0
