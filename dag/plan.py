"""The contents of a sweep directory.

`sweep init` writes `sweep.json` once; nodes and scripts read it. What changes is in the state
(state.py) and in each trial's own directory.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from condor_advice.dag.space import Parameter, combinations
from condor_advice.dag.sweepfile import (
    Environment,
    Hyperband,
    Metric,
    Resources,
    SplitShares,
    SweepFile,
    SweepSource,
)
from condor_advice.gather.errors import Unreachable, UsageError

PLAN_FILE = "sweep.json"
PLAN_FORMAT = 1
DAG_FILE = "sweep.dag"
STATUS_FILE = "nodes.status"
# Preprocessing parameters (those of TensorSpec); trials with the same ones share their data.
PREPROCESSING: dict[str, Any] = {
    "max_steps": 64,
    "neighbours": 0,
    "neighbour_steps": 8,
    "frame_seconds": 3600,
}
MOST_PREPARED = 32


@dataclass(frozen=True)
class SweepPlan:
    """A sweep as it was planned."""

    directory: Path
    name: str
    trials: int
    method: str
    metric: Metric
    parameters: tuple[Parameter, ...]
    hyperband: Hyperband | None
    sources: tuple[SweepSource, ...]
    split: SplitShares
    seeds: tuple[int, ...]
    search_seed: int
    engine: str
    resources: Resources
    environment: Environment
    tracking: str
    candidates: int
    prepared: Mapping[str, Mapping[str, Any]]  # key -> its preprocessing parameters
    python: str  # the access point's Python, for scripts and the FINAL node
    texts: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)  # W&B's keys of the file
    created: str = ""
    version: str = ""

    @property
    def lanes(self) -> int:
        """The number of trials that run at a time; 0 means no limit.

        Bayesian search learns from finished trials, so it must not start them all at once.
        """
        limit = self.resources.max_running
        if not limit and self.method == "bayes":
            limit = max(4, math.ceil(self.trials / 10))
        return limit if limit < self.trials else 0

    @property
    def most_epochs(self) -> int:
        """The largest number of epochs of any trial."""
        [epochs] = [p for p in self.parameters if p.name == "epochs"]
        return int(max(epochs.choices() or [epochs.at(1.0)]))

    # ---- paths ------------------------------------------------------------------------

    def trial_directory(self, number: int) -> Path:
        """Return the directory of a trial's input and output."""
        return self.directory / "trials" / trial_name(number)

    def prepared_file(self, key: str) -> Path:
        """Return the file with the split episodes of one preprocessing."""
        return self.directory / "prepared" / key / "out" / "data.npz"

    def prepared_for(self, parameters: Mapping[str, Any]) -> str:
        """Return the key of the preprocessing that a trial's parameters ask for."""
        return preparation_key(
            {name: parameters.get(name, default) for name, default in PREPROCESSING.items()}
        )

    def run_identity(self, number: int) -> str:
        """Return a trial's W&B run id, which is the same every time the run is sent."""
        sweep = hashlib.sha256(f"{self.name} {self.created} {self.directory}".encode())
        return f"{sweep.hexdigest()[:10]}-{number}"

    @property
    def evaluation(self) -> Path:
        """The file with the best trials' figures on the test split."""
        return self.directory / "evaluation.json"

    @property
    def report(self) -> Path:
        """The directory of the report."""
        return self.directory / "report"

    # ---- file -------------------------------------------------------------------------

    def save(self, directory: Path) -> None:
        """Write the plan into a directory: its own, or the one to be renamed to it."""
        content = {"format": PLAN_FORMAT} | asdict(self)
        del content["directory"]
        (directory / PLAN_FILE).write_text(json.dumps(content, indent=1) + "\n")

    @classmethod
    def load(cls, directory: Path) -> SweepPlan:
        """Read the plan of a sweep directory."""
        try:
            content = json.loads((directory / PLAN_FILE).read_text())
        except FileNotFoundError:
            raise Unreachable(
                f"{directory}: no sweep here ({PLAN_FILE} is missing); `condor-advice sweep init` "
                "makes one"
            ) from None
        except (OSError, ValueError) as error:
            raise Unreachable(f"{directory / PLAN_FILE}: cannot read the plan ({error})") from error
        if content.pop("format", None) != PLAN_FORMAT:
            raise Unreachable(
                f"{directory / PLAN_FILE}: written by another version of condor-advice; use that "
                "version, or plan the sweep again"
            )
        hyperband = content["hyperband"]
        return cls(
            **content
            | {
                "directory": directory,
                "metric": Metric(**content["metric"]),
                "parameters": tuple(Parameter(**p) for p in content["parameters"]),
                "hyperband": hyperband and Hyperband(tuple(hyperband["bands"]), hyperband["eta"]),
                "sources": tuple(SweepSource(**s) for s in content["sources"]),
                "split": SplitShares(**content["split"]),
                "seeds": tuple(content["seeds"]),
                "resources": Resources(**content["resources"]),
                "environment": Environment(**content["environment"]),
            }
        )


def trial_name(number: int) -> str:
    """Return a trial's name in files and in the DAG."""
    return f"trial-{number}"


def trial_number(name: str) -> int:
    """Return the number in a trial's name."""
    kind, _, number = name.partition("-")
    if kind != "trial" or not number.isdigit():
        raise UsageError(f"{name!r} is not a trial; trials are named trial-0, trial-1, ...")
    return int(number)


def preparation_key(parameters: Mapping[str, Any]) -> str:
    """Return a short name for one choice of preprocessing parameters."""
    text = json.dumps(parameters, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def preparations(sweep: SweepFile) -> dict[str, dict[str, Any]]:
    """Return every preprocessing that a trial may ask for, by key."""
    searched = [p for p in sweep.parameters if p.name in PREPROCESSING]
    endless = [p.name for p in searched if p.choices() is None]
    if endless:
        raise UsageError(
            f"{sweep.path}: {', '.join(endless)}: preprocessing runs before the trials, so its "
            "parameters need choices (value, values, int_uniform or q_uniform)"
        )
    prepared = {}
    for chosen in combinations(searched):
        parameters = PREPROCESSING | chosen
        prepared[preparation_key(parameters)] = parameters
    if len(prepared) > MOST_PREPARED:
        raise UsageError(
            f"{sweep.path}: {len(prepared)} ways of preprocessing (at most {MOST_PREPARED}); "
            f"give {', '.join(p.name for p in searched)} fewer choices"
        )
    return prepared
