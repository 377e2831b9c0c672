"""A small department: a few people who run the same analyses for months on workstations.

Most causes need a person: a bug, a typing error, an expired ticket, a full quota. They last
long, so few releases succeed as they are. The owners often fix or resubmit.
"""

from __future__ import annotations

from random import Random

from condor_advice.lab.kinds import BatchNaming, PoolKind
from condor_advice.lab.world import JobBatch, LabWorld


def dress(batch: JobBatch, habits: Random) -> None:
    """Give a batch the requests, files and policies of its program."""
    batch.submit |= {
        "request_memory": str(habits.choice((48, 64, 80))),
        "request_disk": f"{habits.choice((6, 10, 16))}M",
        "on_exit_hold": habits.choice(("ExitCode != 0", "ExitBySignal || ExitCode > 0")),
    }
    if habits.random() < 0.5:
        batch.submit["on_exit_hold_reason"] = habits.choice(
            (
                '"analysis failed, look at the .err file"',
                'strcat("run ended with status ", ExitCode)',
                '"failed run kept for inspection"',
            )
        )
    batch.failure = f"exit {habits.choice((1, 1, 2, 3, 70, 255))}"
    batch.stdout = habits.choice(("$(Cluster).$(Process).out", "log.$(Process).txt"))
    if habits.random() < 0.4:
        limit = habits.choice((60, 90))
        batch.submit["periodic_hold"] = f"JobStatus == 2 && time() - JobCurrentStartDate > {limit}"
    for _ in range(habits.randrange(1, 3)):
        name = batch.input_name()
        batch.write(name)
        batch.inputs.append(name)
    batch.outputs += [batch.data() for _ in range(habits.randrange(2))]
    batch.opens_early = bool(batch.outputs)


def site_policy(world: LabWorld) -> str:
    """Hold heavy jobs in office hours: seven of ten minutes, in the lab's time."""
    return """\
SYSTEM_PERIODIC_HOLD_NAMES = office
SYSTEM_PERIODIC_HOLD_office = JobStatus == 2 && HeavyJob =?= true && time() % 600 < 420
SYSTEM_PERIODIC_HOLD_office_REASON = "Heavy jobs run between 18:00 and 8:00 only"
SYSTEM_PERIODIC_HOLD_office_SUBCODE = 7
"""


KIND = PoolKind(
    owners=6,
    owner_names=("abe", "corinna", "dewi", "emeka", "fumiko", "gustavo", "ilse", "joaquin"),
    behaviours={
        "release_now": 0.22,
        "release_later": 0.22,
        "fix": 0.30,
        "remove": 0.18,
        "ignore": 0.08,
    },
    randomised_seconds=45.0,
    randomised_releases=(2, 6),
    haste=1.4,
    sweeping=(0.2, 0.8),
    resubmits=0.6,
    mended=0.4,
    programs=(
        "tides.py",
        "run_model.sh",
        "spectra",
        "inversion",
        "monthly_means.py",
        "trend.R",
        "regrid.sh",
        "budget",
    ),
    projects=("estuary", "glacier", "upwelling", "aerosol", "soilcarbon"),
    data_words=("station", "month", "basin", "profile", "transect", "level", "flux", "depth"),
    programs_per_owner=(2, 3),
    activity_spread=0.4,
    persistence=0.6,
    naming=BatchNaming.DATED,
    cluster_sizes={1: 2.0, 2: 2.0, 3: 2.0, 6: 1.5, 12: 0.5},
    run_seconds=(1.0, 2.5),
    dress=dress,
    batches_per_minute=20.0,
    personalities=("steady", "steady", "steady"),
    point_prefix="ws",
    memory_policy="per-run",
    iso_dates=False,
    config=site_policy,
)
