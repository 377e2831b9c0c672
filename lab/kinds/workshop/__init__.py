"""An engineering department whose desks compute at night. For testing only.

Almost all clusters have one job. Owners change the model, fix it and submit it again under a
numbered name. Most faults stay, so few releases without a change succeed.
"""

from __future__ import annotations

from condor_advice.lab.kinds import BatchNaming, PoolKind
from condor_advice.lab.kinds.workshop._desk import dress

KIND = PoolKind(
    owners=14,
    behaviours={
        "release_now": 0.30,
        "release_later": 0.22,
        "fix": 0.20,
        "remove": 0.20,
        "ignore": 0.08,
    },
    randomised_releases=(2, 6),
    haste=0.8,
    sweeping=(0.0, 0.2),
    resubmits=0.7,
    mended=0.5,
    programs=(
        "abq_run",
        "beamfe",
        "crash3d",
        "flowcase.sh",
        "gearfit",
        "heatplate",
        "moldfill.py",
        "plate_opt",
        "rotor",
        "spring_mc.sh",
        "thermo2",
        "truss",
        "vibmodes.py",
        "weldsim",
    ),
    projects=("bracket", "chassis", "duct", "gearbox", "impeller", "manifold", "turbine"),
    data_words=("case", "deck", "geo", "loads", "mesh", "nodes", "props", "sets", "steps"),
    programs_per_owner=(1, 4),
    activity_spread=0.8,
    persistence=0.45,
    naming=BatchNaming.NUMBERED,
    cluster_sizes={1: 12.0, 2: 2.0, 3: 1.0},
    run_seconds=(1.0, 2.5),
    dress=dress,
    batches_per_minute=26.0,
    personalities=("steady", "steady", "flaky", "steady", "steady"),
    point_prefix="desk",
    memory_policy="per-run",
    iso_dates=False,
)
