"""An LSTM over the events of a held job: the network, its training, its export.

A step consists of embeddings (kind of event, code, family) and scaled numbers (times, usage, the
state of the pool). The last state, optionally with attention over all states, predicts the
log-odds of success and, as an auxiliary task, the kind of outcome.

Training is deterministic for a seed, a machine and a number of threads. A killed training resumes
at its last epoch and reaches the same weights, bit for bit: the state file has weights, optimizer
and random state, and the order of the data depends on seed and epoch alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import AdviceError
from condor_advice.model.held.data import CannotTrain, HeldData
from condor_advice.model.infer import sigmoid
from condor_advice.model.infer.lstm import (
    CODES,
    EVENT_COLUMNS,
    FAMILY_PLACES,
    NUMBERS,
    LstmNetwork,
    step_indices,
)
from condor_advice.model.metrics import log_loss, roc_auc
from condor_advice.model.tracking import NoTracking, Tracker
from condor_advice.preprocess.holds.outcomes import OUTCOME_INDEX, Outcome
from condor_advice.preprocess.holds.templates import TEMPLATE_BUCKETS

if TYPE_CHECKING:
    import torch

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_STATE_VERSION = 1
# The classes of the auxiliary task.
_KINDS_OF_END = (Outcome.SUCCEEDED, Outcome.HELD_SAME, Outcome.HELD_OTHER, Outcome.FAILED)


class NotTheSameTraining(AdviceError):
    """The state file is from a training with other settings or data."""


@dataclass(frozen=True, slots=True)
class LstmSettings:
    """Size and training of the network."""

    layers: int = 1
    hidden: int = 32
    attention: bool = True
    dropout: float = 0.3
    step_dropout: float = 0.1  # share of steps dropped in training, never the hold itself
    template_embedding: int = 0  # columns; 0 because templates differ between pools
    learning_rate: float = 3e-3
    weight_decay: float = 1e-3
    epochs: int = 20
    batch: int = 64
    class_weight: float = 1.0  # of a success; 0: balance successes and failures
    auxiliary: float = 0.2  # weight of the auxiliary task
    max_steps: int = 64
    patience: int = 6  # epochs without improvement before training stops; 0: never
    keep: str = "best"  # weights of the epoch with the "best" validation loss, or the "last"
    seed: int = 0
    threads: int = 1

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for a manifest."""
        return asdict(self)

    def same_training(self) -> dict[str, Any]:
        """Return the settings that must not change when a training resumes."""
        return {k: v for k, v in asdict(self).items() if k not in ("epochs", "patience", "keep")}


@dataclass(frozen=True, slots=True)
class EpochReport:
    """One epoch's figures."""

    epoch: int  # from 1
    epochs: int
    train_loss: float
    validation_loss: float  # log loss of success
    validation_roc_auc: float
    best: bool  # no earlier epoch had a lower validation loss

    def metrics(self) -> dict[str, float]:
        """Return the figures by name."""
        return {
            "train_loss": self.train_loss,
            "validation_loss": self.validation_loss,
            "validation_roc_auc": self.validation_roc_auc,
        }


@dataclass(frozen=True)
class TrainedLstm:
    """A trained network as plain arrays, and the history of its training."""

    network: LstmNetwork
    settings: LstmSettings
    history: tuple[EpochReport, ...]
    best_epoch: int
    weights: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)  # torch's names


def build(settings: LstmSettings) -> torch.nn.Module:
    """Return the network, with weights drawn from torch's random state."""
    import torch
    from torch import nn

    sizes = (
        (len(EVENT_COLUMNS) + 1, 8),
        (CODES, 4),
        (FAMILY_PLACES, 6),
        (TEMPLATE_BUCKETS, settings.template_embedding),
    )

    class Network(nn.Module):
        """Embeddings and numbers → LSTM → pooling → head."""

        def __init__(self) -> None:
            super().__init__()
            self.embeddings = nn.ModuleList(nn.Embedding(n, d) for n, d in sizes if d)
            width = len(NUMBERS) + sum(columns for _, columns in sizes)
            self.lstm = nn.LSTM(
                width,
                settings.hidden,
                settings.layers,
                batch_first=True,
                dropout=settings.dropout if settings.layers > 1 else 0.0,
            )
            pooled = settings.hidden * (2 if settings.attention else 1)
            if settings.attention:
                self.attend = nn.Linear(settings.hidden, settings.hidden)
                self.vector = nn.Parameter(torch.randn(settings.hidden) * 0.1)
            self.drop = nn.Dropout(settings.dropout)
            self.head = nn.Linear(pooled, 1 + len(_KINDS_OF_END))

        def forward(
            self, indices: torch.Tensor, numbers: torch.Tensor, lengths: torch.Tensor
        ) -> torch.Tensor:
            """Return the outputs for episodes padded at the end; axes: (episode, output)."""
            columns = [table(indices[..., nth]) for nth, table in enumerate(self.embeddings)]
            inputs = torch.cat([*columns, numbers], dim=-1)
            inside = torch.arange(inputs.shape[1]) < lengths[:, None]
            states, _ = self.lstm(inputs * inside[..., None])
            last = states[torch.arange(len(states)), lengths - 1]
            if settings.attention:
                score = torch.tanh(self.attend(states)) @ self.vector
                share = torch.softmax(score.masked_fill(~inside, -torch.inf), dim=1)
                last = torch.cat((last, torch.einsum("ns,nsh->nh", share, states)), dim=1)
            outputs: torch.Tensor = self.head(self.drop(last))
            return outputs

    return Network()


# ---- data ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Encoded:
    """Episodes as the network reads them: embedding indices and scaled numbers."""

    indices: Ints  # axes: (step, 4)
    numbers: npt.NDArray[np.float32]  # axes: (step, number)
    begin: Ints
    lengths: Ints
    label: npt.NDArray[np.float32]
    end: Ints  # index in _KINDS_OF_END; -1 unknown
    weight: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.lengths)


def _encode(
    data: HeldData,
    weight: Floats | None,
    mean: npt.NDArray[np.float32],
    scale: npt.NDArray[np.float32],
    settings: LstmSettings,
) -> _Encoded:
    end = data.offsets[1:]
    begin = np.maximum(data.offsets[:-1], end - settings.max_steps)
    places = {OUTCOME_INDEX[outcome]: place for place, outcome in enumerate(_KINDS_OF_END)}
    kind_of_end = np.array([places.get(outcome, -1) for outcome in data.outcome.tolist()])
    return _Encoded(
        step_indices(data.steps),
        ((data.steps[:, NUMBERS] - mean) / scale).astype(np.float32),
        begin,
        end - begin,
        (data.label == 1).astype(np.float32),
        # The outcome after a repair says nothing about a release as is.
        np.where(data.changed, -1, kind_of_end).astype(np.int64),
        np.ones(len(data), np.float32) if weight is None else weight.astype(np.float32),
    )


def scaling(data: HeldData) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return mean and spread of the numbers over all steps."""
    numbers = data.steps[:, NUMBERS].astype(np.float64)
    spread = numbers.std(axis=0)
    return (
        numbers.mean(axis=0).astype(np.float32),
        np.where(spread > 1e-6, spread, 1.0).astype(np.float32),
    )


def bucketed_batches(lengths: Ints, batch: int, rng: np.random.Generator) -> list[Ints]:
    """Return batches of rows of similar length, in random order, to keep padding small."""
    order = rng.permutation(len(lengths))
    wide = batch * 8
    batches = []
    for start in range(0, len(order), wide):
        bucket = order[start : start + wide]
        bucket = bucket[np.argsort(lengths[bucket], kind="stable")]
        batches += [bucket[at : at + batch] for at in range(0, len(bucket), batch)]
    return [batches[index] for index in rng.permutation(len(batches)).tolist()]


def _tensors(
    data: _Encoded, rows: Ints, leave_out: float, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    import torch

    lengths = data.lengths[rows]
    place = data.begin[rows][:, None] + np.arange(int(lengths.max()))
    inside = np.arange(place.shape[1]) < lengths[:, None]
    if leave_out:
        kept = inside & (rng.random(inside.shape) >= leave_out)
        kept[np.arange(len(rows)), lengths - 1] = True
        # Kept steps move to the front, in order.
        order = np.argsort(~kept, axis=1, kind="stable")
        place = np.take_along_axis(place, order, axis=1)
        lengths = kept.sum(axis=1)
        inside = np.arange(place.shape[1]) < lengths[:, None]
    place = np.where(inside, place, 0)
    return (
        torch.from_numpy(data.indices[place]),
        torch.from_numpy(data.numbers[place]),
        torch.from_numpy(lengths),
    )


# ---- training ------------------------------------------------------------------------------


def train(
    train_data: HeldData,
    validation_data: HeldData,
    settings: LstmSettings,
    state_file: Path | None = None,
    on_epoch: Callable[[EpochReport], bool | None] | None = None,
    *,
    weight: Floats | None = None,
    tracker: Tracker | None = None,
    progress: bool = False,
) -> TrainedLstm:
    """Train on labelled episodes; keep the epoch with the lowest validation loss.

    Rows without a label are left out of both data sets. With a state file, a stopped training
    resumes. `on_epoch` may return True to stop early. `weight` has one value per row of
    `train_data`.
    """
    import torch

    if weight is not None:
        weight = weight[train_data.labelled]
    train_data = train_data.take(train_data.labelled)
    validation_data = validation_data.take(validation_data.labelled)
    if not len(train_data) or not len(validation_data):
        raise CannotTrain(
            f"{len(train_data)} labelled episodes for training and {len(validation_data)} for "
            "validation; both are needed: gather more logs"
        )
    torch.set_num_threads(settings.threads)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(settings.seed)
    mean, scale = scaling(train_data)
    rows = _encode(train_data, weight, mean, scale, settings)
    later = _encode(validation_data, None, mean, scale, settings)
    network = build(settings)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    work = _Work(
        network,
        optimizer,
        {"settings": settings.same_training(), "data": train_data.hash()},
        state_file,
    )
    work.resume()
    tracker = tracker or NoTracking()
    tracker.start(settings.as_dict())
    try:
        for epoch in _epochs(len(work.history) + 1, settings.epochs, progress):
            if work.stopped or _stale(work.history, settings.patience):
                break
            loss = _one_epoch(work, rows, settings, epoch)
            p = _probabilities(work.network, later)
            label = later.label.astype(np.float64)
            later_loss = log_loss(label, p)
            earlier = (report.validation_loss for report in work.history)
            best = bool(later_loss < min(earlier, default=np.inf))
            report = EpochReport(epoch, settings.epochs, loss, later_loss, roc_auc(label, p), best)
            work.history.append(report)
            if best:
                work.best = {k: v.detach().clone() for k, v in network.state_dict().items()}
            tracker.log(epoch, report.metrics())
            work.stopped = bool(on_epoch(report)) if on_epoch else False
            work.save()
    finally:
        tracker.finish()
    kept = network.state_dict() if settings.keep == "last" else work.best
    weights = {name: value.detach().numpy().copy() for name, value in kept.items()}
    best_epoch = 1 + int(np.argmin([report.validation_loss for report in work.history]))
    return TrainedLstm(
        export(weights, mean, scale, settings), settings, tuple(work.history), best_epoch, weights
    )


def _epochs(first: int, last: int, progress: bool) -> Iterator[int]:
    if not progress:
        yield from range(first, last + 1)
        return
    from tqdm import tqdm

    yield from tqdm(
        range(first, last + 1), desc="LSTM", unit="epoch", initial=first - 1, total=last
    )


def _stale(history: list[EpochReport], patience: int) -> bool:
    """Tell whether the last epochs brought no improvement; the history survives a resume."""
    best = max((report.epoch for report in history if report.best), default=0)
    return bool(patience) and len(history) - best >= patience


def _one_epoch(work: _Work, rows: _Encoded, settings: LstmSettings, epoch: int) -> float:
    import torch
    from torch.nn import functional

    rng = np.random.default_rng([settings.seed, epoch])
    positives = float(rows.label.sum())
    balance = settings.class_weight or (len(rows) - positives) / max(positives, 1.0)
    work.network.train()
    total = 0.0
    for batch in bucketed_batches(rows.lengths, settings.batch, rng):
        outputs = work.network(*_tensors(rows, batch, settings.step_dropout, rng))
        label = torch.from_numpy(rows.label[batch])
        weight = torch.from_numpy(
            rows.weight[batch] * np.where(rows.label[batch] > 0, balance, 1.0).astype(np.float32)
        )
        losses = functional.binary_cross_entropy_with_logits(
            outputs[:, 0], label, weight=weight, reduction="mean"
        )
        if settings.auxiliary and (rows.end[batch] >= 0).any():
            losses = losses + settings.auxiliary * functional.cross_entropy(
                outputs[:, 1:], torch.from_numpy(rows.end[batch]), ignore_index=-1
            )
        work.optimizer.zero_grad()
        torch.autograd.backward(losses)
        torch.nn.utils.clip_grad_norm_(work.network.parameters(), 1.0)
        work.optimizer.step()
        total += float(losses.detach()) * len(batch)
    return total / len(rows)


def _probabilities(network: Any, rows: _Encoded) -> Floats:
    import torch

    network.eval()
    order = np.argsort(rows.lengths, kind="stable")
    margin = np.empty(len(rows))
    rng = np.random.default_rng(0)  # never used: no step is dropped
    with torch.no_grad():
        for start in range(0, len(order), 512):
            chosen = order[start : start + 512]
            margin[chosen] = network(*_tensors(rows, chosen, 0.0, rng))[:, 0].numpy()
    return sigmoid(margin)


@dataclass
class _Work:
    """The state of a training, and the file that it is saved in."""

    network: Any
    optimizer: Any
    identity: Mapping[str, Any]
    state_file: Path | None
    history: list[EpochReport] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)
    stopped: bool = False

    def save(self) -> None:
        """Write the state to a temporary file and rename it: a kill leaves the old or the new."""
        if self.state_file is None:
            return
        import torch

        beside = self.state_file.with_name(f".{self.state_file.name}.{os.getpid()}.part")
        with open(beside, "wb") as file:
            torch.save(
                {
                    "version": _STATE_VERSION,
                    "identity": dict(self.identity),
                    "network": self.network.state_dict(),
                    "optimizer": self.optimizer.state_dict(),
                    "random": torch.get_rng_state(),
                    "history": [asdict(report) for report in self.history],
                    "best": self.best,
                    "stopped": self.stopped,
                },
                file,
            )
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self.state_file)

    def resume(self) -> None:
        """Resume from the state file, if there is one."""
        if self.state_file is None or not self.state_file.exists():
            return
        import torch

        try:
            # Only tensors and plain values: a state file cannot run code.
            state = torch.load(self.state_file, weights_only=True)
            version, identity = state["version"], state["identity"]
        except Exception as error:
            raise NotTheSameTraining(
                f"{self.state_file}: cannot read the state of a training ({error}); "
                "remove the file to start over"
            ) from error
        if version != _STATE_VERSION or identity != dict(self.identity):
            raise NotTheSameTraining(
                f"{self.state_file}: the state of a training with other settings or other "
                "data; name another file, or remove this one to start over"
            )
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        self.history = [EpochReport(**report) for report in state["history"]]
        self.best, self.stopped = state["best"], state["stopped"]


# ---- export --------------------------------------------------------------------------------


def export(
    weights: Mapping[str, npt.NDArray[np.float32]],
    mean: npt.NDArray[np.float32],
    scale: npt.NDArray[np.float32],
    settings: LstmSettings,
) -> LstmNetwork:
    """Convert torch's weights to the arrays that model/infer evaluates."""
    tables = [weights[f"embeddings.{nth}.weight"] for nth in range(3)]
    tables.append(
        weights["embeddings.3.weight"]
        if settings.template_embedding
        else np.zeros((TEMPLATE_BUCKETS, 0), np.float32)
    )
    return LstmNetwork(
        tuple(tables),
        mean,
        scale,
        tuple(
            (
                weights[f"lstm.weight_ih_l{nth}"],
                weights[f"lstm.weight_hh_l{nth}"],
                weights[f"lstm.bias_ih_l{nth}"] + weights[f"lstm.bias_hh_l{nth}"],
            )
            for nth in range(settings.layers)
        ),
        (weights["attend.weight"], weights["attend.bias"], weights["vector"])
        if settings.attention
        else (),
        (weights["head.weight"], weights["head.bias"]),
        settings.max_steps,
    )


def one_by_one(trained: TrainedLstm, data: HeldData) -> list[tuple[torch.Tensor, ...]]:
    """Return each episode as a batch of one, as torch's network takes it."""
    rows = _encode(data, None, trained.network.mean, trained.network.scale, trained.settings)
    rng = np.random.default_rng(0)
    return [_tensors(rows, np.array([row]), 0.0, rng) for row in range(len(rows))]
