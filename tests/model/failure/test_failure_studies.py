"""Few failures, drift, sizes, profiles and odd requests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from condor_advice.gather.workloads.table import JobTable
from condor_advice.lab.workload import simulate_jobs
from condor_advice.model.failure.anomaly import AnomalyDetector, against_habit
from condor_advice.model.failure.evaluate import evaluate
from condor_advice.model.failure.model import FailureModels
from condor_advice.model.failure.online import prequential
from condor_advice.model.failure.profiles import Profiles, describe, fit_profiles
from condor_advice.model.failure.report import write_report
from condor_advice.model.failure.size_models import (
    CORRECTIONS,
    evaluate_sizes,
    quantiles_of,
    train_sizes,
)
from condor_advice.model.failure.sizes import (
    KeySizes,
    NothingMeasured,
    SizeHistory,
    learn_sizes,
    size_keys,
    walk,
)
from condor_advice.model.failure.study import (
    STUDY_PARAMETERS,
    compare_ways,
    label_actively,
    oversample,
    random_batch,
    smote,
    uncertain_dense_batch,
)
from condor_advice.model.failure.train import TrainSettings
from condor_advice.preprocess.jobs.history import History
from condor_advice.preprocess.jobs.horizons import (
    Horizon,
    JobDataset,
    JobFeatures,
    Labels,
    TimeSplit,
)

pytest.importorskip("xgboost")
pytest.importorskip("imblearn")

QUICK = TrainSettings(trials=1, members=1, max_rounds=20, threads=1, seed=1)


@pytest.fixture(scope="module")
def table() -> JobTable:
    return simulate_jobs(2000, seed=21, users=12)


@pytest.fixture(scope="module")
def data(table: JobTable) -> JobDataset:
    return JobFeatures.for_table(table).datasets(table, [Horizon.SUBMIT])[Horizon.SUBMIT]


def test_resampling_balances_and_keeps_every_real_job(data: JobDataset) -> None:
    kept = data.take(np.flatnonzero(np.isfinite(data.label)))
    for way in (oversample, smote):
        features, label = way(kept.features, kept.label, 0)
        assert np.mean(label) == pytest.approx(0.5)
        assert np.array_equal(features[: len(kept)], kept.features, equal_nan=True)


def test_active_learning_never_looks_at_labels_it_did_not_ask_for(data: JobDataset) -> None:
    pool = data.take(np.flatnonzero(np.isfinite(data.label)))
    asked = label_actively(pool, uncertain_dense_batch, 300, 100, QUICK)
    assert len(np.unique(asked)) == 300
    hidden = pool.label.copy()
    hidden[np.setdiff1d(np.arange(len(pool)), asked)] = np.nan
    blind = JobDataset(
        pool.horizon, pool.names, pool.features, hidden, pool.row, pool.asked, pool.submit, pool.end
    )
    assert np.array_equal(label_actively(blind, uncertain_dense_batch, 300, 100, QUICK), asked)


def test_active_batches_are_more_uncertain_than_random_ones(data: JobDataset) -> None:
    import xgboost

    from condor_advice.model.failure.train import fit

    pool = data.take(np.flatnonzero(np.isfinite(data.label)))
    asked, rest = np.arange(300), np.arange(300, len(pool))
    booster = fit(pool.features[asked], pool.label[asked], STUDY_PARAMETERS, 30, QUICK)
    rng = np.random.default_rng(0)

    def certainty(rows: np.ndarray) -> float:  # type: ignore[type-arg]
        said = booster.predict(xgboost.DMatrix(pool.features[rows]))
        return float(np.mean(np.abs(said - 0.5)))

    active, chance = (
        certainty(way(pool, asked, rest, booster, 80, rng))
        for way in (uncertain_dense_batch, random_batch)
    )
    assert active < chance


def test_every_way_with_few_failures_is_judged_on_the_same_jobs(
    table: JobTable, data: JobDataset
) -> None:
    found = compare_ways(data, TimeSplit.at_share(table, 0.6), QUICK, budget=300, batch=100)
    assert set(found) == {"plain", "weighted", "oversampled", "smote", "random_labels", "active"}
    assert len({one["n_test"] for one in found.values()}) == 1
    assert found["active"]["labels"] == found["random_labels"]["labels"] == 300
    assert found["oversampled"]["labels"] > found["plain"]["labels"]


def test_prequential_models_learn_only_from_what_had_ended(
    table: JobTable, data: JobDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    from condor_advice.model.failure import online as failure_online

    seen: list[float] = []
    honest = failure_online._train

    def watched(data, moment, *rest):  # type: ignore[no-untyped-def]
        learn = TimeSplit(moment).past(data)
        seen.append(float(moment - data.end[learn].max()))
        return honest(data, moment, *rest)

    monkeypatch.setattr(failure_online, "_train", watched)
    found = prequential(
        data, TimeSplit.at_share(table, 0.6), STUDY_PARAMETERS, 20, QUICK, every_days=0.1
    )
    assert len(found["stretches"]) >= 2
    assert found["jobs"] == sum(one["jobs"] for one in found["stretches"])
    assert len(seen) > 2
    assert min(seen) > 0


def test_size_rules_say_what_they_are_named_for() -> None:
    sizes = KeySizes()
    for value, request in ((100.0, [1.0, 0.0]), (300.0, [0.0, 1.0]), (200.0, [1.0, 1.0])):
        sizes.values.append(value)
        sizes.requests.append(np.array(request))
    ask = np.array([0.1, 2.0])
    said = {
        rule: sizes.suggest(rule, ask) for rule in ("last", "median", "mean", "maximum", "cosine")
    }
    assert said == {
        "last": 200.0,
        "median": 200.0,
        "mean": 200.0,
        "maximum": 300.0,
        "cosine": 300.0,
    }
    assert sizes.quantile(0.95) == 300.0


def test_sizes_are_said_from_jobs_that_had_ended(table: JobTable) -> None:
    maker = JobFeatures.for_table(table)
    said = walk(table, maker, "memory_mb", (0.9,))
    row = 1500
    moment = float(table["submit_time"][row])
    cut = table.known_at(moment + 1.0)
    assert walk(cut, maker, "memory_mb", (0.9,))["last"][row] == said["last"][row]
    history = learn_sizes(table.known_at(moment), maker)["memory_mb"]
    found = history.find(size_keys(table.take([row]), maker)[0])
    assert found is not None
    assert found[1].values[-1] == said["last"][row]


def test_sizes_are_judged_against_what_users_asked_for(table: JobTable, data: JobDataset) -> None:
    maker, split = JobFeatures.for_table(table), TimeSplit.at_share(table, 0.6)
    found = evaluate_sizes(table, maker, data, "memory_mb", split, threads=1)
    rules = found["rules"]
    assert {"requested", "last", "cosine", "quantile_0.95", "boosted_0.95", "predict_0.95"} <= set(
        rules
    )
    # The simulation asks for twice what it uses, with a spread of a fifth.
    assert rules["requested"]["waste"] > rules["quantile_0.95"]["waste"]
    assert rules["quantile_0.95"]["under_allocated"] < rules["quantile_0.5"]["under_allocated"]
    assert rules["median"]["mape"] < rules["requested"]["mape"]
    assert rules["predict_0.95"] == rules[f"{found['method']}_corrected_0.95"]
    blank = JobTable(
        table.job,
        {**table.numbers, "used_memory_mb": np.full(len(table), np.nan)},
        table.text,
        table.vocabularies,
    )
    with pytest.raises(NothingMeasured, match="no job of the table has a memory_mb"):
        evaluate_sizes(blank, maker, data, "memory_mb", split)


def test_corrected_sizes_keep_their_promise_on_later_jobs(
    table: JobTable, data: JobDataset
) -> None:
    maker, split = JobFeatures.for_table(table), TimeSplit.at_share(table, 0.6)
    for target in ("memory_mb", "disk_mb"):
        rules = evaluate_sizes(table, maker, data, target, split, threads=1)["rules"]
        for share in (0.9, 0.95):
            for method in ("history", "boosted"):
                risk = rules[f"{method}_corrected_{share}"]["under_allocated"]
                assert risk == pytest.approx(1.0 - share, abs=0.05), (target, method, share)


def test_nothing_of_the_test_part_enters_the_corrections(table: JobTable, data: JobDataset) -> None:
    maker, split = JobFeatures.for_table(table), TimeSplit.at_share(table, 0.6)
    later = ~(table["end_time"] < split.moment)
    turned = np.where(later, 50.0 * table["used_memory_mb"], table["used_memory_mb"])
    other = JobTable(
        table.job, {**table.numbers, "used_memory_mb": turned}, table.text, table.vocabularies
    )
    one, two = (
        evaluate_sizes(jobs, maker, data, "memory_mb", split, threads=1) for jobs in (table, other)
    )
    assert one["kept_back"] == two["kept_back"]
    assert one["rules"]["predict_0.95"] != two["rules"]["predict_0.95"]


def test_a_correction_is_the_shortfall_that_so_many_jobs_did_not_exceed() -> None:
    shortfalls = np.arange(1.0, 100.0)  # 99 jobs: the rank is (n + 1) * share
    found = quantiles_of(np.r_[np.nan, shortfalls[::-1]])
    assert np.interp(0.95, CORRECTIONS, found) == 95.0
    assert np.interp(0.5, CORRECTIONS, found) == 50.0
    assert np.interp(1.0, CORRECTIONS, found) == 99.0


def test_size_models_say_the_same_after_saving(
    table: JobTable, data: JobDataset, tmp_path: Path
) -> None:
    maker = JobFeatures.for_table(table)
    sizes = train_sizes(table, maker, data, seed=0, threads=1)
    assert set(sizes) == {"memory_mb", "disk_mb", "run_seconds"}
    models = FailureModels(maker, {}, History(maker.levels), sizes)
    models.save(tmp_path)
    again = FailureModels.load(tmp_path).sizes
    keys = size_keys(table, maker)
    for target, model in sizes.items():
        assert model.corrections
        for position in (1500, 1700):
            row = int(data.row[position])
            for share in (0.5, 0.8, 0.95):
                said = model.suggest(data, position, keys[row], share)
                assert said > 0
                assert again[target].suggest(data, position, keys[row], share) == said
        assert np.isnan(model.suggest(data, 0, [1, 2, 3, 4], 0.95))  # nobody's keys


def test_with_few_jobs_the_history_alone_is_asked(table: JobTable) -> None:
    few = table.take(np.arange(120))
    maker = JobFeatures.for_table(few)
    asked = maker.datasets(few, [Horizon.SUBMIT])[Horizon.SUBMIT]
    model = train_sizes(few, maker, asked, seed=0, threads=1)["memory_mb"]
    assert (model.method, model.corrections) == ("history", {})
    keys = size_keys(few, maker)[int(asked.row[100])]
    record = model.history.find(keys)
    assert record is not None
    assert model.suggest(asked, 100, keys, 0.8) == pytest.approx(record[1].quantile(0.8))


def test_a_quantile_is_numpys_quantile_rounded_up_to_a_value() -> None:
    rng = np.random.default_rng(0)
    for count in (1, 2, 19, 20, 21, 32):
        sizes = KeySizes()
        sizes.values.extend(rng.random(count).tolist())
        for share in (0.05, 0.5, 0.9, 0.95, 1.0):
            assert sizes.quantile(share) == np.quantile(sizes.values, share, method="higher")


def test_size_histories_survive_saving(table: JobTable) -> None:
    maker = JobFeatures.for_table(table)
    history = learn_sizes(table, maker)["run_seconds"]
    again = SizeHistory.from_arrays(history.arrays(), history.levels)
    for keys in size_keys(table.take(np.arange(30)), maker):
        one, other = history.find(keys), again.find(keys)
        assert one is not None
        assert other is not None
        assert one[0] == other[0]
        assert one[1].quantile(0.9) == other[1].quantile(0.9)


def test_profiles_choose_the_lowest_bic_and_evaluate_like_scikit_learn(
    table: JobTable, data: JobDataset
) -> None:
    every = np.ones(len(data), dtype=bool)
    profiles = fit_profiles(data, every, max_components=4)
    assert len(profiles.weights) == min(profiles.bic, key=lambda one: profiles.bic[one])
    from sklearn.mixture import GaussianMixture

    points = profiles.standardise(data)
    mixture = GaussianMixture(
        len(profiles.weights), reg_covar=1e-2, random_state=0, n_init=1, max_iter=60
    ).fit(points)
    assert np.allclose(profiles.log_density(points), mixture.score_samples(points), atol=1e-6)
    again = Profiles.from_arrays(profiles.arrays())
    assert np.array_equal(again.assign(points), profiles.assign(points))
    lines = describe(profiles, data, table, Labels())
    assert sum(line["jobs"] for line in lines) == len(data)
    names, columns = profiles.as_features(data)
    assert columns.shape == (len(data), len(names))
    assert np.allclose(columns[:, :-1].sum(axis=1), 1.0, atol=1e-5)


def test_an_odd_request_is_found_with_the_field_that_is_odd(
    table: JobTable, data: JobDataset
) -> None:
    every = np.ones(len(data), dtype=bool)
    detector = AnomalyDetector.fit(fit_profiles(data, every, max_components=4), data, every)
    row = int(np.argmax(detector.rarity(data)))
    for field, value in (("log_cpus", np.log1p(4096.0)), ("log_requested_memory", np.log1p(1e7))):
        features = data.features[[row]].copy()
        features[0, data.names.index(field)] = value
        odd = JobDataset(
            data.horizon,
            data.names,
            features,
            data.label[[row]],
            data.row[[row]],
            data.asked[[row]],
            data.submit[[row]],
            data.end[[row]],
        )
        [found] = detector.find(odd)
        assert found.field == field
        assert found.value == pytest.approx(np.expm1(value), rel=1e-3)
        assert found.usual < found.value
    assert len(detector.find(data)) < 0.05 * len(data)


def test_a_request_far_from_the_users_habit_is_found(data: JobDataset) -> None:
    column = data.names.index("user_program.request_change")
    rows = np.flatnonzero(np.expm1(data.column("user_program.outcomes")) >= 5)[:1]
    usual = data.take(rows)
    assert against_habit(usual) == []
    features = usual.features.copy()
    features[0, column] = np.log(10.0)
    odd = JobDataset(
        usual.horizon,
        usual.names,
        features,
        usual.label,
        usual.row,
        usual.asked,
        usual.submit,
        usual.end,
    )
    [found] = against_habit(odd)
    assert found.field == "log_requested_seconds"
    assert found.value / found.usual == pytest.approx(10.0, rel=0.02)


def test_a_report_has_its_pictures(table: JobTable, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report, tested = evaluate(table, [Horizon.SUBMIT], Labels(), 0.6, QUICK, bootstrap_rounds=5)
    files = write_report(tmp_path, report, tested)
    assert {path.name for path in files} == {
        "report.json",
        "report.md",
        "submit-curves.png",
        "submit-reliability.png",
        "submit-importance.png",
        "submit-job.png",
    }
    for path in files:
        assert path.stat().st_size > 200
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
    assert "| submit | **trees** |" in (tmp_path / "report.md").read_text()
