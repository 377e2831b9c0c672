"""Evaluate an LSTM over the events of a held job with NumPy, and the effect of each event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.model.arrays import UnusableModel
from condor_advice.preprocess.holds.templates import TEMPLATE_BUCKETS
from condor_advice.preprocess.holds.tensors import STEP_COLUMNS

Floats = npt.NDArray[np.float64]

EVENT_COLUMNS = tuple(
    index for index, column in enumerate(STEP_COLUMNS) if column.name.startswith("is_")
)
_INDEXED = ("code", "family", "template")  # columns that are ids, not amounts
CODES, FAMILY_PLACES = 64, 64  # sizes of their embeddings; larger values share the last row
NUMBERS = tuple(
    index
    for index, column in enumerate(STEP_COLUMNS)
    if index not in EVENT_COLUMNS and column.name not in _INDEXED
)
_CODE, _FAMILY, _TEMPLATE = (
    next(index for index, column in enumerate(STEP_COLUMNS) if column.name == name)
    for name in _INDEXED
)


def step_indices(steps: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Return the embedding indices of each step: kind of event, code, family, template."""
    kinds = steps[:, EVENT_COLUMNS]
    kind = np.where(kinds.max(axis=1, initial=0.0) > 0, 1 + np.argmax(kinds, axis=1), 0)
    return np.stack(
        (
            kind,
            np.clip(steps[:, _CODE], 0, CODES - 1).astype(np.int64),
            np.clip(steps[:, _FAMILY], 0, FAMILY_PLACES - 1).astype(np.int64),
            np.clip(steps[:, _TEMPLATE], 0, TEMPLATE_BUCKETS - 1).astype(np.int64),
        ),
        axis=1,
    )


@dataclass(frozen=True)
class LstmNetwork:
    """A trained LSTM as plain arrays: embeddings and numbers, LSTM layers, pooling, head.

    Arrays are float32, as in training. `embeddings` are tables by kind of event, code, family
    and template; a table without columns is not used.
    """

    embeddings: tuple[npt.NDArray[np.float32], ...]
    mean: npt.NDArray[np.float32]  # of the numbers, over the training steps
    scale: npt.NDArray[np.float32]
    layers: tuple[tuple[npt.NDArray[np.float32], ...], ...]  # W_ih, W_hh, b of each
    attention: tuple[npt.NDArray[np.float32], ...]  # W, b, v; empty: only the last state is used
    head: tuple[npt.NDArray[np.float32], ...]  # W, b; output 0 is success
    max_steps: int

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays by name."""
        arrays: dict[str, npt.NDArray[Any]] = {
            f"embedding_{index}": table for index, table in enumerate(self.embeddings)
        }
        arrays |= {"mean": self.mean, "scale": self.scale}
        for index, layer in enumerate(self.layers):
            arrays |= {f"layer_{index}_{part}": array for part, array in enumerate(layer)}
        arrays |= {f"attention_{part}": array for part, array in enumerate(self.attention)}
        arrays |= {f"head_{part}": array for part, array in enumerate(self.head)}
        arrays["max_steps"] = np.array(self.max_steps, np.int64)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> LstmNetwork:
        """Read what `arrays` returned, and check that the sizes match."""
        layers = sum(name.startswith("layer_") for name in arrays) // 3
        try:
            network = cls(
                tuple(arrays[f"embedding_{index}"] for index in range(4)),
                arrays["mean"],
                arrays["scale"],
                tuple(
                    tuple(arrays[f"layer_{index}_{part}"] for part in range(3))
                    for index in range(layers)
                ),
                tuple(arrays[f"attention_{part}"] for part in range(3))
                if "attention_0" in arrays
                else (),
                (arrays["head_0"], arrays["head_1"]),
                int(arrays["max_steps"]),
            )
            network.margins(np.zeros((1, len(STEP_COLUMNS)), np.float32), np.array([0, 1]))
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise UnusableModel(
                f"the sizes of the LSTM's arrays do not match ({error}); train the model again"
            ) from error
        return network

    def margins(
        self, steps: npt.NDArray[np.float32], offsets: npt.NDArray[np.int64], block: int = 512
    ) -> Floats:
        """Return the log-odds of success of each episode."""
        return self.outputs(steps, offsets, block)[:, 0].astype(np.float64)

    def outputs(
        self, steps: npt.NDArray[np.float32], offsets: npt.NDArray[np.int64], block: int = 512
    ) -> npt.NDArray[np.float32]:
        """Return all outputs of the head; axes: (episode, output)."""
        end = offsets[1:]
        begin = np.maximum(offsets[:-1], end - self.max_steps)
        lengths = end - begin
        outputs = np.zeros((len(lengths), len(self.head[1])), np.float32)
        # Episodes of similar length go together, to keep padding small.
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(order), block):
            rows = order[start : start + block]
            size = lengths[rows]
            first = np.cumsum(size) - size
            chosen = np.repeat(begin[rows] - first, size) + np.arange(int(size.sum()))
            outputs[rows] = self._forward(steps[chosen], first, size)
        return outputs

    def _forward(
        self,
        steps: npt.NDArray[np.float32],
        first: npt.NDArray[np.int64],
        size: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.float32]:
        """Evaluate a block of episodes whose steps are concatenated."""
        indices = step_indices(steps)
        numbers = (steps[:, NUMBERS] - self.mean) / self.scale
        columns = [table[indices[:, nth]] for nth, table in enumerate(self.embeddings)]
        inputs = np.concatenate([*columns, numbers], axis=1)
        # Axes: (step, episode). Episodes are padded with their last step, which is ignored.
        rank = np.arange(max(1, int(size.max(initial=0))))[:, None]
        place = np.maximum(first + np.minimum(rank, size - 1), 0)
        weight, state, bias = self.layers[0]
        projected = inputs @ weight.T + bias
        if not len(projected):  # episodes without a step
            projected = np.zeros((1, len(bias)), np.float32)
        states = lstm_layer(projected[place], state)
        for weight, state, bias in self.layers[1:]:
            states = lstm_layer(states @ weight.T + bias, state)
        last = states[np.maximum(size - 1, 0), np.arange(len(size))]
        if self.attention:
            weight, bias, vector = self.attention
            score = np.tanh(states @ weight.T + bias) @ vector
            score[rank >= size] = -np.inf
            score = np.exp(score - score.max(axis=0, initial=-1e30))
            share = score / np.maximum(score.sum(axis=0), np.float32(1e-30))
            last = np.concatenate((last, np.einsum("sn,snh->nh", share, states)), axis=1)
        last[size == 0] = 0
        weight, bias = self.head
        outputs: npt.NDArray[np.float32] = (last @ weight.T + bias).astype(np.float32)
        return outputs

    def occlusion(self, tensor: npt.NDArray[np.float32]) -> Floats:
        """Return, for each step of one episode, how far the log-odds fall without it.

        The last step is the hold itself. It is left out like the others: the history remains.
        """
        tensor = tensor[-self.max_steps :]
        count = len(tensor)
        whole = self.margins(tensor, np.array([0, count]))[0]
        if count < 2:
            return np.zeros(count)
        kept = np.arange(count - 1) + (np.arange(count - 1) >= np.arange(count)[:, None])
        without = tensor[kept.reshape(-1)]
        falls: Floats = whole - self.margins(without, np.arange(count + 1) * (count - 1))
        return falls


def lstm_layer(
    projected: npt.NDArray[np.float32], weight_state: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Return the states of one layer; axes: (step, episode, feature), gates i, f, g, o.

    `projected` is the inputs' contribution to the gates. The logistic function is computed with
    tanh, which cannot overflow. Its argument is halved beforehand, so one tanh serves all gates.
    """
    steps, count, _ = projected.shape
    width = weight_state.shape[1]
    half = np.full(4 * width, 0.5, np.float32)
    half[2 * width : 3 * width] = 1.0  # g is a tanh itself
    shift = 1.0 - half
    projected *= half
    weight = np.ascontiguousarray(weight_state.T * half)
    cell = np.zeros((count, width), np.float32)
    gates = np.empty((count, 4 * width), np.float32)
    states = np.zeros((steps + 1, count, width), np.float32)
    for step in range(steps):
        np.matmul(states[step], weight, out=gates)
        gates += projected[step]
        np.tanh(gates, out=gates)
        gates *= half
        gates += shift
        cell *= gates[:, width : 2 * width]
        cell += gates[:, :width] * gates[:, 2 * width : 3 * width]
        np.tanh(cell, out=states[step + 1])
        states[step + 1] *= gates[:, 3 * width :]
    return states[1:]
