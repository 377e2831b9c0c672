"""The simulator: honest to every policy, the same each time, and ours wins."""

import json
import math
import random
import subprocess
import sys

import pytest

from condor_checkpoint import simulate, traces
from condor_checkpoint.simulate import Oracle, World, run_cell, run_policy


def run(*words):
    return subprocess.run(
        [sys.executable, "-m", "condor_checkpoint", "simulate", *words],
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_failures_only_the_saves_cost():
    never = traces.Trace("never", lambda job, attempt, rng: 1e9)
    world = World(1e5, 10.0, recall=0.0, repeat=0.0)
    for name in ("none", "predictor", "oracle"):
        assert run_policy(name, world, never, 20, 1).waste == pytest.approx(0.0, abs=1e-12)
    young = run_policy("young", world, never, 20, 1)
    assert young.failures == 0
    # One save of 10 s in every sqrt(2 * 1e5 * 10) s of work.
    assert young.waste == pytest.approx(10.0 / math.sqrt(2e6), rel=0.1)


def test_young_wastes_what_the_formula_says():
    world = World(1e6, 10.0, recall=0.0, repeat=0.0, restart=0.0)
    found = run_policy("young", world, traces.exponential(), 400, 1)
    expected = math.sqrt(2 * 10.0 / 1e6)
    assert found.waste == pytest.approx(expected, rel=0.1)
    assert abs(found.waste - expected) < 3 * found.half_width()


def test_doing_nothing_wastes_what_the_formula_says():
    # A job of work W takes mtbf (e^(W/mtbf) - 1) when every failure starts it over.
    world = World(1e5, 10.0, recall=0.0, repeat=0.0, restart=0.0)
    found = run_policy("none", world, traces.exponential(), 3000, 1)
    rng = random.Random(0)
    draws = [rng.uniform(0.5, 1.5) for _ in range(20000)]
    expected = 1.0 - sum(draws) / sum(math.expm1(draw) for draw in draws)
    assert abs(found.waste - expected) < 2 * found.half_width()


def test_every_policy_meets_the_same_jobs_and_the_same_failures():
    world, trace = World(1e5, 60.0), traces.exponential()
    young, ours = (run_policy(name, world, trace, 50, 1) for name in ("young", "ours"))
    assert young.work == ours.work
    one, again = (simulate.draw_fate(world, trace, 1, 7, 2) for _ in range(2))
    assert one == again
    assert one != simulate.draw_fate(world, trace, 2, 7, 2)


def test_alarms_have_the_recall_the_precision_and_the_lead_times_that_are_promised():
    world = World(1e5, 60.0, recall=0.6, precision=0.5)
    fates = [simulate.draw_fate(world, traces.exponential(), 1, job, 0) for job in range(4000)]
    announced = [fate for fate in fates if fate.lead < math.inf]
    false = sum(len(fate.false_alarms) for fate in fates)
    assert len(announced) / len(fates) == pytest.approx(0.6, abs=0.03)
    assert len(announced) / (len(announced) + false) == pytest.approx(0.5, abs=0.03)
    in_time = sum(fate.lead > 60.0 for fate in announced) / len(fates)
    assert in_time == pytest.approx(world.recall_in_time(), abs=0.03)
    assert any(fate.lead < 60.0 for fate in announced)  # some come too late
    assert sum(fate.strikes_again > 0 for fate in fates) / len(fates) == pytest.approx(
        0.1, abs=0.02
    )


def test_a_failure_during_a_save_loses_the_work_since_the_save_before():
    # Fails 5 s into the first save, which begins at Young's interval.
    world = World(1000.0, 10.0, recall=0.0, repeat=0.0, restart=0.0, job=1.0)
    period = math.sqrt(2 * 1000.0 * 10.0)
    gaps = iter([(period + 5.0) / 1000.0] + [1e9] * 100)
    trace = traces.Trace("once", lambda job, attempt, rng: next(gaps))
    found = run_policy("young", world, trace, 1, 1)
    assert found.failures == 1
    saves_cost = found.wall[0] - found.work[0] - (period + 5.0)
    assert saves_cost == pytest.approx(found.saves * 10.0, rel=0.2)


def test_a_failure_that_repeats_strikes_at_the_same_point_of_the_work():
    world = World(1e4, 10.0, recall=0.0, repeat=1.0, repeats=1.0)
    found = run_policy("young", world, traces.exponential(), 200, 1)
    once = run_policy("young", world._replace(repeat=0.0), traces.exponential(), 200, 1)
    assert 1.6 < found.failures / once.failures < 2.4


def test_ours_is_best_where_the_predictor_is_good():
    world = World(1e5, 60.0)
    cell = run_cell(world, traces.exponential(), 300, 1)
    assert cell["recall_in_time"] > 0.7
    waste = cell["waste"]
    assert waste["ours"] < min(waste[name] for name in waste if name not in ("ours", "oracle"))
    assert waste["ours"] < 0.9 * waste["either"]
    assert waste["oracle"] < waste["ours"]
    assert cell["saved"]["ours"] == pytest.approx(1 - waste["ours"] / waste["none"])


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"recall": 0.4, "precision": 0.3}])
def test_no_policy_is_better_than_ours_in_any_cell(settings):
    for cell in simulate.run_grid(traces.exponential(), 200, 1, costs=(60.0, 600.0), **settings):
        for name, minus in cell["ours_minus"].items():
            if name != "oracle":
                assert minus["waste"] < minus["half_width"], (cell["mtbf"], name)


def test_a_useless_predictor_does_no_harm():
    # Nearly every alarm is false, and comes too late besides.
    world = World(1e5, 60.0, recall=0.3, precision=0.05, lead=0.3)
    cell = run_cell(world, traces.exponential(), 400, 1, ("daly", "either", "ours"))
    assert cell["waste"]["ours"] < cell["waste"]["daly"] + cell["ours_minus"]["daly"]["half_width"]
    assert cell["waste"]["ours"] < cell["waste"]["either"]


def test_a_wrong_card_costs_little_more_than_a_right_one():
    world, trace = World(1e5, 60.0), traces.exponential()
    truth = world.card()
    right = run_policy("ours", world, trace, 300, 1).waste
    wrong = truth._replace(mtbf=3e5, recall=0.5)
    young = run_policy("young", world, trace, 300, 1).waste
    assert right < run_policy("ours", world, trace, 300, 1, wrong).waste < young


def test_the_oracle_knows_what_is_worth_saving():
    oracle = Oracle()
    oracle.until_failure = 5.0
    from condor_checkpoint.policy import Situation

    assert oracle.decide(Situation(0.0, 0.0, 4.0, 0.0, 10.0, 10.0)).wait == math.inf


def test_the_json_has_what_scripts_rely_on():
    done = run("--jobs", "5", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {(c["mtbf"], c["checkpoint_cost"]) for c in result["cells"]} == {
        (m, c) for m in (1e4, 1e5, 1e6) for c in (10, 60, 600)
    }
    for cell in result["cells"]:
        assert set(cell["waste"]) == {
            "none",
            "young",
            "daly",
            "predictor",
            "either",
            "ours",
            "oracle",
        }
    assert run("--jobs", "5", "--json").stdout == done.stdout


def test_the_table_and_the_plot_show_every_policy(tmp_path):
    plot = tmp_path / "cells.svg"
    done = run("--jobs", "5", "--mtbf", "1e4", "--cost", "10", "--plot", str(plot))
    for name in simulate.ALL_POLICIES:
        assert name in done.stdout
        assert name in plot.read_text()
    import xml.etree.ElementTree as ElementTree

    ElementTree.parse(plot)


def test_a_table_of_jobs_is_replayed(tmp_path):
    table = tmp_path / "jobs.csv"
    table.write_text("start,end,failed\n0,100,0\n100,150,1\n150,,0\n0,300,1\n")
    assert traces.gaps_between_failures(traces.read_table(str(table))) == [150.0, 300.0]
    trace = traces.read_trace(str(table))
    assert trace.mtbf == 225.0
    rng = random.Random(0)
    assert {round(trace.gap(job, 0, rng) * 225.0) for job in range(10)} == {150, 300}


def test_a_workload_log_is_replayed(tmp_path):
    log = tmp_path / "small.swf"
    log.write_text(
        "; Version: 2\n"
        + "".join(
            f"{n} {n * 10} 5 100 1 -1 -1 -1 -1 -1 {status} 1 1 1 1 -1 -1 -1\n"
            for n, status in enumerate([1, 1, 0, 5, 0])
        )
    )
    assert traces.gaps_between_failures(traces.read_table(str(log))) == [300.0, 200.0]


def test_a_table_without_the_columns_is_named(tmp_path):
    table = tmp_path / "jobs.csv"
    table.write_text("begin,end\n1,2\n")
    done = run("--trace", str(table))
    assert done.returncode == 1
    assert "no column failed, start" in done.stderr


def test_a_table_without_a_failure_is_named(tmp_path):
    table = tmp_path / "jobs.csv"
    table.write_text("start,end,failed\n1,2,0\n")
    done = run("--trace", str(table))
    assert done.returncode == 1
    assert "contains no failure" in done.stderr


def test_a_public_workload_has_failures_to_replay(shared):
    trace = traces.read_trace(str(shared / "data/workloads/KTH-SP2-1996-2.1-cln.swf.xz"))
    assert 1e3 < trace.mtbf < 1e6
    cell = run_cell(World(trace.mtbf, 60.0), trace, 100, 1)
    assert cell["waste"]["ours"] < cell["waste"]["young"]
