"""Write episodes, features and steps to files, and read them back in parts.

`export` reads all events once. `ExportedEpisodes` opens the result: the few columns that identify
episodes are in memory, features are read from Parquet by row groups, and steps from a plain array
that the operating system pages in as needed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import AdviceError
from condor_advice.gather.files import private_directory, private_files
from condor_advice.preprocess.holds.features import FEATURE_NAMES, HOLD_FEATURES
from condor_advice.preprocess.holds.job_numbers import cluster_number, job_parts
from condor_advice.preprocess.holds.labels import NO_LABEL, labels_of
from condor_advice.preprocess.holds.outcomes import OUTCOMES
from condor_advice.preprocess.holds.splits import Moments
from condor_advice.preprocess.holds.steps import EXPORTED_FIELDS, Names, Steps, empty_steps
from condor_advice.preprocess.holds.stream import OUTCOME, EpisodeBatch, EpisodeStream
from condor_advice.preprocess.holds.templates import FAMILIES
from condor_advice.preprocess.holds.tensors import STEP_COLUMNS, TensorSpec, padded
from condor_advice.preprocess.holds.timeline import Timeline

Ints = npt.NDArray[np.int64]

SCHEMA_VERSION = 1
GROUP_ROWS = 8192
_FILES = ("events.parquet", "episodes.parquet", "features.parquet", "steps.f32", "schema.json")


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote."""

    events: int
    episodes: int
    labelled: int
    outcomes: dict[str, int]
    counts: dict[str, int]  # oddities of the input
    files: dict[str, int]  # name -> bytes


def export(
    timeline: Timeline, directory: Path, spec: TensorSpec | None = None, *, events: bool = True
) -> Exported:
    """Export a timeline to a directory; existing files are replaced at the end."""
    pyarrow = _pyarrow()
    try:
        # The files name other users' jobs, so they and a new directory are private to their owner.
        private_directory(directory)
        with private_files(), _Writers(pyarrow, directory, timeline.names, events) as writers:
            stream = EpisodeStream(spec, names=timeline.names)
            for batch in timeline.batches():
                writers.events(batch)
                writers.episodes(stream.advance(batch))
            stream.counts.update(timeline.counts())
            return writers.finish(stream)
    except OSError as error:
        raise AdviceError(
            f"{directory}: cannot write the export ({error.strerror}); "
            "name another directory, or free some space"
        ) from error


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise AdviceError(
            "the export needs pyarrow, which is not installed; pip install 'condor-advice[train]'"
        ) from error
    return pyarrow


class _Writers:
    """The files of one export while they are written, each under a temporary name."""

    def __init__(self, pyarrow: Any, directory: Path, names: Names, with_events: bool) -> None:
        self.arrow, self.directory, self.names = pyarrow, directory, names
        self.with_events = with_events
        self.steps_file = open(self._part("steps.f32"), "wb")  # noqa: SIM115
        self.parquet: dict[str, Any] = {}
        self.waiting: list[EpisodeBatch] = []
        self.waiting_rows = 0
        self.outcomes = np.zeros(0, OUTCOME)
        self.step_rows = 0
        self.event_rows = 0

    def __enter__(self) -> _Writers:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._close()
        for name in (*_FILES, "undecided.parquet"):
            self._part(name).unlink(missing_ok=True)

    def _part(self, name: str) -> Path:
        return self.directory / f".{name}.part"

    def _close(self) -> None:
        self.steps_file.close()
        for writer in self.parquet.values():
            writer.close()
        self.parquet.clear()

    def _write(self, name: str, table: Any) -> None:
        if name not in self.parquet:
            self.parquet[name] = self.arrow.parquet.ParquetWriter(
                self._part(name), table.schema, compression="zstd"
            )
        self.parquet[name].write_table(table, row_group_size=max(len(table), 1))

    def events(self, steps: Steps) -> None:
        """Write the events of a batch."""
        self.event_rows += len(steps)
        if self.with_events:
            self._write("events.parquet", event_table(self.arrow, steps, self.names))

    def episodes(self, batch: EpisodeBatch) -> None:
        """Add a batch's episodes; they are written thousands at a time."""
        if len(batch.episodes):
            self.waiting.append(batch)
            self.waiting_rows += len(batch.episodes)
        top = int(batch.outcomes["episode"].max(initial=-1)) + 1
        if top > len(self.outcomes):
            more = np.zeros(max(top, 2 * len(self.outcomes)) - len(self.outcomes), OUTCOME)
            self.outcomes = np.concatenate((self.outcomes, more))
        self.outcomes[batch.outcomes["episode"]] = batch.outcomes
        if self.waiting_rows >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        episodes = np.concatenate([batch.episodes for batch in self.waiting])
        features = np.concatenate([batch.features for batch in self.waiting])
        lengths = np.concatenate([np.diff(batch.offsets) for batch in self.waiting])
        for batch in self.waiting:
            self.steps_file.write(np.ascontiguousarray(batch.steps).tobytes())
        begin = self.step_rows + np.append(0, np.cumsum(lengths))
        self.step_rows = int(begin[-1])
        self._write("undecided.parquet", self._episode_table(episodes, begin))
        columns = {"episode": episodes["episode"]}
        columns |= dict(zip(FEATURE_NAMES, features.T, strict=True))
        self._write("features.parquet", self.arrow.table(columns))
        self.waiting, self.waiting_rows = [], 0

    def _episode_table(self, episodes: npt.NDArray[np.void], begin: Ints) -> Any:
        access_point, cluster, proc = job_parts(episodes["job"])
        arrow = self.arrow
        coded = episodes["code"] >= 0
        return arrow.table(
            {
                "episode": episodes["episode"],
                "access_point": _named(arrow, list(self.names.access_points), access_point),
                "cluster": cluster,
                "proc": proc,
                "number": episodes["number"],
                "hold_time": _times(arrow, episodes["time"]),
                "code": arrow.array(episodes["code"], mask=~coded),
                "subcode": arrow.array(episodes["subcode"], mask=~coded),
                "family": _named(arrow, list(FAMILIES), episodes["family"]),
                "template": _templates(arrow, self.names, episodes["template"]),
                "point": _named(arrow, list(self.names.points), episodes["point"]),
                "owner": _named(arrow, list(self.names.owners), episodes["owner"]),
                "dag": episodes["dag"],
                "batch": episodes["batch"],
                "steps_begin": begin[:-1],
                "steps_end": begin[1:],
            }
        )

    def finish(self, stream: EpisodeStream) -> Exported:
        """Add the outcomes, which come later than the holds, and move all files into place."""
        if self.waiting:
            self._flush()
        elif "undecided.parquet" not in self.parquet:
            self._empty()
        self._close()
        arrow, outcomes = self.arrow, self.outcomes[: stream.episodes]
        labels = labels_of(outcomes["outcome"], outcomes["changed"])
        source = arrow.parquet.ParquetFile(self._part("undecided.parquet"))
        for group in range(source.num_row_groups):
            table = source.read_row_group(group)
            rows = table["episode"].to_numpy()
            decided = outcomes[rows]
            names = [outcome.name for outcome in OUTCOMES]
            for name, column in (
                ("outcome", _named(arrow, names, decided["outcome"])),
                ("released_time", _times(arrow, decided["released"])),
                ("decided_time", _times(arrow, decided["decided"])),
                ("label", arrow.array(labels[rows], mask=labels[rows] == NO_LABEL)),
            ):
                table = table.append_column(name, column)
            self._write("episodes.parquet", table)
        self._close()
        indexes, counts = np.unique(outcomes["outcome"], return_counts=True)
        by_outcome = {
            OUTCOMES[index].name: int(n) for index, n in zip(indexes, counts, strict=True)
        }
        schema = schema_of(stream, by_outcome)
        self._part("schema.json").write_text(json.dumps(schema, indent=1) + "\n")
        sizes = {}
        for name in _FILES:
            if self._part(name).exists():
                os.replace(self._part(name), self.directory / name)
                sizes[name] = (self.directory / name).stat().st_size
        return Exported(
            self.event_rows,
            stream.episodes,
            int((labels != NO_LABEL).sum()),
            by_outcome,
            {key: int(value) for key, value in stream.counts.items()},
            sizes,
        )

    def _empty(self) -> None:
        """Write tables without rows, so that a store without holds can be exported too."""
        stream = EpisodeStream(names=self.names)
        self.waiting = [stream.advance(empty_steps())]
        self._flush()


def event_table(arrow: Any, steps: Steps, names: Names) -> Any:
    """Return steps as a table with names instead of numbers."""
    access_point, cluster, proc = job_parts(steps["job"])
    points, owners = list(names.points), list(names.owners)
    held = steps["template"] >= 0
    columns = {
        "access_point": _named(arrow, list(names.access_points), access_point),
        "cluster": cluster,
        "proc": proc,
        "time": _times(arrow, steps["time"]),
        "type": steps["kind"],
        "transfer": arrow.array(steps["part"], mask=steps["kind"] != 40),
        "code": arrow.array(steps["code"], mask=steps["code"] < 0),
        "subcode": arrow.array(steps["subcode"], mask=steps["code"] < 0),
        "family": _named(arrow, list(FAMILIES), np.where(held, steps["family"], -1)),
        "template": _templates(arrow, names, steps["template"]),
        "point": _named(arrow, points, steps["point"]),
        "owner": _named(arrow, owners, steps["owner"]),
    }
    for field in EXPORTED_FIELDS:
        values = np.ascontiguousarray(steps[field.name])
        columns[f"{field.name}_{field.unit}"] = arrow.array(values, mask=np.isnan(values))
    return arrow.table(columns)


def _times(arrow: Any, microseconds: Ints) -> Any:
    """Return UTC times; -1 means none."""
    values = np.ascontiguousarray(microseconds)
    return arrow.array(values, mask=values == -1).cast(arrow.timestamp("us", tz="UTC"))


def _named(arrow: Any, names: Sequence[str], numbers: npt.NDArray[Any]) -> Any:
    """Look up names by their numbers; below zero means none."""
    indexes = np.ascontiguousarray(numbers).astype(np.int64)
    known = arrow.array(list(names), arrow.string())
    return known.take(arrow.array(indexes, mask=indexes < 0))


def _templates(arrow: Any, names: Names, numbers: npt.NDArray[Any]) -> Any:
    distinct, which = np.unique(numbers, return_inverse=True)
    known = [names.templates.get(number, "") for number in distinct.tolist()]
    return _named(arrow, known, np.where(numbers >= 0, which, -1))


def schema_of(stream: EpisodeStream, outcomes: dict[str, int]) -> dict[str, Any]:
    """Return what a reader of the files must know, to store beside them."""
    return {
        "version": SCHEMA_VERSION,
        "features": [
            {"name": f.name, "unit": f.unit, "meaning": f.meaning, "source": f.source}
            for f in HOLD_FEATURES
        ],
        "steps": [{"name": c.name, "unit": c.unit, "meaning": c.meaning} for c in STEP_COLUMNS],
        "spec": asdict(stream.spec),
        "families": list(FAMILIES),
        "outcomes": outcomes,
        "counts": {key: int(value) for key, value in stream.counts.items()},
    }


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """Some episodes for training."""

    rows: Ints
    features: npt.NDArray[np.float32]  # axes: (episode, feature)
    tensor: npt.NDArray[np.float32]  # axes: (episode, step, feature); padding in front
    label: npt.NDArray[np.int8]


class ExportedEpisodes:
    """An export, opened for training."""

    def __init__(self, directory: Path) -> None:
        arrow = _pyarrow()
        try:
            self.schema = json.loads((directory / "schema.json").read_text())
            self._features = arrow.parquet.ParquetFile(directory / "features.parquet")
            episodes = arrow.parquet.read_table(
                directory / "episodes.parquet",
                columns=[
                    "access_point",
                    "cluster",
                    "dag",
                    "batch",
                    "owner",
                    "hold_time",
                    "decided_time",
                    "label",
                    "family",
                    "steps_begin",
                    "steps_end",
                ],
            )
        except (OSError, ValueError, arrow.ArrowException) as error:
            raise AdviceError(
                f"{directory}: not an export of condor-advice ({error}); write one with "
                "`condor-advice export DIR`"
            ) from error
        if self.schema["version"] != SCHEMA_VERSION:
            raise AdviceError(
                f"{directory}: written by another version of condor-advice; export again"
            )
        self.directory = directory
        self.feature_names = tuple(feature["name"] for feature in self.schema["features"])
        self.spec = TensorSpec(**self.schema["spec"])
        self.time = _microseconds(episodes["hold_time"])
        self.decided = _microseconds(episodes["decided_time"])
        self.label = episodes["label"].fill_null(NO_LABEL).to_numpy().astype(np.int8)
        self.begin, self.end = (episodes[f"steps_{edge}"].to_numpy() for edge in ("begin", "end"))
        access_point = _codes(episodes["access_point"])
        self.cluster = cluster_number(access_point, episodes["cluster"].to_numpy()) + 1
        self.dag = _kin(access_point, episodes["dag"].to_numpy())
        self.batch = _kin(_codes(episodes["owner"]) + 1, episodes["batch"].to_numpy())
        groups = self._features.metadata
        sizes = [groups.row_group(index).num_rows for index in range(groups.num_row_groups)]
        self._group_ends = np.cumsum(sizes)
        width = len(self.schema["steps"])
        steps = directory / "steps.f32"
        count = steps.stat().st_size // (4 * width)
        self.steps: npt.NDArray[np.float32] = (
            np.memmap(steps, np.float32, "r", shape=(count, width))
            if count
            else np.zeros((0, width), np.float32)
        )

    def __len__(self) -> int:
        return len(self.time)

    def moments(self) -> Moments:
        """Return the times and groups that a split needs."""
        return Moments(self.time, self.decided, self.label, (self.cluster, self.dag, self.batch))

    def features(self, rows: Ints) -> npt.NDArray[np.float32]:
        """Return the features of some episodes, reading only the row groups they are in."""
        table = np.empty((len(rows), len(self.feature_names)), np.float32)
        group = np.searchsorted(self._group_ends, rows, side="right")
        for index in np.unique(group).tolist():
            chosen = np.flatnonzero(group == index)
            begin = int(self._group_ends[index - 1]) if index else 0
            read = self._features.read_row_group(index, columns=list(self.feature_names))
            for column, name in enumerate(self.feature_names):
                table[chosen, column] = read[name].to_numpy()[rows[chosen] - begin]
        return table

    def tensor(self, rows: Ints, max_steps: int | None = None) -> npt.NDArray[np.float32]:
        """Return the steps of some episodes, padded in front; the last row is the hold."""
        begin, end = self.begin[rows], self.end[rows]
        lengths = end - begin
        offsets = np.append(0, np.cumsum(lengths))
        flat = np.arange(offsets[-1]) + np.repeat(begin - offsets[:-1], lengths)
        return padded(self.steps[flat], offsets, max_steps or self.spec.max_steps)

    def batches(self, rows: Ints, size: int, seed: int | None = None) -> Iterator[TrainingBatch]:
        """Yield some episodes in batches; with a seed, shuffled.

        Row groups are shuffled, then the rows within each, so that every group is read once.
        """
        group = np.searchsorted(self._group_ends, rows, side="right")
        order = np.unique(group)
        rng = np.random.default_rng(seed)
        if seed is not None:
            order = rng.permutation(order)
        for index in order.tolist():
            chosen = rows[group == index]
            if seed is not None:
                chosen = rng.permutation(chosen)
            features = self.features(chosen)
            for start in range(0, len(chosen), size):
                part = chosen[start : start + size]
                yield TrainingBatch(
                    part, features[start : start + size], self.tensor(part), self.label[part]
                )


def _microseconds(column: Any) -> Ints:
    values: Ints = column.cast("int64").fill_null(-1).to_numpy()
    return values


def _codes(column: Any) -> Ints:
    """Return a number for each text; -1 if there is none."""
    names = {name: index for index, name in enumerate(column.unique().to_pylist()) if name}
    return np.array([names.get(text, -1) for text in column.to_pylist()], np.int64)


def _kin(scope: Ints, values: Ints) -> Ints:
    """Return numbers that are equal only if scope and value are; 0 if there is no value."""
    both = np.stack((scope, values), axis=1)
    which = np.unique(both, axis=0, return_inverse=True)[1].reshape(-1) if len(both) else values
    return np.where(values != 0, which + 1, 0)
