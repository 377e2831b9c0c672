"""Job tables from other people's records: SWF, Slurm and HTCondor history.

Every reader hands on the same `JobTable`; what a line could not tell is unknown there,
and a line that could not be read is counted with its number.
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
