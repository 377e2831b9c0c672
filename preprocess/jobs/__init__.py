"""Turn job histories into features for failure models.

These are the names that other packages use. `history` keeps what is known about earlier jobs,
`horizons` makes datasets from job tables, `from_store` makes a job table from gathered event logs.
"""

from condor_advice.preprocess.jobs.from_store import read_store_jobs
from condor_advice.preprocess.jobs.history import History, level_keys
from condor_advice.preprocess.jobs.horizons import (
    Horizon,
    JobDataset,
    JobFeatures,
    Labels,
    TimeSplit,
)

__all__ = [
    "History",
    "Horizon",
    "JobDataset",
    "JobFeatures",
    "Labels",
    "TimeSplit",
    "level_keys",
    "read_store_jobs",
]
