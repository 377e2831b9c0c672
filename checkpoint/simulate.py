"""Replay failures under each policy, and count what is lost.

A job needs some seconds of work. It runs until it is done or fails; after a failure it
restarts, for a cost, from its last good save. Failures come from a trace. A predictor
announces some of them, some of these too late, and raises false alarms. Some failures are
bugs that repeat at the same point of the work until somebody fixes them.

The policies are the objects that the hook uses. Every policy gets the same jobs, failures and
alarms (common random numbers), so the differences between policies are estimated far more
precisely than the waste of each.
"""

from __future__ import annotations

import math
import random
import statistics
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from condor_checkpoint.policy import (
    NEVER,
    PERIOD,
    POLICIES,
    Alarm,
    Card,
    Decision,
    Policy,
    Situation,
    make_policy,
)
from condor_checkpoint.traces import Trace

ALL_POLICIES = (*POLICIES, "oracle")
MTBFS = (1e4, 1e5, 1e6)
COSTS = (10.0, 60.0, 600.0)

# A save is safely over after this many times its mean cost.
SAFETY = 1.25
# Spread of the cost of a save (standard deviation of its logarithm).
COST_SPREAD = 0.1
# Equally likely lead times that stand for their distribution on the predictor's card.
SIMULATED_LEADS = 39


class World(NamedTuple):
    """The conditions of a simulation. Shares are between 0 and 1, times in seconds."""

    mtbf: float
    cost: float
    recall: float = 0.85  # failures that are announced, in time or not
    precision: float = 0.8  # alarms that are followed by a failure
    lead: float = 3.0  # median lead time of an alarm, in costs of a save
    lead_spread: float = 0.8  # standard deviation of the logarithm of the lead time
    restart: float = 1.0  # cost of a restart, in costs of a save
    repeat: float = 0.1  # failures that repeat at the same point
    repeats: float = 2.0  # how often such a failure repeats, on average
    job: float = 1.0  # mean work of a job, in mtbf; from half to 1.5 times that

    @property
    def median_lead(self) -> float:
        """The median lead time in seconds."""
        return self.lead * self.cost

    def recall_in_time(self) -> float:
        """Share of the failures that are announced early enough for a save of mean cost."""
        late = statistics.NormalDist(math.log(self.lead), self.lead_spread).cdf(0.0)
        return self.recall * (1.0 - late)

    def card(self) -> Card:
        """Return the true values, which the policies are given."""
        return Card(self.mtbf, self.recall, self.precision, self._card_leads())

    def _card_leads(self) -> Tuple[float, ...]:
        # The middles of equal shares of a log-normal distribution.
        normal = statistics.NormalDist(math.log(self.median_lead), self.lead_spread)
        return tuple(
            math.exp(normal.inv_cdf((share + 0.5) / SIMULATED_LEADS))
            for share in range(SIMULATED_LEADS)
        )


class PolicyOutcome(NamedTuple):
    """The result of one policy: seconds of work and of wall clock for each job."""

    work: List[float]
    wall: List[float]
    saves: int
    failures: int

    @property
    def waste(self) -> float:
        """Share of the wall clock time that was not useful work."""
        return 1.0 - sum(self.work) / sum(self.wall)

    def residuals(self) -> List[float]:
        """Return each job's pull on the waste; their mean is zero (the delta method)."""
        useful, mean_wall = 1.0 - self.waste, sum(self.wall) / len(self.wall)
        return [(useful * wall - work) / mean_wall for work, wall in zip(self.work, self.wall)]

    def half_width(self) -> float:
        """Half the width of the 95 % confidence interval of the waste."""
        return _half_width(self.residuals())


def _half_width(residuals: Sequence[float]) -> float:
    n = len(residuals)
    if n < 2:
        return math.inf
    mean = sum(residuals) / n
    variance = sum((value - mean) ** 2 for value in residuals) / (n - 1)
    return 1.96 * math.sqrt(variance / n)


def compare(ours: PolicyOutcome, other: PolicyOutcome) -> Tuple[float, float]:
    """Return waste of `ours` minus waste of `other`, and half its 95 % confidence interval."""
    pairs = zip(ours.residuals(), other.residuals())
    return ours.waste - other.waste, _half_width([a - b for a, b in pairs])


class Oracle(Policy):
    """Knows when the run will fail and how long the save will take; saves just before."""

    name = "oracle"

    def __init__(self) -> None:
        self.until_failure = NEVER  # set by the simulator before each question
        self.during_save = True  # whether the clock of the failure runs during a save

    def decide(self, situation: Situation) -> Decision:
        """Save at the last moment, when there is more to lose than the save costs."""
        wait = self.until_failure - (situation.cost if self.during_save else 0.0)
        if wait < 0.0 or wait == NEVER or situation.unsaved + wait <= situation.cost:
            return Decision(NEVER, "")
        return Decision(wait, "foreseen")


class Fate(NamedTuple):
    """The failure and the alarms of one run of a job; drawn independently of the policy.

    A failure comes either at a time after the start of the run or, if it is a bug that
    repeats, at a point of the work.
    """

    time: float = NEVER
    point: float = NEVER
    lead: float = NEVER  # it is announced this long before; NEVER: it is not
    false_alarms: Tuple[float, ...] = ()  # times at which there is an alarm for nothing
    strikes_again: int = 0


class _Job:
    """One job under one policy, from its start to its end."""

    def __init__(
        self,
        number: int,
        world: World,
        leads: Tuple[float, ...],
        trace: Trace,
        policy: Policy,
        seed: int,
    ) -> None:
        self.number, self.world, self.trace = number, world, trace
        self.leads, self.policy, self.seed = leads, policy, seed
        self.oracle = policy if isinstance(policy, Oracle) else None
        rng = random.Random(f"{seed} job {number}")
        self.work = world.mtbf * world.job * rng.uniform(0.5, 1.5)
        self.cost_rng = random.Random(f"{seed} cost {number}")
        self.next_cost = self._draw_cost()
        self.wall = self.safe = 0.0  # seconds passed; seconds of work that are saved
        self.saves = self.failures = 0

    def _draw_cost(self) -> float:
        spread = COST_SPREAD
        return self.world.cost * self.cost_rng.lognormvariate(-spread * spread / 2.0, spread)

    def run(self) -> None:
        """Work until the job is done, however often it fails."""
        fresh = 0
        bug = Fate()
        while True:
            if bug.strikes_again:
                fate = bug
            else:
                fate = draw_fate(self.world, self.trace, self.seed, self.number, fresh)
                fresh += 1
            reached = self._attempt(fate)
            if reached is None:
                return
            self.failures += 1
            self.wall += self.world.restart * self.world.cost
            again = fate.strikes_again - (fate is bug)
            bug = Fate(point=reached, lead=fate.lead, strikes_again=again)

    def _attempt(self, fate: Fate) -> Optional[float]:
        """Run once. Return the point of the work where it failed, or None when it is done."""
        policy, work, need = self.policy, self.work, self.world.cost * SAFETY
        now = unsaved = last_save = 0.0
        alarms: Tuple[Alarm, ...] = ()
        upcoming = [*fate.false_alarms]
        if fate.time < NEVER and fate.lead < NEVER:
            upcoming.append(max(0.0, fate.time - fate.lead))
        upcoming.sort(reverse=True)  # the next one last
        fails_at = fate.time
        bug_alarm_point = fate.point - fate.lead if fate.lead < NEVER else NEVER

        while True:
            point = self.safe + unsaved
            done = now + work - point
            # Once a failure is announced its clock runs on, even while the job saves.
            fails = min(fails_at, now + max(0.0, fate.point - point))
            raised = upcoming[-1] if upcoming else NEVER
            if bug_alarm_point < NEVER:
                raised = min(raised, now + max(0.0, bug_alarm_point - point))
            given_up = alarms[0].at + self.leads[-1] if alarms else NEVER

            cost = self.world.cost
            if self.oracle is not None:
                cost = self.next_cost
                self.oracle.until_failure = fails - now if fails < done else NEVER
                self.oracle.during_save = fails_at < NEVER
            situation = Situation(now, point, unsaved, last_save, cost, need, alarms)
            wait, reason = policy.decide(situation)
            if reason == PERIOD and unsaved == 0.0 and not alarms:
                # Nothing happens for a while: many periods at once, at the mean cost.
                skip = min((min(fails, raised) - now) / (wait + cost), (work - point) / wait)
                if skip >= 2.0:
                    periods = int(skip) - 1
                    now += periods * (wait + cost)
                    self.safe += periods * wait
                    self.saves += periods
                    last_save = now
                    continue

            stop = max(now, min(done, fails, raised, given_up, now + wait))
            unsaved += stop - now
            now = stop
            if done <= stop:
                self.wall += now
                return None
            if fails <= stop:
                break
            if raised <= stop:
                if upcoming and upcoming[-1] <= stop:
                    raised = upcoming.pop()
                else:
                    bug_alarm_point, fails_at = NEVER, fails
                alarms += (Alarm(self.world.precision, self.leads, raised, raised, ""),)
            elif given_up <= stop:
                alarms = alarms[1:]
                policy.alarm_ended(False)
            else:
                duration, self.next_cost = self.next_cost, self._draw_cost()
                if fails_at < now + duration - 1e-6:
                    now = fails_at  # failed during the save: the one before counts
                    break
                now += duration
                self.safe += unsaved
                unsaved, last_save = 0.0, now
                self.saves += 1

        policy.survived(now)
        for number in range(len(alarms)):
            policy.alarm_ended(number == 0)  # one failure makes one alarm true
        policy.failed(bool(alarms), self.safe + unsaved)
        self.wall += now
        return self.safe + unsaved


def draw_fate(world: World, trace: Trace, seed: int, job: int, attempt: int) -> Fate:
    """Draw a fresh failure and the alarms before it."""
    rng = random.Random(f"{seed} fate {job} {attempt}")

    def draw_lead() -> float:
        return rng.lognormvariate(math.log(world.median_lead), world.lead_spread)

    failure = trace.gap(job, attempt, rng) * world.mtbf
    lead = draw_lead() if rng.random() < world.recall else NEVER
    strikes_again = 0
    if rng.random() < world.repeat:
        strikes_again = 1
        while rng.random() < 1.0 - 1.0 / world.repeats:
            strikes_again += 1
    false_alarms = []
    # The rate of false alarms that gives the stated precision.
    rate = world.recall * (1.0 - world.precision) / (world.precision * world.mtbf)
    at = rng.expovariate(rate) if rate > 0.0 else NEVER
    while at < failure:
        false_alarms.append(at)
        at += rng.expovariate(rate)
    return Fate(
        time=failure, lead=lead, false_alarms=tuple(false_alarms), strikes_again=strikes_again
    )


def run_policy(
    name: str, world: World, trace: Trace, jobs: int, seed: int, card: Optional[Card] = None
) -> PolicyOutcome:
    """Run all jobs under one policy; `card` holds its assumptions if they differ from the truth."""
    truth = world.card()
    work, wall = [], []
    saves = failures = 0
    for number in range(jobs):
        policy = Oracle() if name == "oracle" else make_policy(name, card or truth, 0.0)
        job = _Job(number, world, truth.leads, trace, policy, seed)
        job.run()
        work.append(job.work)
        wall.append(job.wall)
        saves += job.saves
        failures += job.failures
    return PolicyOutcome(work, wall, saves, failures)


def run_cell(
    world: World,
    trace: Trace,
    jobs: int,
    seed: int,
    names: Sequence[str] = ALL_POLICIES,
    card: Optional[Card] = None,
) -> Dict[str, Any]:
    """Run every policy in one world; the values are ready for JSON."""
    outcomes = {name: run_policy(name, world, trace, jobs, seed, card) for name in names}
    waste = {name: outcome.waste for name, outcome in outcomes.items()}
    cell: Dict[str, Any] = {
        "mtbf": world.mtbf,
        "checkpoint_cost": world.cost,
        "recall": world.recall,
        "recall_in_time": world.recall_in_time(),
        "precision": world.precision,
        "trace": trace.name,
        "jobs": jobs,
        "waste": waste,
        "half_width": {name: outcome.half_width() for name, outcome in outcomes.items()},
        "saves": {name: outcome.saves for name, outcome in outcomes.items()},
        "failures": {name: outcome.failures for name, outcome in outcomes.items()},
    }
    if "none" in waste:
        # The share of the loss without saves that the policy avoids, net of its own cost.
        cell["saved"] = {name: 1.0 - value / waste["none"] for name, value in waste.items()}
    if "ours" in waste:
        cell["ours_minus"] = {
            name: dict(zip(("waste", "half_width"), compare(outcomes["ours"], outcome)))
            for name, outcome in outcomes.items()
            if name != "ours"
        }
    return cell


def run_grid(
    trace: Trace,
    jobs: int,
    seed: int,
    mtbfs: Sequence[float] = MTBFS,
    costs: Sequence[float] = COSTS,
    names: Sequence[str] = ALL_POLICIES,
    **settings: float,
) -> List[Dict[str, Any]]:
    """Run all cells of mean time between failures and cost of a save."""
    return [
        run_cell(World(mtbf, cost, **settings), trace, jobs, seed, names)
        for mtbf in mtbfs
        for cost in costs
    ]


def table(cells: Sequence[Dict[str, Any]]) -> str:
    """Return a readable table: waste in percent, then ours compared with the others."""
    names = list(cells[0]["waste"])
    head = ["MTBF", "save", "in time", *names]
    lines = [
        "waste, in % of the wall time (95 % confidence interval of ours in brackets)",
        "".join(f"{word:>10}" for word in head),
    ]
    for cell in cells:
        words = [
            f"{cell['mtbf']:.4g}",
            f"{cell['checkpoint_cost']:g}",
            f"{cell['recall_in_time']:.2f}",
        ]
        words += [f"{100 * cell['waste'][name]:.2f}" for name in names]
        line = "".join(f"{word:>10}" for word in words)
        if "ours" in names:
            line += f"  [{100 * cell['half_width']['ours']:.2f}]"
        lines.append(line)
    if "ours" in names and "either" in names:
        lines += [
            "",
            "ours: waste less than either's, share of lost work kept, waste above the oracle's",
        ]
        for cell in cells:
            waste, minus = cell["waste"], cell["ours_minus"]["either"]
            line = (
                f"{cell['mtbf']:>10.4g}{cell['checkpoint_cost']:>10g}"
                f"{-100 * minus['waste'] / waste['either']:>9.1f} % "
                f"+- {100 * minus['half_width'] / waste['either']:.1f}"
            )
            if "saved" in cell:
                line += f"{100 * cell['saved']['ours']:>10.1f} %"
            if "oracle" in waste:
                line += f"{100 * (waste['ours'] - waste['oracle']):>10.2f} points"
            lines.append(line)
    return "\n".join(lines)
