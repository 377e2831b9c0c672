"""No kin on both sides, and no label that was still open when the next side began."""

from __future__ import annotations

import numpy as np
import pytest

from condor_advice.gather.errors import UsageError
from condor_advice.preprocess.holds.labels import NO_LABEL
from condor_advice.preprocess.holds.splits import Moments, kin_groups, split_by_time

HOUR = 3600 * 1_000_000


@pytest.fixture
def moments() -> Moments:
    rng = np.random.default_rng(1)
    count = 3000
    time = np.sort(rng.integers(0, 30 * 24 * HOUR, count))
    label = rng.choice(np.array([0, 1, NO_LABEL], np.int8), count)
    decided = np.where(label == NO_LABEL, -1, time + rng.integers(0, 60 * HOUR, count))
    cluster = 1 + time // (6 * HOUR) * 10 + rng.integers(0, 10, count)
    dag = np.where(rng.random(count) < 0.1, 1 + time // (24 * HOUR), 0)
    batch = np.where(rng.random(count) < 0.1, cluster // 3 + 1, 0)
    return Moments(time, decided, label, (cluster, dag, batch))


def test_sides_follow_each_other_with_a_gap(moments: Moments) -> None:
    split = split_by_time(moments, gap_seconds=7200)
    first, second = split.borders
    assert moments.time[split.train].max() < first
    assert moments.time[split.validation].min() >= first + 2 * HOUR
    assert moments.time[split.test].min() >= second + 2 * HOUR
    assert moments.decided[split.train].max() < first
    assert moments.decided[split.validation].max() < second
    assert min(len(split.train), len(split.validation), len(split.test)) > 50


def test_kin_stay_together(moments: Moments) -> None:
    split = split_by_time(moments)
    sides = (split.train, split.validation, split.test)
    for column in moments.kin:
        for index, side in enumerate(sides):
            others = np.concatenate(sides[:index] + sides[index + 1 :])
            shared = np.intersect1d(column[side], column[others])
            assert set(shared.tolist()) <= {0}


def test_only_labelled_episodes_are_used_and_the_rest_is_accounted_for(moments: Moments) -> None:
    split = split_by_time(moments)
    used = np.concatenate((split.train, split.validation, split.test))
    assert (moments.label[used] != NO_LABEL).all()
    assert len(used) + sum(split.left_out.values()) == len(moments.time)


def test_kin_of_kin_are_kin() -> None:
    cluster = np.array([1, 1, 2, 3, 4])
    dag = np.array([0, 9, 9, 0, 0])
    batch = np.array([0, 0, 7, 7, 0])
    groups = kin_groups((cluster, dag, batch))
    assert len(set(groups[:4].tolist())) == 1
    assert groups[4] != groups[0]


def test_too_little_to_split_is_said() -> None:
    few = Moments(np.arange(2), np.arange(2), np.array([1, NO_LABEL], np.int8), (np.arange(2),))
    with pytest.raises(UsageError, match="1 labelled episodes cannot be split; gather more logs"):
        split_by_time(few)
    with pytest.raises(UsageError, match="leave nothing to test on"):
        split_by_time(few, train=0.9, validation=0.1)
