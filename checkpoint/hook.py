"""The hook: watches the job, and asks the program to save at the right moments.

The program calls `poll()` at its safe points. Nothing is saved in a signal handler or, unless
asked for, in another thread: these only leave word for the next poll. The hook is never the
cause of a failure: what goes wrong in it, or in a save, is one line on stderr, and the job
goes on.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import pkgutil
import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    Optional,
    Sequence,
    Set,
    Tuple,
    Type,
    TypeVar,
    Union,
)

from condor_checkpoint.condor import Job, number
from condor_checkpoint.files import CheckpointFiles
from condor_checkpoint.journal import Journal, blend
from condor_checkpoint.policy import (
    DEADLINE,
    NEVER,
    PREDICTED,
    TIME,
    Alarm,
    Card,
    Decision,
    Periodic,
    Policy,
    Situation,
    Weighed,
    make_policy,
)
from condor_checkpoint.risk import RAISED, Risk, Trees, load_trees
from condor_checkpoint.sample import Sample, Sampler

EXPLICIT = "explicit"
VACATE = "vacate"

# Before the first save its cost is not known; this is what it is taken for.
FIRST_COST = 5.0
# Saving falls back to this period when a policy breaks.
SAFE_PERIOD = 3600.0
# A poll looks around at least this often, in seconds.
LOOK = 60.0

_now = time.monotonic
F = TypeVar("F", bound=Callable[..., Any])


class SaveTimeout(BaseException):
    """A save took too long and was broken off. Not an Exception, so that it passes through
    a save that catches every error of its own."""


def say(text: str) -> None:
    """Print one line on stderr; there is nothing to do when even that fails."""
    with contextlib.suppress(Exception):
        print(f"condor_checkpoint: {text}", file=sys.stderr, flush=True)


def bundled_trees() -> Optional[Trees]:
    """Return the model that came with the package, also from inside a .pyz."""
    data = pkgutil.get_data("condor_checkpoint", "model.json")
    return load_trees(data.decode("utf-8")) if data else None


class Checkpoint:
    """Asks for a save when one is due.

        with Checkpoint(save=my_save) as checkpoint:
            for step in steps:
                work(step)
                checkpoint.poll()

    save            called with the reason, at a poll; returns when the state is safe
    directory       where checkpoints go; also keeps what one run tells the next
    period          "auto", or seconds between saves, or None for no periodic saves
    policy          "ours", "young", "daly", "predictor", "either", or a Policy
    mtbf            seconds between failures, if you know better than the default
    cost            seconds that a save takes, as a guess until the first one is measured
    exit_after      exit with this code after each save, for HTCondor to take the checkpoint
                    away and restart the job in place; "auto": what the job ad says
    signals         signals upon which to save and then end
    interval        seconds between samples of the job's usage; 0 for none
    threaded        save from the watching thread instead of at a poll
    save_timeout    seconds after which a save is broken off
    model           path of a trained model; "auto" for the bundled one, None for none
    on_sample       called with every sample, in the watching thread
    """

    def __init__(
        self,
        save: Optional[Callable[[str], Any]] = None,
        *,
        directory: Optional[str] = None,
        period: Union[str, float, None] = "auto",
        policy: Union[str, Policy] = "ours",
        mtbf: Optional[float] = None,
        cost: float = FIRST_COST,
        exit_after: Union[int, str, None] = None,
        signals: Sequence[int] = (signal.SIGTERM,),
        interval: float = 5.0,
        threaded: bool = False,
        save_timeout: Optional[float] = None,
        model: Optional[str] = "auto",
        sampler: Optional[Sampler] = None,
        on_sample: Optional[Callable[[Sample], None]] = None,
    ) -> None:
        self._save = save
        self._on_sample = on_sample
        self._signals = tuple(signals)
        self._interval = interval
        self._threaded = threaded
        self._first_cost = cost
        self._save_timeout = save_timeout
        self._said: Set[str] = set()
        self.job = sampler.job if sampler else Job()
        self.files: Optional[CheckpointFiles] = None
        journal = None
        if directory is not None:
            try:
                self.files = CheckpointFiles(directory)
                journal = os.path.join(directory, "journal.json")
            except OSError as error:
                self._say_once(f"{directory}: {error}; what this run learns will be forgotten")
        self.journal = Journal(journal, self.job)
        self._sampler = sampler
        trees = self._load_trees(model)
        self.policy = self._make_policy(policy, period, mtbf, trees)
        self.risk = Risk(interval or 5.0, trees)
        self._exit_after = self.accepted_exit_code(exit_after)
        self.alarms: Tuple[Alarm, ...] = ()
        self.reason = ""  # why the next look may save
        self.saves = 0
        self._failed_saves = 0
        self._asked = ""  # a save that must come, whatever the policy says
        self._stop_signal = 0
        self._exit_code: Optional[int] = None
        self._saving = False
        self._last_save = self._begun = _now()
        self._not_before = 0.0  # after a failed save
        self._next = self._last_save  # the next poll that has anything to do
        self._polls = self._polls_seen = 0
        self._gap = 0.0  # seconds between polls
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._closed = True
        self._old_handlers: Dict[int, Any] = {}
        self._thread: Optional[threading.Thread] = None

    # ---- setting up

    def _load_trees(self, model: Optional[str]) -> Optional[Trees]:
        if model is None:
            return None
        try:
            if model == "auto":
                return bundled_trees()
            with open(model, encoding="utf-8") as file:
                return load_trees(file.read())
        except Exception as error:
            self._say_once(f"model {model}: {error}; going on without a learned model")
            return None

    def _make_policy(
        self,
        policy: Union[str, Policy],
        period: Union[str, float, None],
        mtbf: Optional[float],
        trees: Optional[Trees],
    ) -> Policy:
        if isinstance(policy, Policy):
            return policy
        card = Card()
        if trees is not None:
            leads = tuple(lead * (self._interval or 5.0) for lead in trees.leads)
            card = Card(card.mtbf, trees.card.recall, trees.card.precision, leads)
        if mtbf is not None:
            card = card._replace(mtbf=mtbf)
        if period == "auto":
            made = make_policy(policy, card)
        elif period is None:
            made = Weighed(card, NEVER)
        else:
            made = Weighed(card, float(period))
        made.survived(self.journal.seconds)
        for failure in self.journal.failures:
            made.failed(bool(failure["announced"]), float(failure["point"]))
        for _ in range(self.journal.false_alarms):
            made.alarm_ended(False)
        return made

    def accepted_exit_code(self, exit_after: Union[int, str, None]) -> Optional[int]:
        """Return the code to exit with after a save; None if HTCondor would call it a failure."""
        if exit_after is None:
            return None
        expected = number(self.job.ad, "SuccessCheckpointExitCode")
        if expected is None:
            expected = number(self.job.ad, "CheckpointExitCode")
        if exit_after == "auto":
            return int(expected) if expected is not None else None
        if self.job.ad and expected != float(exit_after):
            self._say_once(
                f"exit_after={exit_after}, but the submit description does not say "
                f"checkpoint_exit_code = {exit_after}; not exiting after saves"
            )
            return None
        return int(exit_after)

    def __enter__(self) -> Checkpoint:
        self.start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if kind is None:
            self.close("done")
        else:
            self.close("checkpoint" if self._exit_code is not None else "error")

    def start(self) -> None:
        """Begin to watch."""
        if not self._closed:
            return
        self._closed = False
        self._last_save = self._begun = _now()
        self.journal.note(0.0, False)  # found like this by the next run, it was cut off
        if threading.current_thread() is threading.main_thread():
            for number_ in self._signals:
                self._old_handlers[number_] = signal.getsignal(number_)
                signal.signal(number_, self._on_signal)
        elif self._signals:
            self._say_once("not started from the main thread; signals will not be seen")
        if self._interval > 0.0 or self._threaded:
            self._thread = threading.Thread(
                target=self._watch, name="condor_checkpoint", daemon=True
            )
            self._thread.start()
        self._consider()

    def close(self, how: str = "done") -> None:
        """Stop watching, and note how the run ended."""
        if self._closed:
            return
        self._closed = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)
        for number_, handler in self._old_handlers.items():
            with contextlib.suppress(ValueError, TypeError):
                if signal.getsignal(number_) == self._on_signal:
                    signal.signal(number_, handler)
        self._old_handlers.clear()
        self.journal.note(_now() - self._last_save, self._alarmed(), how)

    # ---- what the program calls

    def poll(self) -> bool:
        """Save if a save is due; return whether one was made. Call it at safe points."""
        self._polls += 1
        if _now() < self._next:
            return False
        return self._look()

    def due(self) -> str:
        """Return the reason for which a save is due, or "". For programs that save themselves.

        Tell `saved()` when the save is done.
        """
        if self._asked:
            return self._asked
        now = _now()
        if now < self._next or self._closed:
            return ""
        decision = self._consider()
        return decision.reason if decision.wait <= 0.0 and now >= self._not_before else ""

    def saved(self, seconds: float, reason: str = EXPLICIT) -> None:
        """Tell that a save was made, and how long it took."""
        with self._lock:
            now = _now()
            self.saves += 1
            self._failed_saves = 0
            self.journal.cost = blend(self.journal.cost, seconds)
            self.journal.saves += 1
            self.journal.point += max(0.0, now - seconds - self._last_save)
            self._last_save = now
            # Whatever is said of the risk, no more than half the time goes into saves, and
            # there is nothing new to know before the next sample.
            self._not_before = now + max(seconds, self._interval)
            self._asked = ""
            leaving = self._exit_after is not None or self._stop_signal
            self.journal.note(0.0, self._alarmed(), "checkpoint" if leaving else "")
        self._warn_of_loss(reason)
        self.job.chirp(
            {
                "ChirpCheckpointTime": int(time.time()),
                "ChirpCheckpointReason": reason,
                "ChirpCheckpointSeconds": round(seconds, 3),
                "ChirpCheckpointCount": self.saves,
            }
        )
        self._consider()

    def _warn_of_loss(self, reason: str) -> None:
        """Say when HTCondor will not carry this checkpoint out of the scratch directory.

        Seen with 25.14: a hold for memory transfers nothing, not even with ON_EXIT_OR_EVICT,
        and an eviction transfers nothing without it, not even after the checkpoint exit code.
        """
        scratch = self.job.scratch
        if self.files is None or scratch is None:
            return
        inside = os.path.realpath(self.files.directory).startswith(os.path.realpath(scratch))
        on_eviction = self.job.ad.get("WhenToTransferOutput") == "ON_EXIT_OR_EVICT"
        if inside and reason == VACATE and not on_eviction:
            self._say_once(
                "this checkpoint is lost with the scratch directory; add when_to_transfer_output "
                "= ON_EXIT_OR_EVICT and name it in transfer_output_files"
            )
        elif inside and reason in (PREDICTED, DEADLINE) and self._exit_after is None:
            self._say_once(
                "this checkpoint is lost if the job is held; add checkpoint_exit_code = 85 and "
                'transfer_checkpoint_files, and use exit_after="auto"'
            )

    def request(self, reason: str = EXPLICIT) -> None:
        """Ask for a save at the next poll."""
        self._asked = reason
        self._next = 0.0
        self._wake.set()

    # ---- deciding

    def _situation(self, now: float) -> Situation:
        cost = self._first_cost if self.journal.cost is None else self.journal.cost
        if self._exit_after is not None:
            # The checkpoint is carried away and the job started anew after each save.
            restart = self.journal.restart
            cost += self._first_cost if restart is None else restart
        unsaved = now - self._last_save
        # Twice the mean covers a save that is slower because the node is in trouble.
        return Situation(
            now,
            self.journal.point + unsaved,
            unsaved,
            self._last_save,
            cost,
            2.0 * cost + self._gap,
            self.alarms,
        )

    def _consider(self) -> Decision:
        """Ask the policy, and set when a poll next has something to do."""
        with self._lock:
            now = _now()
            situation = self._situation(now)
            try:
                decision = self.policy.decide(situation)
                self._warn_of_repeats(situation)
            except Exception as error:
                self._say_once(f"the policy failed ({error!r}); saving every {SAFE_PERIOD:g} s")
                self.policy = Periodic(lambda cost: SAFE_PERIOD, "fallback")
                decision = self.policy.decide(situation)
            self.reason = decision.reason
            self._next = (
                0.0 if self._asked else max(self._not_before, now + min(decision.wait, LOOK))
            )
            return decision

    def _warn_of_repeats(self, situation: Situation) -> None:
        if isinstance(self.policy, Weighed) and self.policy.repeats(situation):
            for alarm in situation.alarms:
                if alarm.probability >= RAISED and alarm.cause != TIME:
                    self._say_once(
                        f"the last {self.policy.REPEATS} runs failed at this point, and "
                        f"{alarm.cause} is running out again: a save here would only restart "
                        f"into the same failure, so none is made; change the job"
                    )

    def _look(self) -> bool:
        if self._closed or self._saving:
            self._next = _now() + LOOK
            return False
        reason = self.due()
        if not reason:
            if not self._asked and self._next <= _now():
                self._next = _now() + 1.0
            return False
        if self._save is None:
            return False  # the program asks due() and saves by itself
        return self._run_save(reason)

    def _run_save(self, reason: str) -> bool:
        assert self._save is not None
        begun = _now()
        self._saving = True
        try:
            with self._time_limit():
                self._save(reason)
        except (Exception, SaveTimeout) as error:
            self._save_failed(reason, error)
            good = False
        else:
            self.saved(_now() - begun, reason)
            good = True
        finally:
            self._saving = False
        self._leave(good)
        return good

    def _save_failed(self, reason: str, error: BaseException) -> None:
        self._failed_saves += 1
        self._asked = ""
        wait = min(SAFE_PERIOD, 30.0 * 2.0 ** (self._failed_saves - 1))
        self._not_before = _now() + wait
        what = str(error) or type(error).__name__
        say(
            f"the save ({reason}) failed: {type(error).__name__}: {what}; the job goes on, the "
            f"checkpoint before it stands, next try in {wait:g} s"
        )
        self._consider()

    def _leave(self, good: bool) -> None:
        """End the program where that is what a save was for."""
        if self._stop_signal:
            code = (
                self._exit_after
                if good and self._exit_after is not None
                else 128 + self._stop_signal
            )
        elif good and self._exit_after is not None:
            code = self._exit_after
        else:
            return
        self._exit_code = code
        if threading.current_thread() is threading.main_thread():
            raise SystemExit(code)
        self._end_from_thread(code)

    def _end_from_thread(self, code: int) -> None:
        self.close("checkpoint")
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)

    @contextlib.contextmanager
    def _time_limit(self) -> Iterator[None]:
        """Break off a save that hangs, with an alarm signal that nobody else uses.

        Only Python code and interruptible system calls can be broken off, and only in the
        main thread.
        """
        seconds = self._save_timeout
        if seconds is None:
            seconds = 3600.0 if self.journal.cost is None else max(600.0, 10 * self.journal.cost)
        if (
            seconds == NEVER
            or threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL
            or signal.getitimer(signal.ITIMER_REAL)[0] > 0.0
        ):
            yield
            return

        def break_off(signum: int, frame: Optional[FrameType]) -> None:
            raise SaveTimeout(f"not done after {seconds:g} s")

        signal.signal(signal.SIGALRM, break_off)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)

    # ---- watching

    def _on_signal(self, signum: int, frame: Optional[FrameType]) -> None:
        """Leave word for the next poll; then let the program's own handler have its turn."""
        old = self._old_handlers.get(signum)
        self._asked = VACATE
        self._next = 0.0
        if callable(old):
            old(signum, frame)  # it decides whether to end
        elif old is not signal.SIG_IGN:
            self._stop_signal = signum
        self._wake.set()

    def _watch(self) -> None:
        interval = self._interval or 5.0
        try:
            sampler = self._sampler or Sampler(self.job)
            while not self._closed:
                if self._interval > 0.0:
                    self._take_sample(sampler)
                self._consider()
                if self._threaded and self._save is not None and _now() >= self._next:
                    self._look()
                self._wake.wait(interval)
                self._wake.clear()
        except Exception as error:
            self.alarms = ()
            self._say_once(f"watching failed ({error!r}); saving by the period only")

    def _take_sample(self, sampler: Sampler) -> None:
        polls, self._polls_seen = self._polls - self._polls_seen, self._polls
        waited = _now() - self._begun
        # Without a poll in this interval the gap is at least as long as the interval.
        self._gap = (
            min(self._gap + self._interval, waited)
            if polls == 0
            else min(self._interval / polls, waited)
        )
        sample = sampler.take()
        if self._on_sample is not None:
            self._on_sample(sample)
        self.alarms = self.risk.add(sample, _now())
        for _ in range(self.risk.ended_alarms):
            self.journal.false_alarms += 1
            self.policy.alarm_ended(False)
        self.risk.ended_alarms = 0
        if self._alarmed():
            self.journal.note(_now() - self._last_save, True)

    def _alarmed(self) -> bool:
        return any(alarm.probability >= RAISED for alarm in self.alarms)

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            say(text)


class AsyncCheckpoint(Checkpoint):
    """The same for asyncio: `save` may be a coroutine function, and poll is awaited.

    async with AsyncCheckpoint(save=my_save) as checkpoint:
        async for step in steps:
            await work(step)
            await checkpoint.apoll()
    """

    async def __aenter__(self) -> AsyncCheckpoint:
        self.start()
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.__exit__(kind, value, trace)

    async def apoll(self) -> bool:
        """Save if a save is due; other tasks run while an asynchronous save waits."""
        self._polls += 1
        if _now() < self._next or self._closed or self._saving or self._save is None:
            return False
        reason = self.due()
        if not reason:
            return False
        begun = _now()
        self._saving = True
        try:
            result = self._save(reason)
            if inspect.isawaitable(result):
                await result
        except Exception as error:
            self._save_failed(reason, error)
            good = False
        else:
            self.saved(_now() - begun, reason)
            good = True
        finally:
            self._saving = False
        self._leave(good)
        return good


def checkpointed(save: Callable[[str], Any], **settings: Any) -> Callable[[F], F]:
    """Decorate a function that takes a `checkpoint` argument and polls it.

    @checkpointed(save=my_save)
    def main(checkpoint): ...
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with Checkpoint(save, **settings) as checkpoint:
                return function(*args, checkpoint=checkpoint, **kwargs)

        return run  # type: ignore[return-value]

    return decorate
