"""Why jobs are held, and how old and new versions of HTCondor word it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wording:
    """How one version of HTCondor words a hold; {braces} are filled in for each job."""

    code: int
    subcode: int
    text: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A cause of holds: where in a run it strikes, whether it passes, what the log says.

    `stage` is how far a run gets: "idle" (no start), "input", "exec", "run", "output" or
    "exit". `nature` is "always", "ends" (at some time), "chance" (drawn anew for each run) or
    "host".
    """

    family: str
    stage: str
    nature: str
    description: str
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
# What an execution point does to any job in its bad hours.
BAD_MACHINE = Fault(
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
