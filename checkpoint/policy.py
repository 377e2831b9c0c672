"""When to save: Young, Daly, on alarms only, either, and ours, all behind one interface.

The hook and the simulator use the same policy objects, so the simulator measures what the
hook does.
"""

from __future__ import annotations

import math
from typing import Callable, NamedTuple, Optional, Sequence, Tuple

from condor_checkpoint import interval

NEVER = math.inf

PERIOD = "period"
PREDICTED = "predicted failure"
DEADLINE = "deadline"
TIME = "time"  # the cause of an alarm for a time limit, which is certain


class Alarm(NamedTuple):
    """A failure may be near: how likely, how soon, and of which resource.

    `leads` are equally likely times from `at` to the failure, in seconds and ascending,
    given that it comes. `since` is when the alarm was first raised; the same alarm may be
    refreshed with every sample.
    """

    probability: float
    leads: Tuple[float, ...]
    at: float
    since: float
    cause: str

    @property
    def reason(self) -> str:
        """The reason of a save for this alarm."""
        return DEADLINE if self.cause == TIME else PREDICTED


class Situation(NamedTuple):
    """The input of a policy. Times are seconds on one clock."""

    now: float
    point: float  # seconds of work done in all runs together, lost work left out
    unsaved: float  # seconds of it that a failure now would lose
    last_save: float  # when the last good save ended (or the run began)
    cost: float  # mean cost of a save, as measured
    need: float  # a save decided now is safely done after this long
    alarms: Tuple[Alarm, ...] = ()


class Decision(NamedTuple):
    """Save after `wait` seconds if nothing new is heard until then; 0 means now."""

    wait: float
    reason: str


WAIT = Decision(NEVER, "")


class Card(NamedTuple):
    """Assumptions about failures and the predictor; measured when a model is trained.

    `leads` are equally likely times from an alarm to its failure.
    """

    mtbf: float = 1e5
    recall: float = 0.0
    precision: float = 0.5
    leads: Tuple[float, ...] = ()


class Policy:
    """Decides when to save; this one never does."""

    name = "none"

    def decide(self, situation: Situation) -> Decision:
        """Return when the next save is due if nothing new is heard."""
        return WAIT

    def survived(self, seconds: float) -> None:
        """Count time that passed without a failure."""

    def failed(self, announced: bool, point: float) -> None:
        """Count a failure at a point of the work, and whether an alarm was raised then."""

    def alarm_ended(self, came_true: bool) -> None:
        """Count an alarm that was followed by a failure, or was not."""


class Periodic(Policy):
    """A save whenever a fixed stretch of work is unsaved."""

    def __init__(self, period: Callable[[float], float], name: str) -> None:
        self.period, self.name = period, name

    def decide(self, situation: Situation) -> Decision:
        """Wait for the rest of the period."""
        return Decision(max(0.0, self.period(situation.cost) - situation.unsaved), PERIOD)


class OnAlarm(Policy):
    """One save for every alarm, at once, and no other."""

    name = "predictor"

    def __init__(self, threshold: float = 0.5) -> None:
        self.threshold = threshold

    def decide(self, situation: Situation) -> Decision:
        """Save unless every alarm above the threshold had its save already."""
        if situation.unsaved > 0.0:
            for alarm in situation.alarms:
                if alarm.probability >= self.threshold and alarm.since >= situation.last_save:
                    return Decision(0.0, alarm.reason)
        return WAIT


class Either(Policy):
    """Save when the period says so or when the predictor does."""

    name = "either"

    def __init__(self, period: Policy, predictor: Policy) -> None:
        self.parts = (period, predictor)

    def decide(self, situation: Situation) -> Decision:
        """Take whichever comes first."""
        return min(part.decide(situation) for part in self.parts)


class Weighed(Policy):
    """Ours: a period for unannounced failures, and alarms weighed by expected loss.

    It differs from "either" in three ways. The period is stretched by the share of failures
    that are announced early enough to act. An alarm leads to a save if the work at risk, times
    the probability that the failure comes after the save is done, is worth more than the save;
    and then as late as is safe. The assumptions about failures and alarms are corrected by
    what the job observes.
    """

    name = "ours"

    # Weight of the card against the job's own experience, counted in failures (or alarms).
    PRIOR = 10.0
    # Failures at one point of the work after which the next one there is considered certain.
    REPEATS = 2

    def __init__(self, card: Card, fixed_period: Optional[float] = None) -> None:
        self.card = card
        self.fixed_period = fixed_period  # alarms are weighed, but the period is given
        self._seconds = 0.0
        self._failures = 0.0
        self._announced = 0.0
        self._alarms = 0.0
        self._true_alarms = 0.0
        self._failure_points: Tuple[float, ...] = ()
        self._period: Optional[Tuple[float, float]] = None  # for this cost, this period

    def survived(self, seconds: float) -> None:
        """Count time that passed without a failure."""
        self._seconds += seconds
        self._period = None

    def failed(self, announced: bool, point: float) -> None:
        """Count a failure at a point of the work, and whether an alarm was raised then."""
        self._failures += 1
        self._announced += announced
        self._failure_points = (*self._failure_points, point)[-self.REPEATS :]
        self._period = None

    def alarm_ended(self, came_true: bool) -> None:
        """Count an alarm that was followed by a failure, or was not."""
        self._alarms += 1
        self._true_alarms += came_true

    @property
    def mtbf(self) -> float:
        """The card's mean time between failures, corrected by this job's own."""
        return (self.PRIOR * self.card.mtbf + self._seconds) / (self.PRIOR + self._failures)

    @property
    def recall(self) -> float:
        """The share of failures that are announced at all."""
        return (self.PRIOR * self.card.recall + self._announced) / (self.PRIOR + self._failures)

    @property
    def trust(self) -> float:
        """The precision of alarms so far relative to the card's; 1 before the first."""
        prior = self.PRIOR * self.card.precision
        if prior <= 0.0:
            return 1.0
        return (prior + self._true_alarms) / (self.PRIOR + self._alarms) / self.card.precision

    def repeats(self, situation: Situation) -> bool:
        """Whether the failure ahead has already repeated at the same point of the work.

        Independent failures do not fall on one point of the work to within the time of a save.
        One that does is in the program or its data, and a checkpoint taken just before it
        restarts into it.
        """
        points = self._failure_points
        if len(points) < self.REPEATS:
            return False
        return (
            max(points) - min(points) <= situation.need
            and situation.point <= max(points) + situation.need
        )

    def period(self, cost: float) -> float:
        """Seconds of work between two saves."""
        if self.fixed_period is not None:
            return self.fixed_period
        if self._period is None or self._period[0] != cost:
            self._period = (cost, self._find_period(cost))
        return self._period[1]

    def _find_period(self, cost: float) -> float:
        leads = self.card.leads
        in_time = sum(lead > cost for lead in leads) / len(leads) if leads else 0.0
        stretched = interval.with_prediction(self.mtbf, cost, self.recall * in_time)
        if self.trust * self.card.precision * in_time * stretched <= cost:
            return interval.daly(self.mtbf, cost)  # no alarm would ever be worth a save
        return stretched

    def decide(self, situation: Situation) -> Decision:
        """Follow the period or an alarm, whichever comes first."""
        period = self.period(situation.cost)
        by_period = Decision(max(0.0, period - situation.unsaved), PERIOD)
        if not situation.alarms:
            return by_period
        return min([by_period] + [self._weigh(alarm, situation) for alarm in situation.alarms])

    def _weigh(self, alarm: Alarm, situation: Situation) -> Decision:
        if alarm.cause != TIME and self.repeats(situation):
            return WAIT
        probability = alarm.probability
        if alarm.cause != TIME:
            probability = min(0.999, probability * self.trust)
        wait = best_moment(
            probability,
            alarm.leads,
            situation.now - alarm.at,
            situation.unsaved,
            situation.cost,
            situation.need,
            self.period(situation.cost),
        )
        return Decision(wait, alarm.reason)


def best_moment(
    probability: float,
    leads: Sequence[float],
    elapsed: float,
    unsaved: float,
    cost: float,
    need: float,
    period: float,
) -> float:
    """Return how long to wait before saving for an announced failure; NEVER if not worth it.

    The best time to save is now, or just in time for one of the possible moments of the
    failure. These are the candidates; the plan with the least expected cost (saves made and
    work lost) is computed from the last moment backwards.

    If the alarm is false, the save still has a value: the next periodic one comes later.
    Unsaved work w is a debt of 2u - u^2 of a save, with u = w / period, which a save clears;
    this is the relative value of the periodic policy (at its optimum, h' = g - w/mtbf).
    """
    left = [lead - elapsed for lead in leads if lead > elapsed]
    if not left:
        return NEVER  # all its moments have passed: the alarm was false
    # The longer nothing happens, the more likely the alarm was false.
    come = probability * len(left) / len(leads)
    share = come / (come + 1.0 - probability) / len(left)

    # Saving later is for the moments that leave room for it with a margin; saving now, there
    # is nothing to gain by a margin.
    in_time = [lead for lead in left if lead > need]
    count, late = len(in_time), len(left) - len(in_time)
    rest = [0.0] * (count + 1)  # least cost after a save just in time for each of them
    false = 1.0 - share * len(left)

    def debt(work: float) -> float:
        part = min(1.0, work / period) if period > 0.0 else 1.0
        return cost * part * (2.0 - part)

    def plan(first: int, begin: float, unsafe: float) -> Tuple[float, int]:
        """Return the least cost to come, and for which moment to save next.

        The moments before `first` are past; work since `begin`, and `unsafe` on top, is lost
        if the failure comes first.
        """
        least, choice, losses = math.inf, count, 0.0
        for k in range(first, count):
            alive = 1.0 - share * (late + k)
            total = losses + alive * cost + rest[k]
            if total < least:
                least, choice = total, k
            losses += share * (unsafe + max(0.0, in_time[k] - begin))
        losses += false * debt(unsafe + max(0.0, left[-1] - begin))
        return (losses, count) if losses <= least else (least, choice)

    for k in range(count - 1, -1, -1):
        saved_at = in_time[k] - need + cost
        rest[k] = share * (in_time[k] - saved_at) + plan(k + 1, saved_at, 0.0)[0]
    later, choice = plan(0, 0.0, unsaved)
    later += share * unsaved * late
    too_late = sum(lead <= cost for lead in left)
    now = cost + share * unsaved * too_late + plan(0, cost, 0.0)[0]
    if now < later:
        return 0.0
    return in_time[choice] - need if choice < count else NEVER


def make_policy(name: str, card: Card, threshold: float = 0.5) -> Policy:
    """Return the policy of that name; the oracle, which knows the future, is the simulator's.

    `threshold` is the probability from which "predictor" and "either" follow an alarm.
    """
    if name == "none":
        return Policy()
    if name == "young":
        return Periodic(lambda cost: interval.young(card.mtbf, cost), name)
    if name == "daly":
        return Periodic(lambda cost: interval.daly(card.mtbf, cost), name)
    if name == "predictor":
        return OnAlarm(threshold)
    if name == "either":
        return Either(make_policy("young", card), OnAlarm(threshold))
    if name == "ours":
        return Weighed(card)
    raise ValueError(f"unknown policy {name!r}; known: {', '.join(POLICIES)}")


POLICIES = ("none", "young", "daly", "predictor", "either", "ours")
