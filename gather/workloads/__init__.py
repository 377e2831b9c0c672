"""Read job tables from SWF files, Slurm accounting and HTCondor history.

Every reader returns the same `JobTable`. Values missing from a record are unknown in the table; a
record that cannot be read is reported with its line number.
"""

from condor_advice.gather.workloads.condor import read_condor_history, read_schedd_history
from condor_advice.gather.workloads.slurm import read_sacct, read_slurmrestd
from condor_advice.gather.workloads.swf import read_swf, swf_blocks
from condor_advice.gather.workloads.table import (
    COLUMNS,
    BadLine,
    JobState,
    JobTable,
    TableBuilder,
    concatenate,
)

__all__ = [
    "COLUMNS",
    "BadLine",
    "JobState",
    "JobTable",
    "TableBuilder",
    "concatenate",
    "read_condor_history",
    "read_sacct",
    "read_schedd_history",
    "read_slurmrestd",
    "read_swf",
    "swf_blocks",
]
