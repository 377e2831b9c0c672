"""`--apply`, `history` and `annotate` as people type them, several of them on one pool."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from condor_advice.gather.events import JobStatus
from condor_advice.lab.fileserver import FileServer
from condor_advice.lab.pool import Pool

# Everybody is who they say they are, and may touch only what is theirs.
CONFIG = """
SEC_DEFAULT_AUTHENTICATION_METHODS = FS, CLAIMTOBE
SEC_CLIENT_AUTHENTICATION_METHODS = CLAIMTOBE
FILETRANSFER_PLUGINS = $(LIBEXEC)/curl_plugin
SYSTEM_PERIODIC_RELEASE_NAMES = $(SYSTEM_PERIODIC_RELEASE_NAMES) Advice
SYSTEM_PERIODIC_RELEASE_Advice = AdviceVerdict =?= "RELEASE" && AdviceProbability >= 0.01 \
    && AdviceAt >= EnteredCurrentStatus && NumHolds <= 10
"""
CRON = """
SCHEDD_CRON_JOBLIST = $(SCHEDD_CRON_JOBLIST) ADVICE
SCHEDD_CRON_ADVICE_MODE = Periodic
SCHEDD_CRON_ADVICE_PERIOD = 3s
SCHEDD_CRON_ADVICE_EXECUTABLE = {command}
SCHEDD_CRON_ADVICE_ARGS = annotate --cron --constraint JobBatchName=="cron"
SCHEDD_CRON_ADVICE_PREFIX = Advice
SCHEDD_CRON_ADVICE_ENV = "CONDOR_CONFIG={config} HOME={home} CONDOR_ADVICE_SITE={site} \
_CONDOR_SEC_CLAIMTOBE_USER={account}"
"""
FROM_URL = """
executable = /bin/sleep
arguments = 0
transfer_executable = false
should_transfer_files = YES
transfer_input_files = {url}
log = url.log
batch_name = {name}
request_memory = 16
queue {count}
"""
TOO_SHORT = """
executable = /bin/sleep
arguments = 8
transfer_executable = false
allowed_execute_duration = 5
log = short.log
queue 3
"""
ON_HOLD = """
executable = /bin/sleep
arguments = 120
transfer_executable = false
hold = true
log = hold.log
queue 1
"""


class Site:
    """A pool with several users, and a file server that is down until it is mended."""

    def __init__(self, directory: Path, pool: Pool, server: FileServer) -> None:
        self.directory, self.pool, self.server = directory, pool, server
        self.file = directory / "site.toml"
        self.file.write_text("retry_minutes = 0\nrelease_above = 0.0\n")
        self.mended: set[str] = set()
        self.batches = 0

    def run(
        self, *argv: str, user: str = "amara", cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.pool.command(argv),
            env=self.environ(user),
            cwd=cwd or self.directory,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )

    def environ(self, user: str) -> Mapping[str, str]:
        home = self.directory / "home" / user
        home.mkdir(parents=True, exist_ok=True)
        kept = {k: v for k, v in self.pool.environ.items() if not k.startswith("XDG_")}
        return {
            **kept, "HOME": str(home), "_CONDOR_SEC_CLAIMTOBE_USER": user,
            "CONDOR_ADVICE_SITE": str(self.file), "COLUMNS": "100", "OMP_NUM_THREADS": "1",
        }  # fmt: skip

    def advice(self, *arguments: str, user: str = "amara") -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "condor_advice", *arguments, user=user)

    def hold(self, count: int = 1, user: str = "amara", name: str = "b") -> tuple[int, str]:
        """Make jobs that are held as long as their file cannot be had."""
        self.batches += 1
        path = f"/data/{self.batches}.dat"
        self.server.add_fault(path, 503, unless=lambda: path in self.mended)
        text = FROM_URL.format(url=self.server.url(path), name=name, count=count)
        return self.submit(text, user), path

    def submit(self, text: str, user: str = "amara") -> int:
        file = self.directory / f"{user}.sub"
        file.write_text(text)
        done = self.run("condor_submit", "-terse", file.name, user=user)
        assert done.returncode == 0, done.stderr
        cluster = int(done.stdout.split(".")[0])
        self.pool.wait_for(cluster, JobStatus.HELD)
        return cluster

    def mend(self, path: str) -> None:
        self.mended.add(path)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, new_pool: Callable[..., Pool]) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("site")
    cron = CRON.format(
        command=Path(sys.executable).with_name("condor-advice"),
        config=directory / "pool" / "condor_config",
        home=directory, site=directory / "site.toml", account=account(),
    )  # fmt: skip
    with FileServer() as server:
        pool = new_pool(directory=directory / "pool", config=CONFIG + cron)
        with pool:
            yield Site(directory, pool, server)


def account() -> str:
    """Who the schedd runs as, and so may touch everybody's jobs."""
    return Pool(execution_points=()).account


def objects(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def fits(schema: str, found: list[dict[str, Any]]) -> bool:
    """Check objects against a schema that is shipped."""
    text = resources.files("condor_advice.advise").joinpath(f"schema/{schema}.json").read_text()
    validator = jsonschema.Draft202012Validator(
        json.loads(text), format_checker=jsonschema.FormatChecker()
    )
    for one in found:
        validator.validate(one)
    return bool(found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--apply"], "--apply asks before it acts, and there is no terminal to ask on; add --yes"),
        (["--yes"], "--yes works only together with --apply"),
        (["--fix"], "--fix works only together with --apply"),
        (["--remove"], "--remove works only together with --apply"),
        (["--confidence", "0.9"], "--confidence works only together with --apply"),
        (["--apply", "--yes", "--log", "x.log"], "so it excludes --log"),
        (["--apply", "--yes", "--store", "x"], "so it excludes --store"),
        (["--apply", "--yes", "--hold", "2"], "so it excludes --hold"),
        (["--apply", "--yes", "--confidence", "80"], "0<=x<=1"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_done(arguments, message) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "condor_advice", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_advice_is_applied_and_history_tells_what_came_of_it(site: Site) -> None:
    cluster, path = site.hold(2)
    site.mend(path)
    done = site.advice(str(cluster), "--apply", "--yes", "--confidence", "0")
    assert done.returncode == 0, done.stderr
    assert f"released: {cluster}.0 {cluster}.1" in done.stdout
    site.pool.wait_for(cluster, JobStatus.COMPLETED)
    told = site.advice("history", str(cluster))
    assert told.returncode == 0
    assert told.stdout.endswith("2 released: 2 succeeded\n")
    rows = objects(site.advice("history", "--json", str(cluster)))
    assert [row["job"] for row in rows] == [f"{cluster}.0", f"{cluster}.1"]
    assert fits("action", rows)
    for row in rows:
        assert (row["action"], row["result"], row["effect"]) == ("release", "done", "succeeded")
        assert row["command"] == f"condor_release {row['job']}"
        assert row["advice"]["verdict"] == "RELEASE"
        assert row["owner"] == "amara"
    assert objects(site.advice("history", "--json", "999999")) == []


def test_json_says_for_each_job_what_was_done_and_why(site: Site) -> None:
    cluster, path = site.hold(5, user="chiara")
    site.mend(path)
    arguments = (str(cluster), "--apply", "--yes", "--confidence", "0", "--json")
    done = site.advice(*arguments, user="chiara")
    assert done.returncode == 0, done.stderr
    assert fits("advice", objects(done))
    applied = [answer["applied"] for answer in objects(done)]
    assert fits("action", [action for one in applied for action in one["actions"]])
    first = [one for one in applied if one["canary"]]
    rest = [one for one in applied if not one["canary"]]
    assert (len(first), len(rest)) == (2, 3)
    assert {(one["step"], len(one["actions"])) for one in first} == {("release", 1)}
    assert {(one["step"], len(one["actions"])) for one in rest} == {("wait", 0)}
    deadline = time.monotonic() + 40
    while len(site.pool.jobs(f"ClusterId == {cluster} && JobStatus == 4")) < 5:
        again = site.advice(
            *arguments, user="chiara"
        )  # as cron would: nothing stays running in between
        assert again.returncode in (0, 3), again.stderr
        assert time.monotonic() < deadline
        time.sleep(1)
    rows = objects(site.advice("history", "--json", str(cluster), user="chiara"))
    assert [row["effect"] for row in rows] == ["succeeded"] * 5
    assert sum(row["canary"] for row in rows) == 2


def in_a_terminal(
    site: Site,
    argv: list[str],
    reply: str,
    user: str = "amara",
    until: Callable[[], bool] = lambda: False,
) -> tuple[int, str]:
    """Run a command on a terminal, answer its question, and end it with Ctrl-C when it is time."""
    argv = site.pool.command(argv)
    environ = dict(site.environ(user))
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(site.directory)
        os.execvpe(argv[0], argv, environ)
    shown = b""
    deadline = time.monotonic() + 60
    answered = stopped = False
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.3)[0]:
            try:
                piece = os.read(terminal, 4096)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
        elif answered and not stopped and until():
            os.write(terminal, b"\x03")
            stopped = True
        if not answered and b"[y/N]" in shown:
            os.write(terminal, reply.encode() + b"\n")
            answered = True
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), shown.decode()


def test_on_a_terminal_it_asks_and_takes_no_for_an_answer(site: Site) -> None:
    cluster, path = site.hold()
    site.mend(path)
    arguments = [sys.executable, "-m", "condor_advice", str(cluster)]
    arguments += ["--apply", "--confidence", "0"]
    status, shown = in_a_terminal(site, arguments, "n")
    assert status == 0
    assert "Release 1 job" in shown
    assert "Nothing was done." in shown
    [ad] = site.pool.jobs(f"ClusterId == {cluster}")
    assert ad["JobStatus"] == JobStatus.HELD
    status, shown = in_a_terminal(site, arguments, "y")
    assert status == 0
    assert f"released: {cluster}.0" in shown
    site.pool.wait_for(cluster, JobStatus.COMPLETED)


def test_watching_asks_once_and_goes_on_until_all_are_released(site: Site) -> None:
    cluster, path = site.hold(5, user="dmitri")
    site.mend(path)
    quick = (
        "import sys; import condor_advice.advise.commands.job as job; job.WATCH_SECONDS = 1.5;"
        "from condor_advice.advise.cli import main; main()"
    )
    argv = [sys.executable, "-c", quick, str(cluster), "--apply", "--confidence", "0", "--watch"]
    status, shown = in_a_terminal(
        site, argv, "y", "dmitri",
        until=lambda: len(site.pool.jobs(f"ClusterId == {cluster} && JobStatus == 4")) == 5,
    )  # fmt: skip
    assert status in (3, 130), "it ends at Ctrl-C, or says that the jobs are gone"
    assert shown.count("[y/N]") == 1
    assert "go first" in shown
    deadline = time.monotonic() + 60
    effects: list[str] = []
    while effects != ["succeeded"] * 5 and time.monotonic() < deadline:
        rows = objects(site.advice("history", "--json", str(cluster), user="dmitri"))
        effects = [row["effect"] for row in rows]
    assert effects == ["succeeded"] * 5


def test_other_peoples_jobs_are_htcondors_to_grant(site: Site) -> None:
    cluster, path = site.hold(user="bjorn")
    site.mend(path)
    arguments = (str(cluster), "--apply", "--yes", "--confidence", "0")
    refused = site.advice(*arguments, user="amara")
    assert refused.returncode == 1
    assert f"{cluster}.0 (release refused)" in refused.stderr
    assert "HTCondor refused: the job belongs to bjorn" in refused.stdout
    [ad] = site.pool.jobs(f"ClusterId == {cluster}")
    assert ad["JobStatus"] == JobStatus.HELD
    granted = site.advice(*arguments, user=site.pool.account)
    assert granted.returncode == 0, granted.stderr
    site.pool.wait_for(cluster, JobStatus.COMPLETED)


def test_what_is_printed_for_a_group_can_be_pasted(site: Site) -> None:
    cluster = site.submit(TOO_SHORT)
    shown = site.advice(str(cluster)).stdout
    commands = [line.strip() for line in shown.splitlines() if line.startswith(" " * 11)]
    edits = [command for command in commands if command.startswith("condor_qedit -constraint")]
    assert len(edits) == 1, shown
    for command in commands:
        done = site.run("/bin/sh", "-c", command)
        assert done.returncode == 0, (command, done.stderr)
    ads = site.pool.wait_for(cluster, JobStatus.COMPLETED)
    assert {ad["AllowedExecuteDuration"] for ad in ads} == {10}
    assert len(ads) == 3


def test_what_a_person_holds_is_left_alone(site: Site) -> None:
    cluster = site.submit(ON_HOLD)
    everything = ("--apply", "--yes", "--confidence", "0", "--fix", "--remove")
    done = site.advice(str(cluster), *everything)
    assert done.returncode == 0
    assert "leave alone" in done.stdout
    assert "it is meant to be on hold" in done.stdout
    assert site.run("condor_release", str(cluster)).returncode == 0
    site.run("condor_hold", str(cluster), user=site.pool.account)
    held = site.pool.wait_for(cluster, JobStatus.HELD)
    assert held[0]["HoldReasonCode"] == 1
    done = site.advice(str(cluster), *everything)
    assert f"{site.pool.account} holds it" in done.stdout
    assert site.pool.jobs(f"ClusterId == {cluster}")[0]["JobStatus"] == JobStatus.HELD
    site.run("condor_rm", str(cluster))


def test_limits_of_the_site_are_kept_and_mistakes_in_them_named(site: Site) -> None:
    cluster, _ = site.hold(3)
    before = site.file.read_text()
    arguments = (str(cluster), "--apply", "--yes", "--confidence", "0")
    try:
        site.file.write_text(f"{before}\n[acting]\nleave_codes = [13]\n")
        done = site.advice(*arguments)
        assert "leaves holds with code 13 alone" in done.stdout
        site.file.write_text(f"{before}\n[acting]\nactions_per_hours = 2\n")
        wrong = site.advice(*arguments)
        assert wrong.returncode == 2
        assert "actions_per_hours: unknown setting" in wrong.stderr
    finally:
        site.file.write_text(before)
    site.run("condor_rm", str(cluster))


def attributes(site: Site, cluster: int) -> list[str]:
    names = ("AdviceVerdict", "AdviceProbability", "AdviceSource", "AdviceAt")
    done = site.run("condor_q", "-allusers", str(cluster), "-af", *names, user="bjorn")
    return done.stdout.split()


def test_annotated_jobs_show_the_advice_in_condor_q(site: Site) -> None:
    cluster = site.submit(ON_HOLD)
    constraint = ("--constraint", f"ClusterId == {cluster}")
    trial = site.advice("annotate", "--dry-run", *constraint, user=site.pool.account)
    assert "1 would be written" in trial.stdout
    assert attributes(site, cluster) == ["undefined"] * 4
    done = site.advice("annotate", *constraint, "--json", user=site.pool.account)
    assert done.returncode == 0, done.stderr
    assert objects(done)[0]["written"] == 1
    verdict, probability, source, at = attributes(site, cluster)
    assert (verdict, source) == ("ASK", "rules")
    assert 0 <= float(probability) <= 1
    assert abs(int(at) - time.time()) < 120
    again = objects(site.advice("annotate", *constraint, "--json", user=site.pool.account))
    assert (again[0]["written"], again[0]["unchanged"]) == (0, 1)
    site.run("condor_release", str(cluster))
    site.run("condor_hold", str(cluster))
    anew = objects(site.advice("annotate", *constraint, "--json", user=site.pool.account))
    assert anew[0]["written"] == 1, "it is about another hold now"
    refused = site.advice("annotate", *constraint, user="bjorn")
    assert refused.returncode == 0, "nothing had to be written, so nothing was refused"
    site.run("condor_qedit", str(cluster), "AdviceVerdict", '"REMOVE"')
    refused = site.advice("annotate", *constraint, user="bjorn")
    assert refused.returncode == 1
    assert "QUEUE_SUPER_USERS" in refused.stderr
    site.run("condor_rm", str(cluster))


def test_the_schedd_releases_what_is_annotated_so_and_not_before(site: Site) -> None:
    cluster, path = site.hold()
    site.mend(path)
    time.sleep(5)  # the policy looks every two seconds
    [ad] = site.pool.jobs(f"ClusterId == {cluster}")
    assert ad["JobStatus"] == JobStatus.HELD, "without an annotation nothing is released"
    constraint = ("--constraint", f"ClusterId == {cluster}")
    done = site.advice("annotate", *constraint, user=site.pool.account)
    assert done.returncode == 0, done.stderr
    site.pool.wait_for(cluster, JobStatus.COMPLETED)
    told = (site.pool.log_directory / "SchedLog").read_text()
    assert f"Job {cluster}.0 released from hold: The system macro SYSTEM_PERIODIC_RELEASE" in told


def test_a_schedd_cron_annotates_by_itself_and_tells_the_totals(site: Site) -> None:
    cluster = site.submit(ON_HOLD.replace("queue", "batch_name = cron\nqueue"))
    deadline = time.monotonic() + 40
    while attributes(site, cluster)[0] != "ASK":
        assert time.monotonic() < deadline
        time.sleep(1)
    while True:
        shown = site.run("condor_status", "-schedd", "-af", "AdviceHeldAsk")
        if shown.stdout.strip() == "1":
            break
        assert time.monotonic() < deadline, shown.stdout
        time.sleep(1)
    site.run("condor_rm", str(cluster))
