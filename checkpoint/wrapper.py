"""Run any program, and save for it with a signal or a command.

Signals, streams and the exit status pass through unchanged. The wrapper never fails the
program: when something in it breaks, the program runs on alone. Nor does it leave the program
behind: if the wrapper is killed, the kernel kills the program.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import signal
import subprocess
import time
from typing import IO, Any, Callable, Dict, Iterator, List, Optional, Sequence, Union

from condor_checkpoint.hook import VACATE, Checkpoint
from condor_checkpoint.robust import describe, say
from condor_checkpoint.sample import Sample, process_tree

# Signals that nobody sends on purpose, that report an error in the wrapper itself, or that
# cannot be caught. All others are passed on. SIGCHLD reports the end of the program.
_KEPT = {
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ),
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT),
    *(signal.SIGTRAP, signal.SIGSYS, signal.SIGTTIN, signal.SIGTTOU),
}
PASSED_ON = signal.valid_signals() - _KEPT
WATCHED = PASSED_ON | {signal.SIGCHLD}
# Seconds that a program has to end after its state was saved.
PATIENCE = 30.0
# PR_SET_PDEATHSIG of prctl(2), from <linux/prctl.h>.
PARENT_DEATH_SIGNAL = 1


class SaveFailed(Exception):
    """The program or the command did not save."""


class _NothingWritten(Exception):
    """The command saved somewhere else than to the path it was given."""


class Wrapper:
    """One program and the saves for it."""

    def __init__(
        self,
        program: Sequence[str],
        *,
        save_signal: Optional[int] = None,
        command: Optional[str] = None,
        restore: Optional[str] = None,
        pause: bool = False,
        wait_for: Optional[str] = None,
        save_timeout: float = 600.0,
        exit_after: Union[int, str, None] = None,
        record: Optional[str] = None,
        **settings: Any,
    ) -> None:
        self.program = list(program)
        self.save_signal, self.command, self.wait_for = save_signal, command, wait_for
        self.restore, self.pause = restore, pause
        self.save_timeout, self.exit_after = save_timeout, exit_after
        self.record, self.settings = record, settings
        self.child: Optional[subprocess.Popen[bytes]] = None
        self._recorder: Optional[IO[str]] = None
        self._hook: Optional[Checkpoint] = None
        self._deferred: List[int] = []  # signals that arrived during a save
        self._leaving = False
        self._ending = False  # told to end: its usage no longer means anything

    def run(self) -> int:
        """Run the program to its end; return its exit status, negative for a signal."""
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        try:
            self._hook = self._make_hook()
            self._restore()
        except Exception as error:
            say(f"{describe(error)}; the program runs on without saves")
        try:
            self.child = subprocess.Popen(self.program, preexec_fn=_in_child())
        except OSError as error:
            say(f"{self.program[0]}: {error.strerror}")
            return 126 if isinstance(error, PermissionError) else 127
        try:
            status = self._attend_safely()
        finally:
            if self.child.poll() is None:
                self.child.kill()
        if self._hook is not None:
            self._hook.close("done" if status == 0 else "checkpoint" if self._leaving else "error")
        if self._recorder is not None:
            with contextlib.suppress(OSError):
                self._write({"ended": time.time(), "exit": status})
                self._recorder.close()
        return status

    def _make_hook(self) -> Checkpoint:
        can_save = self.save_signal is not None or self.command is not None
        if self.record is not None:
            self._recorder = open(self.record, "a", encoding="utf-8")  # noqa: SIM115
        if self.wait_for is not None:
            # HTCondor holds a job that ends before its first save without this directory.
            with contextlib.suppress(OSError):
                os.makedirs(os.path.dirname(self.wait_for) or ".", exist_ok=True)
        # The wrapper limits the time of a save itself: the hook's own limit sends a signal.
        return Checkpoint(
            self._save if can_save else None,
            signals=(),
            save_timeout=math.inf,
            on_sample=self._on_sample if self._recorder else None,
            **self.settings,
        )

    def _restore(self) -> None:
        """Run the restore command with the newest checkpoint that it accepts."""
        if self.restore is None or self._hook is None or self._hook.files is None:
            return
        command = self.restore
        self._hook.files.load(lambda path: self._run_command(command, "restore", path))

    def _on_sample(self, sample: Sample) -> None:
        if self._ending:
            return
        self._write(
            {name: round(value, 3) for name, value in sample._asdict().items() if value is not None}
        )

    def _write(self, line: Dict[str, Any]) -> None:
        assert self._recorder is not None
        self._recorder.write(json.dumps(line) + "\n")
        self._recorder.flush()

    def _attend_safely(self) -> int:
        assert self.child is not None
        try:
            if self._hook is not None:
                self._hook.start()
            return self._attend(self._hook)
        except Exception as error:
            say(f"{describe(error)}; the program runs on without saves")
        try:
            return self._attend(None)
        except Exception as error:
            say(f"{describe(error)}; signals are no longer passed on")
        return self.child.wait()

    def _attend(self, hook: Optional[Checkpoint]) -> int:
        """Pass on signals and poll for saves until the program has ended."""
        assert self.child is not None
        code = hook.accepted_exit_code(self.exit_after) if hook is not None else None
        kill_at = math.inf
        while True:
            if time.monotonic() > kill_at:
                self.child.kill()  # it has saved, and does not react to SIGTERM
            heard = self._next_signal(1.0 if hook else 3600.0)
            status = self.child.poll()
            if status is not None:
                return code if self._leaving and code is not None else status
            if heard is not None:
                if heard == signal.SIGTERM and hook is not None:
                    hook.request(VACATE)  # the starter wants the slot: save, then pass it on
                    good = hook.poll()
                    self._leaving = good and code is not None
                if heard == signal.SIGTERM:
                    self._ending = True
                self.child.send_signal(heard)
            elif hook is not None and hook.poll() and code is not None:
                # HTCondor transfers the checkpoint and restarts the job with it.
                self._leaving = True
                kill_at = time.monotonic() + PATIENCE
                self.child.terminate()

    def _next_signal(self, seconds: float) -> Optional[int]:
        """Return a signal to pass on, waiting for one if need be; None if there is none."""
        if self._deferred:
            return self._deferred.pop(0)
        heard = signal.sigtimedwait(WATCHED, seconds)
        return None if heard is None or heard.si_signo == signal.SIGCHLD else heard.si_signo

    def _wait_in_save(self) -> None:
        """Wait a moment; pass signals on, but SIGTERM only after the save."""
        heard = signal.sigtimedwait(WATCHED, 0.05)
        if heard is None or heard.si_signo == signal.SIGCHLD:
            return
        if self.child is None or heard.si_signo == signal.SIGTERM:
            self._deferred.append(heard.si_signo)
        else:
            self.child.send_signal(heard.si_signo)

    def _save(self, reason: str) -> None:
        """Have the state saved; return when that is done, raise when it is not."""
        assert self.child is not None
        if self.command is not None:
            self._save_by_command(self.command, reason)
            return
        assert self.save_signal is not None
        before = _changed(self.wait_for)
        self.child.send_signal(self.save_signal)
        if self.wait_for is None:
            return  # nothing tells when it is done
        give_up = time.monotonic() + self.save_timeout
        while _changed(self.wait_for) == before:
            if self.child.poll() is not None:
                return  # it ended, perhaps after a save; its exit status tells
            if time.monotonic() > give_up:
                raise SaveFailed(f"{self.wait_for} did not change within {self.save_timeout:g} s")
            self._wait_in_save()

    def _save_by_command(self, command: str, reason: str) -> None:
        """Run the save command; what it writes to its path becomes the newest checkpoint."""
        files = self._hook.files if self._hook is not None else None
        with self._paused():
            if files is None:
                self._run_command(command, reason, None)
                return
            with contextlib.suppress(_NothingWritten), files.writing() as path:
                self._run_command(command, reason, path)
                if not os.path.lexists(path):
                    raise _NothingWritten

    @contextlib.contextmanager
    def _paused(self) -> Iterator[None]:
        """Stop the program and its children, so that files do not change while they are copied."""
        assert self.child is not None
        pids = process_tree("/proc", self.child.pid) if self.pause else set()
        try:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _run_command(self, command: str, reason: str, path: Optional[str]) -> None:
        environment = dict(os.environ, CONDOR_CHECKPOINT_REASON=reason)
        if self.child is not None:
            environment["CONDOR_CHECKPOINT_PID"] = str(self.child.pid)
        if path is not None:
            environment["CONDOR_CHECKPOINT_PATH"] = os.path.abspath(path)
        process = subprocess.Popen(
            command,
            shell=True,
            env=environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            preexec_fn=_in_child(),
        )
        give_up = time.monotonic() + self.save_timeout
        try:
            while process.poll() is None:
                if time.monotonic() > give_up:
                    raise SaveFailed(f"{command}: not done after {self.save_timeout:g} s")
                self._wait_in_save()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode != 0:
            raise SaveFailed(f"{command}: exit status {process.returncode}")


def _in_child() -> Callable[[], None]:
    """Return what a child does between fork and exec.

    It unblocks the signals, since it inherits the mask, and asks the kernel to kill it when the
    wrapper dies. The wrapper may have died before that.
    """
    prctl: Any = None
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        if prctl is not None:
            prctl(PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)

    return prepare


def _changed(path: Optional[str]) -> Optional[int]:
    try:
        return os.stat(path).st_mtime_ns if path is not None else None
    except OSError:
        return None


def end_like(status: int) -> int:
    """End this process as the program ended: by the same signal, or with the same code."""
    if status >= 0:
        return status
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core file is enough
    number = -status
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    return 128 + number


def signal_number(name: str) -> int:
    """Return the number of a signal given as USR1, SIGUSR1 or 10."""
    if name.isdigit():
        return int(name)
    upper = name.upper()
    try:
        return signal.Signals[upper if upper.startswith("SIG") else "SIG" + upper]
    except KeyError:
        raise ValueError(f"no signal is called {name}") from None


def split_program(words: List[str]) -> List[str]:
    """Return the program and its arguments, without the -- before them."""
    return words[1:] if words[:1] == ["--"] else words
