"""Each recipe of the page, evicted twice on a real pool, ends like an undisturbed run."""

import sys
import time

import pytest
from recipes import documented, write_recipe

from condor_advice.gather.events import JobStatus

STEPS = 100
RESULT = f"result {sum(step * step for step in range(STEPS + 1))}\n"
RECIPES = documented()


class Runs:
    """Every recipe twice: left alone, and evicted two times."""

    def __init__(self, pool, directory):
        self.directory = directory
        directory.chmod(0o777)
        self.clusters = {
            (name, evicted): self.submit(pool, name, evicted)
            for name in RECIPES
            for evicted in (False, True)
        }
        self.evict_twice(pool, [key for key in self.clusters if key[1]])
        self.ads = {key: self.finished(pool, cluster) for key, cluster in self.clusters.items()}

    def place(self, key):
        return self.directory / f"{key[0]}-{'evicted' if key[1] else 'alone'}"

    def submit(self, pool, *key):
        place = self.place(key)
        place.mkdir()
        place.chmod(0o777)
        text = write_recipe(
            RECIPES[key[0]],
            place,
            STEPS,
            place / "steps",
            executable=sys.executable,
            request_memory="64",
            request_disk="20MB",
            should_transfer_files="YES",
            output="out",
            error="err",
            log="log",
        )
        return pool.submit(text, cwd=place)

    def steps(self, key):
        path = self.place(key) / "steps"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def evict_twice(self, pool, keys):
        goals, until = dict.fromkeys(keys, 30), time.monotonic() + 240
        while goals:
            assert time.monotonic() < until, {key: len(self.steps(key)) for key in goals}
            for key in list(goals):
                if len(self.steps(key)) >= goals[key]:
                    pool.run(["condor_vacate_job", str(self.clusters[key])])
                    goals[key] += 30
                    if goals[key] > 60:
                        del goals[key]
            time.sleep(0.2)

    def finished(self, pool, cluster):
        """Return the ad of the job once it has completed, or is held, as it should not be."""
        until = time.monotonic() + 240
        while time.monotonic() < until:
            [ad] = pool.jobs(f"ClusterId == {cluster}") or [{}]
            if ad.get("JobStatus") in (JobStatus.COMPLETED, JobStatus.HELD):
                break
            time.sleep(0.5)
        return ad


@pytest.fixture(scope="module")
def runs(pool, tmp_path_factory):
    return Runs(pool, tmp_path_factory.mktemp("recipes"))


@pytest.mark.slow
@pytest.mark.parametrize("evicted", [False, True], ids=["alone", "evicted"])
@pytest.mark.parametrize("name", [*RECIPES])
def test_a_recipe_ends_with_the_result(runs, name, evicted):
    key = (name, evicted)
    place = runs.place(key)
    assert runs.ads[key]["JobStatus"] == JobStatus.COMPLETED, runs.ads[key].get("HoldReason")
    assert (place / "out").read_text().endswith(RESULT), (place / "err").read_text()
    assert (place / "log").read_text().count("Job was evicted") == 2 * evicted


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RECIPES])
def test_an_eviction_loses_next_to_no_work(runs, name):
    steps = runs.steps((name, True))
    assert len(steps) - len(set(steps)) <= 6
    error = (runs.place((name, True)) / "err").read_text()
    assert "s: eviction (SIGTERM); " in error
