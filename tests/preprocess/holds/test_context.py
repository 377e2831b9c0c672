"""Fact tables count exactly what a plain loop over the facts counts."""

from __future__ import annotations

import numpy as np
import pytest

from condor_advice.preprocess.holds.context import (
    CONTEXT_WINDOWS,
    FORGET_SECONDS,
    HOLD_FACTS,
    TIMED_FACTS,
    Context,
    FactTable,
)

HOLD, GOOD = HOLD_FACTS.index("hold"), HOLD_FACTS.index("good")


def random_facts(seed: int, count: int = 400) -> np.ndarray:
    """Columns: key, sequence, second, fact."""
    rng = np.random.default_rng(seed)
    seconds = np.cumsum(rng.choice((0, 1, 40, 3000, 40_000), count))
    seconds[count // 2 :] += FORGET_SECONDS - 5000
    return np.stack(
        (
            rng.integers(0, 6, count),
            np.arange(count),
            seconds,
            rng.integers(0, len(HOLD_FACTS), count),
        ),
        axis=1,
    )


def plainly_known(facts: np.ndarray, key: int, sequence: int, second: int) -> np.ndarray:
    mine = facts[(facts[:, 0] == key) & (facts[:, 1] <= sequence)]
    # Everything before a silence that is too long is forgotten.
    times = np.append(mine[:, 2], second)
    gaps = np.flatnonzero(np.diff(times) > FORGET_SECONDS)
    return mine[gaps[-1] + 1 :] if len(gaps) else mine


def plain_last(known: np.ndarray, column: int) -> list[int]:
    each = (known[known[:, 3] == HOLD_FACTS.index(fact), column] for fact in TIMED_FACTS)
    return [int(values[-1]) if len(values) else -1 for values in each]


def plain_count(
    facts: np.ndarray, key: int, sequence: int, second: int, window: int | None
) -> list[int]:
    mine = plainly_known(facts, key, sequence, second)
    if window is not None:
        mine = mine[mine[:, 2] > second - window]
    return [int((mine[:, 3] == fact).sum()) for fact in range(len(HOLD_FACTS))]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("step", [7, 400])
def test_answers_agree_with_a_plain_loop(seed: int, step: int) -> None:
    facts = random_facts(seed)
    table = FactTable(HOLD_FACTS, tuple(CONTEXT_WINDOWS))
    for start in range(0, len(facts), step):
        part = facts[start : start + step]
        table.add(part[:, 0], part[:, 1], part[:, 2], part[:, 3])
        # A question about every fact of the part, at the moment of that fact.
        answer = table.ask(part[:, 0], part[:, 1], part[:, 2])
        for row, (key, sequence, second, _) in enumerate(part.tolist()):
            assert answer.total[row].tolist() == plain_count(facts, key, sequence, second, None)
            known = plainly_known(facts, key, sequence, second)
            assert answer.last[row].tolist() == plain_last(known, 2)
            assert answer.last_sequence[row].tolist() == plain_last(known, 1)
            for name, window in CONTEXT_WINDOWS.items():
                assert answer.recent[name][row].tolist() == plain_count(
                    facts, key, sequence, second, window
                ), (row, name)
        table.forget(int(part[-1, 2]))


def test_a_key_that_is_not_known_has_nothing() -> None:
    table = FactTable(HOLD_FACTS, ("1h",))
    table.add(np.array([3]), np.array([0]), np.array([100]), np.array([GOOD]))
    answer = table.ask(np.array([-1, 4, 3]), np.array([5, 5, 5]), np.array([200, 200, 200]))
    assert answer.total[:, GOOD].tolist() == [0, 0, 1]
    assert answer.total[:, HOLD].tolist() == [0, 0, 0]
    assert answer.last.tolist() == [[-1, -1], [-1, -1], [100, -1]]


def test_old_rows_go() -> None:
    table = FactTable(HOLD_FACTS, ("10m",))
    count = 1000
    table.add(
        np.zeros(count, np.int64), np.arange(count), np.arange(count) * 60, np.full(count, HOLD)
    )
    table.forget(count * 60)
    assert len(table) < 15
    answer = table.ask(np.array([0]), np.array([count]), np.array([count * 60]))
    assert answer.total[0, HOLD] == count


def test_clusters_that_are_over_are_forgotten_and_all_others_keep_their_counts() -> None:
    context, one = Context(), np.ones(1, np.int64)
    levels = context.levels.keys()
    for day in range(40):
        # Each day a thousand clusters of one job, and one that goes on for ever.
        clusters = np.r_[7, np.arange(1000) + 1000 * (day + 1)]
        second = np.full(1001, 86400 * day)
        keys = {name: clusters if "cluster" in name else clusters * 0 + 5 for name in levels}
        context.add_traffic(keys, 1001 * day + np.arange(1001), second, np.zeros(1001, np.int64))
        context.forget(86400 * day)
    cluster = context.levels["cluster"]
    assert 3000 < len(cluster.keys) < 8000
    assert len(cluster.keys) == len(cluster.places) == len(set(cluster.places.tolist()))
    assert cluster.traffic is not None
    asked = cluster.numbers(np.array([-1, 7, 1000 * 40, 2000]))
    answer = cluster.traffic.ask(asked, np.full(4, 1 << 20), np.full(4, 86400 * 39))
    assert answer.total[:, 0].tolist() == [0, 40, 1, 0]
    pool = context.levels["pool"].traffic
    assert pool is not None
    assert pool.ask(0 * one, (1 << 20) * one, 86400 * 39 * one).total[0, 0] == 40 * 1001
