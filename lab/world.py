"""What a scenario can touch: its batch of jobs, the file server, the execution points, time.

A scenario never submits anything itself. It changes one thing about a batch that is
otherwise as healthy as any other, says what it did (`Cause`), and may ask the world to do
something later: write the missing file, end an outage, evict a job.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from condor_advice.lab import names

if TYPE_CHECKING:
    from condor_advice.lab.fileserver import FileServer

Clock = Callable[[], float]

# Every program of the lab begins alike, whatever it does later: `chance 30` is true in
# 30 of 100 runs, `point` is the execution point's name.
_PRELUDE = """\
chance() { [ $(( $(od -An -N2 -tu2 /dev/urandom) % 100 )) -lt $1 ]; }
point() { sed -n 's/^Name = ".*@\\(.*\\)@.*"$/\\1/p' "$_CONDOR_MACHINE_AD" | head -1; }
"""


SMALL_SCRATCH_MB = 96
_TROUBLES = {"flaky": ("exit", "hook", "wrapper"), "black-hole": ("exit",)}


@dataclass(frozen=True, slots=True)
class Fix:
    """What a knowing owner does before releasing: edit the job, mend something, or both."""

    edits: Mapping[str, str] = field(default_factory=dict)  # ClassAd attribute -> expression
    mend: Callable[[], object] | None = None  # for the whole batch


@dataclass(slots=True)
class Cause:
    """Why a batch is held, as only the lab can know; it goes to the truth file and nowhere else.

    `transient` says that the same job, unchanged, can succeed later or elsewhere. `ends` is
    the Unix time at which the cause goes away by itself; a transient cause without one is
    drawn anew in each run or depends on the execution point.
    """

    what: str
    transient: bool
    ends: float | None = None
    fix: Fix | None = None
    on_submit: Callable[[int], None] | None = None  # called with the cluster id


@dataclass(slots=True)
class LabPoint:
    """An execution point and what is wrong with it at times."""

    name: str
    personality: str
    directory: Path  # control files and software live here
    execute: Path
    has_software: bool = True
    pid_file: Path | None = None  # set when scratch is a small file system of its own

    def can(self, trouble: str) -> bool:
        """Whether this point is made to have that trouble."""
        if trouble == "scratch":
            return self.pid_file is not None
        return trouble in _TROUBLES.get(self.personality, ())

    def control(self, trouble: str) -> Path:
        """The file whose presence switches a trouble on."""
        return self.directory / "ctl" / trouble


@dataclass(slots=True)
class Trouble:
    """A time in which a point, or the site on behalf of a project, strikes whatever comes by."""

    point: str  # an execution point; for "share" a project
    what: str  # "exit", "wrapper", "hook", "scratch" or "share"
    since: float
    until: float


class LabWorld:
    """Time, places and the things in them; the one place where anything is scheduled."""

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
        self.pace = pace  # multiplies every waiting time: below 1 is faster
        self.clock = clock
        self.rng = Random(f"{seed}/world")
        self.troubles: list[Trouble] = []
        self.over_share: list[Trouble] = []  # known beforehand: they stand in the policy
        self.commands: list[tuple[str, list[str]]] = []  # (as whom, command) to run next
        self.starters_to_kill: list[int] = []  # clusters; the loop finds them
        self._agenda: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._server_paths = itertools.count()

    def at(self, when: float, do: Callable[[], object]) -> None:
        """Do something at a Unix time, or as soon after as the loop comes round."""
        heapq.heappush(self._agenda, (when, next(self._order), do))

    def run_due(self) -> None:
        """Do everything whose time has come."""
        while self._agenda and self._agenda[0][0] <= self.clock():
            heapq.heappop(self._agenda)[2]()

    def after(self, low: float, high: float, rng: Random | None = None) -> float:
        """A Unix time between `low` and `high` seconds from now, at the world's pace."""
        return self.clock() + self.pace * (rng or self.rng).uniform(low, high)

    def say(self, user: str, *command: str) -> None:
        """Have `user` type a command; the loop runs it without waiting for its end."""
        self.commands.append((user, list(command)))

    def publish(self, name: str) -> str:
        """A new path on the file server that ends in `name`; the number keeps faults apart."""
        return f"/data/{next(self._server_paths):05d}/{name}"

    def trouble(self, point: LabPoint, what: str, until: float) -> None:
        """Make an execution point misbehave from now on; it recovers at `until`."""
        control = point.control(what)
        if control.exists():
            return  # already so; the first one decides when it ends
        control.parent.mkdir(parents=True, exist_ok=True)
        control.touch()
        self.troubles.append(Trouble(point.name, what, self.clock(), until))
        if what == "scratch":
            self._fill(point)
        self.at(until, lambda: self._recover(point, what))

    def points_with(self, what: str) -> list[LabPoint]:
        """The execution points that can have a trouble."""
        return [point for point in self.points if point.can(what)]

    def install(self, points: list[LabPoint], batch: JobBatch) -> list[Path]:
        """Put a batch's program into the software directories of some execution points."""
        programs = []
        for point in points:
            program = point.directory / "opt" / f"{batch.number:04d}" / batch.program
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(f"#!/bin/sh\nsleep {batch.seconds:.1f}\nexit 0\n")
            program.chmod(0o755)
            programs.append(program)
        return programs

    def _recover(self, point: LabPoint, what: str) -> None:
        point.control(what).unlink(missing_ok=True)
        filler = _scratch_filler(point)
        if what == "scratch" and filler is not None:
            filler.unlink(missing_ok=True)

    @staticmethod
    def _fill(point: LabPoint) -> None:
        filler = _scratch_filler(point)
        if filler is None:
            return
        # Never more than the small file system holds: should the startd be gone, and its
        # mount with it, this must not fill the disk of the machine.
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            for _ in range(SMALL_SCRATCH_MB):
                file.write(bytes(1 << 20))


def _scratch_filler(point: LabPoint) -> Path | None:
    """Where to put the file that fills a small scratch, seen through the point's mounts."""
    if point.pid_file is None or not point.pid_file.exists():
        return None
    pid = point.pid_file.read_text().strip()
    return Path(f"/proc/{pid}/root{point.execute}/.filler")


@dataclass(slots=True)
class JobBatch:
    """One cluster before it is submitted: healthy, until a scenario has been at it."""

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
    binary: bytes | None = None  # when the executable is not a script
    seconds: float = 3.0
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    opens_early: bool = False
    begin: list[str] = field(default_factory=list)  # shell, before the work
    work: list[str] = field(default_factory=list)  # shell, after the sleep
    end: list[str] = field(default_factory=list)  # shell, after the outputs
    submit: dict[str, str] = field(default_factory=dict)
    dag: bool = False
    spool: bool = False  # its files go through the access point's spool

    def path(self, name: str) -> Path:
        """A file in the batch's own directory."""
        return self.directory / name

    def data(self) -> str:
        """A new neutral file name that the batch does not use yet."""
        while True:
            name = names.data(self.rng)
            if name not in self.outputs and not any(i.endswith(name) for i in self.inputs):
                return name

    def input_name(self) -> str:
        """A new name for an input file, in one of the directories that people use."""
        return self.rng.choice(("", "", "data/", "in/", "store/")) + self.data()

    def write(self, name: str, size: int | None = None) -> Path:
        """Create a data file, with its directories."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size if size is not None else self.rng.randrange(200, 6000)))
        return path

    def lasts(self, low: float = 12, typical: float = 75) -> float:
        """The Unix time at which a transient cause ends: mostly minutes, sometimes long."""
        seconds = min(low + self.rng.expovariate(1 / typical), 420.0)
        return self.world.clock() + self.world.pace * seconds

    def failing_exit(self) -> str:
        """Shell that ends the program badly; which code or signal says nothing of the cause."""
        code = self.rng.choice((1, 1, 1, 2, 3, 84, 85, 127, 134, 139))
        return "kill -SEGV $$; sleep 1" if code == 139 else f"exit {code}"

    def use_initialdir(self) -> Path:
        """Run from a directory below the batch's own."""
        if not self.initialdir:
            self.initialdir = self.rng.choice(("run", "jobs", "exec"))
            self.path(self.initialdir).mkdir()
        return self.path(self.initialdir)

    def file_list(self, names: list[str]) -> str:
        """Files of the batch as a submit description lists them; URLs stay as they are."""
        up = "../" if self.initialdir else ""
        return ", ".join(name if "://" in name else up + name for name in names)

    def run_installed(self) -> None:
        """Use the program of that name on the execution point instead of sending one."""
        self.submit["executable"] = f"$$(SoftwareDirectory)/{self.number:04d}/{self.program}"
        self.submit["transfer_executable"] = "false"
        self.outputs.clear()

    def hold_on_exit(self) -> None:
        """Have the job held when it fails, in one of the ways people write it."""
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
        """Shell that does something on some execution points only."""
        return f"case $(point) in {'|'.join(point.name for point in points)}) {command};; esac"

    def python(self, code: str) -> str:
        """Shell that runs a little Python on the execution point."""
        return f"{shlex.quote(sys.executable)} -S -E -c {shlex.quote(code)}"

    def use_memory(self, megabytes: int, seconds: float) -> str:
        """Shell that holds memory for a while, long enough for the starter to see it."""
        return self.python(
            f"import time; b = b'x' * {megabytes * 1_000_000}; time.sleep({seconds})"
        )

    def write_program(self) -> None:
        """Write the executable; padding keeps its size from telling one scenario from another."""
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

    def description(self) -> str:
        """The submit description as its owner would write it."""
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
    """A batch with nothing wrong: what every scenario starts from.

    Inputs by file and by URL, named outputs, exit policies and run-time limits are drawn
    here for all alike, so that having one of them does not tell the scenario.
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
