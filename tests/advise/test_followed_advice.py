"""The advice, followed to the letter on a real pool: each job must then end as promised.

One pool runs a job of every scenario of the lab at once. All are held; `condor-advice` is asked;
what it prints is typed into a shell. Where the remedy is for a person, the test does what the
words say, and the words are checked to say it.
"""

from __future__ import annotations

import re
import shlex
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from follow import COMES_BACK, COMPLETED, REMOVED, Held, Server, Town, follow

from condor_advice.lab.pool import Pool
from condor_advice.lab.scenarios import load_scenarios

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# Not made here: a scratch of its own needs a mount, and a failing job wrapper makes no hold in
# this version of HTCondor.
LEFT_OUT = {"host_scratch_full", "host_wrapper_fails"}
SCENARIOS = {
    name: scenario
    for name, scenario in load_scenarios().items()
    if scenario.family != "none" and name not in LEFT_OUT
}


# ---- what people do whom the advice tells to do something


def mend(town: Town, held: Held) -> None:
    """Do what the cause needs: write the file, install the program, correct the script."""
    fix = held.cause.fix
    if fix is not None and fix.mend is not None:
        fix.mend()


def edit(town: Town, held: Held) -> None:
    """Correct the job itself with the command that the words name."""
    assert held.cause.fix is not None
    for attribute, value in held.cause.fix.edits.items():
        assert f"condor_qedit JOB {attribute}" in held.answer["remedy"]["text"]
        for job in held.jobs:
            done = town.run(["condor_qedit", job, attribute, value])
            assert done.returncode == 0, done.stderr


def ask_staff(town: Town, held: Held) -> None:
    """Staff raise the limit that their policy looks at."""
    assert held.cause.fix is not None
    for attribute, value in held.cause.fix.edits.items():
        done = town.run(["condor_qedit", held.jobs[0], attribute, value], user="condor")
        assert done.returncode == 0, done.stderr


def permit(town: Town, held: Held) -> None:
    """Make the installed program executable."""
    for program in town.directory.glob(f"points/*/opt/{held.batch.number:04d}/*"):
        program.chmod(0o755)


def rewrite(town: Town, held: Held) -> None:
    """Put a program there that works."""
    batch = held.batch
    made = "".join(f"echo made > {shlex.quote(name)}\n" for name in batch.outputs)
    batch.path(batch.program).write_text(f"#!/bin/sh\n{made}exit 0\n")


def wait_for_the_share(town: Town, held: Held) -> None:
    """The reason says that the project is over its share: wait until it no longer is."""
    assert "over its share" in held.answer["hold"]["reason"]
    time.sleep(max(0.0, town.share_ends + 1 - time.time()))


# What the words must say, and what is then done. A scenario that is not here needs nobody: the
# printed commands do it all, or time heals it.
PEOPLE: dict[str, tuple[str, Callable[[Town, Held], None]]] = {
    "dag_input_late": (r"put \S+ there", mend),
    "exec_format": (r"build it for the execution points", rewrite),
    "executable_not_built": (r"put \S+ there", mend),
    "executable_nowhere": (r"install the program there", mend),
    "executable_permission": (r"permissions|executable", permit),
    "exit_bug": (r"error file|guards against", rewrite),
    "host_restarts": (r"ask the facilitators", ask_staff),
    "input_late": (r"put \S+ there", mend),
    "input_missing": (r"put \S+ there", mend),
    "input_rebuilt": (r"put \S+ there", mend),
    "interpreter_missing": (r"first line of \S+ names", mend),
    "output_directory_gone": (r"correct the path", mend),
    "output_never_written": (r"or the list", edit),
    "output_over_quota": (r"free some space", mend),
    "policy_after_eviction": (r"guards against", edit),
    "policy_always_long": (r"guards against", edit),
    "site_policy_share": (r"read the reason", wait_for_the_share),
    "spool_full": (r"free some space", mend),
    "url_credential": (r"renew the credential", mend),
    "url_wrong": (r"correct the URL", edit),
}
# Sized or allowed by the advice itself: the printed commands alone must do.
COMMANDS_SUFFICE = {
    "disk_always": "RequestDisk",
    "dos_line_ends": "sed",
    "duration_always": "AllowedExecuteDuration",
    "host_black_hole": "Requirements",
    "initialdir_gone": "mkdir",
    "input_too_large": "MaxTransferInputMB",
    "input_unreadable": "chmod",
    "input_wrong_path": "TransferInput",
    "job_duration": "AllowedJobDuration",
    "memory_always": "RequestMemory",
    "memory_leak": "RequestMemory",
    "memory_site_policy": "RequestMemory",
    "output_too_large": "MaxTransferOutputMB",
}


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory, new_pool: Callable[..., Pool]) -> Iterator[Town]:
    """Everything up to the end: the holds, the answers, what was done, how the jobs ended."""
    with Server() as server:
        made = Town(tmp_path_factory.mktemp("town"), new_pool, server)
        with made.pool:
            for name in [COMES_BACK.name, *SCENARIOS]:
                # A number of its own, so that a new scenario does not change the others.
                made.submit(name, zlib.crc32(name.encode()) % 10_000)
            made.missing = made.wait_for_holds(240)
            given = {answer["job"]: answer for answer in made.ask()}
            for held in made.jobs.values():
                held.answers = [given[job] for job in held.jobs]
            made.change_for_the_better()
            # The black hole stays one.
            made.points[2].control("exit").touch()
            for name, held in made.jobs.items():
                if name in PEOPLE and name != "site_policy_share" and held.answers:
                    PEOPLE[name][1](made, held)
            for name, held in made.jobs.items():
                if name == "site_policy_share" and held.answers:
                    wait_for_the_share(made, held)
                made.wrong[name] = follow(made, held)
                if name not in COMMANDS_SUFFICE and name != COMES_BACK.name:
                    # Where a person had to act or decide, no release was printed.
                    made.run(["condor_release", *held.jobs])
            made.ends = made.wait_for_ends(90)
            yield made


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_job_of_whom_the_advice_was_followed_succeeds(town: Town, name: str) -> None:
    held = town.jobs[name]
    assert name not in town.missing, "the scenario made no hold, so there is nothing to follow"
    answer = held.answer
    told = f"{answer['verdict']}: {answer['remedy']['text']} {answer['remedy']['commands']}"
    assert town.wrong[name] == [], told
    if name in PEOPLE:
        assert re.search(PEOPLE[name][0], answer["remedy"]["text"]), told
    if name in COMMANDS_SUFFICE:
        last = held.answers[-1]["remedy"]["commands"]
        assert COMMANDS_SUFFICE[name] in " ".join(last), told
    for ad in town.ends[name]:
        if name == "host_black_hole" and not _is_kept_away(held, ad):
            continue  # among the first: nothing was known of the point yet
        where = (told, ad.get("HoldReason"))
        assert (ad["JobStatus"], ad.get("ExitCode")) == (COMPLETED, 0), where


def test_a_job_that_always_comes_back_is_removed_as_advised(town: Town) -> None:
    [answer] = town.jobs[COMES_BACK.name].answers
    assert answer["verdict"] == "REMOVE", answer
    assert answer["hold"]["number"] == 4
    assert answer["remedy"]["commands"] == [f"condor_rm {answer['job']}"]
    assert town.wrong[COMES_BACK.name] == []
    assert [ad["JobStatus"] for ad in town.ends[COMES_BACK.name]] == [REMOVED]


def test_every_family_of_the_lab_is_here() -> None:
    families = {scenario.family for scenario in load_scenarios().values()} - {"none"}
    assert {scenario.family for scenario in SCENARIOS.values()} == families


def test_an_edit_reaches_the_run_that_follows_it(town: Town) -> None:
    for name in ("memory_always", "memory_leak", "memory_site_policy"):
        [ad] = town.ends[name]
        wanted = town.jobs[name].answer["remedy"]["edits"]["RequestMemory"]
        assert str(ad["RequestMemory"]) == wanted
        assert ad["MemoryProvisioned"] >= int(wanted)


def _is_kept_away(held: Held, ad: dict[str, Any]) -> bool:
    job = f"{ad['ClusterId']}.{ad['ProcId']}"
    [answer] = [answer for answer in held.answers if answer["job"] == job]
    return "Requirements" in answer["remedy"]["edits"]


def test_jobs_kept_away_from_a_black_hole_end_elsewhere(town: Town) -> None:
    held, bad = town.jobs["host_black_hole"], town.points[2].name
    kept_away = [ad for ad in town.ends["host_black_hole"] if _is_kept_away(held, ad)]
    assert len(kept_away) >= 3
    assert all(f"@{bad}@" not in ad["LastRemoteHost"] for ad in kept_away)
    for answer in held.answers:
        if answer["remedy"]["edits"]:
            assert bad in answer["remedy"]["text"]
