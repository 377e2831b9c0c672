"""A store with flipped bytes: every verb answers, or says what is wrong and what to do."""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC
from functools import partial
from pathlib import Path

import pytest

from condor_advice.advise.cli import cli
from condor_advice.gather.clock import Clock
from condor_advice.gather.collect import Collector
from condor_advice.gather.errors import AdviceError, NoSuchJob
from condor_advice.gather.store import Store
from condor_advice.lab.simulate import Profile, simulate
from condor_advice.model.held.load import load_store
from condor_advice.preprocess.holds.episode_store import KeptEpisodes
from condor_advice.preprocess.jobs.from_store import read_store_jobs

FLIPS = 120
PAGE_BYTES = 8192
WHAT_TO_DO = (
    "gather the logs again|move it away|name another|upgrade condor-advice|"
    "run `condor-advice gather`|bring it up to date"
)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("CONDOR_CONFIG", "/dev/null")


@pytest.fixture(scope="module")
def gathered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """Return a store, its log, and a job of it that is held."""
    profile = Profile.read()
    profile = replace(
        profile,
        targets=replace(profile.targets, held_share=0.5),
        log=replace(profile.log, ad_information=True),
    )
    out = tmp_path_factory.mktemp("flipped")
    simulate(60, 3, out / "logs", profile)
    log = out / "logs" / "ap1" / "EventLog"
    with Store(out / "store") as store:
        Collector(store, [str(log)], access_point="ap1", clock=Clock(UTC)).read()
        KeptEpisodes(store).take_up()
        job = str(KeptEpisodes(store).open_holds()[0].job)
    return out / "store", log, job


def calls(
    store: Path, log: Path, job: str, out: Path
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield all that opens a store; `gather`, which may change it, comes last."""
    at = ["--store", str(store)]
    verbs = [
        [job, *at, "--explain"],
        ["--all", "--json", *at],
        ["status", *at],
        ["status", "--json", *at],
        ["history", *at],
        ["export", str(out / "export"), *at],
    ]
    for verb in verbs:
        yield " ".join(verb), partial(run_verb, verb)
    # What `train` and `failures train` read; to train on it takes too long here.
    yield "train", lambda: load_store(store)
    yield "failures train", lambda: read_store_jobs(store)
    gather = ["gather", str(log), *at]
    yield " ".join(gather), partial(run_verb, gather)


def run_verb(arguments: list[str]) -> None:
    """Run a verb in this process, as the command line does before it prints errors."""
    with suppress(SystemExit):
        cli.main(arguments, prog_name="condor-advice", standalone_mode=False)


def was_refused(call: Callable[[], object], name: str) -> bool:
    """Tell whether a call ended in an error; fail unless that says what to do."""
    try:
        call()
    except NoSuchJob:  # its id is what was damaged
        return True
    except AdviceError as error:
        message = str(error)
    except Exception as error:
        raise AssertionError(f"{name}: {error!r}") from error
    else:
        return False
    assert re.search(WHAT_TO_DO, message), f"{name}: {message}"
    assert len(message) < 600, f"{name}: {message}"
    return True


def flip(path: Path, dice: random.Random, pages: list[int]) -> None:
    """Flip bits, most often one, anywhere in a file or in the pages that are not all blob."""
    damaged = bytearray(path.read_bytes())
    for _ in range(dice.choice([1, 1, 1, 8, 64])):
        place = dice.randrange(len(damaged))
        if dice.random() < 0.5:
            place = (dice.choice(pages) - 1) * PAGE_BYTES + dice.randrange(PAGE_BYTES)
        damaged[place] ^= 1 << dice.randrange(8)
    path.write_bytes(damaged)


def test_no_flipped_bytes_end_in_a_traceback(
    tmp_path: Path, gathered: tuple[Path, Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    whole, log, job = gathered
    with closing(sqlite3.connect(whole)) as db:
        rows = db.execute("SELECT pageno FROM dbstat WHERE pagetype <> 'overflow'").fetchall()
    pages = [page for (page,) in rows]
    refused = 0
    for seed in range(FLIPS):
        place = tmp_path / str(seed)
        place.mkdir()
        shutil.copy(whole, place / "store")
        flip(place / "store", random.Random(seed), pages)
        for name, call in calls(place / "store", log, job, place):
            refused += was_refused(call, f"flip {seed}, {name}")
        shutil.rmtree(place)
        capsys.readouterr()
    assert refused > FLIPS / 4  # else the flips met nothing


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE logs SET offset = 'far'",
        "UPDATE logs SET read_at = 1e300",
        "UPDATE event_counts SET type = 4711 WHERE type = 12",
        "UPDATE event_counts SET events = x'00'",
        "UPDATE kept_pass SET features = '['",
        "UPDATE kept_pass SET taken_up_at = 'x'",
        "UPDATE kept_episodes SET features = x'00'",
        "UPDATE kept_episodes SET length = 1 << 40",
        "UPDATE kept_episodes SET job = -1",
        "UPDATE kept_episodes SET outcome = 77, family = 77, code = 'x'",
        "UPDATE kept_episodes SET time = 1 << 62",
        "UPDATE kept_facts SET facts = x'00'",
        "UPDATE kept_facts SET facts = 'x'",
        "UPDATE pieces SET base = 'x', last_us = 'x'",
        "UPDATE pieces SET columns = x''",
        "DROP TABLE event_counts",
        "DROP TABLE kept_names",
    ],
)
def test_a_value_that_makes_no_sense_ends_in_no_traceback(
    change: str, tmp_path: Path, gathered: tuple[Path, Path, str]
) -> None:
    whole, log, job = gathered
    shutil.copy(whole, tmp_path / "store")
    with closing(sqlite3.connect(tmp_path / "store")) as db, db:
        db.execute(change)
    every = list(calls(tmp_path / "store", log, job, tmp_path))
    refused = [was_refused(call, name) for name, call in every]
    assert any(refused)
