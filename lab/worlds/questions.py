"""Turn worlds into questions with known answers: the rows that a network learns from.

A question is asked about a hold that was released as is, at the release, at the hold, or at a
moment in between; the answer is whether that release succeeded.
"""

from __future__ import annotations

from collections.abc import Iterable
from multiprocessing import get_context
from random import Random

import numpy as np

from condor_advice.lab.worlds.character import Kind
from condor_advice.lab.worlds.life import World, live
from condor_advice.model.held.evidence_rows import EvidenceRows, EvidenceTensors, join_rows
from condor_advice.preprocess.holds.evidence import EvidenceTable
from condor_advice.preprocess.holds.facts import END, Facts, Moment, moment_at
from condor_advice.preprocess.holds.labels import NO_LABEL

PER_WORLD = 120  # questions of one world, at most
AT_RELEASE, AT_HOLD = 0.5, 0.25  # the rest in between
FEWEST = 10  # questions; a world with fewer says too little
KINDS = tuple(Kind)
NO_ENDS = np.zeros(0, END)


def ask_world(world: World, seed: int, most: int = PER_WORLD) -> EvidenceRows | None:
    """Ask some questions about a world; None if it has too few answers."""
    rng = Random(seed)
    rows = np.flatnonzero(world.label != NO_LABEL).tolist()
    if len(rows) < FEWEST:
        return None
    rows = sorted(rng.sample(rows, min(most, len(rows))))
    moments = [moment_of_wait(world.facts, row, rng) for row in rows]
    asked = EvidenceTable(world.facts, world.ends).evidence(rows, moments)
    group = np.full(len(rows), seed)
    return EvidenceRows(EvidenceTensors.of(asked), world.label[rows], group)


def moment_of_wait(facts: Facts, row: int, rng: Random) -> Moment:
    """Draw when a question about a released hold is asked."""
    draw = rng.random()
    hold, release = facts[row], int(facts["released_sequence"][row])
    if draw < AT_RELEASE:
        return Moment(int(hold["released"]), release)
    first = int(hold["sequence"]) + 1
    if draw < AT_RELEASE + AT_HOLD:
        return Moment(int(hold["time"]), first)
    # In between: at the time of something that happened then, or nothing has changed since.
    share = rng.random()
    time = int(hold["time"]) + int(share * (int(hold["released"]) - int(hold["time"])))
    place = moment_at(facts, NO_ENDS, time + 1).sequence
    return Moment(time, min(max(first, place), release))


def make_rows(
    seeds: Iterable[int], kinds: tuple[Kind, ...] = KINDS, processes: int = 1
) -> EvidenceRows:
    """Ask the worlds with these seeds, of these kinds in turn."""
    work = [(seed, kinds[seed % len(kinds)]) for seed in seeds]
    with get_context("fork").Pool(processes) as pool:
        return join_rows(rows for rows in pool.imap(_one, work, chunksize=8) if rows is not None)


def _one(work: tuple[int, Kind]) -> EvidenceRows | None:
    seed, kind = work
    return ask_world(live(seed, kind), seed)
