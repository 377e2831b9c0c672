"""Run a private HTCondor pool: its directory, configuration and daemons.

    with Pool() as pool:
        cluster = pool.submit("executable = /bin/true\\nqueue")
        pool.wait_for(cluster, JobStatus.COMPLETED)

Every pool has its own directory and ports, so several can run side by side. Leaving the
`with` block stops it. If the process that started it dies, even by `kill -9`, its keeper
(`keeper.py`) stops all daemons and jobs.

On the command line: `python -m condor_advice.lab.pool start|stop|status DIR`, or
`… run DIR COMMAND`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import click

from condor_advice.gather.errors import Unreachable
from condor_advice.gather.events import JobStatus
from condor_advice.lab.install_pool import HTCondor, PoolUnavailable, install

KEEPER = Path(__file__).with_name("keeper.py")
# The account that root's daemons appear as: any existing one other than root will do.
BORROWED_ACCOUNTS = ("games", "daemon", "bin")
DAEMONS = ("COLLECTOR", "NEGOTIATOR", "SCHEDD")

CONFIG = """\
# Rewritten at each start; put your own settings into {directory}/config.d/.
BIN = {htcondor.bin}
SBIN = {htcondor.sbin}
LIB = {htcondor.lib}
LIBEXEC = {htcondor.libexec}
SHARE = {htcondor.share}
LOCAL_DIR = {directory}
ETC = $(LOCAL_DIR)
RUN = $(LOCAL_DIR)/run
LOG = $(LOCAL_DIR)/log
LOCK = $(LOCAL_DIR)/lock
SPOOL = $(LOCAL_DIR)/spool
EXECUTE = $(LOCAL_DIR)/execute
LOCAL_CONFIG_FILE =
LOCAL_CONFIG_DIR = $(LOCAL_DIR)/config.d

# Otherwise a master started by root changes the machine's sysctls.
ENABLE_KERNEL_TUNING = false
# Tools run by root must stay uid 0 when they authenticate. Daemons never run as root here.
CONDOR_IDS = 0.0

# One machine, on loopback; the kernel chooses each port.
CONDOR_HOST = 127.0.0.1
COLLECTOR_HOST = 127.0.0.1:0
NETWORK_INTERFACE = 127.0.0.1
ENABLE_IPV6 = false
NO_DNS = true
DEFAULT_DOMAIN_NAME = pool.local
UID_DOMAIN = pool.local
FILESYSTEM_DOMAIN = pool.local
COLLECTOR_ADDRESS_FILE = $(LOG)/.collector_address
SCHEDD_ADDRESS_FILE = $(LOG)/.schedd_address
SEC_DEFAULT_AUTHENTICATION = PREFERRED
SEC_DEFAULT_AUTHENTICATION_METHODS = FS
SEC_DEFAULT_ENCRYPTION = OPTIONAL
SEC_DEFAULT_INTEGRITY = OPTIONAL
SEC_TOKEN_DIRECTORY = $(LOCAL_DIR)/home
SEC_KNOWN_HOSTS = $(LOCAL_DIR)/home/known_hosts
SEC_SYSTEM_KNOWN_HOSTS = $(LOCAL_DIR)/home/known_hosts
ALLOW_READ = *
ALLOW_WRITE = *
ALLOW_DAEMON = *
ALLOW_NEGOTIATOR = *
ALLOW_ADMINISTRATOR = *

# Cycles of a second or two instead of minutes.
POLLING_INTERVAL = 1
UPDATE_INTERVAL = 2
MASTER_UPDATE_INTERVAL = 5
NEGOTIATOR_INTERVAL = 2
NEGOTIATOR_MIN_INTERVAL = 1
NEGOTIATOR_CYCLE_DELAY = 1
NEGOTIATOR_UPDATE_INTERVAL = 5
SCHEDD_INTERVAL = 2
SCHEDD_MIN_INTERVAL = 1
SCHEDD_INTERVAL_TIMESLICE = 1
PERIODIC_EXPR_INTERVAL = 2
MAX_PERIODIC_EXPR_INTERVAL = 2
PERIODIC_EXPR_TIMESLICE = 1
JOB_START_DELAY = 0
JOB_START_COUNT = 100
JOB_STOP_DELAY = 0
JOB_STOP_COUNT = 100
JOB_IS_FINISHED_INTERVAL = 0
JOB_IS_FINISHED_COUNT = 100
# Below 5 the shadow sometimes believes the starter is lost (events 022 and 023).
STARTER_UPDATE_INTERVAL = 5
STARTER_INITIAL_UPDATE_INTERVAL = 1
STARTER_UPDATE_INTERVAL_TIMESLICE = 1
SHADOW_QUEUE_UPDATE_INTERVAL = 2
PROCD_MAX_SNAPSHOT_INTERVAL = 1
CLAIM_WORKLIFE = 3600
SHADOW_WORKLIFE = 3600
DAGMAN_USER_LOG_SCAN_INTERVAL = 1
DAGMAN_SUBMIT_DELAY = 0
DAGMAN_MAX_SUBMITS_PER_INTERVAL = 100
DAGMAN_PENDING_REPORT_INTERVAL = 5
# Otherwise DAGs whose logs are below /tmp, as in the tests, abort.
DAGMAN_USE_STRICT = 0

# Execution points: one partitionable slot each, of a made-up size.
NUM_SLOTS_TYPE_1 = 1
SLOT_TYPE_1 = 100%
SLOT_TYPE_1_PARTITIONABLE = true
START = true
SUSPEND = false
PREEMPT = false
KILL = false
WANT_SUSPEND = false
WANT_VACATE = true
RunBenchmarks = false
STARTD_CRON_JOBLIST =
SINGULARITY = /usr/bin/false
DOCKER =
MachineMaxVacateTime = 10
JOB_DEFAULT_REQUESTMEMORY = 64
JOB_DEFAULT_REQUESTDISK = 2048
MODIFY_REQUEST_EXPR_REQUESTMEMORY = max({{16, quantize(RequestMemory, {{16}})}})
MODIFY_REQUEST_EXPR_REQUESTDISK = max({{1024, RequestDisk}})
use POLICY : HOLD_IF_MEMORY_EXCEEDED
use POLICY : HOLD_IF_DISK_EXCEEDED

DAEMON_LIST = {daemon_list}
{execution_points}
{event_log}
# From the caller:
{extra}
"""


class PoolError(Unreachable):
    """The pool failed; the message quotes its logs."""


@dataclass(frozen=True)
class ExecutionPoint:
    """One startd. Several share the machine, each with its own name, size and settings."""

    name: str
    cpus: int = 32
    memory_mb: int = 32768
    # Settings for this startd and its starters only, for example STARTD_ATTRS.
    config: Mapping[str, str] = field(default_factory=dict)
    # Environment, inherited by its starters, for example _CONDOR_USER_JOB_WRAPPER.
    environment: Mapping[str, str] = field(default_factory=dict)

    def as_config(self) -> str:
        """Return configuration that starts it with HTCondor's `-local-name`."""
        daemon, name = self.daemon, self.name.upper()
        settings = {
            "STARTD_NAME": self.name,
            "EXECUTE": f"$(LOCAL_DIR)/execute/{self.name}",
            "STARTD_LOG": f"$(LOG)/StartLog.{self.name}",
            "STARTER_LOG": f"$(LOG)/StarterLog.{self.name}",
            "STARTD_ADDRESS_FILE": f"$(LOG)/.startd_address.{self.name}",
            "NUM_CPUS": str(self.cpus),
            "MEMORY": str(self.memory_mb),
            **self.config,
        }
        lines = [f"{daemon} = $(STARTD)", f"{daemon}_ARGS = -f -local-name {name}"]
        if self.environment:
            pairs = " ".join(f"{key}={value}" for key, value in self.environment.items())
            lines.append(f'{daemon}_ENVIRONMENT = "{pairs}"')
        lines += [f"{name}.{key} = {value}" for key, value in settings.items()]
        return "\n".join(lines)

    @property
    def daemon(self) -> str:
        """Its name in DAEMON_LIST."""
        return f"STARTD_{self.name.upper()}"


@dataclass(frozen=True)
class EventLog:
    """Settings of the access point's global event log (HTCondor's EVENT_LOG)."""

    max_size_bytes: int = 1_000_000
    max_rotations: int = 5
    format_options: str = ""  # for example "ISO_DATE, UTC, SUB_SECOND", "JSON" or "XML"
    # Attributes of the 028 event after each event.
    ad_attributes: Sequence[str] = ()

    def as_config(self) -> str:
        """Return the settings as configuration."""
        return "\n".join(
            [
                "EVENT_LOG = $(LOCAL_DIR)/events/EventLog",
                f"EVENT_LOG_MAX_SIZE = {self.max_size_bytes}",
                f"EVENT_LOG_MAX_ROTATIONS = {self.max_rotations}",
                f"EVENT_LOG_FORMAT_OPTIONS = {self.format_options}",
                f"EVENT_LOG_JOB_AD_INFORMATION_ATTRS = {','.join(self.ad_attributes)}",
            ]
        )


class Pool:
    """One personal pool in one directory.

    HTCondor runs no jobs for root. So for root, the daemons and the commands given to `run`
    appear as an ordinary account (`account`); on disk their files belong to root. In-process
    `htcondor2` does not need this.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        config: str = "",
        daemons: Sequence[str] = DAEMONS,
        execution_points: Sequence[ExecutionPoint] = (ExecutionPoint("ep1"),),
        event_log: EventLog | None = None,
        htcondor: HTCondor | None = None,
    ) -> None:
        """Describe a pool; nothing is written or started yet.

        Without a `directory` the pool uses a temporary one and removes it when it stops.
        `config` is HTCondor configuration that comes last, so it overrides everything
        here. With `execution_points=()` all jobs stay idle.
        """
        self._temporary = directory is None
        self.directory = (directory or Path(tempfile.mkdtemp(prefix="condor-pool-"))).resolve()
        self.config = config
        self.daemons = tuple(daemons)
        self.execution_points = tuple(execution_points)
        self.event_log_settings = event_log or EventLog()
        self.htcondor = htcondor or install()
        self.account = _account()
        self._keeper: subprocess.Popen[bytes] | None = None

    # ---- paths ------------------------------------------------------------------------

    @property
    def config_file(self) -> Path:
        """The file that CONDOR_CONFIG names."""
        return self.directory / "condor_config"

    @property
    def log_directory(self) -> Path:
        """Where the daemons write their logs."""
        return self.directory / "log"

    @property
    def event_log(self) -> Path:
        """The global event log; its rotations are beside it."""
        return self.directory / "events" / "EventLog"

    @property
    def environ(self) -> dict[str, str]:
        """The environment in which HTCondor's tools talk to this pool."""
        tools = [str(self.htcondor.bin), str(self.htcondor.sbin)]
        environ = {
            **os.environ,
            "CONDOR_CONFIG": str(self.config_file),
            "PATH": os.pathsep.join([*tools, os.environ.get("PATH", os.defpath)]),
        }
        if os.geteuid() == 0:
            home = str(self.directory / "home")
            environ.update(USER=self.account, LOGNAME=self.account, HOME=home)
        return environ

    # ---- start and stop -------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, *, keep_after_exit: bool = False, timeout_seconds: float = 60) -> None:
        """Start the daemons and wait until they answer.

        The pool stops when this process exits, for any reason, unless `keep_after_exit`.
        """
        if self.is_running():
            raise PoolError(f"{self.directory}: a pool is already running here; stop it first")
        self._write_directory()
        owner = [] if keep_after_exit else [f"--owner={os.getpid()}"]
        # If the keeper itself is killed, the kernel tells the master to shut down fast.
        master = ["setpriv", "--pdeathsig=QUIT", str(self.htcondor.sbin / "condor_master"), "-f"]
        with (self.log_directory / "KeeperLog").open("ab") as log:
            self._keeper = subprocess.Popen(
                [
                    *(sys.executable, "-I", str(KEEPER)),
                    *owner,
                    f"--lock={self._lock_file}",
                    "--",
                    *self.command(master),
                ],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,  # Ctrl-C must reach this process first, not the pool
            )
        try:
            self._wait_until_ready(timeout_seconds)
        except BaseException:
            self.stop(keep_directory=True)  # its logs show the reason
            raise

    def stop(self, *, keep_directory: bool = False) -> None:
        """End every process of the pool. Do nothing if none is running."""
        self.deactivate()
        # A keeper just started may not hold its lock yet.
        keeper = self._keeper.pid if self._keeper else self._keeper_pid()
        if keeper is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(keeper, signal.SIGTERM)
            self._wait_until_stopped(timeout_seconds=45)
        self._keeper = None
        if self._temporary and not keep_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def is_running(self) -> bool:
        """Return whether a keeper runs in this directory, started by any process."""
        return self._keeper_pid() is not None

    @property
    def _lock_file(self) -> Path:
        return self.directory / "run" / "keeper"

    def _keeper_pid(self) -> int | None:
        """Return the keeper's process id, read from the file it locks while it runs."""
        try:
            with self._lock_file.open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return None
        except BlockingIOError:
            return int(self._lock_file.read_text() or 0) or None
        return None

    def _wait_until_stopped(self, timeout_seconds: float) -> None:
        deadline = time.monotonic() + timeout_seconds
        while self.is_running() or (self._keeper and self._keeper.poll() is None):
            if time.monotonic() > deadline:
                raise PoolError(
                    f"{self.directory}: the pool did not stop within {timeout_seconds:.0f} s; "
                    f"see {self.log_directory}"
                )
            time.sleep(0.05)

    def _wait_until_ready(self, timeout_seconds: float) -> None:
        assert self._keeper is not None
        expected = {*self.daemons} & {*DAEMONS}
        expected |= {point.name for point in self.execution_points}
        deadline = time.monotonic() + timeout_seconds
        missing = expected
        while missing:
            if self._keeper.poll() is not None:
                raise PoolError(f"{self.directory}: the pool exited at once\n{self._last_words()}")
            if time.monotonic() > deadline:
                raise PoolError(
                    f"{self.directory}: not ready after {timeout_seconds:.0f} s, waiting for "
                    f"{', '.join(sorted(missing))}\n{self._last_words()}"
                )
            time.sleep(0.1)
            missing = expected - self._daemons_that_answer()

    def _daemons_that_answer(self) -> set[str]:
        status = self.run(["condor_status", "-any", "-af", "MyType", "Name"], check=False)
        answering = {"COLLECTOR"} if status.returncode == 0 else set()
        for line in status.stdout.splitlines():
            kind, _, name = line.partition(" ")
            if kind == "Negotiator":
                answering.add("NEGOTIATOR")
            elif kind == "Scheduler":
                answering.add("SCHEDD")
            elif name.startswith("slot"):
                answering.update(name.split("@")[1:2])
        return answering

    def _last_words(self) -> str:
        """Return the last lines of the logs, which say why a pool did not start."""
        parts = []
        for log in ("KeeperLog", "MasterLog"):
            with contextlib.suppress(OSError):
                lines = (self.log_directory / log).read_text(errors="replace").splitlines()
                parts += [f"{log}: {line}" for line in lines[-8:]]
        return "\n".join(parts)

    def _write_directory(self) -> None:
        folders = ["log", "lock", "run", "spool", "events", "home", "config.d", "execute"]
        folders += [f"execute/{point.name}" for point in self.execution_points]
        for folder in folders:
            (self.directory / folder).mkdir(parents=True, exist_ok=True)
        for address in self.log_directory.glob(".*_address*"):
            address.unlink()  # from an earlier run: its ports are closed
        startds = [point.daemon for point in self.execution_points]
        text = CONFIG.format(
            directory=self.directory,
            htcondor=self.htcondor,
            daemon_list=" ".join(["MASTER", *self.daemons, *startds]),
            execution_points="\n".join(point.as_config() for point in self.execution_points),
            event_log=self.event_log_settings.as_config(),
            extra=self.config,
        )
        self.config_file.write_text(text)

    # ---- use --------------------------------------------------------------------------

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command to run as the pool's account; run it with `environ`."""
        if os.geteuid() != 0:
            return list(argv)
        # Root without privileges, mapped to an ordinary account: HTCondor sees an ordinary
        # user, and no new account, sudo or chown is needed.
        entry = pwd.getpwnam(self.account)
        mapping = [f"--map-user={entry.pw_uid}", f"--map-group={entry.pw_gid}"]
        return ["unshare", "--user", *mapping, "--", *argv]

    def run(
        self,
        argv: Sequence[str],
        *,
        check: bool = True,
        cwd: Path | None = None,
        input: str | None = None,
        timeout_seconds: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        """Run any command with this pool's configuration, and capture its output."""
        done = subprocess.run(
            self.command(argv),
            env=self.environ,
            cwd=cwd,
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_seconds,
        )
        if check and done.returncode != 0:
            raise PoolError(
                f"`{' '.join(argv)}` exited with {done.returncode}: "
                f"{(done.stderr or done.stdout).strip()}"
            )
        return done

    def submit(self, description: str, cwd: Path | None = None) -> int:
        """Submit a description that ends in a `queue` line, and return the cluster id.

        Relative paths in it are relative to `cwd`.
        """
        done = self.run(["condor_submit", "-terse", "-"], cwd=cwd, input=description)
        return int(done.stdout.split(".")[0])

    def jobs(self, constraint: str = "true") -> list[dict[str, Any]]:
        """Return the ads of the jobs in the queue and in the history."""
        ads = {}
        # The queue comes first: a job that leaves it in between is then seen twice, and the
        # history's ad wins. The other way round it would be missed.
        for tool in ("condor_q", "condor_history"):
            everyone = ["-allusers"] if tool == "condor_q" else []
            shown = self.run([tool, "-json", *everyone, "-constraint", constraint]).stdout
            for ad in json.loads(shown or "[]"):
                ads[ad["ClusterId"], ad["ProcId"]] = ad
        return [ads[job] for job in sorted(ads)]

    def wait_for(
        self, cluster: int, status: JobStatus, timeout_seconds: float = 60
    ) -> list[dict[str, Any]]:
        """Wait until every job of the cluster has that status; return their ads."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            ads = self.jobs(f"ClusterId == {cluster}")
            if ads and all(ad["JobStatus"] == status for ad in ads):
                return ads
            if time.monotonic() > deadline:
                states = [
                    f"{cluster}.{ad['ProcId']} {JobStatus(ad['JobStatus']).name} "
                    f"{ad.get('HoldReason', '')}".rstrip()
                    for ad in ads
                ]
                raise PoolError(
                    f"cluster {cluster} is not {status.name} after {timeout_seconds:.0f} s: "
                    f"{'; '.join(states) or 'no such jobs'}"
                )
            time.sleep(0.2)

    # ---- htcondor2 in this process ----------------------------------------------------

    def schedd(self) -> Any:
        """Return an `htcondor2.Schedd`; makes this the process's pool (see `activate`)."""
        self.activate()
        import htcondor2

        return htcondor2.Schedd()

    def collector(self) -> Any:
        """Return an `htcondor2.Collector`; makes this the process's pool (see `activate`)."""
        self.activate()
        import htcondor2

        return htcondor2.Collector()

    def activate(self) -> None:
        """Make this the pool that `htcondor2` in this process talks to.

        `htcondor2` keeps one configuration per process and reads it at import, from the file
        that CONDOR_CONFIG names. This reads it again, so several pools can take turns. Do not
        use an object made for one pool while another is active.
        """
        if not self._is_active():
            if not _config_outside_pools:
                _config_outside_pools.append(os.environ.get("CONDOR_CONFIG"))
            use_config(str(self.config_file))

    def deactivate(self) -> None:
        """If this pool is active, restore the configuration from before any pool."""
        if self._is_active():
            use_config(_config_outside_pools.pop() if _config_outside_pools else None)

    def _is_active(self) -> bool:
        return os.environ.get("CONDOR_CONFIG") == str(self.config_file)

    @contextlib.contextmanager
    def active(self) -> Iterator[Self]:
        """Activate the pool for the length of a `with` block."""
        self.activate()
        try:
            yield self
        finally:
            self.deactivate()


# CONDOR_CONFIG before the first `activate`; empty while no pool is active.
_config_outside_pools: list[str | None] = []


def use_config(config: str | None) -> None:
    """Make `htcondor2` in this process use that configuration file, imported or not."""
    # Without any configuration htcondor2 may exit the process, so it gets an empty one, as at
    # its own import. (HTCondor's ONLY_ENV would stick: later files are ignored.)
    os.environ["CONDOR_CONFIG"] = config or os.devnull
    if "htcondor2" in sys.modules:
        sys.modules["htcondor2"].reload_config()
    if config is None:
        del os.environ["CONDOR_CONFIG"]


def _account() -> str:
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    known = {entry.pw_name for entry in pwd.getpwall()}
    account = next((name for name in BORROWED_ACCOUNTS if name in known), None)
    if account is None:
        raise PoolUnavailable(
            f"HTCondor runs no jobs for root, and none of the accounts "
            f"{', '.join(BORROWED_ACCOUNTS)} exists here; run as an ordinary user"
        )
    probe = subprocess.run(
        ["unshare", "--user", "true"], capture_output=True, text=True, check=False
    )
    if probe.returncode != 0:
        raise PoolUnavailable(
            "HTCondor runs no jobs for root, and this machine allows no user "
            f"namespace ({probe.stderr.strip()}); run as an ordinary user"
        )
    return account


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Start, stop and use a private HTCondor pool."""


POOL_DIRECTORY = click.argument(
    "directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path)
)


@cli.command()
@POOL_DIRECTORY
@click.option("--execution-points", default=1, show_default=True, help="Number of startds.")
def start(directory: Path, execution_points: int) -> None:
    """Start a pool in DIR and leave it running."""
    points = [ExecutionPoint(f"ep{number + 1}") for number in range(execution_points)]
    pool = Pool(directory, execution_points=points)
    pool.start(keep_after_exit=True)
    click.echo(f"export CONDOR_CONFIG={pool.config_file}")
    click.echo(f"export PATH={pool.htcondor.bin}:{pool.htcondor.sbin}:$PATH")


@cli.command()
@POOL_DIRECTORY
def stop(directory: Path) -> None:
    """Stop the pool in DIR."""
    Pool(directory).stop()


@cli.command()
@POOL_DIRECTORY
def status(directory: Path) -> None:
    """Print whether a pool is running in DIR; exit with 1 if not."""
    running = Pool(directory).is_running()
    click.echo("running" if running else "not running")
    sys.exit(0 if running else 1)


@cli.command(context_settings={"allow_interspersed_args": False})
@POOL_DIRECTORY
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(directory: Path, command: tuple[str, ...]) -> None:
    """Run COMMAND with the pool in DIR, and start that pool first if it is not running."""
    pool = Pool(directory)
    with contextlib.nullcontext() if pool.is_running() else pool:
        sys.exit(subprocess.run(pool.command(command), env=pool.environ, check=False).returncode)


def main() -> None:
    """Run the command line and print errors without a traceback."""
    try:
        cli(prog_name="python -m condor_advice.lab.pool")
    except Unreachable as error:
        click.echo(f"pool: {error}", err=True)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
