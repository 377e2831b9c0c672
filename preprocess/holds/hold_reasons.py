"""The table of hold reasons: how each one is recognised, and what facilitators advise.

There is one entry per reason. An entry has up to two halves, for two questions about a hold:

- `Signs` name the *family*: the fault, whatever version of HTCondor reported it. Codes changed
  between versions, so the wording decides first. Models learn from families.
- `Rule` is the advice. Codes decide first, and the wording only where a code covers several
  faults.

Each half is looked up separately, and the first entry that matches wins, so special entries come
before general ones. A family whose holds fall under several rules has an entry without a rule; a
rule that covers several families has an entry without signs.

To add a reason, add an entry (and its `Family` or `RuleId`). Only a new kind of remedy needs more:
a `RemedyKey`, and a builder for it in advise/remedies.py.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum

from condor_advice.gather.events import HoldCode


class Family(StrEnum):
    """The fault behind a hold. The order numbers families in tensors and tables: only append."""

    UNSPECIFIED = "unspecified"
    OTHER = "other"
    MEMORY = "memory"
    DISK = "disk"
    CPU = "cpu"
    DURATION = "duration"
    INPUT_MISSING = "input_missing"
    INPUT_PERMISSION = "input_permission"
    INPUT_OTHER = "input_other"
    OUTPUT_MISSING = "output_missing"
    OUTPUT_UNWRITABLE = "output_unwritable"
    OUTPUT_OTHER = "output_other"
    NO_SPACE = "no_space"
    QUOTA = "quota"
    TRANSFER_SIZE = "transfer_size"
    URL = "url"
    CREDENTIAL = "credential"
    PLUGIN = "plugin"
    EXEC_MISSING = "exec_missing"
    EXEC_FORMAT = "exec_format"
    EXEC_PERMISSION = "exec_permission"
    EXEC_OTHER = "exec_other"
    STANDARD_STREAMS = "standard_streams"
    WORKING_DIRECTORY = "working_directory"
    CONTAINER = "container"
    EXIT_STATUS = "exit_status"
    JOB_POLICY = "job_policy"
    SITE_POLICY = "site_policy"
    MACHINE_POLICY = "machine_policy"
    USER = "user"
    SUBMITTED_ON_HOLD = "submitted_on_hold"
    SPOOLING = "spooling"
    HOOK = "hook"
    SCRIPT = "script"
    PROTOCOL = "protocol"
    EVENT_LOG = "event_log"
    ACCOUNT = "account"
    DEFERRAL = "deferral"
    CHECKPOINT = "checkpoint"
    GRID = "grid"


class Trait(StrEnum):
    """What is true of every hold in a family."""

    LIMIT = "limit"  # the job reached a limit, and would reach it again
    SIZED = "sized"  # the reason states sizes in MB
    PASSES = "passes"  # the cause goes away by itself, but an immediate retry fails again
    POINT = "point"  # the execution point may be at fault


class Verdict(Enum):
    """What to do with a held job."""

    RELEASE = "RELEASE"
    FIX = "FIX"  # then release
    REMOVE = "REMOVE"
    ASK = "ASK"  # the owner or staff decide, or too little is known


class RuleId(StrEnum):
    """The ids of the rules. Code compares these, never titles."""

    HELD_BY_HAND = "held_by_hand"
    SUBMITTED_ON_HOLD = "submitted_on_hold"
    SPOOLING = "spooling"
    OVER_MEMORY = "over_memory"
    OVER_DISK = "over_disk"
    OVER_RUN_TIME = "over_run_time"
    CREDENTIAL_REFUSED = "credential_refused"
    WRONG_ADDRESS = "wrong_address"
    FILE_SERVER_TROUBLE = "file_server_trouble"
    TRANSFER_TIMED_OUT = "transfer_timed_out"
    PLUGIN_MISSING = "plugin_missing"
    OVER_QUOTA = "over_quota"
    INPUT_FILE_MISSING = "input_file_missing"
    OUTPUT_FILE_MISSING = "output_file_missing"
    NO_PERMISSION = "no_permission"
    OUTPUT_PATH_UNUSABLE = "output_path_unusable"
    TRANSFER_FAILED = "transfer_failed"
    BAD_FIRST_LINE = "bad_first_line"
    EXECUTABLE_MISSING = "executable_missing"
    NOT_A_PROGRAM = "not_a_program"
    EXECUTION_POINT_TIMED_OUT = "execution_point_timed_out"
    COULD_NOT_START = "could_not_start"
    WORKING_DIRECTORY_GONE = "working_directory_gone"
    STANDARD_FILES = "standard_files"
    EVENT_LOG = "event_log"
    CONTAINER_IMAGE = "container_image"
    INPUT_TOO_LARGE = "input_too_large"
    OUTPUT_TOO_LARGE = "output_too_large"
    OWN_POLICY = "own_policy"
    POLICY_UNDEFINED = "policy_undefined"
    SITE_POLICY = "site_policy"
    CLOUD_CONNECTION = "cloud_connection"
    ACCOUNT_OR_VERSION = "account_or_version"
    CHECKPOINT_FAILED = "checkpoint_failed"
    SCRIPT_FAILED = "script_failed"
    UNKNOWN = "unknown"
    COMES_BACK = "comes_back"


class RemedyKey(StrEnum):
    """The kinds of remedy that depend on the job; advise/remedies.py has a builder for each."""

    MEMORY = "memory"
    DISK = "disk"
    DURATION = "duration"
    TRANSFER_SIZE = "transfer_size"
    PATH = "path"
    PROGRAM = "program"
    OUTPUT = "output"
    CREDENTIAL = "credential"
    POLICY = "policy"


class Transfer(StrEnum):
    """The direction of a file transfer."""

    INPUT = "input"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Match:
    """A set of holds, by code, subcode and wording; an empty part matches anything."""

    codes: tuple[int | None, ...] = ()
    subcodes: tuple[int, ...] = ()
    pattern: str = ""  # a regular expression, case ignored

    def matches(self, code: int | None, subcode: int | None, text: str) -> bool:
        """Tell whether a hold is in the set."""
        if self.codes and code not in self.codes:
            return False
        if self.subcodes and subcode not in self.subcodes:
            return False
        return not self.pattern or re.search(self.pattern, text, re.IGNORECASE) is not None


@dataclass(frozen=True, slots=True)
class Signs:
    """How a family is recognised, and what is true of it.

    A code in `always` decides. Otherwise the wording does: the template, in lower case, has one
    word of each group in `words`, matches `pattern`, and is about a `transfer` that way. Where no
    family's wording fits, `otherwise` decides.
    """

    family: Family
    always: tuple[HoldCode, ...] = ()
    words: tuple[tuple[str, ...], ...] = ()
    pattern: str = ""
    transfer: Transfer | None = None
    otherwise: tuple[Match, ...] = ()
    traits: tuple[Trait, ...] = ()
    remedy: RemedyKey | None = None  # for the family's holds, whatever their rule
    keyword: str = ""  # identifies the family to rules when the reason's text is unavailable

    def in_wording(self, text: str) -> bool:
        """Tell whether a template, in lower case, shows this family."""
        if not self.words and self.transfer is None:
            return False
        return (
            all(any(word in text for word in group) for group in self.words)
            and (not self.pattern or re.search(self.pattern, text) is not None)
            and (self.transfer is None or _is_transfer(self.transfer, text))
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """What facilitators advise for a hold, and the source of that advice."""

    id: RuleId
    name: str  # the title that people and `--json` see
    verdict: Verdict
    prior: float  # chance that an unchanged release succeeds, before any outcome is known
    why: str
    remedy: str
    source: str
    holds: tuple[Match, ...] = ()  # the holds it is for
    command: str = "condor_release"  # carries out the remedy; empty if no command does
    builder: RemedyKey | None = None
    builder_for: Family | None = None  # the builder needs this family; None: any

    def matches(self, code: int | None, subcode: int | None, reason: str) -> bool:
        """Tell whether this rule applies to a hold."""
        return any(match.matches(code, subcode, reason) for match in self.holds)


@dataclass(frozen=True, slots=True)
class HoldReason:
    """One entry of the table.

    `example` is a hold (code, subcode, reason) that each half of the entry is the first to match.
    """

    example: tuple[int | None, int | None, str]
    signs: Signs | None = None
    rule: Rule | None = None


def _is_transfer(way: Transfer, text: str) -> bool:
    """Tell whether a template is about a transfer in this direction, in new or old wording."""
    if f"transfer {way} files failure" in text:
        return True
    # In the old wording the sender comes first; the shadow sends input.
    sender, receiver = ("shadow at ", "starter at ")
    if way is Transfer.OUTPUT:
        sender, receiver = receiver, sender
    first, second = text.find(sender), text.find(receiver)
    return first >= 0 and "failed to send" in text and (second < 0 or first < second)


_HTC = "HTCondor manual, hold reason codes"
_TED = "HTCondor manual, transfer error data"
_OSP = "OSPool documentation"
_CHTC = "CHTC user guides"

_STANDARD_FILES = (
    HoldCode.UNABLE_TO_OPEN_OUTPUT, HoldCode.UNABLE_TO_OPEN_INPUT,
    HoldCode.UNABLE_TO_OPEN_OUTPUT_STREAM, HoldCode.UNABLE_TO_OPEN_INPUT_STREAM,
)  # fmt: skip
_TRANSFERS = (HoldCode.TRANSFER_OUTPUT_ERROR, HoldCode.TRANSFER_INPUT_ERROR)
_RESOURCES = (HoldCode.STARTD_HELD_JOB, HoldCode.JOB_OUT_OF_RESOURCES)
_POLICIES = (HoldCode.JOB_POLICY, HoldCode.SYSTEM_POLICY)
_PROCESS = (HoldCode.FAILED_TO_CREATE_PROCESS,)
_CHOWN = (
    HoldCode.GLEXEC_CHOWN_SANDBOX_TO_USER, HoldCode.PRIVSEP_CHOWN_SANDBOX_TO_USER,
    HoldCode.GLEXEC_CHOWN_SANDBOX_TO_CONDOR, HoldCode.PRIVSEP_CHOWN_SANDBOX_TO_CONDOR,
)  # fmt: skip
# Subcodes: an errno for files and programs; 102 and 104 are memory and disk of a slot.
_ENOENT, _ENOEXEC, _ETIMEDOUT = 2, 8, 110
_DENIED_ERRNOS = (1, 13)
_MEMORY_SUBCODE, _DISK_SUBCODE = 102, 104
_PLUGIN_TIMED_OUT = 62
_NO_PLUGIN = (-1001, -1002, -1003, -1004)

_EXCEEDED = ("exceed", "over ", "above", "too much", "limit", "violat")
_READING = ("reading from", "failed to read")
_MISSING = ("errno 2)", "no such file or directory")
_DENIED = ("errno 13)", "errno 1)", "permission denied")


def _any_of(words: Sequence[str]) -> str:
    return "|".join(map(re.escape, words))


HOLD_REASONS: tuple[HoldReason, ...] = (
    HoldReason(
        (1, 0, "via condor_hold (by user anna)"),
        Signs(Family.USER, always=(HoldCode.USER_REQUEST,)),
        Rule(
            RuleId.HELD_BY_HAND, "held by hand", Verdict.ASK, 0.5,
            "somebody held it on purpose with condor_hold",
            "release it when the reason for holding it is gone",
            "HTCondor manual: SYSTEM_PERIODIC_RELEASE never releases these",
            (Match((HoldCode.USER_REQUEST,)),),
        ),
    ),
    HoldReason(
        (15, 0, "submitted on hold at user's request"),
        Signs(Family.SUBMITTED_ON_HOLD, always=(HoldCode.SUBMITTED_ON_HOLD,)),
        Rule(
            RuleId.SUBMITTED_ON_HOLD, "submitted on hold", Verdict.ASK, 0.8,
            "it was submitted with `hold = true`", "release it when it should start",
            _HTC, (Match((HoldCode.SUBMITTED_ON_HOLD,)),),
        ),
    ),
    HoldReason(
        (16, 0, "Spooling input data files"),
        Signs(Family.SPOOLING, always=(HoldCode.SPOOLING_INPUT,), traits=(Trait.PASSES,)),
        Rule(
            RuleId.SPOOLING, "spooling", Verdict.ASK, 0.9,
            "its input files are still being spooled",
            "wait: HTCondor releases it once they have arrived",
            _HTC, (Match((HoldCode.SPOOLING_INPUT,)),), command="",
        ),
    ),
    HoldReason(
        (32, 0, "TransferInputSizeMB (4) is greater than MAX_TRANSFER_INPUT_MB (1) at submit time"),
        Signs(
            Family.TRANSFER_SIZE,
            always=(HoldCode.MAX_TRANSFER_INPUT_SIZE_EXCEEDED,
                    HoldCode.MAX_TRANSFER_OUTPUT_SIZE_EXCEEDED),
            words=(("max total download bytes", "max total upload bytes", "transfer size",
                    "transfer_input_mb", "transfer_output_mb"),),
            traits=(Trait.LIMIT, Trait.SIZED),
        ),
        Rule(
            RuleId.INPUT_TOO_LARGE, "transfer too large", Verdict.FIX, 0.05,
            "its input files exceed the transfer limit of the job or of this access point",
            "raise the job's own limit with `condor_qedit JOB MaxTransferInputMB`, then release; "
            "if the access point sets the limit, put large files on a file server and list their "
            "URLs",
            _HTC, (Match((HoldCode.MAX_TRANSFER_INPUT_SIZE_EXCEEDED,)),),
            builder=RemedyKey.TRANSFER_SIZE,
        ),
    ),
    HoldReason(
        (33, 0, "sending file /x/big: max total download bytes exceeded (max=1 MB)"),
        rule=Rule(
            RuleId.OUTPUT_TOO_LARGE, "transfer too large", Verdict.FIX, 0.05,
            "its output files exceed the transfer limit of the job or of this access point",
            "raise the job's own limit with `condor_qedit JOB MaxTransferOutputMB`, then release; "
            "if the access point sets the limit, send large files to a file server with "
            "transfer_output_remaps",
            _HTC, (Match((HoldCode.MAX_TRANSFER_OUTPUT_SIZE_EXCEEDED,)),),
            builder=RemedyKey.TRANSFER_SIZE,
        ),
    ),
    HoldReason(
        (35, 0, "Error from slot1@ep: Cannot start container: invalid image name: x/y"),
        Signs(
            Family.CONTAINER,
            always=(HoldCode.SINGULARITY_TEST_FAILED,),
            words=(("docker image", "find image", "pull image", "singularity", "apptainer",
                    "<image>"),),
            otherwise=(Match((HoldCode.INVALID_DOCKER_IMAGE,)),),
            traits=(Trait.POINT,),
        ),
        Rule(
            RuleId.CONTAINER_IMAGE, "container image", Verdict.FIX, 0.15,
            "its container image cannot be used",
            "check the image's name, and that it is built for amd64",
            f"{_HTC}; {_CHTC}", (Match((HoldCode.INVALID_DOCKER_IMAGE,)),),
        ),
    ),
    HoldReason(
        (34, 102, "Error from slot1@ep: memory usage exceeded request_memory"),
        Signs(
            Family.MEMORY,
            words=(("memory",), _EXCEEDED),
            otherwise=(Match(_RESOURCES, (_MEMORY_SUBCODE,)),),
            traits=(Trait.LIMIT, Trait.SIZED),
            keyword="memory usage exceeded",
        ),
        Rule(
            RuleId.OVER_MEMORY, "over memory", Verdict.FIX, 0.05,
            "it used more memory than it requested, and would again",
            "request more memory, then release", f"{_HTC} (34/102); {_CHTC}",
            (
                Match(_RESOURCES, (_MEMORY_SUBCODE,)),
                Match(
                    (*_POLICIES, *_RESOURCES),
                    pattern=r"memory.*(exceed|over|above|more than|limit)|"
                    r"(exceed|over|above|limit).*memory|out of memory",
                ),
            ),
            builder=RemedyKey.MEMORY, builder_for=Family.MEMORY,
        ),
    ),
    HoldReason(
        (34, 104, "Error from slot1@ep: disk usage exceeded request_disk"),
        Signs(
            Family.DISK,
            words=(("disk usage", "disk limit", "allocated disk", "request_disk"), _EXCEEDED),
            otherwise=(Match(_RESOURCES, (_DISK_SUBCODE,)),),
            traits=(Trait.LIMIT, Trait.SIZED),
            keyword="disk usage exceeded",
        ),
        Rule(
            RuleId.OVER_DISK, "over disk", Verdict.FIX, 0.05,
            "it used more scratch disk than it requested, and would again",
            "request more disk, then release", f"{_HTC} (34/104)",
            (
                Match(_RESOURCES, (_DISK_SUBCODE,)),
                Match(
                    (*_POLICIES, *_RESOURCES),
                    pattern=r"disk.*(exceed|over|more than)|(exceed|over).*disk",
                ),
            ),
            builder=RemedyKey.DISK, builder_for=Family.DISK,
        ),
    ),
    HoldReason(
        (26, 0, "CPU usage 4.1 is above the 1 requested"),
        Signs(
            Family.CPU, words=(("cpu usage", "cpus"), _EXCEEDED),
            traits=(Trait.LIMIT, Trait.SIZED),
        ),
    ),
    HoldReason(
        (12, 122, "writing to file /home/anna/out: (errno 122) Disk quota exceeded"),
        Signs(Family.QUOTA, words=(("errno 122)", "quota exceeded"),), keyword="quota"),
    ),
    HoldReason(
        (12, 28, "writing to file /home/anna/out: (errno 28) No space left on device"),
        Signs(
            Family.NO_SPACE, words=(("errno 28)", "no space left"),),
            traits=(Trait.PASSES, Trait.POINT), keyword="no space left",
        ),
    ),
    HoldReason(
        (47, 0, "The job exceeded allowed execute duration of 20:00:00"),
        Signs(
            Family.DURATION,
            always=(HoldCode.JOB_DURATION_EXCEEDED, HoldCode.JOB_EXECUTE_EXCEEDED),
            words=(("execute duration", "job duration", "allowed run time", "wall time",
                    "walltime", "ran longer", "ran too long", "run time"),),
            traits=(Trait.LIMIT,),
        ),
        Rule(
            RuleId.OVER_RUN_TIME, "over its allowed run time", Verdict.FIX, 0.05,
            "it reached its run time limit, and would again",
            "raise its limit, or submit it in a longer duration category; near a site's limit, "
            "make it checkpoint itself",
            f"{_OSP}, job duration categories",
            (Match((HoldCode.JOB_DURATION_EXCEEDED, HoldCode.JOB_EXECUTE_EXCEEDED)),),
            builder=RemedyKey.DURATION,
        ),
    ),
    HoldReason(
        (13, 256, "The requested URL returned error: 403 ( URL file = http://x.org/a )"),
        Signs(
            Family.CREDENTIAL,
            words=(("returned error: 401", "returned error: 403", "credential", "token",
                    "authorization", "authentication", "proxy expired"),),
            otherwise=(Match((HoldCode.CORRUPTED_CREDENTIAL,)),),
            remedy=RemedyKey.CREDENTIAL, keyword="credential",
        ),
        Rule(
            RuleId.CREDENTIAL_REFUSED, "credential refused", Verdict.FIX, 0.1,
            "a file server refused its credential",
            "renew the credential, then release", f"{_TED} (Authorization)",
            (
                Match(
                    (HoldCode.CORRUPTED_CREDENTIAL, *_TRANSFERS),
                    pattern=r"\b(401|403)\b|unauthori[sz]ed|forbidden|expired|credential|"
                    r"permission denied by server",
                ),
            ),
        ),
    ),
    HoldReason(
        (13, 256, "The requested URL returned error: 404 ( URL file = http://x.org/a )"),
        rule=Rule(
            RuleId.WRONG_ADDRESS, "wrong address", Verdict.FIX, 0.1,
            "a file server has no such file",
            "put the file there, or correct the URL with `condor_qedit JOB TransferInput "
            "'\"FILES\"'` (editing the submit file changes only jobs submitted later), then "
            "release",
            f"{_TED} (Specification)",
            (Match(_TRANSFERS, pattern=r"\b404\b|not found on (the )?server"),),
        ),
    ),
    HoldReason(
        (13, 256, "The requested URL returned error: 503 ( URL file = http://x.org/a )"),
        Signs(
            Family.URL,
            words=(("url", "using protocol", "curl"),),
            # A program that cannot be started may have a URL among its arguments.
            pattern=r"(?s)\A(?!(?:(?!url).)*failed to execute)",
            traits=(Trait.PASSES,),
        ),
        Rule(
            RuleId.FILE_SERVER_TROUBLE, "file server trouble", Verdict.RELEASE, 0.6,
            "a file server or the network to it failed; that passes",
            "release it after a while", f"{_TED} (Contact, Transfer)",
            (
                Match(
                    _TRANSFERS,
                    pattern=r"\b(429|500|502|503|504)\b|timed? ?out|time-out|"
                    r"connection (refused|reset)|(failed to|could(n't| not)) connect|"
                    r"unreachable|temporar",
                ),
            ),
        ),
    ),
    HoldReason(
        (13, 62, "Transfer input files failure at execution point slot1@ep: stalled"),
        rule=Rule(
            RuleId.TRANSFER_TIMED_OUT, "transfer took too long", Verdict.RELEASE, 0.6,
            "the transfer plug-in timed out", "release it after a while",
            "HTCondor manual, vacate reason codes (62)",
            (Match(_TRANSFERS, (_PLUGIN_TIMED_OUT,)),),
        ),
    ),
    HoldReason(
        (13, -1001, "FILETRANSFER:1:no plugin for osdf found"),
        Signs(
            Family.PLUGIN, words=(("filetransfer:", "plugin", "plug-in"),),
            traits=(Trait.PASSES, Trait.POINT),
        ),
        Rule(
            RuleId.PLUGIN_MISSING, "transfer plug-in missing", Verdict.RELEASE, 0.7,
            "the execution point has no working plug-in for the transfer",
            "release it; another execution point will probably have one",
            "HTCondor manual, vacate reason codes (-1001 to -1004)",
            (Match(_TRANSFERS, _NO_PLUGIN),),
        ),
    ),
    HoldReason(
        (12, 122, "writing to file /home/anna/out: (errno 122) Disk quota exceeded"),
        rule=Rule(
            RuleId.OVER_QUOTA, "over quota", Verdict.FIX, 0.1,
            "no space is left where its output goes",
            "free some space or ask for more quota, then release", f"{_OSP}, managing data",
            (Match(_TRANSFERS, pattern=r"quota|no space left|disk full|errno 28|errno 122"),),
        ),
    ),
    HoldReason(
        (14, 2, "Cannot access initial working directory /home/anna/run: No such file"),
        Signs(
            Family.WORKING_DIRECTORY,
            always=(HoldCode.IWD_ERROR,), words=(("initial working directory",),),
            remedy=RemedyKey.PATH,
        ),
        Rule(
            RuleId.WORKING_DIRECTORY_GONE, "working directory gone", Verdict.FIX, 0.1,
            "its initial working directory cannot be used",
            "make sure initialdir exists and is writable, then release",
            _HTC, (Match((HoldCode.IWD_ERROR,)),),
        ),
    ),
    HoldReason(
        (7, 13, "Failed to open '/home/anna/out' as standard output: Permission denied"),
        rule=Rule(
            RuleId.NO_PERMISSION, "no permission", Verdict.FIX, 0.1,
            "it may not read or write a file or directory",
            "correct the permissions, then release", _HTC,
            (Match((*_PROCESS, *_STANDARD_FILES, *_TRANSFERS), _DENIED_ERRNOS),),
        ),
    ),
    HoldReason(
        (12, 20, "writing to file /home/anna/out/a: (errno 20) Not a directory"),
        rule=Rule(
            RuleId.OUTPUT_PATH_UNUSABLE, "transfer failed at the access point", Verdict.FIX, 0.15,
            "a path for its output cannot be used", "correct the path, then release", _HTC,
            (Match((*_STANDARD_FILES, HoldCode.TRANSFER_OUTPUT_ERROR), (20, 21, 30)),),
        ),
    ),
    HoldReason(
        (7, 2, "Failed to open '/home/anna/out' as standard output: No such file or directory"),
        Signs(
            Family.STANDARD_STREAMS,
            words=(("as standard output", "as standard input", "as standard error"),),
            otherwise=(Match(_STANDARD_FILES),),
        ),
        Rule(
            RuleId.STANDARD_FILES, "standard files", Verdict.FIX, 0.15,
            "its standard input, output or error file cannot be opened",
            "correct the path, then release", _HTC, (Match(_STANDARD_FILES),),
        ),
    ),
    HoldReason(
        (13, 2, "Transfer input files failure at access point ap while sending files. Details: "
         "reading from file /home/anna/in: (errno 2) No such file or directory"),
        Signs(
            Family.INPUT_MISSING, words=(_READING, _MISSING), transfer=Transfer.INPUT,
            remedy=RemedyKey.PATH,
        ),
        Rule(
            RuleId.INPUT_FILE_MISSING, "input file missing", Verdict.FIX, 0.15,
            "a file in transfer_input_files, or the executable, is missing",
            "put the file there or correct its path, then release",
            f"{_OSP}, monitoring and reviewing jobs",
            (Match((HoldCode.TRANSFER_INPUT_ERROR,), (_ENOENT,)),),
        ),
    ),
    HoldReason(
        (13, 13, "Transfer input files failure at access point ap while sending files. Details: "
         "reading from file /home/anna/in: (errno 13) Permission denied"),
        Signs(
            Family.INPUT_PERMISSION, words=(_READING, _DENIED), transfer=Transfer.INPUT,
            remedy=RemedyKey.PATH,
        ),
    ),
    HoldReason(
        (13, 0, "Transfer input files failure at access point ap"),
        Signs(
            Family.INPUT_OTHER, transfer=Transfer.INPUT,
            otherwise=(Match((HoldCode.COMMON_TRANSFER_FAILED, HoldCode.TRANSFER_INPUT_ERROR)),),
            traits=(Trait.POINT,),
        ),
    ),
    HoldReason(
        (12, 2, "Transfer output files failure at execution point slot1@ep while sending files. "
         "Details: reading from file /scratch/out: (errno 2) No such file or directory"),
        Signs(
            Family.OUTPUT_MISSING, words=(_READING, _MISSING), transfer=Transfer.OUTPUT,
            traits=(Trait.POINT,), keyword="output",
        ),
        Rule(
            RuleId.OUTPUT_FILE_MISSING, "output file missing", Verdict.FIX, 0.25,
            "the job ended without writing a file listed in transfer_output_files",
            "read its error file to see whether it failed; correct the program, or the list with "
            "`condor_qedit JOB TransferOutput '\"FILES\"'`, then release",
            "OSG tutorial on errors (error101)",
            (Match(_TRANSFERS, (_ENOENT,), r"output|sending file|reading from file"),),
            builder=RemedyKey.OUTPUT, builder_for=Family.OUTPUT_MISSING,
        ),
    ),
    HoldReason(
        (12, 5, "Transfer output files failure at access point ap while receiving files. Details: "
         "writing to file /home/anna/out: (errno 5) Input/output error"),
        Signs(
            Family.OUTPUT_UNWRITABLE, words=(("writing to", "failed to write"),),
            transfer=Transfer.OUTPUT, keyword="output",
        ),
    ),
    HoldReason(
        (12, 0, "Transfer output files failure at execution point slot1@ep"),
        Signs(
            Family.OUTPUT_OTHER, transfer=Transfer.OUTPUT,
            otherwise=(Match((HoldCode.TRANSFER_OUTPUT_ERROR,)),),
            traits=(Trait.POINT,), keyword="output",
        ),
    ),
    HoldReason(
        (12, 0, "Transfer output files failure at execution point slot1@ep"),
        rule=Rule(
            RuleId.TRANSFER_FAILED, "transfer failed", Verdict.RELEASE, 0.45,
            "a file transfer failed for some other reason",
            "release it once; investigate if the hold comes back",
            "OSG tutorial on errors (error101)",
            (
                Match(
                    (HoldCode.COMMON_TRANSFER_FAILED, HoldCode.INVALID_TRANSFER_ACK, *_TRANSFERS,
                     HoldCode.INVALID_TRANSFER_GO_AHEAD)
                ),
            ),
        ),
    ),
    HoldReason(
        (3, 0, "The job attribute OnExitHold expression 'ExitCode =!= 0' evaluated to TRUE"),
        Signs(
            Family.EXIT_STATUS,
            words=(("onexithold", "exit code", "exited with", "exit status", "exitcode"),),
            traits=(Trait.POINT,),
        ),
    ),
    HoldReason(
        (6, 2, "Error from slot1@ep: Failed to execute '/x/job.sh': invalid interpreter (/bin/x)"),
        rule=Rule(
            RuleId.BAD_FIRST_LINE, "bad first line", Verdict.FIX, 0.05,
            "the script's first line names a program that does not exist",
            "correct the `#!` line; if the script was written on Windows, run dos2unix on it",
            f"{_CHTC}, DOS line ends", (Match(_PROCESS, (_ENOENT,), r"interpreter|\^M|\\r"),),
        ),
    ),
    HoldReason(
        (6, 2, "Error from slot1@ep: Failed to execute '/x/job': (errno=2: 'No such file')"),
        Signs(
            Family.EXEC_MISSING,
            otherwise=(Match(_PROCESS, (_ENOENT,)), Match(_PROCESS, pattern=_any_of(_MISSING))),
            traits=(Trait.POINT,), remedy=RemedyKey.PROGRAM,
        ),
        Rule(
            RuleId.EXECUTABLE_MISSING, "executable missing", Verdict.FIX, 0.2,
            "the execution point lacks this program, or the script has DOS line endings",
            "install the program there or transfer it with the job; run dos2unix on a script with "
            "DOS line endings; then release",
            f"{_CHTC}, DOS line ends", (Match(_PROCESS, (_ENOENT,)),),
        ),
    ),
    HoldReason(
        (6, 8, "Error from slot1@ep: Failed to execute '/x/job': (errno=8: 'Exec format error')"),
        Signs(
            Family.EXEC_FORMAT,
            otherwise=(Match(_PROCESS, (_ENOEXEC,)), Match(_PROCESS, pattern="exec format")),
            traits=(Trait.POINT,), remedy=RemedyKey.PROGRAM,
        ),
        Rule(
            RuleId.NOT_A_PROGRAM, "not a program", Verdict.FIX, 0.05,
            "the executable does not run on this kind of machine",
            "build it for the execution points, or start the script with a `#!` line; then release",
            _HTC, (Match(_PROCESS, (_ENOEXEC,)),),
        ),
    ),
    HoldReason(
        (6, 13, "Error from slot1@ep: Failed to execute '/x/job': (errno=13: 'Permission denied')"),
        Signs(
            Family.EXEC_PERMISSION,
            otherwise=(Match(_PROCESS, _DENIED_ERRNOS), Match(_PROCESS, pattern=_any_of(_DENIED))),
            traits=(Trait.POINT,), remedy=RemedyKey.PROGRAM,
        ),
    ),
    HoldReason(
        (6, 110, "Error from slot1@ep: Failed to execute '/x/job': (errno=110: 'timed out')"),
        rule=Rule(
            RuleId.EXECUTION_POINT_TIMED_OUT, "execution point timed out", Verdict.RELEASE, 0.6,
            "the execution point did not answer in time", "release it after a while",
            "HTCondor manual, example of SYSTEM_PERIODIC_RELEASE (6/110)",
            (Match(_PROCESS, (_ETIMEDOUT,)),),
        ),
    ),
    HoldReason(
        (6, 5, "Error from slot1@ep: Failed to execute '/x/job': (errno=5: 'I/O error')"),
        Signs(Family.EXEC_OTHER, otherwise=(Match(_PROCESS),), traits=(Trait.POINT,)),
        Rule(
            RuleId.COULD_NOT_START, "could not start", Verdict.RELEASE, 0.4,
            "the execution point could not start it", "release it; try another execution point",
            _HTC,
            (
                Match(
                    (*_PROCESS, HoldCode.HOOK_PREPARE_JOB_FAILURE, HoldCode.STARTD_HELD_JOB,
                     HoldCode.SINGULARITY_TEST_FAILED, HoldCode.HOOK_SHADOW_PREPARE_JOB_FAILURE)
                ),
            ),
        ),
    ),
    HoldReason(
        (19, 0, "Error from slot1@ep: prepare-job hook failed"),
        Signs(
            Family.HOOK,
            always=(HoldCode.HOOK_PREPARE_JOB_FAILURE, HoldCode.HOOK_SHADOW_PREPARE_JOB_FAILURE),
            traits=(Trait.PASSES, Trait.POINT),
        ),
    ),
    HoldReason(
        (22, 0, "Failed to initialize user log to /home/anna/job.log"),
        Signs(Family.EVENT_LOG, always=(HoldCode.UNABLE_TO_INIT_USER_LOG,)),
        Rule(
            RuleId.EVENT_LOG, "event log", Verdict.FIX, 0.1, "its event log cannot be written",
            "put `log` into a writable directory, then release",
            _HTC, (Match((HoldCode.UNABLE_TO_INIT_USER_LOG,)),),
        ),
    ),
    HoldReason(
        (3, 0, "The job attribute PeriodicHold expression 'NumJobStarts > 3' evaluated to TRUE"),
        Signs(
            Family.JOB_POLICY,
            otherwise=(Match((HoldCode.JOB_POLICY, HoldCode.JOB_POLICY_UNDEFINED)),),
            traits=(Trait.POINT,),
        ),
        Rule(
            RuleId.OWN_POLICY, "its own policy", Verdict.ASK, 0.4,
            "its own periodic_hold or on_exit_hold became true",
            "look at what the expression guards against: a licence server outage passes, a bug "
            "does not; if the limit was meant for other jobs, lift it with `condor_qedit JOB "
            "PeriodicHold false` (or OnExitHold)",
            _HTC, (Match((HoldCode.JOB_POLICY,)),), builder=RemedyKey.POLICY,
        ),
    ),
    HoldReason(
        (25, 0, "Invalid cron settings"),
        Signs(
            Family.DEFERRAL,
            otherwise=(
                Match((HoldCode.MISSED_DEFERRED_EXECUTION_TIME, HoldCode.INVALID_CRON_SETTINGS)),
            ),
        ),
        Rule(
            RuleId.POLICY_UNDEFINED, "policy undefined", Verdict.FIX, 0.05,
            "a policy expression of the job is undefined",
            "correct the expression with condor_qedit, then release", _HTC,
            (
                Match(
                    (HoldCode.JOB_POLICY_UNDEFINED, HoldCode.MISSED_DEFERRED_EXECUTION_TIME,
                     HoldCode.INVALID_CRON_SETTINGS)
                ),
            ),
            command="",
        ),
    ),
    HoldReason(
        (26, 0, "Job restarted too many times"),
        Signs(
            Family.SITE_POLICY,
            otherwise=(Match((HoldCode.SYSTEM_POLICY, HoldCode.SYSTEM_POLICY_UNDEFINED)),),
        ),
        Rule(
            RuleId.SITE_POLICY, "site policy", Verdict.ASK, 0.3,
            "a policy of this access point held it",
            "read the reason; if it does not say what to change, ask the facilitators",
            f"{_OSP}, policies",
            (Match((HoldCode.SYSTEM_POLICY, HoldCode.SYSTEM_POLICY_UNDEFINED)),),
        ),
    ),
    HoldReason(
        (21, 0, "Error from slot1@ep: the machine's policy does not want this job"),
        Signs(Family.MACHINE_POLICY, otherwise=(Match(_RESOURCES),), traits=(Trait.POINT,)),
    ),
    HoldReason(
        (40, 0, "Failed to connect to EC2"),
        Signs(
            Family.GRID,
            otherwise=(
                Match(
                    (HoldCode.EC2_USER_ERROR, HoldCode.EC2_INTERNAL_ERROR,
                     HoldCode.EC2_ADMIN_ERROR, HoldCode.EC2_CONNECTION_PROBLEM,
                     HoldCode.EC2_SERVER_ERROR, HoldCode.EC2_INSTANCE_POTENTIALLY_LOST)
                ),
            ),
        ),
        Rule(
            RuleId.CLOUD_CONNECTION, "cloud or grid connection", Verdict.RELEASE, 0.6,
            "a connection to the cloud failed", "release it after a while",
            _HTC, (Match((HoldCode.EC2_CONNECTION_PROBLEM,)),),
        ),
    ),
    HoldReason(
        (23, 0, "Failed to access user account anna"),
        Signs(
            Family.ACCOUNT,
            otherwise=(
                Match(
                    (HoldCode.FAILED_TO_ACCESS_USER_ACCOUNT, *_CHOWN,
                     HoldCode.CANNOT_SWITCH_PRIMARY_GROUP)
                ),
            ),
        ),
        Rule(
            RuleId.ACCOUNT_OR_VERSION, "account or version trouble", Verdict.ASK, 0.3,
            "the access point or the execution point is not set up for it",
            "tell the staff; releasing it does not help", _HTC,
            (
                Match(
                    (HoldCode.JOB_SHADOW_MISMATCH, HoldCode.FAILED_TO_ACCESS_USER_ACCOUNT,
                     HoldCode.NO_COMPATIBLE_SHADOW, *_CHOWN, HoldCode.CANNOT_SWITCH_PRIMARY_GROUP)
                ),
            ),
            command="",
        ),
    ),
    HoldReason(
        (11, 0, "Invalid transfer acknowledgement"),
        Signs(
            Family.PROTOCOL,
            otherwise=(
                Match(
                    (HoldCode.INVALID_TRANSFER_ACK, HoldCode.JOB_SHADOW_MISMATCH,
                     HoldCode.INVALID_TRANSFER_GO_AHEAD, HoldCode.NO_COMPATIBLE_SHADOW)
                ),
            ),
            traits=(Trait.PASSES, Trait.POINT),
        ),
    ),
    HoldReason(
        (36, 0, "Failed to checkpoint"),
        Signs(Family.CHECKPOINT, otherwise=(Match((HoldCode.FAILED_TO_CHECKPOINT,)),)),
        Rule(
            RuleId.CHECKPOINT_FAILED, "checkpoint failed", Verdict.FIX, 0.3,
            "it failed to checkpoint",
            "read its error file, then release",
            _HTC, (Match((HoldCode.FAILED_TO_CHECKPOINT,)),),
        ),
    ),
    HoldReason(
        (43, 0, "Pre script failed"),
        Signs(Family.SCRIPT, always=(HoldCode.PRE_SCRIPT_FAILED, HoldCode.POST_SCRIPT_FAILED)),
        Rule(
            RuleId.SCRIPT_FAILED, "its scripts", Verdict.FIX, 0.3, "its pre or post script failed",
            "correct the script, then release",
            _HTC, (Match((HoldCode.PRE_SCRIPT_FAILED, HoldCode.POST_SCRIPT_FAILED)),),
        ),
    ),
    HoldReason(
        (None, None, ""),
        Signs(
            Family.UNSPECIFIED,
            otherwise=(Match((None, HoldCode.UNSPECIFIED), pattern=r"\A\Z"),),
        ),
    ),
    HoldReason(
        (99, 0, "something new"),
        Signs(Family.OTHER, otherwise=(Match(),)),
        Rule(
            RuleId.UNKNOWN, "reason not known", Verdict.ASK, 0.35, "no rule covers this reason",
            "read the reason; release it once if it looks transient", "ours", (Match(),),
        ),
    ),
)  # fmt: skip


def all_signs() -> tuple[Signs, ...]:
    """Return the signs of all families, in the order in which they are tried."""
    return tuple(reason.signs for reason in HOLD_REASONS if reason.signs is not None)


def families_with(trait: Trait) -> frozenset[Family]:
    """Return the families that have a trait."""
    return frozenset(signs.family for signs in all_signs() if trait in signs.traits)


def family_of(template: str, code: int | None, subcode: int | None) -> Family:
    """Return the family of a hold, from its reason without hosts, paths and numbers."""
    known = all_signs()
    text = template.lower()
    for signs in known:
        if code in signs.always:
            return signs.family
    for signs in known:
        if signs.in_wording(text):
            return signs.family
    return next(
        signs.family
        for signs in known
        if any(match.matches(code, subcode, text) for match in signs.otherwise)
    )


def signs_fingerprint() -> str:
    """Return a checksum that changes whenever a hold could get another family.

    It leaves out titles, sentences and priors, because stored rows do not depend on them.
    """
    return f"{zlib.crc32(repr((tuple(Family), all_signs())).encode()):08x}"


# Our own releases say so in their reason, and with which verdict; see advise/apply/execute.py.
OUR_MARK = "condor-advice: "
REPAIR_MARK = f"{OUR_MARK}{Verdict.FIX.value} "


def acting_user(reason: str) -> str:
    """Return the user that a reason names as having held, released or removed a job, or ''.

    HTCondor appends the name, so the last one counts: anybody can write the text before it.
    """
    names = re.findall(r"\(by user ([^)\s]+)\)", reason)
    return names[-1] if names else ""
