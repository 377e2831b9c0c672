"""`condor-advice export` and the ExportedEpisodes that training opens."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from condor_advice.advise.commands.export import export
from condor_advice.gather.clock import Clock
from condor_advice.gather.collect import Collector
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.store import Store
from condor_advice.preprocess.holds.dictionary import data_dictionary
from condor_advice.preprocess.holds.export import ExportedEpisodes
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.labels import NO_LABEL
from condor_advice.preprocess.holds.splits import split_by_time
from condor_advice.preprocess.holds.stream import EpisodeStream
from condor_advice.preprocess.holds.timeline import log_timeline

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def exported(
    simulated: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, object]]:
    base = tmp_path_factory.mktemp("export")
    with Store(base / "store.sqlite") as store:
        log = str(simulated(300, ads=True))
        Collector(store, [log], access_point="ap1", clock=Clock(UTC)).read()
    result = CliRunner().invoke(
        export,
        [str(base / "out"), "--store", str(base / "store.sqlite"), "--json"],
        catch_exceptions=False,
    )
    assert result.exit_code == 0, result.output
    return base / "out", json.loads(result.output)


def test_tables_have_what_the_pass_found(
    simulated: Callable[..., Path], exported: tuple[Path, dict[str, object]]
) -> None:
    directory, told = exported
    stream = EpisodeStream()
    batches = list(
        stream.run(log_timeline([simulated(300, ads=True)], Clock(UTC), names=stream.names))
    )
    dataset = ExportedEpisodes(directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    rows = np.arange(len(dataset))
    features = np.concatenate([batch.features for batch in batches])
    assert dataset.features(rows).tobytes() == features.tobytes()
    assert np.array_equal(np.asarray(dataset.steps), np.concatenate([b.steps for b in batches]))
    assert told["episodes"] == len(dataset) == stream.episodes
    episodes = pq.read_table(directory / "episodes.parquet")
    assert set(episodes["access_point"].to_pylist()) == {"ap1"}
    assert None not in episodes["owner"].to_pylist()
    labelled = [
        o in ("SUCCEEDED", "HELD_SAME", "HELD_OTHER", "FAILED")
        for o in episodes["outcome"].to_pylist()
    ]
    assert [label is not None for label in episodes["label"].to_pylist()] == labelled
    events = pq.read_table(directory / "events.parquet")
    assert len(events) == told["events"]
    assert pq.read_schema(directory / "features.parquet").names == ["episode", *FEATURE_NAMES]


def test_training_reads_a_dataset_in_batches(exported: tuple[Path, dict[str, object]]) -> None:
    dataset = ExportedEpisodes(exported[0])
    split = split_by_time(dataset.moments(), gap_seconds=600)
    seen = []
    for batch in dataset.batches(split.train, 16, seed=1):
        assert batch.tensor.shape == (
            len(batch.rows),
            dataset.spec.max_steps,
            dataset.spec.num_features,
        )
        assert (batch.tensor[:, -1, dataset.spec.column("is_held")] == 1).all()
        assert (batch.label != NO_LABEL).all()
        assert batch.features.tobytes() == dataset.features(batch.rows).tobytes()
        seen += batch.rows.tolist()
    assert sorted(seen) == sorted(split.train.tolist())
    again = [row for batch in dataset.batches(split.train, 16, seed=1) for row in batch.rows]
    assert seen == again


def test_logs_without_holds_export_empty_tables(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(
        "000 (001.000.000) 2026-03-02 10:00:00 Job submitted from host: <10.0.0.1>\n...\n"
    )
    result = CliRunner().invoke(
        export, [str(tmp_path / "out"), "--log", str(log)], catch_exceptions=False
    )
    assert "1 events, 0 hold episodes" in result.output
    assert "these logs contain no holds" in result.output
    assert len(ExportedEpisodes(tmp_path / "out")) == 0


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(AdviceError, match="not an export of condor-advice"):
        ExportedEpisodes(tmp_path)
    with pytest.raises(AdviceError, match="there is no store yet"):
        CliRunner().invoke(
            export,
            [str(tmp_path), "--store", str(tmp_path / "none.sqlite")],
            catch_exceptions=False,
        )
    (tmp_path / "file").write_text("")
    with pytest.raises(AdviceError, match="cannot write the export"):
        from condor_advice.preprocess.holds.export import export as write

        write(log_timeline([], Clock(UTC)), tmp_path / "file" / "out")


def test_the_data_dictionary_is_current() -> None:
    page = ROOT / "docs" / "data-dictionary.md"
    assert page.read_text() == data_dictionary(), (
        "run `python -m condor_advice.preprocess.holds.dictionary > docs/data-dictionary.md`"
    )
