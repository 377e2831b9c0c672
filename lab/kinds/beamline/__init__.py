"""A synchrotron beamline that reduces its frames at once. For testing only.

Clusters are large: one job per group of frames. Half-way through a recording the site moves to
another store and another release of its software, which changes what fails and what clears.
"""

from __future__ import annotations

from condor_advice.lab.kinds import BatchNaming, PoolKind
from condor_advice.lab.kinds.beamline._scan import dress

KIND = PoolKind(
    owners=9,
    behaviours={
        "release_now": 0.40,
        "release_later": 0.32,
        "fix": 0.10,
        "remove": 0.08,
        "ignore": 0.10,
    },
    randomised_releases=(2, 5),
    randomised_seconds=28.0,
    haste=1.1,
    sweeping=(0.3, 0.95),
    resubmits=0.4,
    mended=0.6,
    programs=(
        "azint",
        "darkcorr.sh",
        "fluofit.py",
        "ptyrec",
        "sino2vol",
        "stitch.py",
        "tomorec",
        "xrdmap.sh",
    ),
    projects=("bl04", "bl07", "commissioning", "mx-2211", "ma-4870", "inhouse"),
    data_words=("dark", "flat", "proj", "ring", "roi", "scan", "sino", "slice", "spec"),
    programs_per_owner=(1, 2),
    activity_spread=0.6,
    persistence=0.3,
    naming=BatchNaming.SAME,
    cluster_sizes={1: 1.0, 6: 2.0, 10: 3.0, 16: 2.0, 24: 1.0},
    run_seconds=(1.0, 2.0),
    dress=dress,
    batches_per_minute=6.0,
    personalities=("steady", "steady", "black-hole", "steady", "small", "steady"),
    point_prefix="hutch",
    memory_policy="per-run",
)
