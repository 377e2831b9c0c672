"""A production workflow: operators, large clusters, file servers and a software mount.

Most causes are outages that end within seconds to minutes, or chance of the point or the run,
so nearly half of the releases succeed as they are. Operators release whole clusters at once.
"""

from __future__ import annotations

from random import Random

from condor_advice.lab.kinds import BatchNaming, PoolKind
from condor_advice.lab.world import JobBatch, LabWorld


def dress(batch: JobBatch, habits: Random) -> None:
    """Give a batch the requests, files and policies of its step of the workflow."""
    batch.submit |= {
        "request_memory": str(habits.choice((64, 96, 128))),
        "request_disk": f"{habits.choice((8, 16, 24))}M",
        "on_exit_hold": "ExitCode >= 64 || ExitBySignal",
        "on_exit_hold_subcode": habits.choice(("ExitCode", "10", "65")),
    }
    if habits.random() < 0.6:
        batch.submit["on_exit_hold_reason"] = (
            'strcat("payload exit code ", ifThenElse(ExitBySignal, -ExitSignal, ExitCode))'
        )
    batch.failure = f"exit {habits.choice((64, 65, 68, 80, 92))}"
    batch.stdout = "log.$(Process).out"
    if habits.random() < 0.3:
        batch.submit["allowed_execute_duration"] = str(habits.choice((60, 80)))
    if habits.random() < 0.3:
        batch.submit["periodic_hold"] = "JobStatus == 2 && time() - JobCurrentStartDate > 70"
    if habits.random() < 0.3:  # crashes that nobody looks at
        batch.end.append(f"chance {habits.choice((5, 10))} && exit 1")
    world = batch.world
    for _ in range(habits.randrange(1, 3)):
        batch.inputs.append(world.server.url(world.publish(batch.data())))
    if habits.random() < 0.5:
        name = batch.input_name()
        batch.write(name)
        batch.inputs.append(name)
    batch.outputs += [batch.data() for _ in range(habits.randrange(1, 3))]
    batch.opens_early = habits.random() < 0.5


def site_policy(world: LabWorld) -> str:
    """Hold jobs that were started again and again."""
    return """\
SYSTEM_PERIODIC_HOLD_NAMES = attempts
SYSTEM_PERIODIC_HOLD_attempts = JobStatus == 1 && NumJobStarts > 7
SYSTEM_PERIODIC_HOLD_attempts_REASON = strcat("started ", NumJobStarts, " times")
SYSTEM_PERIODIC_HOLD_attempts_SUBCODE = 99
"""


KIND = PoolKind(
    owners=8,
    owner_names=(
        "prodops",
        "mcprod",
        "reprocess",
        "calib",
        "dataquality",
        "skimming",
        "nightly",
        "validation",
        "tagger",
        "unfolding",
    ),
    behaviours={
        "release_now": 0.35,
        "release_later": 0.35,
        "fix": 0.14,
        "remove": 0.10,
        "ignore": 0.06,
    },
    randomised_seconds=25.0,
    randomised_releases=(2, 5),
    haste=0.7,
    sweeping=(0.4, 0.95),
    resubmits=0.35,
    mended=0.6,
    programs=(
        "gensim.sh",
        "digi.sh",
        "reco.sh",
        "skim.py",
        "ntuple.py",
        "stage.sh",
        "merge_files",
        "payload",
    ),
    projects=("run3a", "run3b", "mc24", "mc25", "cosmics", "heavyion"),
    data_words=("aod", "esd", "raw", "hist", "cond", "pileup", "geom", "lumi", "trig"),
    programs_per_owner=(1, 3),
    activity_spread=0.8,
    persistence=0.35,
    naming=BatchNaming.NUMBERED,
    cluster_sizes={4: 1.0, 8: 2.0, 12: 2.0, 20: 1.5, 32: 0.7},
    run_seconds=(1.5, 2.0),
    dress=dress,
    batches_per_minute=8.5,
    personalities=("steady", "steady", "steady", "small", "flaky"),
    point_prefix="wn",
    memory_policy="stock",
    iso_dates=True,
    config=site_policy,
)
