"""Job numbers: access point, cluster and proc packed into one 64-bit integer.

The proc takes the lowest 24 bits, the cluster the next 31, and the number of the access point
the rest. Every function takes plain integers and whole columns alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_PROC_BITS, _CLUSTER_BITS = 24, 31
MOST_PROCS = (1 << _PROC_BITS) - 1  # higher procs of a cluster share this number
MAX_ACCESS_POINTS = 1 << (63 - _PROC_BITS - _CLUSTER_BITS)


def job_number(access_point: Any, cluster: Any, proc: Any) -> Any:
    """Return the number of a job."""
    whole = cluster_number(access_point, np.asarray(cluster, np.int64))
    return (whole << _PROC_BITS) + np.minimum(proc, MOST_PROCS)


def cluster_number(access_point: Any, cluster: Any) -> Any:
    """Return the number of a cluster, access point included."""
    return (access_point << _CLUSTER_BITS) + cluster


def cluster_of(job: Any) -> Any:
    """Return the number of a job's cluster, access point included."""
    return job >> _PROC_BITS


def proc_of(job: Any) -> Any:
    """Return the proc of a job."""
    return job & MOST_PROCS


def job_parts(job: Any) -> tuple[Any, Any, Any]:
    """Return (access point, cluster, proc) of a job's number."""
    cluster = cluster_of(job)
    return cluster >> _CLUSTER_BITS, cluster & ((1 << _CLUSTER_BITS) - 1), proc_of(job)
