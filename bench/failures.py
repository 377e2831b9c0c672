"""Measure the speed of the failure models; print one JSON line per benchmark.

    python bench/failures.py [history] [memory] [train] [predict]

history  features at submit over 250,000 simulated jobs (target: under 10 s)
memory   peak memory while streaming features, for a log and for one four times as large
train    training with a 20-trial search on 77,000 simulated jobs (target: under 300 s)
predict  one prediction with reasons from a saved model, evaluated with NumPy
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from condor_advice.lab.workload import simulate_jobs, simulated_blocks
from condor_advice.preprocess.jobs.horizons import Horizon, JobFeatures, Labels


def tell(name: str, **figures: float) -> None:
    """Print one benchmark."""
    print(json.dumps({"benchmark": f"failures.{name}", **figures}), flush=True)


def history(jobs: int = 250_000) -> None:
    """Time the features of a whole table."""
    table = simulate_jobs(jobs, users=500)
    maker = JobFeatures.for_table(table)
    wall, cpu = time.perf_counter(), time.process_time()
    data = maker.datasets(table, [Horizon.SUBMIT])[Horizon.SUBMIT]
    tell(
        "history",
        jobs=jobs,
        features=data.features.shape[1],
        seconds=round(time.perf_counter() - wall, 2),
        cpu_seconds=round(time.process_time() - cpu, 2),
        wanted_seconds=10,
    )


def memory() -> None:
    """Compare the peak memory of a short and a long log, each in its own process."""
    peaks = {}
    for jobs in (50_000, 200_000):
        done = subprocess.run(
            [sys.executable, __file__, "stream", str(jobs)],
            capture_output=True,
            text=True,
            check=True,
        )
        peaks[jobs] = float(json.loads(done.stdout)["peak_mb"])
    tell(
        "memory",
        jobs=200_000,
        peak_mb=peaks[200_000],
        peak_mb_of_a_quarter=peaks[50_000],
        growth=round(peaks[200_000] / peaks[50_000], 3),
    )


def stream(jobs: int) -> None:
    """Stream features block by block and print the peak memory."""
    first = next(iter(simulated_blocks(1000, users=300)))
    maker = JobFeatures.for_table(first)
    rows = 0
    for part in maker.stream(simulated_blocks(jobs, users=300, block=5000), [Horizon.SUBMIT]):
        rows += len(part)
    assert rows == jobs
    # Not ru_maxrss: a new process inherits that from its parent.
    status = Path("/proc/self/status").read_text().splitlines()
    [line] = [text for text in status if text.startswith("VmHWM")]
    peak = int(line.split()[1]) / 1024
    print(json.dumps({"jobs": jobs, "peak_mb": round(peak, 1)}))


def train(jobs: int = 77_000) -> None:
    """Time training, search included."""
    from condor_advice.model.failure.train import TrainSettings, train_models

    table = simulate_jobs(jobs, users=600)
    wall, cpu = time.perf_counter(), time.process_time()
    models = train_models(table, [Horizon.SUBMIT], Labels(), TrainSettings(trials=20, threads=2))
    tell(
        "train",
        jobs=jobs,
        trials=20,
        seconds=round(time.perf_counter() - wall, 1),
        cpu_seconds=round(time.process_time() - cpu, 1),
        wanted_seconds=300,
        validation_roc_auc=models.models[Horizon.SUBMIT].notes["validation_roc_auc"],
    )


def predict(jobs: int = 5000) -> None:
    """Time one prediction from a saved model, and its reasons."""
    from condor_advice.model.failure.model import FailureModels
    from condor_advice.model.failure.train import TrainSettings, train_models

    table = simulate_jobs(jobs)
    with tempfile.TemporaryDirectory() as directory:
        train_models(table, [Horizon.SUBMIT], Labels(), TrainSettings(trials=2)).save(
            Path(directory)
        )
        began = time.perf_counter()
        models = FailureModels.load(Path(directory))
        loaded = time.perf_counter() - began
    model = models.get(Horizon.SUBMIT)
    job, now = table.take(np.array([jobs - 1])), float(table["submit_time"][-1]) + 60.0
    models.at_submit(job, now)
    began = time.perf_counter()
    data, _ = models.at_submit(job, now)
    predicted = time.perf_counter() - began
    model.reasons(model.select(data)[0])
    began = time.perf_counter()
    model.reasons(model.select(data)[0])
    tell(
        "predict",
        trees=len(model.trees.roots),
        load_ms=round(1000 * loaded, 1),
        predict_ms=round(1000 * predicted, 2),
        reasons_ms=round(1000 * (time.perf_counter() - began), 2),
    )


BENCHMARKS: dict[str, Callable[[], None]] = {
    "history": history,
    "memory": memory,
    "train": train,
    "predict": predict,
}


def main() -> None:
    """Run the named benchmarks, or all of them."""
    if sys.argv[1:2] == ["stream"]:
        stream(int(sys.argv[2]))
        return
    for name in sys.argv[1:] or BENCHMARKS:
        BENCHMARKS[name]()


if __name__ == "__main__":
    main()
