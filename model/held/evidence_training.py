"""Train the network over evidence: an LSTM over tokens with the query behind them.

Pre-training on worlds teaches it how evidence works; tuning on recordings, gently, what real pools
look like. Training is deterministic for a seed, a machine and a number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from condor_advice.model.held.evidence_rows import EvidenceRows, EvidenceTensors
from condor_advice.model.infer.evidence import EvidenceNetwork
from condor_advice.preprocess.holds.evidence import QUERY_COLUMNS, TOKEN_COLUMNS

if TYPE_CHECKING:
    import torch

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_SORTED_BATCHES = 40  # so many batches are sorted by length together, to keep padding small


@dataclass(frozen=True, slots=True)
class EvidenceSettings:
    """Size and training of the network."""

    cell: str = "lstm"  # or "gru", "attention", "none" (the query alone), for comparison
    hidden: int = 64
    query_hidden: int = 96
    dropout: float = 0.1
    token_dropout: float = 0.15
    learning_rate: float = 1.5e-3
    weight_decay: float = 0.02
    epochs: int = 3
    batch: int = 256
    seed: int = 0
    threads: int = 1

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for a manifest."""
        return asdict(self)


def build(settings: EvidenceSettings) -> torch.nn.Module:
    """Return the network, with weights drawn from torch's random state."""
    import torch
    from torch import nn

    width = settings.hidden

    def two_layers(inputs: int, middle: int, outputs: int, dropout: float) -> nn.Sequential:
        return nn.Sequential(
            nn.Linear(inputs, middle),
            nn.GELU(approximate="tanh"),
            nn.Dropout(dropout),
            nn.Linear(middle, outputs),
        )

    class Network(nn.Module):
        """Tokens and query → LSTM → head over the last state and the query."""

        def __init__(self) -> None:
            super().__init__()
            self.token = two_layers(len(TOKEN_COLUMNS), width, width, 0.0)
            self.query = two_layers(
                len(QUERY_COLUMNS), settings.query_hidden, width, settings.dropout
            )
            cells: dict[str, Callable[[], nn.Module]] = {
                "lstm": lambda: nn.LSTM(width, width, batch_first=True),
                "gru": lambda: nn.GRU(width, width, batch_first=True),
                "attention": lambda: nn.MultiheadAttention(
                    width, 4, settings.dropout, batch_first=True
                ),
                "none": nn.Identity,
            }
            self.cell = cells[settings.cell]()
            self.norm = nn.LayerNorm(2 * width)
            self.head = two_layers(2 * width, 64, 1, settings.dropout)

        def forward(
            self, tokens: torch.Tensor, lengths: torch.Tensor, query: torch.Tensor
        ) -> torch.Tensor:
            asked = self.query(query)
            each = torch.arange(len(lengths))
            if settings.cell == "none":
                state = asked
            else:
                inputs = self.token(tokens)
                inputs[each, lengths] = asked
                if settings.cell == "attention":
                    behind = torch.arange(tokens.shape[1])[None] > lengths[:, None]
                    mixed, _ = self.cell(asked[:, None], inputs, inputs, key_padding_mask=behind)
                    state = asked + mixed[:, 0]
                else:
                    state = self.cell(inputs)[0][each, lengths]
            both = self.norm(torch.cat((state, asked), dim=1))
            margin: torch.Tensor = self.head(both).squeeze(1)
            return margin

    return Network()


def train(
    rows: EvidenceRows,
    settings: EvidenceSettings,
    *,
    begin: EvidenceNetwork | torch.nn.Module | None = None,
    weight: Floats | None = None,
    after_epoch: Callable[[int, float, torch.nn.Module], None] = lambda *_: None,
) -> torch.nn.Module:
    """Train a network, from `begin` if there is one; `weight` is the weight of each question."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits

    torch.set_num_threads(settings.threads)
    torch.manual_seed(settings.seed)
    rng = np.random.default_rng(settings.seed)
    evidence = rows.evidence
    network = build(settings)
    if isinstance(begin, EvidenceNetwork):
        import_weights(network, begin)
    elif begin is not None:
        network.load_state_dict(begin.state_dict())
    weights = np.ones(len(rows), np.float32) if weight is None else weight.astype(np.float32)
    steps = settings.epochs * len(list(_batches(rows, settings.batch, rng)))
    rng = np.random.default_rng(settings.seed)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, settings.learning_rate, total_steps=steps + 1, pct_start=0.15
    )
    for epoch in range(settings.epochs):
        network.train()
        total = 0.0
        for batch in _batches(rows, settings.batch, rng):
            tokens, lengths = evidence.padded(batch, settings.token_dropout, rng)
            margins = network(
                torch.from_numpy(tokens),
                torch.from_numpy(lengths),
                torch.from_numpy(evidence.query[batch].astype(np.float32)),
            )
            loss = binary_cross_entropy_with_logits(
                margins,
                torch.from_numpy(rows.label[batch].astype(np.float32)),
                weight=torch.from_numpy(weights[batch]),
            )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item() * len(batch)
        after_epoch(epoch, total / max(len(rows), 1), network)
    return network.eval()


def _batches(rows: EvidenceRows, size: int, rng: np.random.Generator) -> Iterator[Ints]:
    """Yield batches in random order; questions of one batch have about as many tokens."""
    lengths = np.diff(rows.evidence.offsets)
    order = rng.permutation(len(rows))
    batches = []
    for start in range(0, len(order), size * _SORTED_BATCHES):
        some = order[start : start + size * _SORTED_BATCHES]
        some = some[np.argsort(lengths[some], kind="stable")]
        batches += [some[begin : begin + size] for begin in range(0, len(some), size)]
    for place in rng.permutation(len(batches)).tolist():
        yield batches[place]


def predict(network: torch.nn.Module, evidence: EvidenceTensors, size: int = 512) -> Floats:
    """Return torch's log-odds of each question."""
    import torch

    network.eval()
    margins = np.empty(len(evidence))
    order = np.argsort(np.diff(evidence.offsets), kind="stable")
    with torch.no_grad():
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            tokens, lengths = evidence.padded(batch)
            margins[batch] = network(
                torch.from_numpy(tokens),
                torch.from_numpy(lengths),
                torch.from_numpy(evidence.query[batch].astype(np.float32)),
            ).numpy()
    return margins


# Where the arrays of an EvidenceNetwork stand in the torch network.
_DENSE = {
    "token_in": "token.0",
    "token_out": "token.3",
    "query_in": "query.0",
    "query_out": "query.3",
    "head_in": "head.0",
    "head_out": "head.3",
}


def export(network: torch.nn.Module) -> EvidenceNetwork:
    """Return the LSTM's weights as plain arrays, rounded to half precision as they are kept."""
    state = {
        name: value.detach().numpy().astype(np.float16).astype(np.float32)
        for name, value in network.state_dict().items()
    }
    bias = state["cell.bias_ih_l0"] + state["cell.bias_hh_l0"]
    return EvidenceNetwork(
        {name: (state[f"{at}.weight"], state[f"{at}.bias"]) for name, at in _DENSE.items()},
        (state["cell.weight_ih_l0"], state["cell.weight_hh_l0"], bias),
        (state["norm.weight"], state["norm.bias"]),
    )


def import_weights(network: torch.nn.Module, source: EvidenceNetwork) -> None:
    """Copy the plain arrays of a network into torch's."""
    import torch

    state = {}
    for name, at in _DENSE.items():
        state[f"{at}.weight"], state[f"{at}.bias"] = source.dense[name]
    state["cell.weight_ih_l0"], state["cell.weight_hh_l0"], state["cell.bias_ih_l0"] = source.lstm
    state["cell.bias_hh_l0"] = np.zeros_like(source.lstm[2])
    state["norm.weight"], state["norm.bias"] = source.norm
    network.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
