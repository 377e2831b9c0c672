"""What HTCondor said: one job, one kind of event, one event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any


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

    A number that HTCondor adds later is kept: `JobEventType(73)` is a member called
    `EVENT_073`, so that no event is lost for want of a name.
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
        if not isinstance(value, int) or not 0 <= value <= 999:
            return None
        member = int.__new__(cls, value)
        member._name_, member._value_ = f"EVENT_{value:03d}", value
        return member


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One event of one job, as its log has it."""

    job: JobId
    type: JobEventType
    time: datetime  # timezone-aware, always UTC
    ad: Mapping[str, Any]  # ClassAd spelling kept: ad["HoldReasonCode"]
    text: str = field(default="", repr=False)  # the log's own words
