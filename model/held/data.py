"""Hold episodes of one or more access points, as training data for models for held jobs.

load.py reads them from logs, stores and exports. A release after a repair says nothing about a
release as is: where a repair is known (`changed`), the episode has no label, as if the job had
never been released.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import AdviceError
from condor_advice.model.arrays import hash_arrays, load_arrays, save_arrays
from condor_advice.model.held.evidence_rows import EvidenceTensors, join_tensors
from condor_advice.preprocess.holds.evidence import EvidenceTable
from condor_advice.preprocess.holds.export import ExportedEpisodes
from condor_advice.preprocess.holds.facts import decision_moment, facts_of
from condor_advice.preprocess.holds.features import FEATURE_NAMES
from condor_advice.preprocess.holds.job_numbers import cluster_of
from condor_advice.preprocess.holds.labels import NO_LABEL, labels_of
from condor_advice.preprocess.holds.outcomes import OUTCOME_INDEX, Outcome
from condor_advice.preprocess.holds.samples import Samples
from condor_advice.preprocess.holds.splits import Moments, kin_groups
from condor_advice.preprocess.holds.tensors import EpisodeTensor

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MIN_LABELLED = 200
MIN_OF_EACH = 20
_ROWS = "rows_"  # prefix of the arrays that hold the rows of a part
_EVIDENCE = "evidence_"  # prefix of the arrays of the evidence


class CannotTrain(AdviceError):
    """There are too few hold episodes, or all had the same outcome."""


@dataclass(frozen=True)
class HeldData:
    """Hold episodes, in time order within each source."""

    features: npt.NDArray[np.float32]  # axes: (episode, feature), as FEATURE_NAMES
    steps: EpisodeTensor  # rows of all episodes, without padding
    offsets: Ints
    label: npt.NDArray[np.int8]  # outcome of a release as is; NO_LABEL where not known
    outcome: npt.NDArray[np.int8]  # index in OUTCOMES, repaired or not
    time: Ints  # microseconds
    released: Ints  # microseconds; -1 not released
    decided: Ints  # microseconds; -1 open
    kin: Ints  # jobs of one cluster, DAG or batch share a number
    source: npt.NDArray[np.int32]  # which log, recording or export
    changed: Bools  # released after a repair
    evidence: EvidenceTensors  # as of the release, or of the hold where there was none
    sources: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.label)

    @property
    def labelled(self) -> Ints:
        """Rows with a known outcome of a release as is."""
        return np.flatnonzero(self.label != NO_LABEL)

    @property
    def was_released(self) -> Bools:
        """Tell which holds ended in a release."""
        released: Bools = self.outcome != OUTCOME_INDEX[Outcome.NEVER_RELEASED]
        return released

    def take(self, rows: Ints) -> HeldData:
        """Return the episodes in these rows."""
        lengths = self.lengths()[rows]
        offsets = np.append(0, np.cumsum(lengths))
        flat = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        chosen = {
            field.name: getattr(self, field.name)[rows]
            for field in fields(self)
            if field.name not in ("steps", "offsets", "evidence", "sources")
        }
        return HeldData(
            steps=self.steps[flat],
            offsets=offsets,
            evidence=self.evidence.take(rows),
            sources=self.sources,
            **chosen,
        )

    def lengths(self) -> Ints:
        """Return the number of steps of each episode."""
        return np.diff(self.offsets)

    def hash(self) -> str:
        """Return a hash of everything that models learn from."""
        evidence = (self.evidence.tokens, self.evidence.query)
        return hash_arrays(
            (self.features, self.steps, self.offsets, self.label, self.time, *evidence)
        )

    def save(self, path: Path, parts: Mapping[str, Ints] | None = None) -> None:
        """Write all episodes, and the rows of named parts, to one .npz file."""
        arrays = {
            field.name: np.asarray(getattr(self, field.name))
            for field in fields(self)
            if field.name != "evidence"
        }
        evidence = {
            f"{_EVIDENCE}{field.name}": getattr(self.evidence, field.name)
            for field in fields(EvidenceTensors)
        }
        rows = {f"{_ROWS}{name}": rows for name, rows in (parts or {}).items()}
        names = {"feature_names": np.array(FEATURE_NAMES)}
        save_arrays(path, arrays | names | evidence | rows)

    @classmethod
    def load(cls, path: Path) -> HeldData:
        """Read the episodes that `save` wrote; refuse features of another version."""
        return cls.load_with_parts(path)[0]

    @classmethod
    def load_with_parts(cls, path: Path) -> tuple[HeldData, dict[str, Ints]]:
        """Read what `save` wrote: the episodes, and the rows of each part."""
        arrays = load_arrays(path, most_bytes=None)  # as many episodes as there are
        if tuple(arrays.pop("feature_names", np.array([])).tolist()) != FEATURE_NAMES:
            raise CannotTrain(
                f"{path}: written by another version of condor-advice, with other features; write "
                "it again with this version"
            )
        sources = tuple(map(str, arrays.pop("sources").tolist()))
        names = [name for name in arrays if name.startswith(_ROWS)]
        parts = {name.removeprefix(_ROWS): arrays.pop(name) for name in names}
        evidence = EvidenceTensors(
            **{field.name: arrays.pop(_EVIDENCE + field.name) for field in fields(EvidenceTensors)}
        )
        return cls(sources=sources, evidence=evidence, **arrays), parts

    def moments(self) -> Moments:
        """Return the times and groups that a split by time needs."""
        return Moments(self.time, self.decided, self.label, (self.kin + 1,))

    def summary(self) -> dict[str, object]:
        """Return the counts that a manifest and a model card show."""
        known = self.label[self.labelled]
        return {
            "sources": list(self.sources),
            "episodes": len(self),
            "labelled": len(known),
            "succeeded": int((known == 1).sum()),
            "released_after_a_repair": int(self.changed.sum()),
            "never_released": int((~self.was_released).sum()),
            "clusters": len(np.unique(self.kin)),
        }

    def check(self) -> None:
        """Raise CannotTrain if there are too few labelled episodes."""
        known = self.label[self.labelled]
        good, bad = int((known == 1).sum()), int((known == 0).sum())
        counted = (
            f"{len(self):,} hold episodes, {good + bad:,} of them with a known outcome of a "
            f"release as is: {good:,} succeeded, {bad:,} did not"
        )
        if good + bad < MIN_LABELLED:
            raise CannotTrain(
                f"{counted}; at least {MIN_LABELLED} are needed: gather more logs, or add "
                "`--recording pool_a --recording pool_d` (until then the shipped model is used)"
            )
        if min(good, bad) < MIN_OF_EACH:
            raise CannotTrain(
                f"{counted}; at least {MIN_OF_EACH} successes and {MIN_OF_EACH} failures are "
                "needed: gather more logs, or add `--recording pool_a --recording pool_d`"
            )


def from_samples(samples: Samples, source: str, changed: Bools | None = None) -> HeldData:
    """Convert episodes in memory to training data."""
    count = len(samples)
    changed = samples.outcomes["changed"] != 0 if changed is None else changed
    outcome = samples.outcomes["outcome"].astype(np.int8)
    episodes = samples.episodes
    batch = np.where(episodes["batch"] != 0, episodes["batch"] * 1_000_003 + episodes["owner"], 0)
    kin = _kin((cluster_of(episodes["job"]) + 1, episodes["dag"], batch))
    return HeldData(
        samples.features,
        samples.steps,
        samples.offsets,
        labels_of(outcome, changed),
        outcome,
        episodes["time"].astype(np.int64),
        samples.outcomes["released"].astype(np.int64),
        samples.outcomes["decided"].astype(np.int64),
        kin,
        np.zeros(count, np.int32),
        changed,
        evidence_of(samples, changed),
        (source,),
    )


def evidence_of(samples: Samples, changed: Bools) -> EvidenceTensors:
    """Return what was known about each hold when it was released.

    A hold that was not released is asked about as of its beginning.
    """
    facts = facts_of(samples.episodes, samples.outcomes)
    facts["changed"] |= changed
    return EvidenceTensors.of(
        EvidenceTable(facts, samples.ends).evidence(
            np.arange(len(facts)), [decision_moment(fact) for fact in facts]
        )
    )


def from_export(dataset: ExportedEpisodes, name: str = "") -> HeldData:
    """Convert an export; refuse one with features of another version."""
    where = {name: index for index, name in enumerate(dataset.feature_names)}
    missing = [name for name in FEATURE_NAMES if name not in where]
    if missing:
        raise CannotTrain(
            f"{dataset.directory}: the export does not have the feature {missing[0]}"
            + (f" and {len(missing) - 1} others" if len(missing) > 1 else "")
            + "; it was written by another version of condor-advice: export again"
        )
    rows = np.arange(len(dataset))
    features = dataset.features(rows)[:, [where[name] for name in FEATURE_NAMES]]
    lengths = dataset.end - dataset.begin
    offsets = np.append(0, np.cumsum(lengths))
    flat = np.arange(offsets[-1]) + np.repeat(dataset.begin - offsets[:-1], lengths)
    unknown, never = OUTCOME_INDEX[Outcome.UNKNOWN], OUTCOME_INDEX[Outcome.NEVER_RELEASED]
    good, bad = OUTCOME_INDEX[Outcome.SUCCEEDED], OUTCOME_INDEX[Outcome.HELD_SAME]
    outcome = np.select(
        [dataset.label == 1, dataset.label == 0, dataset.decided < 0], [good, bad, unknown], never
    )
    return HeldData(
        features,
        np.asarray(dataset.steps[flat]),
        offsets,
        dataset.label,
        outcome.astype(np.int8),
        dataset.time,
        np.full(len(rows), -1),
        dataset.decided,
        _kin((dataset.cluster, dataset.dag, dataset.batch)),
        np.zeros(len(rows), np.int32),
        np.zeros(len(rows), np.bool_),
        EvidenceTensors.nothing(len(rows)),
        (name or dataset.directory.name,),
    )


def _kin(columns: Sequence[Ints]) -> Ints:
    return kin_groups(columns) if len(columns[0]) else np.zeros(0, np.int64)


def join(parts: Sequence[HeldData]) -> HeldData:
    """Join the episodes of several sources; kin groups never span sources."""
    if len(parts) == 1:
        return parts[0]
    kin, source, offsets = [], [], [np.zeros(1, np.int64)]
    next_kin = next_source = steps = 0
    for part in parts:
        kin.append(part.kin + next_kin)
        source.append(part.source + np.int32(next_source))
        offsets.append(part.offsets[1:] + steps)
        next_kin += int(part.kin.max(initial=-1)) + 1
        next_source += len(part.sources)
        steps += int(part.offsets[-1])
    joined = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        for field in fields(HeldData)
        if field.name not in ("kin", "source", "offsets", "evidence", "sources")
    }
    return HeldData(
        evidence=join_tensors(part.evidence for part in parts),
        kin=np.concatenate(kin),
        source=np.concatenate(source),
        offsets=np.concatenate(offsets),
        sources=tuple(name for part in parts for name in part.sources),
        **joined,
    )
