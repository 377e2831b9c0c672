"""The hook: watches the job, and asks the program to save at the right moments.

The program calls `poll()` at its safe points. Nothing is saved in a signal handler or, unless
asked for, in another thread: these only leave a request for the next poll. The hook never fails
the job: an error in the hook, or in a save, is one line on stderr, and the job goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import math
import os
import pkgutil
import queue
import signal
import sys
import threading
import time
import warnings
from types import FrameType, TracebackType
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    NoReturn,
    Optional,
    Sequence,
    Set,
    Tuple,
    Type,
    TypeVar,
    Union,
    cast,
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
from condor_checkpoint.robust import describe, finite, read_text, say
from condor_checkpoint.sample import Sample, Sampler

EXPLICIT = "explicit"
VACATE = "vacate"

# The assumed cost of a save before the first one is measured, in seconds.
FIRST_COST = 5.0
# Seconds between samples of the usage.
INTERVAL = 5.0
# Saving falls back to this period when a policy breaks.
SAFE_PERIOD = 3600.0
# The longest time between two decisions, in seconds.
LOOK = 60.0
# The longest time that a thread may wait, in seconds; Python refuses much longer ones.
LONGEST_WAIT = 86400.0
# The watch ends after this many samples in a row that could not be taken.
MOST_BAD_SAMPLES = 5

_now = time.monotonic
F = TypeVar("F", bound=Callable[..., Any])


class SaveTimeout(BaseException):
    """A save took too long and was interrupted.

    Not an Exception, so that a save that catches all its errors does not catch this one.
    """


def bundled_trees() -> Optional[Trees]:
    """Return the model that came with the package, also from inside a .pyz."""
    data = pkgutil.get_data("condor_checkpoint", "model.json")
    return load_trees(data.decode("utf-8")) if data else None


def harmless(fallback: Any) -> Callable[[F], F]:
    """Decorate a method of the hook: an error in it becomes one line and this result."""

    def decorate(method: F) -> F:
        @functools.wraps(method)
        def run(self: Checkpoint, *args: Any, **kwargs: Any) -> Any:
            try:
                return method(self, *args, **kwargs)
            except BaseException as error:
                if self.belongs_to_program(error):
                    raise
                self._next = _now() + 1.0
                self._say_once(f"{describe(error)} in {method.__name__}; the job goes on")
                return fallback

        return cast(F, run)

    return decorate


def _code(function: Any) -> Any:
    """Return the code that a Python callable runs; None for one that is not Python."""
    function = getattr(function, "func", function)  # of a partial
    if not hasattr(function, "__code__"):
        function = getattr(function, "__call__", None)  # noqa: B004, of an object
    return getattr(function, "__code__", None)


# ---- forks

# A child that is forked, by multiprocessing for one, inherits the handlers of the hook. It must
# not: terminate() would leave it a request for a poll that never comes. The signals are blocked
# during the fork, so one that arrives before the handlers are undone is not lost.
_started: Set[Checkpoint] = set()
_forking = threading.local()


def _before_fork() -> None:
    signals = {number_ for hook in tuple(_started) for number_ in hook.handled_signals()}
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals) if signals else None


def _after_fork_in_parent() -> None:
    mask = getattr(_forking, "mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_fork_in_child() -> None:
    for hook in tuple(_started):
        hook.stay_with_parent()
    _started.clear()
    _after_fork_in_parent()


@functools.lru_cache(maxsize=None)
def _watch_forks() -> None:
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )


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
    exit_after      exit with this code after each save, so that HTCondor transfers the
                    checkpoint and restarts the job in place; "auto": the code in the job ad
    signals         signals on which to save and then exit
    interval        seconds between samples of the job's usage; 0 for none
    threaded        save from the watching thread instead of at a poll
    save_timeout    seconds after which a save is interrupted
    model           path of a trained model; "auto" for the bundled one, None for none
    on_sample       called with every sample, in the watching thread

    Errors never reach the program. A setting that makes no sense is named on stderr and
    replaced by its default. Whatever a save raises, SystemExit too, is a failed save. Two things
    pass through, because the program would have met them without the hook as well:
    KeyboardInterrupt, and what a signal handler of the program raises during a save.
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
        interval: float = INTERVAL,
        threaded: bool = False,
        save_timeout: Optional[float] = None,
        model: Optional[str] = "auto",
        sampler: Optional[Sampler] = None,
        on_sample: Optional[Callable[[Sample], None]] = None,
    ) -> None:
        self._save = save
        self._on_sample = on_sample
        self._threaded = threaded
        self._sampler = sampler
        self._said: Set[str] = set()
        self.alarms: Tuple[Alarm, ...] = ()
        self.reason = ""  # why the next decision may save
        self.saves = 0
        self._failed_saves = 0
        self._asked = ""  # a save that must come, whatever the policy says
        self._cause = ""  # what the alarm was about for which a save is due
        self._stop_signal = 0
        self._exit_code: Optional[int] = None
        self._saving = False
        self._limiting = False  # the alarm signal is ours, for the time limit of a save
        self._last_save = self._begun = _now()
        self._not_before = 0.0  # after a failed save
        self._next = self._last_save  # the next poll that has anything to do
        self._polls = self._polls_seen = 0
        self._gap = 0.0  # seconds between polls
        self._closed = True
        self._handling = False
        self._old_handlers: Dict[int, Any] = {}
        self._thread: Optional[threading.Thread] = None
        self._renew_locks()

        self._signals: Tuple[int, ...] = self._attempt(
            "signals", lambda: tuple(int(number_) for number_ in signals), (signal.SIGTERM,)
        )
        self._interval = self._setting("interval", interval, INTERVAL)
        self._first_cost = self._setting("cost", cost, FIRST_COST)
        self._save_timeout = save_timeout
        if save_timeout is not None and save_timeout != NEVER:
            self._save_timeout = self._setting("save_timeout", save_timeout, SAFE_PERIOD)
        self.job: Job = self._attempt("job ad", lambda: sampler.job if sampler else Job(), Job({}))
        self.files: Optional[CheckpointFiles] = None
        if directory is not None:
            self.files = self._attempt("directory", lambda: CheckpointFiles(directory), None)
        self.journal = Journal(
            os.path.join(self.files.directory, "journal.json") if self.files else None, self.job
        )
        trees = self._load_trees(model)
        self.policy: Policy = self._attempt(
            "policy",
            lambda: self._make_policy(policy, period, mtbf, trees),
            Periodic(lambda cost: SAFE_PERIOD, "fallback"),
        )
        self.risk = Risk(self._interval or INTERVAL, trees)
        self._exit_after = self.accepted_exit_code(exit_after)

    # ---- setting up

    def _renew_locks(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        # Unlike an Event, a SimpleQueue may be used in a signal handler.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()

    def _attempt(self, name: str, make: Callable[[], Any], default: Any) -> Any:
        """Return what `make` returns; after an error, say so and return the default."""
        try:
            return make()
        except BaseException as error:
            if self.belongs_to_program(error):
                raise
            self._say_once(f"{name}: {describe(error)}; using the default")
            return default

    def _setting(self, name: str, value: Any, default: float) -> float:
        seconds = finite(value, 0.0)
        if seconds is None:
            self._say_once(f"{name}={value!r} is not a number of seconds; using {default:g}")
            return default
        return seconds

    def _load_trees(self, model: Optional[str]) -> Optional[Trees]:
        if model is None:
            return None
        try:
            if model == "auto":
                return bundled_trees()
            text = read_text(model)
            if text is None:
                raise ValueError("not a readable file")
            return load_trees(text)
        except Exception as error:
            self._say_once(f"model {model}: {describe(error)}; going on without a learned model")
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
            leads = tuple(lead * (self._interval or INTERVAL) for lead in trees.leads)
            card = Card(card.mtbf, trees.card.recall, trees.card.precision, leads)
        if mtbf is not None:
            card = card._replace(mtbf=self._setting("mtbf", mtbf, card.mtbf) or card.mtbf)
        if period is None:
            made: Policy = Weighed(card, NEVER)
        elif period == "auto":
            made = self._attempt("policy", lambda: make_policy(str(policy), card), Weighed(card))
        else:
            made = Weighed(card, self._setting("period", period, SAFE_PERIOD))
        made.survived(self.journal.seconds)
        for failure in self.journal.failures:
            made.failed(failure["announced"], failure["point"])
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
        code = expected if exit_after == "auto" else finite(exit_after)
        if code is None or not 0 <= code <= 255 or code != int(code):
            if exit_after != "auto":
                self._say_once(f"exit_after={exit_after!r} is not an exit code; not exiting")
            return None
        if self.job.ad and expected != code:
            self._say_once(
                f"exit_after={exit_after}, but the submit description does not say "
                f"checkpoint_exit_code = {exit_after}; not exiting after saves"
            )
            return None
        return int(code)

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

    @harmless(None)
    def start(self) -> None:
        """Begin to watch."""
        if not self._closed:
            return
        if self._pid != os.getpid():
            self._renew_locks()
        self._closed = False
        self._last_save = self._begun = _now()
        with self._lock:
            self.journal.note(0.0, False)  # an entry still open at the next start was cut off
        _watch_forks()
        _started.add(self)
        self._install_handlers()
        if self._interval > 0.0 or self._threaded:
            self._start_thread()
        self._consider()

    def _install_handlers(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            if self._signals:
                self._say_once("not started from the main thread; signals will not be seen")
            return
        for number_ in self._signals:
            try:
                handler = signal.getsignal(number_)
                if handler is None:
                    raise ValueError("it has a handler that is not written in Python")
                self._old_handlers[number_] = handler
                signal.signal(number_, self._on_signal)
            except (OSError, ValueError) as error:
                self._old_handlers.pop(number_, None)
                self._say_once(f"signal {number_}: {error}; no save when it arrives")

    def _start_thread(self) -> None:
        if threading.active_count() == 1:
            # From Python 3.12 a fork next to a thread draws this warning, and with -W error it
            # ends the program. Our thread leaves nothing in a state that a child could miss.
            warnings.filterwarnings("ignore", r".*multi-threaded, use of fork", DeprecationWarning)
        thread = threading.Thread(target=self._watch, name="condor_checkpoint", daemon=True)
        try:
            thread.start()
            self._thread = thread
        except Exception as error:
            lost = "no saves" if self._threaded else "saving by the period only"
            self._say_once(f"cannot start the watching thread ({describe(error)}); {lost}")

    @harmless(None)
    def close(self, how: str = "done") -> None:
        """Stop watching, and note how the run ended."""
        if self._closed:
            return
        self._closed = True
        _started.discard(self)
        self._wake.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)
        self._restore_handlers()
        with self._lock:
            self.journal.note(_now() - self._last_save, self._alarmed(), how)

    def _restore_handlers(self) -> None:
        # Entries stay: a handler that was installed over ours may still call ours.
        for number_, handler in self._old_handlers.items():
            with contextlib.suppress(OSError, ValueError, TypeError):
                if signal.getsignal(number_) == self._on_signal:
                    signal.signal(number_, handler)

    def handled_signals(self) -> List[int]:
        """Return the signals for which the hook has a handler now."""
        own = list(self._old_handlers)
        return [*own, signal.SIGALRM] if self._limiting else own

    def stay_with_parent(self) -> None:
        """In a forked child: undo the handlers, and be a hook that was never started."""
        self._closed = True
        self._restore_handlers()
        if self._limiting:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the timer is not inherited
            self._limiting = False
        self._asked, self._stop_signal, self._thread = "", 0, None
        self._renew_locks()  # the watching thread may have held the lock

    def belongs_to_program(self, error: BaseException) -> bool:
        """Whether an error would have reached the program without the hook, too.

        That is Ctrl-C, and what a signal handler of the program raises. The program may have
        registered its save as a handler; an error of that one is still a failed save.
        """
        if isinstance(error, KeyboardInterrupt):
            return True
        if isinstance(error, SaveTimeout):
            return False
        with contextlib.suppress(BaseException):
            handlers = [signal.getsignal(number_) for number_ in signal.valid_signals()]
            codes = {_code(handler) for handler in (*handlers, *self._old_handlers.values())}
            codes -= {None, _code(self._save)}
            trace = error.__traceback__
            while trace is not None:
                if trace.tb_frame.f_code in codes:
                    return True
                trace = trace.tb_next
        return False

    # ---- what the program calls

    def poll(self) -> bool:
        """Save if a save is due; return whether one was made. Call it at safe points."""
        self._polls += 1
        if _now() < self._next:
            return False
        return self._look()

    @harmless("")
    def due(self) -> str:
        """Return the reason for which a save is due, or "". For programs that save themselves.

        Call `saved()` when the save is done.
        """
        if self._closed:
            return ""
        if self._asked:
            return self._asked
        now = _now()
        if now < self._next:
            return ""
        decision = self._consider()
        if decision.wait > 0.0 or now < self._not_before:
            return ""
        self._cause = self._find_cause(decision.reason)
        return decision.reason

    @harmless(None)
    def saved(self, seconds: float, reason: str = EXPLICIT) -> None:
        """Tell the hook that a save was made, and how long it took."""
        seconds = self._setting("seconds", seconds, 0.0)
        with self._lock:
            now = _now()
            work = max(0.0, now - seconds - self._last_save)
            self.saves += 1
            self._failed_saves = 0
            self.journal.cost = blend(self.journal.cost, seconds)
            self.journal.saves += 1
            self.journal.point += work
            self._last_save = now
            # Whatever the risk, at most half the time goes into saves, and nothing new is
            # known before the next sample.
            self._not_before = now + max(seconds, self._interval)
            self._asked = ""
            leaving = self._exit_after is not None or self._stop_signal
            self.journal.note(0.0, self._alarmed(), "checkpoint" if leaving else "")
        say(
            f"saved in {seconds:.3g} s: {self._explain(reason)}; "
            f"{work:.3g} s of work since the last save"
        )
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

    def _explain(self, reason: str) -> str:
        """Say why a save was made: the period, which alarm, or an eviction."""
        if reason == VACATE:
            number_ = self._stop_signal or signal.SIGTERM
            names = {int(known): known.name for known in signal.Signals}
            return f"eviction ({names.get(number_, number_)})"
        if reason in (PREDICTED, DEADLINE):
            return f"alarm ({reason}: {self._cause})" if self._cause else f"alarm ({reason})"
        return str(reason)

    def _warn_of_loss(self, reason: str) -> None:
        """Say when HTCondor will not carry this checkpoint out of the scratch directory.

        Seen with 25.14: a hold for memory transfers nothing, not even with ON_EXIT_OR_EVICT,
        and an eviction transfers nothing without it, not even after the checkpoint exit code.
        """
        scratch = self.job.scratch
        if self.files is None or scratch is None:
            return
        scratch = os.path.join(os.path.realpath(scratch), "")
        inside = os.path.realpath(self.files.directory).startswith(scratch)
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
        self._wake.put(None)

    # ---- deciding

    def _situation(self, now: float) -> Situation:
        cost = self._first_cost if self.journal.cost is None else self.journal.cost
        if self._exit_after is not None:
            # HTCondor transfers the checkpoint and restarts the job after each save.
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
                decision = Decision(*self.policy.decide(situation))
                if math.isnan(decision.wait):
                    raise ValueError("it waits for an undefined time")
                self._warn_of_repeats(situation)
            except BaseException as error:
                if self.belongs_to_program(error):
                    raise
                self._say_once(
                    f"the policy failed ({describe(error)}); saving every {SAFE_PERIOD:g} s"
                )
                self.policy = Periodic(lambda cost: SAFE_PERIOD, "fallback")
                decision = self.policy.decide(situation)
            self.reason = decision.reason
            self._next = (
                0.0 if self._asked else max(self._not_before, now + min(decision.wait, LOOK))
            )
            return decision

    @harmless("")
    def _find_cause(self, reason: str) -> str:
        """Return the causes of the alarms each of which alone would make the policy save."""
        situation = self._situation(_now())
        causes = []
        for alarm in self.alarms:
            if alarm.reason == reason:
                decision = self.policy.decide(situation._replace(alarms=(alarm,)))
                if decision.wait <= 0.0 and decision.reason == reason:
                    causes.append(alarm.cause)
        return ", ".join(causes)

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
        """Save if a save is due, and exit if that is what the save was for."""
        reason = self._reason_to_save()
        return bool(reason) and self._leave(self._run_save(reason))

    @harmless("")
    def _reason_to_save(self) -> str:
        if self._closed or self._saving:
            self._next = _now() + LOOK
            return ""
        reason = self.due()
        if not reason and not self._asked and self._next <= _now():
            self._next = _now() + 1.0
        if self._save is None:
            return ""  # the program asks due() and saves by itself
        return reason

    def _run_save(self, reason: str) -> bool:
        assert self._save is not None
        begun = _now()
        self._saving = True
        try:
            with self._time_limit():
                result = self._save(reason)
                if inspect.iscoroutine(result):
                    result.close()
                    raise TypeError("the save is a coroutine function; use AsyncCheckpoint")
        except BaseException as error:
            if self.belongs_to_program(error):
                raise
            self._save_failed(reason, error)
            return False
        finally:
            self._end_time_limit()
            self._saving = False
        self.saved(_now() - begun, reason)
        return True

    @harmless(None)
    def _save_failed(self, reason: str, error: BaseException) -> None:
        self._failed_saves += 1
        self._asked = ""
        wait = min(SAFE_PERIOD, 30.0 * 2.0 ** min(self._failed_saves - 1, 20))
        self._not_before = _now() + wait
        say(
            f"the save ({reason}) failed: {describe(error)}; the job goes on, the "
            f"checkpoint before it stands, next try in {wait:g} s"
        )
        self._consider()

    def _leave(self, good: bool) -> bool:
        """End the program if that is what a save was for; else return whether it was good."""
        if self._stop_signal:
            code = (
                self._exit_after
                if good and self._exit_after is not None
                else 128 + self._stop_signal
            )
        elif good and self._exit_after is not None:
            code = self._exit_after
        else:
            return good
        self._exit_code = code
        if threading.current_thread() is threading.main_thread():
            raise SystemExit(code)
        return self._end_from_thread(code)

    def _end_from_thread(self, code: int) -> NoReturn:
        self.close("checkpoint")
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)

    @contextlib.contextmanager
    def _time_limit(self) -> Iterator[None]:
        """Interrupt a save that hangs, with an alarm signal that the program does not use.

        Only Python code and interruptible system calls can be interrupted, and only in the
        main thread.
        """
        seconds = self._save_timeout
        if seconds is None:
            seconds = 3600.0 if self.journal.cost is None else max(600.0, 10 * self.journal.cost)
        if (
            0.0 < seconds < NEVER
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
            and signal.getitimer(signal.ITIMER_REAL)[0] <= 0.0
        ):
            self._begin_time_limit(seconds)
        yield

    @harmless(None)
    def _begin_time_limit(self, seconds: float) -> None:
        def interrupt(signum: int, frame: Optional[FrameType]) -> None:
            if self._limiting:
                raise SaveTimeout(f"not done after {seconds:g} s")

        self._limiting = True
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    @harmless(None)
    def _end_time_limit(self) -> None:
        if self._limiting:
            self._limiting = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)

    # ---- watching

    def _on_signal(self, signum: int, frame: Optional[FrameType]) -> None:
        """Leave a request for the next poll; then call the program's own handler."""
        if self._handling:
            return  # a handler that was installed over ours calls ours, which calls it
        self._handling = True
        try:
            old = self._old_handlers.get(signum, signal.SIG_DFL)
            watching = not self._closed and os.getpid() == self._pid
            if watching:
                self._asked = VACATE
                self._next = 0.0
            if callable(old):
                old(signum, frame)  # it decides whether to end
            elif old is not signal.SIG_IGN and watching:
                self._stop_signal = signum
            elif old is not signal.SIG_IGN:
                signal.signal(signum, signal.SIG_DFL)
                os.kill(os.getpid(), signum)
            self._wake.put(None)
        finally:
            self._handling = False

    def _watch(self) -> None:
        wake, interval = self._wake, self._interval or INTERVAL
        bad = 0
        try:
            sampler = self._sampler or Sampler(self.job)
            while not self._closed:
                if self._interval > 0.0 and bad < MOST_BAD_SAMPLES:
                    bad = 0 if self._take_sample(sampler) else bad + 1
                self._consider()
                if self._threaded and self._save is not None and _now() >= self._next:
                    self._look()
                with contextlib.suppress(queue.Empty):
                    wake.get(timeout=min(interval, LONGEST_WAIT))
                    while True:
                        wake.get_nowait()
        except BaseException as error:
            self.alarms = ()
            self._say_once(f"watching failed ({describe(error)}); saving by the period only")

    def _take_sample(self, sampler: Sampler) -> bool:
        """Take a sample and update the alarms; return whether that worked."""
        polls, self._polls_seen = self._polls - self._polls_seen, self._polls
        waited = _now() - self._begun
        # Without a poll in this interval the gap is at least as long as the interval.
        self._gap = (
            min(self._gap + self._interval, waited)
            if polls == 0
            else min(self._interval / polls, waited)
        )
        try:
            sample = sampler.take()
            self._hand_on(sample)
            self.alarms = self.risk.add(sample, _now())
            for _ in range(self.risk.ended_alarms):
                self.journal.false_alarms += 1
                self.policy.alarm_ended(False)
            self.risk.ended_alarms = 0
        except BaseException as error:
            self.alarms = ()
            self._say_once(f"watching failed ({describe(error)}); saving by the period only")
            return False
        if self._alarmed():
            with self._lock:
                self.journal.note(_now() - self._last_save, True)
        return True

    def _hand_on(self, sample: Sample) -> None:
        if self._on_sample is None:
            return
        try:
            self._on_sample(sample)
        except BaseException as error:
            self._on_sample = None
            self._say_once(f"on_sample failed ({describe(error)}) and is not called again")

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
        if _now() < self._next:
            return False
        reason = self._reason_to_save()
        return bool(reason) and self._leave(await self._run_async_save(reason))

    async def _run_async_save(self, reason: str) -> bool:
        assert self._save is not None
        begun = _now()
        self._saving = True
        try:
            result = self._save(reason)
            if inspect.isawaitable(result):
                await result
        except (asyncio.CancelledError, GeneratorExit):
            raise  # somebody cancels the task that polls
        except BaseException as error:
            if self.belongs_to_program(error):
                raise
            self._save_failed(reason, error)
            return False
        finally:
            self._saving = False
        self.saved(_now() - begun, reason)
        return True


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
