"""Simulated logs that several tests of preprocess/ share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from condor_advice.lab.simulate import Profile, simulate


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A simulated event log by its number of jobs and seed; many of its jobs are held."""
    made: dict[tuple[int, int, bool], Path] = {}

    def make(jobs: int, seed: int = 3, ads: bool = False) -> Path:
        key = (jobs, seed, ads)
        if key not in made:
            profile = Profile.read()
            profile = replace(
                profile,
                targets=replace(profile.targets, held_share=0.3, jobs_per_day=jobs / 2.0),
                log=replace(profile.log, ad_information=ads),
            )
            out = tmp_path_factory.mktemp("simulated") / "logs"
            simulate(jobs, seed, out, profile)
            made[key] = out / "ap1" / "EventLog"
        return made[key]

    return make
