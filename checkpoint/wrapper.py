"""Run any program, and save for it with a signal or a command.

Signals, streams and the exit status pass through unchanged. The wrapper is never the cause
of a failure: when something in it breaks, the program runs on alone.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import time
from typing import IO, Any, Dict, List, Optional, Sequence, Union

from condor_checkpoint.hook import VACATE, Checkpoint
from condor_checkpoint.robust import say
from condor_checkpoint.sample import Sample

# All that a program may be sent and that can be passed on. SIGCHLD tells of its end.
PASSED_ON = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGWINCH,
    signal.SIGCONT,
}
WATCHED = PASSED_ON | {signal.SIGCHLD}
# Seconds that a program has to end after its state was saved.
PATIENCE = 30.0


class SaveFailed(Exception):
    """The program or the command did not save."""


class Wrapper:
    """One program and the saves for it."""

    def __init__(
        self,
        program: Sequence[str],
        *,
        save_signal: Optional[int] = None,
        command: Optional[str] = None,
        wait_for: Optional[str] = None,
        save_timeout: float = 600.0,
        exit_after: Union[int, str, None] = None,
        record: Optional[str] = None,
        **settings: Any,
    ) -> None:
        self.program = list(program)
        self.save_signal, self.command, self.wait_for = save_signal, command, wait_for
        self.save_timeout, self.exit_after = save_timeout, exit_after
        self.record, self.settings = record, settings
        self.child: Optional[subprocess.Popen[bytes]] = None
        self._recorder: Optional[IO[str]] = None
        self._leaving = False
        self._ending = False  # told to end: what it uses now says nothing

    def run(self) -> int:
        """Run the program to its end; return its exit status, negative for a signal."""
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        try:
            # The mask is inherited, and the program must not have it.
            self.child = subprocess.Popen(
                self.program, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
            )
        except OSError as error:
            say(f"{self.program[0]}: {error.strerror}")
            return 126 if isinstance(error, PermissionError) else 127
        hook: Optional[Checkpoint] = None
        try:
            hook = self._hook()
            hook.start()
        except Exception as error:
            say(f"{error!r}; the program runs on without saves")
        try:
            status = self._attend(hook)
        except Exception as error:
            say(f"{error!r}; the program runs on without saves")
            status = self._attend(None)
        if hook is not None:
            hook.close("done" if status == 0 else "checkpoint" if self._leaving else "error")
        if self._recorder is not None:
            self._write({"ended": time.time(), "exit": status})
            self._recorder.close()
        return status

    def _hook(self) -> Checkpoint:
        can_save = self.save_signal is not None or self.command is not None
        if self.record is not None:
            self._recorder = open(self.record, "a", encoding="utf-8")  # noqa: SIM115
        # The time limit of a save is kept here: the hook's own would send us a signal.
        return Checkpoint(
            self._save if can_save else None,
            signals=(),
            save_timeout=math.inf,
            on_sample=self._on_sample if self._recorder else None,
            **self.settings,
        )

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

    def _attend(self, hook: Optional[Checkpoint]) -> int:
        """Pass on signals and poll for saves until the program has ended."""
        assert self.child is not None
        code = hook.accepted_exit_code(self.exit_after) if hook is not None else None
        kill_at = math.inf
        while True:
            if time.monotonic() > kill_at:
                self.child.kill()  # it has saved, and does not listen
            heard = signal.sigtimedwait(WATCHED, 1.0 if hook else 3600.0)
            status = self.child.poll()
            if status is not None:
                return code if self._leaving and code is not None else status
            if heard is not None and heard.si_signo != signal.SIGCHLD:
                if heard.si_signo == signal.SIGTERM and hook is not None:
                    hook.request(VACATE)  # the starter wants the slot: save, then pass it on
                    good = hook.poll()
                    self._leaving = good and code is not None
                if heard.si_signo == signal.SIGTERM:
                    self._ending = True
                self.child.send_signal(heard.si_signo)
            elif hook is not None and hook.poll() and code is not None:
                # HTCondor takes the checkpoint away and restarts the job with it.
                self._leaving = True
                kill_at = time.monotonic() + PATIENCE
                self.child.terminate()

    def _save(self, reason: str) -> None:
        """Have the state saved; return when that is done, raise when it is not."""
        assert self.child is not None
        if self.command is not None:
            self._run_command(reason)
            return
        assert self.save_signal is not None
        before = _changed(self.wait_for)
        self.child.send_signal(self.save_signal)
        if self.wait_for is None:
            return  # there is no way to know when it is done
        give_up = time.monotonic() + self.save_timeout
        while _changed(self.wait_for) == before:
            if self.child.poll() is not None:
                return  # it saved and ended, or ended: not for us to say
            if time.monotonic() > give_up:
                raise SaveFailed(f"{self.wait_for} did not change within {self.save_timeout:g} s")
            time.sleep(0.05)

    def _run_command(self, reason: str) -> None:
        assert self.child is not None
        assert self.command is not None
        environment = dict(
            os.environ, CONDOR_CHECKPOINT_PID=str(self.child.pid), CONDOR_CHECKPOINT_REASON=reason
        )
        process = subprocess.Popen(
            self.command,
            shell=True,
            env=environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED),
        )
        try:
            status = process.wait(self.save_timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise SaveFailed(f"{self.command}: not done after {self.save_timeout:g} s") from None
        if status != 0:
            raise SaveFailed(f"{self.command}: exit status {status}")


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
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
    os.kill(os.getpid(), number)
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
