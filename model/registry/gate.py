"""The gate: a model replaces the current one only if it is not worse on the newest episodes.

Both models predict the same episodes, newer than the candidate's training. A paired bootstrap
compares their Brier scores. It draws whole kin groups (clusters, DAGs, batches): jobs of a cluster
share their fate, and drawing single episodes would make the intervals too narrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import UsageError
from condor_advice.model.held.data import HeldData
from condor_advice.model.held.model import Predictions
from condor_advice.model.held.parts import Inputs
from condor_advice.model.metrics import log_losses, roc_auc
from condor_advice.preprocess.holds.labels import NO_LABEL
from condor_advice.preprocess.holds.outcomes import OUTCOME_INDEX, Outcome

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

BOOTSTRAP_ROUNDS = 2000
LEVEL = 0.95
# A Brier score up to this much higher is "not worse": the choice of a seed changes it by more.
TOLERANCE = 0.01
MIN_KIN = 20  # a bootstrap over fewer groups means nothing
MIN_WINDOW_EPISODES = 50
WINDOW_SHARE = 0.2  # of the labelled episodes: the newest, kept for the comparison


class Answers(Protocol):
    """A model, as the gate uses it."""

    @property
    def name(self) -> str:
        """The name of the model."""
        ...

    @property
    def trained(self) -> Mapping[str, Any]:
        """A description of its training data."""
        ...

    def predict(self, inputs: Inputs) -> Predictions:
        """Predict the success of holds."""
        ...


@dataclass(frozen=True, slots=True)
class GateResult:
    """The result of a comparison; differences are candidate minus current."""

    current: str
    candidate: str
    verdict: str  # "better", "not worse", "worse" or "unclear"
    reason: str  # one sentence
    episodes: int = 0
    kin: int = 0
    begins: str | None = None
    ends: str | None = None
    left_out: int = 0  # held before the candidate's training ended
    brier_current: float | None = None
    brier_candidate: float | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None
    tolerance: float = TOLERANCE
    log_loss_difference: float | None = None
    log_loss_interval: tuple[float, float] | None = None
    roc_auc_current: float | None = None
    roc_auc_candidate: float | None = None
    rounds: int = BOOTSTRAP_ROUNDS
    seed: int = 0

    @property
    def passed(self) -> bool:
        """Tell whether the candidate may replace the current model."""
        return self.verdict in ("better", "not worse")

    def as_dict(self) -> dict[str, Any]:
        """Return all figures."""
        return {**asdict(self), "passed": self.passed}


def compare(
    current: Answers,
    candidate: Answers,
    window: HeldData,
    *,
    tolerance: float = TOLERANCE,
    rounds: int = BOOTSTRAP_ROUNDS,
    seed: int = 0,
) -> GateResult:
    """Compare two models on the labelled episodes of a window.

    Episodes from before the end of the candidate's training are left out.
    """
    result = GateResult(
        current.name, candidate.name, "unclear", "", tolerance=tolerance, rounds=rounds, seed=seed
    )
    known = window.label != NO_LABEL
    ended = _moment(candidate.trained.get("until"))
    seen = known & (window.time <= ended)
    data = window.take(np.flatnonzero(known & ~seen))
    result = replace(result, left_out=int(seen.sum()))
    if len(data):
        result = replace(result, begins=_when(data.time.min()), ends=_when(data.time.max()))
    kin = np.unique(data.kin, return_inverse=True)[1]
    clusters = int(kin.max(initial=-1)) + 1
    result = replace(result, episodes=len(data), kin=clusters)
    if len(data) < MIN_WINDOW_EPISODES or clusters < MIN_KIN:
        return replace(
            result,
            reason=f"only {len(data):,} episodes of {clusters:,} clusters with a known outcome are "
            f"newer than the candidate's training; a comparison needs {MIN_WINDOW_EPISODES} "
            f"episodes of {MIN_KIN} clusters: gather more logs, or promote with --force",
        )
    label = data.label.astype(np.float64)
    p_current, p_candidate = (
        model.predict(Inputs.of(data)).p_success for model in (current, candidate)
    )
    return replace(result, **judge(label, p_current, p_candidate, kin, tolerance, rounds, seed))


def judge(
    label: Floats,
    p_current: Floats,
    p_candidate: Floats,
    kin: Ints,
    tolerance: float = TOLERANCE,
    rounds: int = BOOTSTRAP_ROUNDS,
    seed: int = 0,
) -> dict[str, Any]:
    """Return verdict, reason and figures for two sets of predictions of the same episodes."""
    squares = [(p - label) ** 2 for p in (p_current, p_candidate)]
    losses = [log_losses(label, p) for p in (p_current, p_candidate)]
    brier, interval = paired_bootstrap(squares[1] - squares[0], kin, rounds, seed)
    loss, loss_interval = paired_bootstrap(losses[1] - losses[0], kin, rounds, seed)
    low, high = interval
    figures = (
        f"Brier score {np.mean(squares[1]):.4f} against {np.mean(squares[0]):.4f}, difference "
        f"{brier:+.4f} ({low:+.4f} to {high:+.4f})"
    )
    if high < 0:
        verdict, words = "better", "the candidate is better"
    elif low > 0:
        verdict, words = "worse", "the candidate is worse"
    elif loss_interval[0] > 0:
        verdict = "worse"
        words = f"the candidate is more confident where it is wrong (log loss {loss:+.4f})"
    elif high <= tolerance:
        verdict, words = "not worse", f"the candidate is not worse by more than {tolerance:g}"
    else:
        verdict = "unclear"
        words = f"the candidate could be worse by more than {tolerance:g}; gather more outcomes"
    return {
        "verdict": verdict,
        "reason": f"{words}: {figures}",
        "brier_current": float(np.mean(squares[0])),
        "brier_candidate": float(np.mean(squares[1])),
        "difference": brier,
        "interval": interval,
        "log_loss_difference": loss,
        "log_loss_interval": loss_interval,
        "roc_auc_current": _finite(roc_auc(label, p_current)),
        "roc_auc_candidate": _finite(roc_auc(label, p_candidate)),
    }


def paired_bootstrap(
    difference: Floats,
    kin: Ints,
    rounds: int = BOOTSTRAP_ROUNDS,
    seed: int = 0,
    level: float = LEVEL,
) -> tuple[float, tuple[float, float]]:
    """Return the mean of a difference per episode, and its bootstrap interval over kin."""
    _, group = np.unique(kin, return_inverse=True)
    sums, sizes = np.bincount(group, difference), np.bincount(group)
    rng = np.random.default_rng(seed)
    means = np.empty(rounds)
    block = max(1, 4_000_000 // max(1, len(sums)))
    for start in range(0, rounds, block):
        drawn = rng.integers(0, len(sums), (min(block, rounds - start), len(sums)))
        means[start : start + len(drawn)] = sums[drawn].sum(1) / sizes[drawn].sum(1)
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(means, (tail, 1.0 - tail))
    return float(difference.mean()), (float(low), float(high))


def hold_out_newest(data: HeldData, share: float = WINDOW_SHARE) -> tuple[HeldData, HeldData]:
    """Split episodes into those to train on and the newest, to compare models on.

    Kin belong to the side of their first hold; their holds after the border are in neither side.
    Training does not see what happened after the border: a hold that was open then is open.
    """
    labelled = np.sort(data.time[data.labelled])
    if len(labelled) < 2 or not 0 < share < 1:
        raise UsageError(
            f"{len(labelled)} labelled episodes cannot be split into training and a window of "
            f"{share:.0%}; gather more logs"
        )
    border = int(labelled[min(int((1 - share) * len(labelled)), len(labelled) - 1)])
    first = np.full(int(data.kin.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, data.kin, data.time)
    older = data.time < border
    before = data.take(np.flatnonzero(older))
    still_open = (before.decided < 0) | (before.decided >= border)
    held = (before.released < 0) | (before.released >= border)
    unknown = np.where(held, OUTCOME_INDEX[Outcome.NEVER_RELEASED], OUTCOME_INDEX[Outcome.UNKNOWN])
    before = replace(
        before,
        label=np.where(still_open, NO_LABEL, before.label).astype(np.int8),
        outcome=np.where(still_open, unknown, before.outcome).astype(np.int8),
        released=np.where(held, -1, before.released),
        decided=np.where(still_open, -1, before.decided),
        changed=before.changed & ~held,
    )
    return before, data.take(np.flatnonzero(~older & (first[data.kin] >= border)))


def _moment(text: object) -> int:
    """Return an ISO time in microseconds; without one, a time before all episodes."""
    if not isinstance(text, str):
        return -(1 << 62)
    when = datetime.fromisoformat(text)
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return int(when.timestamp() * 1_000_000)


def _when(microseconds: Any) -> str:
    return datetime.fromtimestamp(int(microseconds) // 1_000_000, UTC).isoformat()


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
