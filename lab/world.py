"""What a scenario can change: its batch of jobs, the file server, the execution points.

A scenario submits nothing itself. It changes one thing about a healthy batch, describes the
change (`Cause`), and may schedule an action for later: write the missing file, end an outage,
evict a job.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from condor_advice.lab import names

if TYPE_CHECKING:
    from condor_advice.lab.fileserver import FileServer

Clock = Callable[[], float]

# Every program in the lab starts with this: `chance 30` is true in 30 of 100 runs, `point`
# prints the execution point's name.
_PRELUDE = """\
chance() { [ $(( $(od -An -N2 -tu2 /dev/urandom) % 100 )) -lt $1 ]; }
point() { sed -n 's/^Name = ".*@\\(.*\\)@.*"$/\\1/p' "$_CONDOR_MACHINE_AD" | head -1; }
"""


SMALL_SCRATCH_MB = 96
_TROUBLES = {"flaky": ("exit", "hook", "wrapper"), "black-hole": ("exit",)}


@dataclass(frozen=True, slots=True)
class Fix:
    """The right fix before a release: edit the job, repair something else, or both."""

    edits: Mapping[str, str] = field(default_factory=dict)  # ClassAd attribute -> expression
    mend: Callable[[], object] | None = None  # for the whole batch


@dataclass(slots=True)
class Cause:
    """Why a batch is held. Only the lab knows this, and writes it to the truth file alone.

    `transient` says that the same job, unchanged, can succeed later or elsewhere. `ends` is
    the Unix time at which the cause goes away by itself. A transient cause without one is
    drawn anew for each run or depends on the execution point.
    """

    description: str
    transient: bool
    ends: float | None = None
    fix: Fix | None = None
    on_submit: Callable[[int], None] | None = None  # called with the cluster id


@dataclass(slots=True)
class LabPoint:
    """An execution point of the lab and the troubles it can have."""

    name: str
    personality: str
    directory: Path  # control files and software live here
    execute: Path
    has_software: bool = True
    pid_file: Path | None = None  # set when scratch is a small file system

    def can(self, trouble: str) -> bool:
        """Return whether this execution point can have that kind of trouble."""
        if trouble == "scratch":
            return self.pid_file is not None
        return trouble in _TROUBLES.get(self.personality, ())

    def control(self, trouble: str) -> Path:
        """Return the file whose presence switches a trouble on."""
        return self.directory / "ctl" / trouble


@dataclass(slots=True)
class Trouble:
    """A period in which an execution point, or the site's policy on a project, holds any job."""

    point: str  # an execution point; for "share" a project
    kind: str  # "exit", "wrapper", "hook", "scratch" or "share"
    since: float
    until: float


class LabWorld:
    """The lab's clock, agenda, file server and execution points."""

    def __init__(
        self,
        root: Path,
        seed: str,
        server: FileServer,
        points: list[LabPoint],
        pace: float = 1.0,
        clock: Clock = time.time,
    ) -> None:
        self.root, self.seed, self.server, self.points = root, seed, server, points
        self.spool = root / "pool" / "spool"
        self.pace = pace  # multiplies every delay: below 1 is faster
        self.clock = clock
        self.began = clock()
        self.changes = float("inf")  # when the site changes; the run sets it
        self.rng = Random(f"{seed}/world")
        self.troubles: list[Trouble] = []
        self.over_share: list[Trouble] = []  # known at the start: they are in the pool's policy
        self.commands: list[tuple[str, list[str]]] = []  # (as whom, command) to run next
        self.starters_to_kill: list[int] = []  # clusters whose starters the loop kills next
        self._agenda: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._server_paths = itertools.count()
        self._outages: dict[str, float] = {}  # name -> when the last one ends

    def at(self, when: float, do: Callable[[], object]) -> None:
        """Schedule a call for a Unix time; the loop makes it soon after."""
        heapq.heappush(self._agenda, (when, next(self._order), do))

    def run_due(self) -> None:
        """Make the calls that are due."""
        while self._agenda and self._agenda[0][0] <= self.clock():
            heapq.heappop(self._agenda)[2]()

    def after(self, low: float, high: float, rng: Random | None = None) -> float:
        """Return a Unix time between `low` and `high` seconds from now, scaled by the pace."""
        return self.clock() + self.pace * (rng or self.rng).uniform(low, high)

    def outage(self, name: str, draw_end: Callable[[], float]) -> float:
        """Return when an outage that several batches share ends.

        If the last outage of this name is over, a new one begins now and ends at `draw_end()`.
        """
        if self._outages.get(name, 0.0) <= self.clock():
            self._outages[name] = draw_end()
        return self._outages[name]

    def end_outage(self, name: str) -> None:
        """End a shared outage now, because somebody repaired what it was about."""
        self._outages[name] = min(self._outages.get(name, 0.0), self.clock())

    def in_outage(self, name: str) -> bool:
        """Return whether a shared outage lasts."""
        return self.clock() < self._outages.get(name, 0.0)

    def queue_command(self, user: str, *command: str) -> None:
        """Queue a command to run as `user`; the loop starts it and does not wait for it."""
        self.commands.append((user, list(command)))

    def publish(self, name: str) -> str:
        """Return a new path on the file server that ends in `name`; a number makes it unique."""
        return f"/data/{next(self._server_paths):05d}/{name}"

    def trouble(self, point: LabPoint, kind: str, until: float) -> None:
        """Make an execution point misbehave from now on; it recovers at `until`."""
        control = point.control(kind)
        if control.exists():
            return  # the first trouble decides when it ends
        control.parent.mkdir(parents=True, exist_ok=True)
        control.touch()
        self.troubles.append(Trouble(point.name, kind, self.clock(), until))
        if kind == "scratch":
            self._fill(point)
        self.at(until, lambda: self._recover(point, kind))

    def points_with(self, kind: str) -> list[LabPoint]:
        """Return the execution points that can have this kind of trouble."""
        return [point for point in self.points if point.can(kind)]

    def install(self, points: list[LabPoint], batch: JobBatch) -> list[Path]:
        """Install a batch's program in the software directories of these execution points."""
        programs = []
        for point in points:
            program = point.directory / "opt" / f"{batch.number:04d}" / batch.program
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(f"#!/bin/sh\nsleep {batch.seconds:.1f}\nexit 0\n")
            program.chmod(0o755)
            programs.append(program)
        return programs

    def _recover(self, point: LabPoint, kind: str) -> None:
        point.control(kind).unlink(missing_ok=True)
        filler = _scratch_filler(point)
        if kind == "scratch" and filler is not None:
            filler.unlink(missing_ok=True)

    @staticmethod
    def _fill(point: LabPoint) -> None:
        filler = _scratch_filler(point)
        if filler is None:
            return
        # Write no more than the small file system holds: if the startd and its mount are
        # gone, this must not fill the machine's disk.
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            for _ in range(SMALL_SCRATCH_MB):
                file.write(bytes(1 << 20))


def unlink_links(links: Iterable[Path]) -> None:
    """Remove symbolic links; leave what has replaced one."""
    for link in links:
        if link.is_symlink():
            link.unlink()


def _scratch_filler(point: LabPoint) -> Path | None:
    """Return the file that fills a small scratch, as seen in the startd's mount namespace."""
    if point.pid_file is None or not point.pid_file.exists():
        return None
    pid = point.pid_file.read_text().strip()
    return Path(f"/proc/{pid}/root{point.execute}/.filler")


@dataclass(slots=True)
class JobBatch:
    """One cluster before it is submitted: healthy until a scenario changes it."""

    number: int
    owner: str
    procs: int
    directory: Path
    world: LabWorld
    rng: Random
    name: str = ""
    project: str = ""
    program: str = ""
    initialdir: str = ""
    stdout: str = "$(Process).out"
    shebang: str = "#!/bin/sh"
    binary: bytes | None = None  # the executable, when it is not a script
    seconds: float = 3.0
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    opens_early: bool = False
    begin: list[str] = field(default_factory=list)  # shell, before the work
    work: list[str] = field(default_factory=list)  # shell, after the sleep
    end: list[str] = field(default_factory=list)  # shell, after the outputs
    submit: dict[str, str] = field(default_factory=dict)
    dag: bool = False
    spool: bool = False  # submit with -spool
    data_words: Sequence[str] = names.DATA_WORDS
    failure: str = ""  # shell code of a failure, where a program has one of its own

    def path(self, name: str) -> Path:
        """Return the path of a file in the batch's directory."""
        return self.directory / name

    def data(self) -> str:
        """Return a neutral file name that the batch does not use yet."""
        while True:
            name = names.data(self.rng, self.data_words)
            if name not in self.outputs and not any(i.endswith(name) for i in self.inputs):
                return name

    def input_name(self) -> str:
        """Return a new name for an input file, in one of the usual directories."""
        return self.rng.choice(("", "", "data/", "in/", "store/")) + self.data()

    def write(self, name: str, size: int | None = None) -> Path:
        """Create a data file, with its directories."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size if size is not None else self.rng.randrange(200, 6000)))
        return path

    def lasts(self, low: float = 12, typical: float = 75) -> float:
        """Draw the Unix time at which a transient cause ends: usually soon, sometimes late."""
        seconds = min(low + self.rng.expovariate(1 / typical), 420.0)
        return self.world.clock() + self.world.pace * seconds

    def clears(self, median: float, spread: float = 1.0, longest: float = 3600.0) -> float:
        """Draw the Unix time at which a cause ends, from a lognormal distribution.

        `spread` is the standard deviation of the logarithm: with 1.5, one cause in six ends
        after more than four times the median.
        """
        seconds = min(median * self.rng.lognormvariate(0, spread), longest)
        return self.world.clock() + self.world.pace * max(seconds, 1.0)

    def trouble_a_point(self, kind: str, description: str, fix: Fix | None = None) -> Cause:
        """Give one execution point trouble for a while; `description` names it as {point}.

        If no execution point can have this kind of trouble, nothing is wrong with the batch.
        """
        able = self.world.points_with(kind)
        if not able:
            return Cause("none", transient=True)
        point, ends = self.rng.choice(able), self.lasts(typical=45)
        self.world.trouble(point, kind, until=ends)
        return Cause(description.format(point=point.name), transient=True, ends=ends, fix=fix)

    def make_dag(self) -> None:
        """Run the batch as a DAG whose nodes have one job each."""
        self.dag, self.spool, self.procs = True, False, 1

    def failing_exit(self) -> str:
        """Return shell code that fails the program; the exit code is unrelated to the cause."""
        if self.failure:
            return self.failure
        code = self.rng.choice((1, 1, 1, 2, 3, 84, 85, 127, 134, 139))
        return "kill -SEGV $$; sleep 1" if code == 139 else f"exit {code}"

    def use_initialdir(self) -> Path:
        """Set initialdir to a subdirectory of the batch's directory."""
        if not self.initialdir:
            self.initialdir = self.rng.choice(("run", "jobs", "exec"))
            self.path(self.initialdir).mkdir()
        return self.path(self.initialdir)

    def file_list(self, names: list[str]) -> str:
        """Return files as a submit description lists them; URLs stay as they are."""
        up = "../" if self.initialdir else ""
        return ", ".join(name if "://" in name else up + name for name in names)

    def run_installed(self) -> None:
        """Run the program installed on the execution point instead of transferring one."""
        self.submit["executable"] = f"$$(SoftwareDirectory)/{self.number:04d}/{self.program}"
        self.submit["transfer_executable"] = "false"
        self.outputs.clear()

    def hold_on_exit(self) -> None:
        """Have the job held when it fails, with one of the usual expressions."""
        when = self.rng.choice(
            (
                "(ExitBySignal == True) || (ExitCode != 0)",
                "ExitBySignal || ExitCode != 0",
                "ExitCode =!= 0",
            )
        )
        self.submit["on_exit_hold"] = when
        reason = self.rng.choice(
            (
                None,
                '"Job failed, see the error file"',
                'strcat("exited with ", ifThenElse(ExitBySignal, strcat("signal ", ExitSignal), '
                'strcat("code ", ExitCode)))',
            )
        )
        self.submit.pop("on_exit_hold_reason", None)
        if reason:
            self.submit["on_exit_hold_reason"] = reason

    def on_points(self, points: list[LabPoint], command: str) -> str:
        """Return shell code that runs a command on some execution points only."""
        return f"case $(point) in {'|'.join(point.name for point in points)}) {command};; esac"

    def python(self, code: str) -> str:
        """Return shell code that runs Python code on the execution point."""
        return f"{shlex.quote(sys.executable)} -S -E -c {shlex.quote(code)}"

    def use_memory(self, megabytes: int, seconds: float) -> str:
        """Return shell code that keeps memory long enough for the starter to see it."""
        return self.python(
            f"import time; b = b'x' * {megabytes * 1_000_000}; time.sleep({seconds})"
        )

    def write_program(self) -> None:
        """Write the executable, padded so that its size does not give the scenario away."""
        path = self.path(self.program)
        if self.binary is not None:
            path.write_bytes(self.binary)
        else:
            padding = "".join(
                f"# {self.rng.getrandbits(256):064x}\n" for _ in range(self.rng.randrange(20, 120))
            )
            first = [f"touch {' '.join(self.outputs)}"] if self.opens_early else []
            outputs = [
                f"head -c {self.rng.randrange(100, 9000)} /dev/urandom > {name}"
                for name in self.outputs
            ]
            lines = [
                self.shebang,
                padding + _PRELUDE,
                *first,
                *self.begin,
                f"sleep {self.seconds:.1f}",
                *self.work,
                *outputs,
                "echo done",
                *self.end,
                "exit 0",
            ]
            path.write_text("\n".join(lines))
        path.chmod(0o755)

    def write_submit_files(self) -> list[str]:
        """Write the program and the submit description; return the command that submits them."""
        self.write_program()
        self.path("job.sub").write_text(self.description())
        return ["condor_submit", *(["-spool"] if self.spool else []), "-terse", "job.sub"]

    def description(self) -> str:
        """Return the submit description as its owner would write it."""
        commands = {
            "executable": self.program,
            "arguments": f'"{names.arguments(self.rng)}"',
            "batch_name": self.name,
            "My.ProjectName": f'"{self.project}"',
            "log": str(self.path(f"{self.name}.log")) if self.initialdir else f"{self.name}.log",
            "output": self.file_list([self.stdout]),
            "error": "$(Process).err",
            "should_transfer_files": "YES",
            "when_to_transfer_output": "ON_EXIT",
        }
        if self.inputs:
            commands["transfer_input_files"] = self.file_list(self.inputs)
        if self.outputs:
            commands["transfer_output_files"] = ", ".join(self.outputs)
        if self.initialdir:
            commands |= {"initialdir": self.initialdir, "executable": str(self.path(self.program))}
        commands |= self.submit
        lines = [f"{key} = {value}" for key, value in commands.items() if value]
        return "\n".join([*lines, f"queue {self.procs}", ""])


def healthy_batch(world: LabWorld, number: int, owner: str) -> JobBatch:
    """Make a batch with nothing wrong, which every scenario starts from.

    Input files and URLs, named outputs, exit policies and run-time limits are drawn here for
    all batches alike, so that none of them gives the scenario away.
    """
    rng = Random(f"{world.seed}/batch/{number}")
    project = rng.choice(names.PROJECTS)
    directory = world.root / "home" / owner / project / f"set{number:04d}"
    directory.mkdir(parents=True)
    batch = JobBatch(
        number,
        owner,
        procs=min(1 + int(rng.expovariate(0.7)), 8),
        directory=directory,
        world=world,
        rng=rng,
        name=names.batch(rng),
        project=project,
        program=names.program(rng),
    )
    batch.seconds = min(1.0 + rng.expovariate(0.35), 12.0)
    batch.submit |= {
        "request_memory": str(rng.choice((32, 48, 64, 64, 96))),
        "request_disk": f"{rng.choice((4, 6, 8, 12))}M",
    }
    batch.stdout = rng.choice(("$(Process).out", "res_$(Process).out", "out/$(Process).out"))
    batch.path("out").mkdir()
    for _ in range(rng.randrange(3)):
        name = batch.input_name()
        batch.write(name)
        batch.inputs.append(name)
    if rng.random() < 0.35:
        batch.inputs.append(world.server.url(world.publish(batch.data())))
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        batch.outputs.append(batch.data())
    # A program that opens its outputs at the start still has them when it fails later.
    batch.opens_early = bool(batch.outputs) and rng.random() < 0.6
    if rng.random() < 0.4:
        batch.hold_on_exit()
    if rng.random() < 0.2:
        batch.submit["allowed_execute_duration"] = str(rng.choice((40, 60, 90)))
    if rng.random() < 0.2:
        limit = rng.choice((45, 60, 90))
        batch.submit["periodic_hold"] = f"JobStatus == 2 && time() - EnteredCurrentStatus > {limit}"
    if rng.random() < 0.15:
        batch.submit["max_retries"] = "1"
    if rng.random() < 0.2:  # programs fail now and then without any fault
        batch.end.append(f"chance {rng.choice((10, 20, 40))} && {batch.failing_exit()}")
    if rng.random() < 0.06:
        batch.spool = True
    elif rng.random() < 0.12:
        batch.use_initialdir()
    return batch
