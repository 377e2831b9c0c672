"""Record the usage of jobs on a real pool, sample by sample; about half of the jobs fail.

    python bench/reports/checkpoint/record_usage.py OUT.jsonl[.xz] [--jobs-of-a-kind 20]

Writes one line per job: its kind, whether and why it failed, the sampling interval, the samples.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from condor_advice.gather.events import JobStatus
from condor_advice.lab.pool import ExecutionPoint, Pool

HERE = Path(__file__).resolve().parent
INTERVAL = 0.5
KINDS = ("leak", "bursts", "disk", "time", "crash", "diskstop", "plateau", "saw", "steady")
CAUSES = {102: "memory", 104: "disk"}
LEFT_OUT = ("file_system_free", "file_system_size")  # of the machine, not of the job


def description(kind: str, seed: int, out: Path) -> str:
    """Return the submit description of one job."""
    rng = random.Random(f"description {kind} {seed}")
    memory, disk, seconds = rng.choice([128, 160, 256]), rng.choice([20, 40]), rng.randint(35, 75)
    limit = f"allowed_execute_duration = {int(seconds * rng.uniform(0.4, 0.9))}"
    name = out / f"{kind}-{seed}"
    job = f"{HERE}/usage_job.py {kind} {seed} {memory} {disk} {seconds}"
    record = f"-m condor_checkpoint record --interval {INTERVAL} --out {name}.samples"
    return f"""
executable = {sys.executable}
transfer_executable = false
arguments = {record} -- {sys.executable} {job}
environment = "PYTHONPATH={HERE.parents[2]}"
request_memory = {memory}
request_disk = {disk}MB
should_transfer_files = YES
transfer_output_files = ""
log = {name}.log
{limit if kind == "time" else ""}
batch_name = {kind}-{seed}
queue
"""


def outcome(ad: dict[str, Any]) -> tuple[bool, str]:
    """Return whether the job failed, and why."""
    if ad["JobStatus"] == JobStatus.HELD:
        if ad["HoldReasonCode"] == 47:
            return True, "time"
        return True, CAUSES.get(ad.get("HoldReasonSubCode", 0), "held")
    if ad.get("ExitBySignal") or ad.get("ExitCode"):
        return True, "crash"
    return False, ""


def record(out: Path, jobs_of_a_kind: int) -> int:
    """Run the jobs and write their usage; return how many jobs ran."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        Pool(execution_points=(ExecutionPoint("ep1", cpus=20),)) as pool,
    ):
        os.chmod(scratch, 0o777)
        clusters = {}
        for seed in range(jobs_of_a_kind):
            for kind in KINDS:
                cluster = pool.submit(description(kind, seed, Path(scratch)), cwd=Path(scratch))
                clusters[cluster] = f"{kind}-{seed}"
        ads = wait(pool, clusters)
        with lzma.open(out, "wt") if out.suffix == ".xz" else out.open("w") as file:
            for cluster, name in clusters.items():
                lines = Path(scratch, f"{name}.samples").read_text().splitlines()
                samples = [json.loads(line) for line in lines]
                samples = [
                    {key: value for key, value in sample.items() if key not in LEFT_OUT}
                    for sample in samples
                    if "elapsed" in sample
                ]
                failed, cause = outcome(ads[cluster])
                row = {"job": name, "failed": failed, "cause": cause, "interval": INTERVAL}
                file.write(json.dumps({**row, "samples": samples}) + "\n")
    return len(clusters)


def wait(pool: Pool, clusters: dict[int, str]) -> dict[int, dict[str, Any]]:
    """Wait until every job is held or done; return their ads."""
    ended = (JobStatus.HELD, JobStatus.COMPLETED)
    while True:
        ads = {ad["ClusterId"]: ad for ad in pool.jobs()}
        left = [c for c in clusters if ads[c]["JobStatus"] not in ended]
        if not left:
            return ads
        time.sleep(2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs-of-a-kind", type=int, default=20)
    arguments = parser.parse_args()
    print(record(arguments.out, arguments.jobs_of_a_kind), "jobs")
