"""Load, save and evaluate failure models: plain arrays and a manifest, with NumPy alone.

A model directory holds `manifest.json`, the history of keys as it was at training
(`history.npz`: hashed keys, no names) and one `<horizon>.npz` of trees per horizon.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import UsageError
from condor_advice.gather.workloads.table import JobState, JobTable
from condor_advice.model.arrays import UnusableModel, load_arrays, save_arrays
from condor_advice.model.failure.anomaly import AnomalyDetector
from condor_advice.model.failure.profiles import Profiles
from condor_advice.model.failure.size_models import SizeModel
from condor_advice.model.failure.sizes import SIZE_LEVELS, SizeHistory
from condor_advice.model.infer import TreeEnsemble, sigmoid
from condor_advice.preprocess.jobs.history import History
from condor_advice.preprocess.jobs.horizons import Horizon, JobDataset, JobFeatures, Labels

Floats = npt.NDArray[np.float64]
FAILURE_FORMAT = 2


class NotAPrediction(UsageError):
    """A prediction was asked for from what is known only after the end."""

    def __init__(self) -> None:
        super().__init__(
            "post_mortem knows how the job ended, so it cannot predict; use submit, start, "
            "two_minutes or running"
        )


@dataclass(frozen=True, slots=True)
class HorizonModel:
    """The trees of one horizon, their calibration, and thresholds to choose from."""

    horizon: Horizon
    names: tuple[str, ...]  # the features used, in the order of the trees
    trees: TreeEnsemble
    slope: float  # probability = sigmoid(slope * margin + offset)
    offset: float
    thresholds: Mapping[str, float]  # "f1", "precision_0.95", ...
    notes: Mapping[str, Any]  # how it was trained, for people

    def probability(self, data: JobDataset) -> Floats:
        """Return the calibrated failure probability of each question."""
        return sigmoid(self.slope * self.trees.predict_margin(self.select(data)) + self.offset)

    def select(self, data: JobDataset) -> npt.NDArray[np.float32]:
        """Return the columns that the trees use."""
        place = {name: index for index, name in enumerate(data.names)}
        missing = [name for name in self.names if name not in place]
        if missing:
            raise UnusableModel(
                f"the {self.horizon} model needs {missing[0]}, which these jobs "
                "do not have; train it on a table with the same columns"
            )
        return data.features[:, [place[name] for name in self.names]]

    def reasons(self, row: npt.NDArray[np.float32]) -> list[tuple[str, float, float]]:
        """Return (feature, value, contribution to the log-odds) of one job, largest first.

        `row` is one row of `select`.
        """
        shares = self.slope * self.trees.contributions(row, len(self.names))[:-1]
        order = np.argsort(-np.abs(shares), kind="stable")
        return [
            (self.names[index], float(row[index]), float(shares[index]))
            for index in order
            if shares[index] != 0.0
        ]


@dataclass(frozen=True, slots=True)
class FailureModels:
    """The models of several horizons, with the feature maker and history that they share."""

    maker: JobFeatures
    models: Mapping[Horizon, HorizonModel]
    history: History
    sizes: Mapping[str, SizeModel] = field(default_factory=dict)
    anomalies: AnomalyDetector | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    def at_submit(self, table: JobTable, now: float) -> tuple[JobDataset, Floats]:
        """Return features and failure probability of jobs about to be submitted."""
        model = self.get(Horizon.SUBMIT)
        data = self.maker.at_submit(table, self.history, now)
        return data, model.probability(data)

    def get(self, horizon: Horizon) -> HorizonModel:
        """Return the model of one horizon."""
        if horizon is Horizon.POST_MORTEM:
            raise NotAPrediction
        if horizon not in self.models:
            raise UnusableModel(
                f"this model was not trained for {horizon}, only for "
                f"{', '.join(self.models)}; train again with --horizon {horizon}"
            )
        return self.models[horizon]

    def save(self, directory: Path) -> None:
        """Write the model directory; leave other files in it alone."""
        if Horizon.POST_MORTEM in self.models:
            raise NotAPrediction
        directory.mkdir(parents=True, exist_ok=True)
        for horizon, model in self.models.items():
            model.trees.save(directory / f"{horizon}.npz")
        save_arrays(directory / "history.npz", self.history.arrays())
        for target, sizes in self.sizes.items():
            save_arrays(directory / f"size-{target}.npz", sizes.arrays())
            for share, trees in sizes.trees.items():
                trees.save(directory / f"size-{target}-{share}.npz")
        if self.anomalies is not None:
            save_arrays(
                directory / "profiles.npz",
                {**self.anomalies.profiles.arrays(), "reference": self.anomalies.reference},
            )
        manifest = {
            "format": FAILURE_FORMAT,
            "kind": "failure",
            "levels": list(self.maker.levels),
            "cpus_from_allocation": self.maker.cpus_from_allocation,
            "failed": sorted(state.name.lower() for state in self.maker.labels.failed),
            "passed": sorted(state.name.lower() for state in self.maker.labels.passed),
            "sizes": {
                target: {
                    "method": sizes.method,
                    "names": list(sizes.names),
                    "shares": list(sizes.trees),
                    "notes": dict(sizes.notes),
                }
                for target, sizes in self.sizes.items()
            },
            "profiles": self.anomalies is not None,
            "notes": self.notes,
            "horizons": {
                str(horizon): {
                    "names": list(model.names),
                    "slope": model.slope,
                    "offset": model.offset,
                    "thresholds": dict(model.thresholds),
                    "notes": dict(model.notes),
                }
                for horizon, model in self.models.items()
            },
        }
        # The manifest is written last: a directory with a manifest is complete.
        (directory / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")

    @classmethod
    def load(cls, directory: Path) -> FailureModels:
        """Read a model directory. Nothing in it is executed or unpickled."""
        path = directory / "manifest.json"
        try:
            manifest = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise UnusableModel(
                f"{path}: {error}; train a model with `condor-advice failures train --out DIR`"
            ) from error
        if manifest.get("kind") != "failure" or manifest.get("format") != FAILURE_FORMAT:
            raise UnusableModel(
                f"{path}: not a failure model of format {FAILURE_FORMAT}; train it again"
            )
        if str(Horizon.POST_MORTEM) in manifest["horizons"]:
            raise NotAPrediction
        maker = JobFeatures(
            tuple(manifest["levels"]),
            Labels(states(manifest["failed"]), states(manifest["passed"])),
            bool(manifest["cpus_from_allocation"]),
        )
        history = History.from_arrays(load_arrays(directory / "history.npz"), maker.levels)
        sizes = {
            target: _load_sizes(directory, target, part)
            for target, part in manifest["sizes"].items()
        }
        anomalies = None
        if manifest["profiles"]:
            arrays = load_arrays(directory / "profiles.npz")
            anomalies = AnomalyDetector(Profiles.from_arrays(arrays), arrays["reference"])
        models = {}
        for name, part in manifest["horizons"].items():
            horizon = Horizon(name)
            models[horizon] = HorizonModel(
                horizon,
                tuple(part["names"]),
                TreeEnsemble.load(directory / f"{name}.npz"),
                float(part["slope"]),
                float(part["offset"]),
                part["thresholds"],
                part["notes"],
            )
        return cls(maker, models, history, sizes, anomalies, manifest["notes"])


def default_directory() -> Path:
    """Return where `failures train` writes a model and `predict` looks for it."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "condor-advice" / "failures"


def _load_sizes(directory: Path, target: str, part: Mapping[str, Any]) -> SizeModel:
    arrays = load_arrays(directory / f"size-{target}.npz")
    corrections = {}
    for name, values in arrays.items():
        if name.startswith("correction-"):
            _, method, share = name.split("-")
            corrections[method, float(share)] = values
    return SizeModel(
        SizeHistory.from_arrays(arrays, SIZE_LEVELS),
        part["method"],
        tuple(part["names"]),
        {
            share: TreeEnsemble.load(directory / f"size-{target}-{share}.npz")
            for share in part["shares"]
        },
        corrections,
        part["notes"],
    )


def states(words: list[str] | tuple[str, ...]) -> frozenset[JobState]:
    """Return the job states of these names."""
    known = {state.name.lower(): state for state in JobState if state}
    for word in words:
        if word not in known:
            raise UsageError(f"unknown state {word}; choose from {', '.join(known)}")
    return frozenset(known[word] for word in words)
