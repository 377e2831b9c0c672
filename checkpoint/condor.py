"""What HTCondor tells a running job, and how the job answers.

The starter leaves the job ad and the machine ad in the scratch directory, refreshes
`.update.ad` with the usage that it sees, and, when the job asked for it, runs a chirp proxy.
Any of these may be missing: every reader here returns nothing rather than raise.
"""

from __future__ import annotations

import os
import re
import socket
import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Union

Value = Union[bool, int, float, str]
Ad = Dict[str, Value]

_ATTRIBUTE = re.compile(r"^\s*([A-Za-z_]\w*)\s*=\s*(.*?)\s*$")
_ESCAPE = re.compile(r"\\(.)")

CHECKPOINT_EXIT_CODE = 85  # the code that HTCondor's manual uses in its examples


def parse_ad(text: str) -> Ad:
    """Read a ClassAd in its long form; attributes that are expressions are left out."""
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
    """Read an ad from a file; empty when it is not there or not readable."""
    if not path:
        return {}
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return parse_ad(file.read())
    except OSError:
        return {}


def number(ad: Mapping[str, Value], name: str) -> Optional[float]:
    """Return a numeric attribute, whatever the case of its name in the ad."""
    value = ad.get(name)
    if value is None:
        lower = name.lower()
        value = next((v for k, v in ad.items() if k.lower() == lower), None)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value)


class Limits(NamedTuple):
    """What the job may use; None where nobody said. Bytes and seconds."""

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
        self.starter_pid = int(starter) if starter.isdigit() else None
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
        """The first of the moments at which something is known to stop the job.

        allowed_execute_duration counts from the start of execution, allowed_job_duration
        from the start of the job (input transfer included). A slot may also say when it will
        be gone: a glidein with GLIDEIN_ToDie, a startd with TimeToLive.
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
        """Return what the starter last measured; empty when it has not written it yet.

        Since the scratch directory is nested (25.4), the file is in `htcondor/` next to it.
        """
        if not self.scratch:
            return {}
        for place in (os.path.join(self.scratch, "..", "htcondor"), self.scratch):
            ad = read_ad(os.path.join(place, ".update.ad"))
            if ad:
                return ad
        return {}

    def chirp(self, attributes: Mapping[str, Value]) -> bool:
        """Tell the job's ad on the access point, when the starter offers a chirp proxy.

        Delayed updates go with the starter's next regular update and cost the access point
        nothing. Only names that begin with "Chirp" are let through.
        """
        if not self.chirp_config:
            return False
        try:
            with open(self.chirp_config, encoding="ascii") as file:
                host, port, cookie = file.read().split()
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.settimeout(5)
                if not _chirp_command(connection, "cookie " + cookie):
                    return False
                good = True
                for name, value in attributes.items():
                    text = _chirp_quote(_expression(value))
                    good &= _chirp_command(connection, f"set_job_attr_delayed {name} {text}")
                return good
        except (OSError, ValueError):
            return False


def _expression(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)


def _chirp_quote(text: str) -> str:
    return re.sub(r"([\\ \n\t\r])", r"\\\1", text)


def _chirp_command(connection: socket.socket, command: str) -> bool:
    """Send one line; the answer is a line with a number, negative for an error."""
    connection.sendall(command.encode() + b"\n")
    answer = b""
    while not answer.endswith(b"\n"):
        piece = connection.recv(256)
        if not piece:
            return False
        answer += piece
    return int(answer) >= 0
