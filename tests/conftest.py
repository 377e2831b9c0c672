"""What tests share: a real pool, real event logs, and large data that may be absent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from condor_advice.lab.install_pool import PoolUnavailable, installed
from condor_advice.lab.pool import EventLog, Pool

ROOT = Path(__file__).resolve().parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses the pool needs the marker, so that `-m "not pool"` is complete."""
    for item in items:
        if "pool" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.pool)


def without_pool(reason: str) -> None:
    """Skip, or fail where the pool tests are required (CI)."""
    if os.environ.get("CONDOR_ADVICE_REQUIRE_POOL") == "1":
        pytest.fail(f"pool tests are required here, and there is no pool: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A real HTCondor pool, started at its first use and shared by the whole session.

    Tests that need other settings make a `Pool` of their own; this fixture, even unused,
    then says whether there can be one.
    """
    try:
        if installed() is None:
            raise PoolUnavailable("HTCondor is not installed; `make pool` installs it in .pool/")
        shared_pool = Pool(tmp_path_factory.mktemp("pool"), event_log=EventLog())
        with shared_pool:
            yield shared_pool
    except PoolUnavailable as error:
        without_pool(str(error))


@pytest.fixture(autouse=True)
def own_condor_config() -> Iterator[None]:
    """Each test leaves the process's HTCondor configuration as it found it."""
    from condor_advice.lab.pool import use_config

    before = os.environ.get("CONDOR_CONFIG")
    yield
    if os.environ.get("CONDOR_CONFIG") != before:
        use_config(before)


@pytest.fixture
def event_log() -> Callable[[str], Path]:
    """Path of a real, scrubbed event log by its name in tests/logs/."""

    def find(name: str) -> Path:
        path = ROOT / "tests" / "logs" / name
        assert path.is_file(), f"{path}: no such event log"
        return path

    return find


@pytest.fixture(scope="session")
def shared() -> Path:
    """Large public data beside the checkout; most machines do not have it."""
    path = ROOT.parent / "shared"
    if not path.is_dir():
        pytest.skip(f"{path}: the public data these tests read is not on this machine")
    return path
