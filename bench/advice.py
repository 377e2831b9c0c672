"""How long advice takes, compared with the least that any such program must do.

    python bench/advice.py [--rounds N] [--jobs N] [--large N] [--held N] [--no-pool]

All commands run in turns on the same machine, and the best round of each counts. CPU time (user
and system) decides, because it is nearly the same on a busy and on an idle machine; wall time is
printed beside it. Prints one JSON line per benchmark.

- `cold_store`: `condor-advice JOBID --store S` against a Python that imports numpy and sqlite3
  and reads one row.
- `cold_pool`: `condor-advice JOBID` on a real pool against a Python that imports numpy and
  htcondor2 and does the same one query.
- `many_jobs`: thousands of held jobs in one call, per job, against one cold call.
- `store_size`: one job's advice from a store of a million jobs against one of ten thousand.
- `kept_pass`: what keeping hold episodes ready adds to gathering.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path

from condor_advice.gather.clock import Clock
from condor_advice.gather.collect import Collector
from condor_advice.gather.store import Store
from condor_advice.lab.simulate import Profile, simulate
from condor_advice.preprocess.holds.episode_store import KeptEpisodes

COMMAND = [str(Path(sys.executable).with_name("condor-advice"))]
OWN_PLACES = ("CONDOR_ADVICE_STORE", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME")
READ_ONE_ROW = """
import sqlite3, sys
import numpy
db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
print(db.execute("SELECT * FROM kept_episodes WHERE episode = ?", (int(sys.argv[2]),)).fetchone())
"""
ASK_ONCE = """
import sys
import htcondor2, numpy
print(htcondor2.Schedd().query(sys.argv[1], sys.argv[2].split(",")))
"""


@dataclass(frozen=True, slots=True)
class CommandCost:
    """The least time that a command took."""

    cpu: float
    wall: float


def report(benchmark: str, unit: str, value: float, **more: object) -> None:
    """Print one line."""
    print(
        json.dumps({"benchmark": benchmark, "unit": unit, "value": float(f"{value:.4g}")} | more),
        flush=True,
    )


def run(command: Sequence[str], env: dict[str, str]) -> CommandCost:
    """Run a command once; it must succeed."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return CommandCost(spent, wall)


def race(
    commands: dict[str, Sequence[str]], rounds: int, env: dict[str, str]
) -> dict[str, CommandCost]:
    """Run commands in turns; return the best of each, after one warm-up round."""
    costs_by_name: dict[str, list[CommandCost]] = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, command in commands.items():
            costs_by_name[name].append(run(command, env))
    return {
        name: CommandCost(min(c.cpu for c in costs[1:]), min(c.wall for c in costs[1:]))
        for name, costs in costs_by_name.items()
    }


def compare(
    benchmark: str, ours: CommandCost, floor: CommandCost, target: float, **more: object
) -> None:
    """Print our cost as a multiple of the floor's."""
    ratio = ours.cpu / floor.cpu
    report(
        benchmark,
        "ratio",
        ratio,
        target=target,
        met=ratio <= target,
        wall_ratio=round(ours.wall / floor.wall, 3),
        cpu_ms=round(1000 * ours.cpu, 1),
        floor_cpu_ms=round(1000 * floor.cpu, 1),
        wall_ms=round(1000 * ours.wall, 1),
        floor_wall_ms=round(1000 * floor.wall, 1),
        **more,
    )


def make_store(directory: Path, jobs: int, held: float | None = None) -> Path:
    """Gather a simulated log into a store, as `condor-advice gather` does."""
    out, path = directory / f"log{jobs}-{held}", directory / f"store{jobs}-{held}.sqlite"
    profile = Profile.read()
    if held is not None:
        profile = replace(profile, targets=replace(profile.targets, held_share=held))
    simulate(jobs, 1, out, profile)
    with Store(path) as store:
        log = str(out / "ap1" / "EventLog")
        began = time.process_time()
        Collector(store, [log], access_point="ap1", clock=Clock(UTC)).read()
        read = time.process_time() - began
        episodes = KeptEpisodes(store).take_up()
        kept = time.process_time() - began - read
        events = sum(store.counts_by_type().values())
    report(
        "kept_pass",
        "events/s",
        events / kept,
        events=events,
        episodes=episodes,
        read_seconds=round(read, 2),
        kept_seconds=round(kept, 2),
        store_mb=round(os.path.getsize(path) / 1e6, 1),
    )
    for file in (out / "ap1").iterdir():
        file.unlink()
    return path


def held_job(store: Path) -> tuple[str, str]:
    """Return a held job and the number of its episode."""
    with Store(store, readonly=True) as opened:
        episodes = KeptEpisodes(opened).open_holds()
    middle = episodes[len(episodes) // 2]
    return str(middle.job), str(middle.episode)


def bench_cold(store: Path, rounds: int, env: dict[str, str]) -> CommandCost:
    """Measure advice on one job from a store."""
    job, episode = held_job(store)
    costs = race(
        {
            "floor": [sys.executable, "-c", READ_ONE_ROW, str(store), episode],
            "ours": [*COMMAND, job, "--store", str(store)],
        },
        rounds,
        env,
    )
    compare("cold_store", costs["ours"], costs["floor"], 1.6)
    return costs["ours"]


def bench_many(directory: Path, jobs: int, cold: CommandCost, env: dict[str, str]) -> None:
    """Measure advice on thousands of held jobs in one call."""
    path = make_store(directory, 4 * jobs, 0.6)
    with Store(path) as store, store.transaction() as db:
        # Keep the first hold of this many jobs, as if nobody had released them.
        chosen = f"SELECT min(episode) FROM kept_episodes GROUP BY job LIMIT {jobs}"
        db.execute(f"DELETE FROM kept_episodes WHERE episode NOT IN ({chosen})")
        db.execute("UPDATE kept_episodes SET outcome = 5, released = -1, decided = -1")
        [held] = db.execute("SELECT count(*) FROM kept_episodes").fetchone()
    cost = race({"many": [*COMMAND, "--all", "--store", str(path), "--json"]}, 2, env)["many"]
    faster = cold.cpu / (cost.cpu / held)
    report(
        "many_jobs",
        "times as fast per job",
        faster,
        target=50,
        met=faster >= 50,
        jobs=held,
        seconds=round(cost.cpu, 2),
        wall_seconds=round(cost.wall, 2),
    )


def bench_size(small: Path, large: Path, rounds: int, env: dict[str, str], jobs: int) -> None:
    """Ask a small and a large store the same question."""
    commands = {
        name: [*COMMAND, held_job(path)[0], "--store", str(path)]
        for name, path in (("small", small), ("large", large))
    }
    costs = race(commands, rounds, env)
    compare("store_size", costs["large"], costs["small"], 1.3, jobs=jobs)


def bench_pool(rounds: int, env: dict[str, str]) -> None:
    """Measure advice on one held job of a real pool."""
    from condor_advice.gather.events import JobStatus
    from condor_advice.gather.live import HOLD_ATTRIBUTES
    from condor_advice.lab.install_pool import PoolUnavailable, installed
    from condor_advice.lab.pool import Pool

    htcondor = installed()
    if htcondor is None:
        report("cold_pool", "ratio", float("nan"), skipped="HTCondor is not installed: make pool")
        return
    try:
        with tempfile.TemporaryDirectory() as work, Pool(htcondor=htcondor) as pool:
            cluster = pool.submit(
                "executable = /bin/true\ntransfer_executable = false\n"
                f"transfer_input_files = {work}/nowhere\nshould_transfer_files = yes\n"
                f"log = {work}/job.log\nqueue",
                Path(work),
            )
            pool.wait_for(cluster, JobStatus.HELD)
            environment = pool.environ | {name: env[name] for name in OWN_PLACES}
            store = environment["CONDOR_ADVICE_STORE"]
            gather = [*COMMAND, "gather", "--store", store]
            subprocess.run(gather, check=True, stdout=subprocess.DEVNULL, env=environment)
            costs = race(
                {
                    "floor": [
                        sys.executable, "-c", ASK_ONCE,
                        f"(ClusterId == {cluster} && ProcId == 0)", ",".join(HOLD_ATTRIBUTES),
                    ],
                    "ours": [*COMMAND, f"{cluster}.0"],
                },
                rounds,
                environment,
            )  # fmt: skip
            compare("cold_pool", costs["ours"], costs["floor"], 1.5)
    except PoolUnavailable as error:
        report("cold_pool", "ratio", float("nan"), skipped=str(error))


def main() -> None:
    """Run all benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--jobs", type=int, default=10_000, help="of the small store")
    parser.add_argument("--large", type=int, default=1_000_000, help="jobs of the large store")
    parser.add_argument("--held", type=int, default=10_000, help="held jobs in one call")
    parser.add_argument("--no-pool", action="store_true")
    chosen = parser.parse_args()
    # An installed package has its byte code compiled, whatever this shell's settings.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="bench-advice-") as name:
        directory = Path(name)
        env = {
            **os.environ,
            "CONDOR_ADVICE_STORE": str(directory / "pool.sqlite"),
            "XDG_CONFIG_HOME": name,
            "XDG_STATE_HOME": name,
            "XDG_DATA_HOME": name,
        }
        small = make_store(directory, chosen.jobs)
        cold = bench_cold(small, chosen.rounds, env)
        if not chosen.no_pool:
            bench_pool(chosen.rounds, env)
        bench_many(directory, chosen.held, cold, env)
        large = make_store(directory, chosen.large)
        bench_size(small, large, chosen.rounds, env, chosen.large)


if __name__ == "__main__":
    main()
