"""Shared fixtures: a real pool, real event logs, and large data that may be absent."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from condor_advice.lab.install_pool import PoolUnavailable, check_machine, installed
from condor_advice.lab.pool import Pool, use_config

ROOT = Path(__file__).resolve().parents[1]


REQUIRE_POOL = os.environ.get("CONDOR_ADVICE_REQUIRE_POOL") == "1"
POOL_TEST = ("pool test", True)

# In the background of a script, SIGINT is ignored by this process and its children. Tests of
# Ctrl-C need the default handler.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that uses the pool, so that `-m "not pool"` leaves out all of them."""
    for item in items:
        if {"pool", "make_pool", "new_pool"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.pool)
        if item.get_closest_marker("pool"):
            # For the summary: reports keep user properties, even across processes.
            item.user_properties.append(POOL_TEST)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many pool tests ran: a green run without them proves little."""

    def pool_tests(*outcomes: str) -> int:
        reports = (r for outcome in outcomes for r in terminalreporter.getreports(outcome))
        # Collection errors are reports too.
        tests = (r for r in reports if isinstance(r, pytest.TestReport))
        return len({r.nodeid for r in tests if POOL_TEST in map(tuple, r.user_properties)})

    ran, skipped = pool_tests("passed", "failed", "error"), pool_tests("skipped")
    if ran or skipped:
        terminalreporter.write_line(f"pool tests: {ran} ran, {skipped} skipped")


def pool_or_skip(**settings: Any) -> Pool:
    """Return a pool that is not started yet, or skip the test if there is none."""
    try:
        settings.setdefault("htcondor", installed())
        if settings["htcondor"] is None:
            check_machine()  # raises if `make pool` would not help either
            raise PoolUnavailable("HTCondor is not installed; `make pool` installs it in .pool/")
        return Pool(**settings)
    except PoolUnavailable as error:
        if REQUIRE_POOL:
            pytest.fail(f"pool tests are required here, but there is no pool: {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Return a real HTCondor pool, started on first use and shared by the whole session."""
    with pool_or_skip(directory=tmp_path_factory.mktemp("pool")) as running:
        yield running


@pytest.fixture(scope="session")
def new_pool() -> Callable[..., Pool]:
    """Return a function that makes a pool for a test file; the file starts and stops it."""
    return pool_or_skip


@pytest.fixture
def make_pool(tmp_path: Path) -> Iterator[Callable[..., Pool]]:
    """Return a function that makes pools; it takes the arguments of `Pool` and starts nothing.

    Pools that the test leaves running are stopped.
    """
    made: list[Pool] = []

    def make(**settings: Any) -> Pool:
        settings.setdefault("directory", tmp_path / f"pool{len(made)}")
        made.append(pool_or_skip(**settings))
        return made[-1]

    yield make
    for pool in made:
        pool.stop()


@pytest.fixture(autouse=True)
def own_condor_config() -> Iterator[None]:
    """Restore the process's HTCondor configuration after each test."""
    before = os.environ.get("CONDOR_CONFIG")
    yield
    if os.environ.get("CONDOR_CONFIG") != before:
        use_config(before)


@pytest.fixture
def event_log() -> Callable[[str], Path]:
    """Return a function that finds a real, scrubbed event log by its name in tests/logs/."""

    def find(name: str) -> Path:
        path = ROOT / "tests" / "logs" / name
        assert path.is_file(), f"{path}: no such event log"
        return path

    return find


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the directory of large public data beside the checkout; skip if it is missing."""
    path = ROOT.parent / "shared"
    if not path.is_dir():
        pytest.skip(f"{path}: this machine does not have the public data that these tests read")
    return path
