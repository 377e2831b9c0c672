"""Evaluate boosted trees with NumPy, and their exact SHAP values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.model.arrays import UnusableModel, check_finite, load_arrays, save_arrays
from condor_advice.model.infer.logistic import sigmoid

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

_ARRAYS = (
    "feature",
    "threshold",
    "left",
    "right",
    "missing_left",
    "value",
    "cover",
    "roots",
    "output",
    "base_margin",
)


MOST_DEPTH = 64  # of a tree; evaluation calls itself once per level
# Many rows go through small trees split by split; see TreeEnsemble._add_trees.
MANY_ROWS, ROWS_AT_ONCE, SMALL_TREE = 512, 8192, 64


@dataclass(frozen=True)
class TreeEnsemble:
    """Boosted trees as flat arrays of nodes; leaves have feature -1.

    A row goes left if its feature is below the threshold (compared as float32, as in XGBoost); if
    the feature is missing (NaN), `missing_left` decides. Each tree adds the value of its leaf to
    the margin of one output.
    """

    feature: Ints
    threshold: npt.NDArray[np.float32]
    left: Ints
    right: Ints
    missing_left: npt.NDArray[np.bool_]
    value: Floats
    cover: Floats  # training weight that passed through each node
    roots: Ints
    output: Ints  # which margin each tree adds to
    base_margin: Floats  # one per output

    @classmethod
    def from_xgboost(cls, booster: Any) -> TreeEnsemble:
        """Convert an `xgboost.Booster` with a logistic, softmax or regression objective."""
        return cls.from_xgboost_json(bytes(booster.save_raw("json")))

    @classmethod
    def from_xgboost_json(cls, raw: bytes) -> TreeEnsemble:
        """Convert a model in XGBoost's JSON format."""
        learner = json.loads(raw)["learner"]
        objective = learner["objective"]["name"]
        outputs = max(1, int(learner["learner_model_param"]["num_class"]))
        scores = np.array(
            json.loads("[" + learner["learner_model_param"]["base_score"].strip("[]") + "]"),
            dtype=float,
        )
        base = np.resize(scores, outputs)
        if objective == "binary:logistic":
            base = np.log(base) - np.log1p(-base)
        elif not objective.startswith(("multi:soft", "reg:", "binary:logitraw")):
            raise UnusableModel(
                f"cannot export objective {objective}; "
                "use binary:logistic, multi:softprob or reg:squarederror"
            )
        booster = learner["gradient_booster"]
        if "model" not in booster or booster.get("name") != "gbtree":
            raise UnusableModel(f"cannot export booster {booster.get('name')}; use gbtree")
        model = booster["model"]
        parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in _ARRAYS[:7]}
        roots = []
        start = 0
        for tree in model["trees"]:
            left = np.array(tree["left_children"], dtype=np.int32)
            right = np.array(tree["right_children"], dtype=np.int32)
            leaf = left < 0
            conditions = np.array(tree["split_conditions"], dtype=np.float64)
            parts["feature"].append(
                np.where(leaf, -1, np.array(tree["split_indices"])).astype(np.int32)
            )
            parts["threshold"].append(np.where(leaf, 0.0, conditions).astype(np.float32))
            parts["left"].append(np.where(leaf, -1, left + start).astype(np.int32))
            parts["right"].append(np.where(leaf, -1, right + start).astype(np.int32))
            parts["missing_left"].append(np.array(tree["default_left"], dtype=bool))
            parts["value"].append(np.where(leaf, conditions, 0.0))
            parts["cover"].append(np.array(tree["sum_hessian"], dtype=np.float64))
            roots.append(start)
            start += len(left)
        joined: dict[str, npt.NDArray[Any]] = {
            name: np.concatenate(arrays) for name, arrays in parts.items()
        }
        return cls(
            **joined,
            roots=np.array(roots, dtype=np.int32),
            output=np.array(model["tree_info"], dtype=np.int32),
            base_margin=base,
        )

    @classmethod
    def average(cls, ensembles: list[TreeEnsemble]) -> TreeEnsemble:
        """Return one ensemble whose margin is the mean of these ensembles' margins."""
        offsets = np.cumsum([0, *(len(ensemble.feature) for ensemble in ensembles)])
        share = 1.0 / len(ensembles)

        def children(name: str) -> Ints:
            return np.concatenate(
                [
                    np.where(getattr(ensemble, name) < 0, -1, getattr(ensemble, name) + offset)
                    for ensemble, offset in zip(ensembles, offsets[:-1], strict=True)
                ]
            ).astype(np.int32)

        def joined(name: str) -> npt.NDArray[Any]:
            return np.concatenate([getattr(ensemble, name) for ensemble in ensembles])

        return cls(
            feature=joined("feature"),
            threshold=joined("threshold"),
            left=children("left"),
            right=children("right"),
            missing_left=joined("missing_left"),
            value=joined("value") * share,
            cover=joined("cover"),
            roots=children("roots"),
            output=joined("output"),
            base_margin=np.mean([ensemble.base_margin for ensemble in ensembles], axis=0),
        )

    def arrays(self) -> dict[str, Any]:
        """Return the arrays by name, as `save` writes them."""
        return {name: getattr(self, name) for name in _ARRAYS}

    def save(self, path: Path) -> None:
        """Write the arrays to an .npz file."""
        save_arrays(path, self.arrays())

    @classmethod
    def load(cls, path: Path) -> TreeEnsemble:
        """Read what `save` wrote."""
        arrays = load_arrays(path)
        check_finite(arrays, path)
        try:
            return cls.from_arrays(arrays)
        except UnusableModel as error:
            raise UnusableModel(f"{path}: {error}") from None

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> TreeEnsemble:
        """Return the ensemble of what `arrays` returned; refuse what is not a forest."""
        if missing := [name for name in _ARRAYS if name not in arrays]:
            raise UnusableModel(f"not a tree model: {', '.join(missing)} missing; train it again")
        ensemble = cls(**{name: arrays[name] for name in _ARRAYS})
        if problem := ensemble._problem():
            raise UnusableModel(f"not a tree model: {problem}; train it again")
        return ensemble

    def _problem(self) -> str | None:
        """Return what would keep evaluation from ending, or lead it out of the arrays."""
        if any(array.ndim != 1 for array in self.arrays().values()):
            return "an array has more than one axis"
        indices = (self.feature, self.left, self.right, self.roots, self.output)
        if any(array.dtype.kind != "i" for array in indices):
            return "an index is not an integer"
        count = len(self.feature)
        if {len(getattr(self, name)) for name in _ARRAYS[:7]} != {count}:
            return "its nodes' arrays have different lengths"
        if len(self.roots) != len(self.output) or not len(self.base_margin):
            return "its trees' arrays have different lengths"
        if not ((self.output >= 0) & (self.output < len(self.base_margin))).all():
            return "a tree adds to an output that does not exist"
        inner = np.flatnonzero(self.feature >= 0)
        children = np.concatenate((self.left[inner], self.right[inner]))
        # Children follow their parent, as XGBoost numbers them, so no path returns to a node.
        if not ((children > np.tile(inner, 2)) & (children < count)).all():
            return "a node's child does not follow it"
        if not ((self.roots >= 0) & (self.roots < count)).all():
            return "a root does not exist"
        if np.bincount(np.concatenate((children, self.roots)), minlength=1).max() > 1:
            return "a node belongs to two parents"
        if self.depth > MOST_DEPTH:
            return f"a tree has {self.depth:,} levels, and {MOST_DEPTH} are allowed"
        return None

    @property
    def outputs(self) -> int:
        """Number of margins per row: 1, or the number of classes."""
        return len(self.base_margin)

    @cached_property
    def depth(self) -> int:
        """Number of splits on the longest path from a root to a leaf."""
        nodes, depth = self.roots, 0
        while True:
            nodes = nodes[self.feature[nodes] >= 0]
            if not len(nodes):
                return depth
            nodes = np.concatenate([self.left[nodes], self.right[nodes]])
            depth += 1

    def predict_margin(self, rows: npt.ArrayLike) -> Floats:
        """Return the margins: shape (row,) for one output, (row, output) for several."""
        values = np.atleast_2d(np.asarray(rows, dtype=np.float32))
        margins = np.tile(self.base_margin, (len(values), 1))
        if len(values) >= MANY_ROWS and len(self.feature) <= SMALL_TREE * len(self.roots):
            # Reused for all blocks: allocating memory again is slow.
            masks = np.empty((max(self._splits[-1]) + 1, min(len(values), ROWS_AT_ONCE)), np.int32)
            for start in range(0, len(values), ROWS_AT_ONCE):
                self._add_trees(values[start : start + ROWS_AT_ONCE], margins[start:], masks)
            return margins[:, 0] if self.outputs == 1 else margins
        block = max(1, 2_000_000 // max(1, len(self.roots)))
        for start in range(0, len(values), block):
            part = values[start : start + block]
            leaves = self.value[self._leaves(part)]
            for output in range(self.outputs):
                margins[start : start + block, output] += leaves[:, self.output == output].sum(1)
        return margins[:, 0] if self.outputs == 1 else margins

    def predict_proba(self, rows: npt.ArrayLike) -> Floats:
        """Return the probability of the positive class, or of each class."""
        margin = self.predict_margin(rows)
        if self.outputs == 1:
            return sigmoid(margin)
        shifted = np.exp(margin - margin.max(axis=1, keepdims=True))
        return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))

    def contributions(self, row: npt.ArrayLike, features: int, output: int = 0) -> Floats:
        """Return each feature's share of one row's margin, and last the expected margin.

        These are exact path-dependent SHAP values, the same as XGBoost's `pred_contribs`: at a
        split on a feature outside the coalition the row goes both ways, by training weight. They
        add up to `predict_margin`.
        """
        values = np.asarray(row, dtype=np.float32).reshape(-1)
        paths = self._paths
        kept = self.output[paths.tree] == output
        goes_left = np.zeros(len(self.feature), dtype=bool)
        inner = np.flatnonzero(self.feature >= 0)
        with np.errstate(invalid="ignore"):
            goes_left[inner] = values[self.feature[inner]] < self.threshold[inner]
        missing = np.isnan(values[self.feature[inner]])
        goes_left[inner[missing]] = self.missing_left[inner[missing]]
        follows = (goes_left[paths.node] == paths.is_left).astype(np.float64)
        hot = np.ones(paths.cold.shape)
        np.minimum.at(hot, (paths.leaf, paths.slot), follows)
        leaf_value = np.where(kept, self.value[paths.leaf_node], 0.0)
        shares = leaf_value[:, None] * (hot - paths.cold) * _shapley_weights(hot, paths.cold)
        values_by_feature = np.zeros(features + 1)
        used = paths.slot_feature >= 0
        np.add.at(values_by_feature, paths.slot_feature[used], shares[used])
        values_by_feature[features] = self.base_margin[output] + np.sum(
            leaf_value * np.prod(paths.cold, axis=1)
        )
        return values_by_feature

    def _add_trees(self, values: npt.NDArray[np.float32], margins: Floats, masks: Ints) -> None:
        """Add each tree's value to the margins of many rows, split by split.

        Sending all rows through every split of a small tree is faster than looking up the next
        split of each row. The same question (feature, threshold, missing) occurs in many trees
        and is answered once. Of two leaves, bit operations choose one without a branch:
        r ^ ((l ^ r) & mask) is l where the mask is all ones, and r where it is zero. `masks` is
        scratch memory.
        """
        columns = np.ascontiguousarray(values.T)
        missing = np.isnan(columns)
        some: npt.NDArray[np.bool_] = np.asarray(missing.any(axis=1))
        feature, left, right, leaf, questions = self._splits
        answers: dict[int, Ints] = {}

        def answer(node: int) -> Ints:
            split = feature[node]
            goes_left = columns[split] < self.threshold[node]
            if some[split] and self.missing_left[node]:
                goes_left |= missing[split]
            mask: Ints = masks[questions[node], : len(values)]
            np.negative(goes_left.astype(np.int32), out=mask)
            answers[questions[node]] = mask
            return mask

        def reached(node: int) -> Any:
            if feature[node] < 0:
                return leaf[node]
            below, above = left[node], right[node]
            # Leaves are looked up here: calls for them would take longer than all the rest.
            first = leaf[below] if feature[below] < 0 else reached(below)
            second = leaf[above] if feature[above] < 0 else reached(above)
            question = questions[node]
            mask = answers[question] if question in answers else answer(node)
            bits = mask & (first ^ second)
            bits ^= second
            return bits

        with np.errstate(invalid="ignore"):
            for root, output in zip(self.roots.tolist(), self.output.tolist(), strict=True):
                margins[: len(values), output] += np.asarray(reached(root), np.int32).view("f4")

    @cached_property
    def _splits(self) -> tuple[list[int], ...]:
        """Feature, children, bits of the value, and question of every node.

        Nodes that ask the same question have the same question number.
        """
        asked = np.stack((self.feature, self.threshold, self.missing_left), axis=1)
        question = np.unique(asked, axis=0, return_inverse=True)[1].reshape(-1)
        bits = self.value.astype(np.float32).view(np.int32)
        columns = (self.feature, self.left, self.right, bits, question)
        return tuple(column.tolist() for column in columns)

    def _leaves(self, values: npt.NDArray[np.float32]) -> Ints:
        """Return the leaf that each row reaches in each tree."""
        nodes = np.tile(self.roots, (len(values), 1))
        row = np.arange(len(values))[:, None]
        for _ in range(self.depth):
            feature = self.feature[nodes]
            inner = feature >= 0
            value = values[row, np.maximum(feature, 0)]
            with np.errstate(invalid="ignore"):
                left = value < self.threshold[nodes]
            left = np.where(np.isnan(value), self.missing_left[nodes], left)
            nodes = np.where(inner, np.where(left, self.left[nodes], self.right[nodes]), nodes)
        return nodes

    @cached_property
    def _paths(self) -> _Paths:
        """Climb from every leaf to its root, and collect the splits by leaf and feature."""
        count = len(self.feature)
        parent = np.full(count, -1, dtype=np.int64)
        inner = np.flatnonzero(self.feature >= 0)
        parent[self.left[inner]] = inner
        parent[self.right[inner]] = inner
        leaf_node = np.flatnonzero(self.feature < 0)
        tree_of_root = np.full(count, -1, dtype=np.int64)
        tree_of_root[self.roots] = np.arange(len(self.roots))
        leaf = np.arange(len(leaf_node))
        node = leaf_node.copy()
        tree = np.empty(len(leaf_node), dtype=np.int64)
        steps: list[tuple[npt.NDArray[Any], ...]] = []
        while len(leaf):
            up = parent[node]
            at_root = up < 0
            tree[leaf[at_root]] = tree_of_root[node[at_root]]
            leaf, node, up = leaf[~at_root], node[~at_root], up[~at_root]
            steps.append(
                (
                    leaf,
                    up,
                    self.left[up] == node,
                    self.cover[node] / np.maximum(self.cover[up], 1e-300),
                )
            )
            node = up
        leaves, nodes, is_left, cold = (
            np.concatenate([step[part] for step in steps]) if steps else np.empty(0, dtype=int)
            for part in range(4)
        )
        # One slot per distinct feature on a leaf's path.
        order = np.lexsort((self.feature[nodes], leaves))
        leaves, nodes, is_left, cold = leaves[order], nodes[order], is_left[order], cold[order]
        splits = self.feature[nodes]
        new_leaf = np.r_[True, leaves[1:] != leaves[:-1]][: len(leaves)]
        new_slot = new_leaf | np.r_[True, splits[1:] != splits[:-1]][: len(leaves)]
        running = np.cumsum(new_slot) - 1
        slot = running - np.maximum.accumulate(np.where(new_leaf, running, 0))
        width = int(slot.max(initial=-1)) + 1
        cold_by_slot = np.ones((len(leaf_node), width))
        np.multiply.at(cold_by_slot, (leaves, slot), cold)
        slot_feature = np.full((len(leaf_node), width), -1, dtype=np.int64)
        slot_feature[leaves, slot] = splits
        return _Paths(
            leaves, slot, nodes, is_left.astype(bool), cold_by_slot, slot_feature, leaf_node, tree
        )


@dataclass(frozen=True, slots=True)
class _Paths:
    """The splits above every leaf. `cold` is the share of training weight that follows them."""

    leaf: npt.NDArray[np.int64]
    slot: npt.NDArray[np.int64]
    node: npt.NDArray[np.int64]
    is_left: npt.NDArray[np.bool_]
    cold: Floats  # axes: (leaf, slot); 1 where a slot is not used
    slot_feature: npt.NDArray[np.int64]  # axes: (leaf, slot); -1 where not used
    leaf_node: npt.NDArray[np.int64]
    tree: npt.NDArray[np.int64]


def _shapley_weights(hot: Floats, cold: Floats) -> Floats:
    """Return, for each slot, the weighted sum over coalitions of the other slots.

    The coalitions of size k give the coefficient of x^k in the product of (cold + hot*x) over
    the others. Unused slots have cold = hot = 1: players without effect, which do not change the
    Shapley values of the others.
    """
    leaves, width = hot.shape
    sums = np.zeros((leaves, width))
    if not width:
        return sums
    sizes = [
        math.factorial(size) * math.factorial(width - 1 - size) / math.factorial(width)
        for size in range(width)
    ]
    for slot in range(width):
        coefficients = np.zeros((leaves, width))
        coefficients[:, 0] = 1.0
        for other in range(width):
            if other == slot:
                continue
            shifted = np.zeros_like(coefficients)
            shifted[:, 1:] = coefficients[:, :-1]
            coefficients = coefficients * cold[:, other, None] + shifted * hot[:, other, None]
        sums[:, slot] = coefficients @ sizes
    return sums
