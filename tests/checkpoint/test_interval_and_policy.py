"""When to save: the intervals, and what each policy makes of an alarm."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_checkpoint import interval
from condor_checkpoint.policy import (
    DEADLINE,
    NEVER,
    PERIOD,
    POLICIES,
    PREDICTED,
    TIME,
    Alarm,
    Card,
    Situation,
    Weighed,
    best_moment,
    make_policy,
)

LEADS = tuple(float(lead) for lead in range(20, 220, 20))
CARD = Card(mtbf=1e5, recall=0.8, precision=0.8, leads=LEADS)


def situation(unsaved, alarms=(), cost=10.0, now=1000.0, point=1e6):
    return Situation(now, point, unsaved, now - unsaved, cost, 1.25 * cost, tuple(alarms))


def alarm(probability, leads=LEADS, at=1000.0, cause="memory"):
    return Alarm(probability, leads, at, at, cause)


def test_young_is_the_minimum_of_overhead_and_loss():
    mtbf, cost = 1e5, 60.0

    def waste(period):
        return cost / period + period / (2 * mtbf)

    best = interval.young(mtbf, cost)
    assert waste(best) < min(waste(best * 0.9), waste(best * 1.1))


def test_daly_meets_young_when_saves_are_cheap_and_stops_growing_when_they_are_dear():
    assert interval.daly(1e8, 1.0) == pytest.approx(interval.young(1e8, 1.0), rel=1e-3)
    assert interval.daly(100.0, 200.0) == 100.0


@given(st.floats(1e3, 1e7), st.floats(1.0, 100.0), st.floats(0.0, 0.95))
def test_the_period_with_prediction_is_sqrt_2_mu_c_over_1_minus_r_to_first_order(mtbf, cost, r):
    expected = math.sqrt(2 * mtbf * cost / (1 - r))
    found = interval.with_prediction(mtbf, cost, r)
    # What Daly adds is of the order of the cost itself.
    assert abs(found - expected) <= 1.2 * cost + 0.01 * expected


def test_a_perfect_recall_on_the_card_does_not_abolish_the_period():
    assert interval.with_prediction(1e5, 10.0, 1.0) < math.inf


def test_every_policy_answers_and_an_unknown_one_is_named():
    for name in POLICIES:
        assert make_policy(name, CARD).decide(situation(10.0)).wait >= 0.0
    with pytest.raises(ValueError, match=r"unknown policy 'oracel'; known: none, young"):
        make_policy("oracel", CARD)


def test_an_alarm_is_followed_when_the_work_at_risk_is_worth_the_save():
    near = alarm(0.8, leads=(12.0, 14.0, 16.0))  # no time to lose
    policy = Weighed(CARD)
    assert policy.decide(situation(600.0, [near])) == (0.0, PREDICTED)
    # 0.8 of 2 seconds is less than the 10 that the save costs.
    assert policy.decide(situation(2.0, [near])).wait > 60.0


def test_an_alarm_that_leaves_time_is_followed_as_late_as_is_safe():
    certain = alarm(1.0, leads=(500.0,), cause=TIME)
    wait, reason = Weighed(CARD).decide(situation(300.0, [certain]))
    assert reason == DEADLINE
    assert wait == pytest.approx(500.0 - 1.25 * 10.0)


def test_an_alarm_that_comes_too_late_for_a_save_is_not_followed():
    late = alarm(0.9, leads=(1.0, 2.0, 5.0))
    assert Weighed(CARD).decide(situation(600.0, [late])).reason == PERIOD


def test_a_long_window_gets_several_saves():
    leads = tuple(float(lead) for lead in range(20, 4020, 20))
    # Work for 400 s in a window where the failure comes any time within 4000 s: long past
    # what an interval of sqrt(2 C / hazard) = 300 s allows.
    assert best_moment(0.9, leads, 0.0, 400.0, 10.0, 12.0, 4000.0) < 20.0
    assert 50.0 < best_moment(0.9, leads, 0.0, 0.0, 10.0, 12.0, 4000.0) < 600.0


def test_an_alarm_is_given_up_when_its_time_has_passed():
    stale = alarm(0.9, at=1000.0 - 500.0)
    assert Weighed(CARD).decide(situation(100.0, [stale])).reason == PERIOD


@given(
    st.floats(0.01, 0.99),
    st.lists(st.floats(0.1, 1e5), min_size=1, max_size=20).map(sorted),
    st.floats(0.0, 1e5),
    st.floats(0.1, 1e3),
)
def test_the_chosen_moment_always_leaves_time_for_the_save(probability, leads, unsaved, cost):
    wait = best_moment(probability, leads, 0.0, unsaved, cost, 1.25 * cost, 1e4)
    assert wait == NEVER or wait == 0.0 or wait + 1.25 * cost <= leads[-1] + 1e-6


@given(st.floats(0.05, 0.99), st.floats(1.0, 1e4), st.floats(1.0, 1e4))
def test_more_work_at_risk_never_makes_a_save_less_urgent(probability, some, more):
    def wait(unsaved):
        return best_moment(probability, LEADS, 0.0, unsaved, 10.0, 12.5, 1e4)

    few, many = sorted((some, some + more))
    assert wait(many) <= wait(few) + 1e-9


def test_the_period_is_stretched_by_the_failures_that_are_announced_in_time_only():
    plain = Weighed(CARD._replace(recall=0.0)).period(10.0)
    predicted = Weighed(CARD).period(10.0)
    too_late = Weighed(CARD._replace(leads=(1.0, 2.0))).period(10.0)
    assert predicted == pytest.approx(plain * math.sqrt(5.0), rel=0.05)  # recall 0.8
    assert too_late == pytest.approx(plain)


def test_experience_corrects_the_card():
    policy = Weighed(CARD)
    before = policy.period(10.0)
    for number in range(20):
        policy.survived(1e3)
        policy.failed(False, 1e4 * number)
    assert policy.mtbf < 0.4 * CARD.mtbf
    assert policy.recall < 0.4
    assert policy.period(10.0) < 0.5 * before
    for _ in range(40):
        policy.alarm_ended(False)
    assert policy.trust < 0.3


def test_no_save_for_a_failure_that_came_twice_at_this_very_point():
    near = alarm(0.8, leads=(12.0, 14.0, 16.0))
    policy = Weighed(CARD)
    policy.failed(True, 5000.0)
    assert policy.decide(situation(600.0, [near], point=4990.0)).wait == 0.0
    policy.failed(True, 5003.0)
    assert policy.decide(situation(600.0, [near], point=4990.0)).reason == PERIOD
    # Past that point the job is fixed, and alarms count again.
    assert policy.decide(situation(600.0, [near], point=5100.0)).wait == 0.0


def test_two_failures_at_different_points_are_not_a_repetition():
    near = alarm(0.8, leads=(12.0, 14.0, 16.0))
    policy = Weighed(CARD)
    policy.failed(True, 5000.0)
    policy.failed(True, 9000.0)
    assert policy.decide(situation(600.0, [near], point=8990.0)).wait == 0.0


def test_either_follows_every_alarm_once():
    policy = make_policy("either", CARD)
    raised = alarm(0.6)
    assert policy.decide(situation(5.0, [raised])).wait == 0.0
    saved_since = situation(5.0, [raised._replace(since=900.0)])
    assert policy.decide(saved_since).reason == PERIOD


def test_a_period_of_zero_saves_at_once_also_with_an_alarm():
    alarm = Alarm(0.5, (10.0, 20.0), 0.0, 0.0, "memory")
    situation = Situation(0.0, 5.0, 5.0, 0.0, 1.0, 2.0, (alarm,))
    assert Weighed(Card(), 0.0).decide(situation).wait == 0.0
