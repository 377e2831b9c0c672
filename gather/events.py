"""HTCondor's vocabulary: job ids, job status, event types, hold codes and events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any

# HTCondor's limits: job ids have 32 bits, event numbers three digits.
MAX_ID = (1 << 31) - 1
MAX_TYPE = 999


@dataclass(frozen=True, slots=True, order=True)
class JobId:
    """One job. Cluster and proc repeat across access points, so all three name it."""

    access_point: str
    cluster: int
    proc: int

    def __str__(self) -> str:
        return f"{self.cluster}.{self.proc}"


class JobEventType(IntEnum):
    """The event numbers of HTCondor's job event log, by HTCondor's names.

    A number that a newer HTCondor adds is accepted: `JobEventType(73)` is a member called
    `EVENT_073`, so no event is lost because its type is unknown.
    """

    SUBMIT = 0
    EXECUTE = 1
    EXECUTABLE_ERROR = 2
    CHECKPOINTED = 3
    JOB_EVICTED = 4
    JOB_TERMINATED = 5
    IMAGE_SIZE = 6
    SHADOW_EXCEPTION = 7
    GENERIC = 8
    JOB_ABORTED = 9
    JOB_SUSPENDED = 10
    JOB_UNSUSPENDED = 11
    JOB_HELD = 12
    JOB_RELEASED = 13
    NODE_EXECUTE = 14
    NODE_TERMINATED = 15
    POST_SCRIPT_TERMINATED = 16
    GLOBUS_SUBMIT = 17
    GLOBUS_SUBMIT_FAILED = 18
    GLOBUS_RESOURCE_UP = 19
    GLOBUS_RESOURCE_DOWN = 20
    REMOTE_ERROR = 21
    JOB_DISCONNECTED = 22
    JOB_RECONNECTED = 23
    JOB_RECONNECT_FAILED = 24
    GRID_RESOURCE_UP = 25
    GRID_RESOURCE_DOWN = 26
    GRID_SUBMIT = 27
    JOB_AD_INFORMATION = 28
    JOB_STATUS_UNKNOWN = 29
    JOB_STATUS_KNOWN = 30
    JOB_STAGE_IN = 31
    JOB_STAGE_OUT = 32
    ATTRIBUTE_UPDATE = 33
    PRESKIP = 34
    CLUSTER_SUBMIT = 35
    CLUSTER_REMOVE = 36
    FACTORY_PAUSED = 37
    FACTORY_RESUMED = 38
    NONE = 39
    FILE_TRANSFER = 40
    RESERVE_SPACE = 41
    RELEASE_SPACE = 42
    FILE_COMPLETE = 43
    FILE_USED = 44
    FILE_REMOVED = 45
    DATAFLOW_JOB_SKIPPED = 46
    COMMON_FILES = 47

    @classmethod
    def _missing_(cls, value: object) -> JobEventType | None:
        if not isinstance(value, int) or not 0 <= value <= MAX_TYPE:
            return None
        member = int.__new__(cls, value)
        member._name_, member._value_ = f"EVENT_{value:03d}", value
        return member


class JobStatus(IntEnum):
    """The values of the job attribute JobStatus."""

    IDLE = 1
    RUNNING = 2
    REMOVED = 3
    COMPLETED = 4
    HELD = 5
    TRANSFERRING_OUTPUT = 6
    SUSPENDED = 7


class HoldCode(IntEnum):
    """The values of HoldReasonCode, by the names in HTCondor's condor_holdcodes.h.

    A code read from a log stays a plain int, because a newer HTCondor may add codes. A member
    compares equal to its number.
    """

    UNSPECIFIED = 0
    USER_REQUEST = 1
    COMMON_TRANSFER_FAILED = 2
    JOB_POLICY = 3
    CORRUPTED_CREDENTIAL = 4
    JOB_POLICY_UNDEFINED = 5
    FAILED_TO_CREATE_PROCESS = 6
    UNABLE_TO_OPEN_OUTPUT = 7
    UNABLE_TO_OPEN_INPUT = 8
    UNABLE_TO_OPEN_OUTPUT_STREAM = 9
    UNABLE_TO_OPEN_INPUT_STREAM = 10
    INVALID_TRANSFER_ACK = 11
    TRANSFER_OUTPUT_ERROR = 12
    TRANSFER_INPUT_ERROR = 13
    IWD_ERROR = 14
    SUBMITTED_ON_HOLD = 15
    SPOOLING_INPUT = 16
    JOB_SHADOW_MISMATCH = 17
    INVALID_TRANSFER_GO_AHEAD = 18
    HOOK_PREPARE_JOB_FAILURE = 19
    MISSED_DEFERRED_EXECUTION_TIME = 20
    STARTD_HELD_JOB = 21
    UNABLE_TO_INIT_USER_LOG = 22
    FAILED_TO_ACCESS_USER_ACCOUNT = 23
    NO_COMPATIBLE_SHADOW = 24
    INVALID_CRON_SETTINGS = 25
    SYSTEM_POLICY = 26
    SYSTEM_POLICY_UNDEFINED = 27
    GLEXEC_CHOWN_SANDBOX_TO_USER = 28
    PRIVSEP_CHOWN_SANDBOX_TO_USER = 29
    GLEXEC_CHOWN_SANDBOX_TO_CONDOR = 30
    PRIVSEP_CHOWN_SANDBOX_TO_CONDOR = 31
    MAX_TRANSFER_INPUT_SIZE_EXCEEDED = 32
    MAX_TRANSFER_OUTPUT_SIZE_EXCEEDED = 33
    JOB_OUT_OF_RESOURCES = 34
    INVALID_DOCKER_IMAGE = 35
    FAILED_TO_CHECKPOINT = 36
    EC2_USER_ERROR = 37
    EC2_INTERNAL_ERROR = 38
    EC2_ADMIN_ERROR = 39
    EC2_CONNECTION_PROBLEM = 40
    EC2_SERVER_ERROR = 41
    EC2_INSTANCE_POTENTIALLY_LOST = 42
    PRE_SCRIPT_FAILED = 43
    POST_SCRIPT_FAILED = 44
    SINGULARITY_TEST_FAILED = 45
    JOB_DURATION_EXCEEDED = 46
    JOB_EXECUTE_EXCEEDED = 47
    HOOK_SHADOW_PREPARE_JOB_FAILURE = 48
    CANNOT_SWITCH_PRIMARY_GROUP = 49


# A hold's event in the log and EnteredCurrentStatus in the job ad may differ by a few seconds.
SAME_HOLD_SECONDS = 5.0
# A job held at submission gets its hold event only once its whole cluster is in the queue.
SUBMITTING_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One event of one job, as logged."""

    job: JobId
    type: JobEventType
    time: datetime  # timezone-aware, always UTC
    ad: Mapping[str, Any]  # ClassAd spelling kept: ad["HoldReasonCode"]
    text: str = field(default="", repr=False)  # the event as it stands in the log
