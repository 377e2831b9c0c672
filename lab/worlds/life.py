"""Let the jobs of a world run, be held, and be released: its episodes come out as facts.

The facts are those that the pass over an event log gives (preprocess/holds/evidence.py), at the
resolution of a log: whole seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random

import numpy as np
import numpy.typing as npt

from condor_advice.gather.events import HoldCode
from condor_advice.lab.worlds.causes import (
    JobTrouble,
    Program,
    Trouble,
    draw_cause,
    draw_trouble,
    is_within,
    strikes,
)
from condor_advice.lab.worlds.character import Cause, Character, Kind, OwnerHabits, draw_character
from condor_advice.preprocess.holds.facts import END, FACT, Ends, Facts
from condor_advice.preprocess.holds.job_numbers import cluster_number, job_number
from condor_advice.preprocess.holds.labels import NO_LABEL, labels_of
from condor_advice.preprocess.holds.outcomes import OUTCOME_INDEX, Outcome

MOST_RUNS = 12  # of one job
MOST_JOBS = 60  # of one cluster
FIRST_SECOND = 1_700_000_000.0
_NOT_YET = -1.0


@dataclass(slots=True)
class Episode:
    """One hold of one simulated job."""

    cluster: int
    proc: int
    number: int
    reason: int
    code: int
    point: int
    owner: int
    program: int
    held: float
    run: float
    submitted: float
    starts: int
    released: float = _NOT_YET
    decided: float = _NOT_YET
    outcome: Outcome = Outcome.NEVER_RELEASED
    changed: bool = False  # repaired before the release
    visible: bool = False  # and the log shows it
    decided_by: Episode | None = None  # the job's next hold, if that decides this one


@dataclass(frozen=True, slots=True)
class World:
    """A simulated access point: its facts, and what a release as is would have led to."""

    character: Character
    facts: Facts
    ends: Ends
    label: npt.NDArray[np.int8]  # of releases as is; repaired ones have none


@dataclass(slots=True)
class _Past:
    """What has happened so far."""

    episodes: list[Episode] = field(default_factory=list)
    ends: list[tuple[float, int, int, bool]] = field(default_factory=list)
    clusters: int = 0


def live(seed: int, kind: Kind | None = None) -> World:
    """Draw a world and let it live."""
    rng = Random(seed)
    world = draw_character(rng, kind)
    past = _Past()
    programs = [_programs(rng, world, owner) for owner in world.owners]
    while past.clusters < world.clusters and len(past.episodes) <= world.most_episodes:
        begun = rng.uniform(0, world.span) if rng.random() < 0.9 else world.span * 0.1
        owner = rng.randrange(len(world.owners))
        _live_cluster(rng, world, past, owner, rng.choice(programs[owner]), begun)
    return _as_facts(world, past, end=world.span * rng.uniform(0.8, 1.6))


def _programs(rng: Random, world: Character, owner: OwnerHabits) -> list[Program]:
    """Draw an owner's programs, each broken now and then until its owner mends it."""
    programs = []
    for _ in range(owner.programs):
        program = Program(rng.getrandbits(40) + 1, in_place=rng.random() < 0.4)
        time = rng.uniform(-0.2, 0.8) * world.span
        while time < world.span:
            mended = time + world.delay * 10 ** rng.uniform(-0.3, 1.3)
            program.broken.append((time, mended))
            time = mended + world.span * rng.uniform(0.1, 1.0)
        programs.append(program)
    return programs


def _live_cluster(
    rng: Random,
    world: Character,
    past: _Past,
    owner: int,
    program: Program,
    begun: float,
    again: Trouble | None = None,
) -> None:
    """Submit a cluster and let its jobs live; owners may remove it and submit it again."""
    past.clusters += 1
    cluster = past.clusters
    trouble = again or _new_trouble(rng, world, program, begun)
    if trouble.cause is Cause.REASON_WIDE and again is None and rng.random() < 0.7:
        start, end = trouble.window
        begun = rng.uniform(max(0.0, start), max(end, 1e-3))
    habits = world.owners[owner]
    plan = _ClusterPlan(
        cluster=cluster,
        owner=owner,
        program=program.number,
        trouble=trouble,
        begun=begun,
        run=world.run * rng.lognormvariate(0, 0.6),
        shows_after=rng.choices((0.02, 0.1, 1.0), (0.45, 0.15, 0.4))[0],
        slots=rng.randint(1, 24),
        all_exposed=rng.random() < 0.7,
        good_jobs=rng.betavariate(1, 1.5),
        point_known=rng.random() < world.point_known,
        sweep=world.delay * 10 ** rng.uniform(-0.3, 0.5) if rng.random() < habits.sweeps else 0.0,
    )
    plan.never_starts = plan.shows_after < 0.05 and rng.random() < world.never_starts
    size = 1 + int(rng.expovariate(1 / world.cluster_size))
    gives_up = math.inf
    if trouble.cause is not Cause.NONE and rng.random() < habits.resubmits:
        gives_up = begun + world.delay * rng.expovariate(1.0) * habits.haste
    held_before = len(past.episodes)
    for proc in range(min(MOST_JOBS, size)):
        _live_job(rng, world, past, plan, proc, gives_up)
    if gives_up < world.span and len(past.episodes) > held_before:
        mended = rng.random() < 0.6
        fresh = Trouble(**{name: getattr(trouble, name) for name in Trouble.__slots__})
        fresh.begun = gives_up
        if mended:
            fresh.cause = Cause.NONE
        _live_cluster(rng, world, past, owner, program, gives_up + world.queue, again=fresh)


@dataclass(slots=True)
class _ClusterPlan:
    """What the jobs of a cluster have in common."""

    cluster: int
    owner: int
    program: int
    trouble: Trouble
    begun: float
    run: float
    shows_after: float  # share of the run after which a fault shows
    slots: int
    all_exposed: bool
    good_jobs: float  # share, where a cause is by job
    point_known: bool
    sweep: float  # the owner releases at multiples of it; 0: whenever
    never_starts: bool = False


def _new_trouble(rng: Random, world: Character, program: Program, begun: float) -> Trouble:
    [reason] = rng.choices(range(world.reasons), world.reason_weights)
    cause = draw_cause(rng, world, reason, begun)
    if rng.random() < world.healthy:
        cause = Cause.NONE
    return draw_trouble(rng, world, reason, cause, begun, program)


def _live_job(
    rng: Random, world: Character, past: _Past, plan: _ClusterPlan, proc: int, gives_up: float
) -> None:
    habits = world.owners[plan.owner]
    trouble = plan.trouble
    job = JobTrouble(plan.all_exposed or rng.random() < 0.6, rng.random() > plan.good_jobs)
    patience = world.most_releases if world.randomised else habits.patience + rng.randint(-1, 1)
    time = plan.begun + world.queue * rng.expovariate(1.0) * 0.5
    time += (proc // plan.slots) * plan.run * 1.1
    starts, last, fixed = 0, None, False
    for _ in range(MOST_RUNS):
        point = rng.randrange(world.points)
        length = plan.run * rng.lognormvariate(0, 0.25)
        shows = time + length * plan.shows_after
        started = True
        reason: int | None
        if is_within(world.black_holes[point], time):
            reason, shows = world.black_hole_reason, time + 0.05 * world.unit
        elif world.flaky_points[point] and rng.random() < world.flaky_chance:
            reason = world.black_hole_reason
        elif fixed:
            reason = None
        else:
            was_stuck = job.stuck
            reason = strikes(rng, trouble, job, time, shows, point)
            if reason is not None:
                own_fault = reason == trouble.reason
                started = not (plan.never_starts and own_fault)
                if was_stuck and job.stuck:
                    started = started and rng.random() < 0.5
        starts += started
        if reason is None:
            end = time + length
            good = rng.random() >= world.failures
            if last is None:
                past.ends.append((end, plan.cluster, proc, good))
            else:
                last.decided = end
                last.outcome = Outcome.SUCCEEDED if good else Outcome.FAILED
            return
        job.holds += 1
        if not started:
            shows = time + 0.02 * world.unit
        held = shows + world.unit * 0.5 * rng.random()
        by_hand = trouble.cause is Cause.BY_HAND and reason == trouble.reason
        episode = Episode(
            cluster=plan.cluster,
            proc=proc,
            number=job.holds,
            reason=reason,
            code=int(HoldCode.USER_REQUEST) if by_hand else 100 + world.code[reason],
            point=point if plan.point_known and started else -1,
            owner=plan.owner,
            program=plan.program,
            held=held,
            run=held - time if started else -1.0,
            submitted=plan.begun,
            starts=starts,
        )
        past.episodes.append(episode)
        if last is not None:
            last.decided, last.decided_by = held, episode
            last.outcome = Outcome.HELD_SAME if reason == last.reason else Outcome.HELD_OTHER
        last = episode
        weary = 1.0 if world.randomised else 0.93 ** (job.holds - 1)
        if job.holds > max(1, patience) or rng.random() > habits.releases * weary:
            if rng.random() < 0.7:
                episode.decided = held + world.delay * rng.expovariate(1.0)
            return
        released = held + _delay(rng, world) * habits.haste
        if plan.sweep:
            released = plan.begun + math.ceil((released - plan.begun) / plan.sweep) * plan.sweep
            released += 0.01 * rng.random() * world.unit
        if released > gives_up:
            episode.decided = max(gives_up, held)
            return
        episode.released = released
        episode.outcome = Outcome.UNKNOWN
        if rng.random() < habits.fixes:
            fixed = episode.changed = True
            episode.visible = rng.random() < world.visible_fixes
        time = released + world.queue * rng.expovariate(1.0) * (0.3 if rng.random() < 0.5 else 1)


def _delay(rng: Random, world: Character) -> float:
    match world.delay_shape:
        case 0:
            return world.delay * rng.expovariate(1.0)
        case 1:
            return world.delay * rng.uniform(0.15, 1.8)
        case _:
            return world.delay * rng.lognormvariate(-0.3, 0.9)


def _as_facts(world: Character, past: _Past, end: float) -> World:
    """Put everything in the order in which it became known; what is after `end` did not happen."""
    episodes = sorted((e for e in past.episodes if e.held < end), key=lambda e: e.held)
    news: list[tuple[float, int, str]] = []
    for row, episode in enumerate(episodes):
        news.append((episode.held, row, "sequence"))
        if 0 <= episode.released < end:
            news.append((episode.released, row, "released_sequence"))
        if 0 <= episode.decided < end and episode.decided_by is None:
            news.append((episode.decided, row, "decided_sequence"))
    ends = [one for one in past.ends if one[0] < end and one[2] > 0]
    news += [(time, row, "end") for row, (time, _, _, _) in enumerate(ends)]
    news.sort()
    facts, ended = np.zeros(len(episodes), FACT), np.zeros(len(ends), END)
    for name in ("released", "released_sequence", "decided", "decided_sequence"):
        facts[name] = -1
    for place, (_, row, what) in enumerate(news):
        if what == "end":
            ended["sequence"][row] = place
        else:
            facts[what][row] = place
    _fill(facts, episodes, world, end)
    for row, (time, cluster, _, good) in enumerate(ends):
        ended[row] = (cluster_number(0, cluster), ended["sequence"][row], _us(time), -1, good)
    fixed = np.array([episode.changed for episode in episodes], np.bool_)
    label = labels_of(facts["outcome"], fixed)
    label[facts["released"] < 0] = NO_LABEL
    return World(world, facts, ended[np.argsort(ended["sequence"])], label)


def _fill(facts: Facts, episodes: list[Episode], world: Character, end: float) -> None:
    rows = {id(episode): row for row, episode in enumerate(episodes)}
    for row, episode in enumerate(episodes):
        fact = facts[row]
        fact["episode"] = row
        fact["job"] = job_number(0, episode.cluster, episode.proc)
        fact["number"], fact["code"] = episode.number, episode.code
        fact["template"], fact["family"] = episode.reason, world.family[episode.reason]
        fact["point"], fact["owner"] = episode.point, episode.owner
        fact["program"] = fact["stem"] = episode.program
        fact["starts"] = episode.starts
        fact["run"] = math.floor(episode.run)
        fact["time"], fact["submitted"] = _us(episode.held), _us(episode.submitted)
        happened = episode.released >= 0 and episode.released < end
        fact["released"] = _us(episode.released) if happened else -1
        decided_by = episode.decided_by
        if decided_by is not None and id(decided_by) in rows:
            fact["decided_sequence"] = facts["sequence"][rows[id(decided_by)]]
        known = fact["decided_sequence"] >= 0
        fact["decided"] = _us(episode.decided) if known else -1
        unknown = Outcome.UNKNOWN if happened else Outcome.NEVER_RELEASED
        fact["outcome"] = OUTCOME_INDEX[episode.outcome if known else unknown]
        fact["changed"] = episode.changed and episode.visible and happened


def _us(time: float) -> int:
    return math.floor(FIRST_SECOND + time) * 1_000_000
