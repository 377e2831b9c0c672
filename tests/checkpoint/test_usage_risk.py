"""The risk: trends towards limits, and trees that agree with xgboost."""

import json
import lzma
import math
from pathlib import Path

import numpy as np
import pytest

from condor_advice.model import checkpoint_risk as usage
from condor_checkpoint.risk import (
    FEATURES,
    HORIZON,
    OVERDUE,
    Risk,
    Trees,
    fit_trend,
    leads_to_limit,
)
from condor_checkpoint.sample import Sample

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "bench/reports/checkpoint/usage.jsonl.xz"


def watch(values, limit=1000.0, interval=1.0, **more):
    risk = Risk(interval)
    alarms = ()
    for number, value in enumerate(values):
        alarms = risk.add(
            Sample(number, number * interval, memory=value, memory_limit=limit, **more), number
        )
    return risk, {alarm.cause: alarm for alarm in alarms}


def test_a_steady_leak_is_foreseen_to_the_second():
    _, alarms = watch([10.0 * n for n in range(50)])  # 490 of 1000, 10 a second
    assert alarms["memory"].leads[0] == pytest.approx(51.0, abs=0.5)
    assert alarms["memory"].probability == pytest.approx(0.5)  # credence, as nobody measured it


def test_a_noisy_leak_is_foreseen_with_a_margin():
    rng = np.random.default_rng(1)
    _, alarms = watch([10.0 * n + rng.normal(0, 20) for n in range(50)])
    leads = alarms["memory"].leads
    assert leads[0] < 51.0 < leads[-1]


@pytest.mark.parametrize(
    "values",
    [[500.0] * 50, [900.0 - n for n in range(50)], [0.001 * n for n in range(50)]],
    ids=["flat", "falling", "too slow to matter"],
)
def test_no_alarm_without_a_trend_towards_the_limit(values):
    _, alarms = watch(values)
    assert alarms.get("memory") is None or alarms["memory"].probability < 0.25


def test_a_limit_that_is_passed_is_now():
    assert leads_to_limit([fit_trend([0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0])], -1.0) == [0.0]


def test_over_the_limit_and_still_alive_there_is_still_time_for_a_save():
    _, alarms = watch([10.0 * n for n in range(105)])
    assert alarms["memory"].leads == OVERDUE
    assert alarms["memory"].at == 100.0  # since it was over
    assert alarms["memory"].probability > 0.8


def test_lead_times_count_from_when_an_alarm_began_and_not_from_each_sample():
    trees = Trees(
        {
            "format": 1,
            "features": list(FEATURES),
            "base": 2.0,  # always alarmed
            "trees": [],
            "calibration": [1.0, 0.0],
            "card": {"leads": [10.0, 20.0], "threshold": 0.5, "recall": 0.5, "precision": 0.5},
        }
    )
    risk = Risk(5.0, trees)
    begun = []
    for n in range(40):
        alarms = risk.add(Sample(5.0 * n, 5.0 * n), 5.0 * n)
        begun += [alarm.at for alarm in alarms if alarm.cause == "usage"]
    # From the fourth sample on; and anew when all lead times, 100 s, have passed.
    assert sorted(set(begun)) == [15.0, 115.0]


def test_a_trend_is_not_believed_for_much_longer_than_it_was_seen():
    trend = fit_trend([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0])
    assert leads_to_limit([trend], 20.0)[0] == pytest.approx(20.0)
    assert leads_to_limit([trend], 200.0)[0] == math.inf


def test_without_a_limit_there_is_no_alarm():
    _, alarms = watch([10.0 * n for n in range(50)], limit=None)
    assert alarms == {}


def test_an_alarm_that_passes_is_counted_once():
    risk, _ = watch([10.0 * n for n in range(30)] + [290.0] * 90)
    assert risk.ended_alarms == 1


def test_disk_files_and_time_have_their_alarms():
    risk = Risk(1.0)
    for n in range(30):
        alarms = risk.add(
            Sample(
                1000.0 + n,
                float(n),
                disk=10.0 * n,
                disk_limit=400.0,
                open_files=3.0 * n,
                open_files_limit=100.0,
                file_system_free=1000.0 - 30.0 * n,
                file_system_size=1000.0,
                end=1100.0,
            ),
            float(n),
        )
    assert {alarm.cause for alarm in alarms} == {"disk", "open files", "file system", "time"}
    assert next(a for a in alarms if a.cause == "time").leads == (71.0,)


def test_features_do_not_depend_on_the_sampling_interval():
    def features(interval):
        risk = Risk(interval)
        for n in range(40):
            risk.add(
                Sample(
                    n * interval,
                    n * interval,
                    memory=100.0 + 7.0 * n,
                    memory_limit=1000.0,
                    disk=5.0,
                    disk_limit=50.0,
                ),
                0.0,
            )
        return risk.features()

    for name, fast, slow in zip(FEATURES, features(0.5), features(5.0), strict=True):
        assert fast == pytest.approx(slow, nan_ok=True), name


@pytest.fixture(scope="module")
def recorded():
    """A part of the jobs that were recorded on a real pool, as the hook would see them."""
    jobs = usage.read_usage([RECORDED])
    return [job.describe() for job in jobs[::7]]


def test_trees_say_in_plain_python_what_xgboost_says(recorded):
    import xgboost

    rows, labels = usage.stack(recorded)
    booster = usage.boost(rows, labels, seed=1, rounds=20)
    exported = {
        "format": 1,
        "features": list(FEATURES),
        **usage.export_trees(booster),
        "calibration": [1.0, 0.0],
        "card": {"leads": [], "threshold": 0.5, "recall": 0.0, "precision": 0.5},
    }
    rows = rows[::5]
    rows[::3, ::5] = np.nan  # missing values take their own way
    expected = booster.predict(xgboost.DMatrix(rows), output_margin=True)
    trees = Trees(json.loads(json.dumps(exported)))
    found = [trees.margin(row) for row in rows.tolist()]
    assert np.abs(np.array(found) - expected).max() < 1e-5


def test_labels_look_no_further_than_the_horizon(recorded):
    job = next(job for job in recorded if job.failed)
    assert job.labels.sum() <= HORIZON + 1
    healthy = next(job for job in recorded if not job.failed)
    assert healthy.labels.sum() == 0


def test_features_of_the_past_do_not_know_the_future(recorded):
    job = recorded[0]
    cut = usage.RecordedJob(job.name, job.failed, job.cause, job.interval, job.samples[:30])
    cut.describe()
    np.testing.assert_array_equal(cut.features, job.features[: len(cut.features)])


def test_training_judges_on_later_jobs_and_writes_a_model_that_the_hook_reads(tmp_path):
    out, some = tmp_path / "model.json", tmp_path / "some.jsonl"
    with lzma.open(RECORDED, "rt") as file:
        some.write_text("".join(list(file)[::2]))
    report = usage.train([some], out, seed=0, rounds=20, leave_out=usage.LABORATORY)
    assert report["trees"]["roc_auc"] > 0.8
    assert report["trees"]["recall_by_cause"]["memory"] > 0.8
    # The honest figure is the lower one.
    assert report["random_split"]["roc_auc"] > report["trees"]["roc_auc"]
    assert out.stat().st_size < 100_000
    trees = Trees(json.loads(out.read_text()))
    assert trees.card.recall == pytest.approx(0.5 * report["trees"]["recall"], abs=1e-3)


def test_a_model_no_better_than_chance_is_not_written(tmp_path):
    rng = np.random.default_rng(0)
    source, out = tmp_path / "noise.jsonl", tmp_path / "model.json"
    with source.open("w") as file:
        for number in range(40):
            samples = [
                {
                    "time": 1000.0 * number + n,
                    "elapsed": float(n),
                    "memory": 100.0 + float(rng.normal()),
                }
                for n in range(40)
            ]
            file.write(
                json.dumps(
                    {
                        "job": str(number),
                        "failed": bool(rng.random() < 0.5),
                        "cause": "?",
                        "interval": 1.0,
                        "samples": samples,
                    }
                )
                + "\n"
            )
    with pytest.raises(usage.NoBetterThanChance, match="is not written"):
        usage.train([source], out, leave_out=("elapsed_log", "node_time_log"))
    assert not out.exists()


def test_recordings_of_several_jobs_are_read_from_one_file(tmp_path):
    def recording(begin, *end):
        lines = [{"time": begin + n, "elapsed": float(n), "memory": 1.0} for n in range(10)]
        return "".join(json.dumps(line) + "\n" for line in [*lines, *end])

    source = tmp_path / "jobs.jsonl"
    source.write_text(
        recording(100.0, {"ended": 111.0, "exit": 1})
        + recording(200.0)
        + recording(300.0, {"ended": 311.0, "exit": 0})
    )
    jobs = usage.read_usage([source])
    assert [(job.failed, job.cause) for job in jobs] == [
        (True, "exit"),
        (True, "cut off"),
        (False, ""),
    ]
    assert {(job.interval, len(job.samples)) for job in jobs} == {(1.0, 10)}


def test_an_empty_recording_is_named(tmp_path):
    source = tmp_path / "empty.jsonl"
    source.write_text("")
    with pytest.raises(usage.TooLittleUsage, match=r"empty.jsonl: no usage samples"):
        usage.train([source], tmp_path / "model.json")


def test_a_table_of_usage_is_judged_at_random_and_in_order(shared):
    report = usage.evaluate_table(shared / "data/workloads/purdue-usage-20k.csv.xz", rounds=20)
    assert report["rows"] == 20_000
    assert report["random"]["roc_auc"] > report["id_order"]["roc_auc"]
