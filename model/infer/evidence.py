"""Evaluate the network over evidence with NumPy: an LSTM over tokens, and the query behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.model.arrays import UnusableModel
from condor_advice.model.infer.lstm import lstm_layer
from condor_advice.preprocess.holds.evidence import QUERY_COLUMNS, TOKEN_COLUMNS

Floats = npt.NDArray[np.float64]
Table = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

_LAYERS = ("token_in", "token_out", "query_in", "query_out", "head_in", "head_out")
_BLOCK = 512  # questions at a time
_SMALL = np.float32(1e-5)  # as torch's LayerNorm


@dataclass(frozen=True)
class EvidenceNetwork:
    """A trained network as plain arrays."""

    dense: dict[str, tuple[Table, Table]]  # weight and bias of each of _LAYERS
    lstm: tuple[Table, Table, Table]  # W_ih, W_hh, b
    norm: tuple[Table, Table]  # scale and shift, before the head

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays by name."""
        arrays: dict[str, npt.NDArray[Any]] = {}
        for name, (weight, bias) in self.dense.items():
            arrays |= {f"{name}_weight": weight, f"{name}_bias": bias}
        arrays |= {f"lstm_{place}": array for place, array in enumerate(self.lstm)}
        return arrays | {f"norm_{place}": array for place, array in enumerate(self.norm)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> EvidenceNetwork:
        """Read what `arrays` returned, and check that the sizes match."""
        try:
            whole = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
            network = cls(
                {name: (whole[f"{name}_weight"], whole[f"{name}_bias"]) for name in _LAYERS},
                (whole["lstm_0"], whole["lstm_1"], whole["lstm_2"]),
                (whole["norm_0"], whole["norm_1"]),
            )
            tokens = np.zeros((1, len(TOKEN_COLUMNS)), np.float32)
            query = np.zeros((1, len(QUERY_COLUMNS)), np.float32)
            network.margins(tokens, np.array([0, 1]), query)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise UnusableModel(
                f"the sizes of the network's arrays do not match ({error}); train the model again"
            ) from error
        return network

    def margins(self, tokens: Table, offsets: Ints, query: Table) -> Floats:
        """Return the log-odds of success of each question; tokens are without padding."""
        lengths = np.diff(offsets)
        margins = np.zeros(len(lengths))
        # Questions with about as many tokens go together, to keep padding small.
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(order), _BLOCK):
            rows = order[start : start + _BLOCK]
            margins[rows] = self._forward(tokens, offsets[:-1][rows], lengths[rows], query[rows])
        return margins

    def _forward(self, tokens: Table, begin: Ints, lengths: Ints, query: Table) -> Table:
        asked = self._two_layers("query", query)
        longest = int(lengths.max(initial=0))
        # Axes: (step, question). The query stands behind the last token; what follows is ignored.
        step = np.arange(longest + 1)[:, None]
        real = step < lengths
        inputs = np.zeros((longest + 1, len(lengths), asked.shape[1]), np.float32)
        inputs[real] = self._two_layers("token", tokens[(begin + step)[real]])
        each = np.arange(len(lengths))
        inputs[lengths, each] = asked
        weight, state, bias = self.lstm
        last = lstm_layer(inputs @ weight.T + bias, state)[lengths, each]
        joined = np.concatenate((last, asked), axis=1)
        mean = joined.mean(axis=1, keepdims=True)
        spread = joined.var(axis=1, keepdims=True)
        scale, shift = self.norm
        joined = (joined - mean) / np.sqrt(spread + _SMALL) * scale + shift
        margins: Table = self._two_layers("head", joined)[:, 0]
        return margins

    def _two_layers(self, name: str, inputs: Table) -> Table:
        (first, first_bias), (second, second_bias) = (
            self.dense[f"{name}_in"],
            self.dense[f"{name}_out"],
        )
        outputs: Table = _gelu(inputs @ first.T + first_bias) @ second.T + second_bias
        return outputs

    def occlusion(self, tokens: Table, query: Table) -> Floats:
        """Return for each token of one question how far the log-odds fall without it."""
        count = len(tokens)
        if not count:
            return np.zeros(0)
        kept = np.arange(count - 1) + (np.arange(count - 1) >= np.arange(count)[:, None])
        without = tokens[kept.reshape(-1)]
        every = np.concatenate((tokens, without))
        offsets = np.append(0, count + np.arange(count + 1) * (count - 1))
        margins = self.margins(every, offsets, np.repeat(query[None], count + 1, axis=0))
        falls: Floats = margins[0] - margins[1:]
        return falls


def _gelu(x: Table) -> Table:
    """Return GELU by its usual approximation with tanh."""
    inner = np.float32(0.7978845608) * (x + np.float32(0.044715) * x * x * x)
    gelu: Table = np.float32(0.5) * x * (1 + np.tanh(inner))
    return gelu
