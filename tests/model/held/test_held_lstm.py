"""Training of the LSTM: it learns, is deterministic, and resumes bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from held_world import held_world

from condor_advice.model.held.data import CannotTrain
from condor_advice.model.held.lstm_training import (
    EpochReport,
    LstmSettings,
    NotTheSameTraining,
    bucketed_batches,
    train,
)
from condor_advice.model.infer import LstmNetwork
from condor_advice.model.metrics import roc_auc
from condor_advice.preprocess.holds.outcomes import OUTCOME_INDEX, Outcome

pytest.importorskip("torch")
QUICK = LstmSettings(hidden=8, epochs=3, batch=32, learning_rate=1e-2, patience=0)


def same(one: LstmNetwork, other: LstmNetwork) -> bool:
    left, right = one.arrays(), other.arrays()
    return all(np.array_equal(left[name], right[name]) for name in left)


def test_it_learns_from_the_order_of_events_and_tells_its_epochs():
    reports: list[EpochReport] = []
    trained = train(
        held_world(800), held_world(300, seed=1), replace(QUICK, epochs=8), None, reports.append
    )
    assert [one.epoch for one in reports] == list(range(1, 9))
    assert max(one.validation_roc_auc for one in reports) > 0.7
    assert reports[trained.best_epoch - 1].validation_loss == min(
        one.validation_loss for one in reports
    )


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    first, second, other = (
        train(held_world(200), held_world(100, seed=1), replace(QUICK, epochs=2, seed=seed))
        for seed in (5, 5, 6)
    )
    assert same(first.network, second.network)
    assert not same(first.network, other.network)


def test_the_auxiliary_task_ignores_how_a_repaired_job_ended():
    data, later = held_world(200), held_world(100, seed=1)
    repaired = np.arange(len(data)) % 5 == 0
    data = replace(data, changed=repaired, label=np.where(repaired, 0, data.label).astype(np.int8))

    def weights_if_failed(rows: npt.NDArray[np.bool_]) -> LstmNetwork:
        outcome = np.where(rows, OUTCOME_INDEX[Outcome.FAILED], data.outcome).astype(np.int8)
        return train(replace(data, outcome=outcome), later, QUICK).network

    as_it_was = train(data, later, QUICK).network
    assert same(as_it_was, weights_if_failed(repaired))
    assert not same(as_it_was, weights_if_failed(~repaired))


def test_a_training_that_was_stopped_goes_on_bit_for_bit(tmp_path):
    data, later, state = held_world(200), held_world(100, seed=1), tmp_path / "state"
    whole = train(data, later, QUICK)

    def stop(report: EpochReport) -> None:
        if report.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(data, later, QUICK, state, stop)
    resumed_from: list[int] = []
    resumed = train(data, later, QUICK, state, lambda one: resumed_from.append(one.epoch))
    assert resumed_from == [2, 3]  # epoch 2 was not finished: its state had not been written
    assert same(whole.network, resumed.network)
    assert whole.history == resumed.history


def test_a_killed_process_leaves_a_state_to_go_on_from(tmp_path):
    """SIGKILL at a time of its own, as an eviction without warning would come."""
    state = tmp_path / "state"
    program = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from pathlib import Path\n"
        "from test_held_lstm import QUICK, held_world, train, replace\n"
        "train(held_world(200), held_world(100, seed=1), replace(QUICK, epochs=500),\n"
        "      Path(sys.argv[1]))\n"
    )
    here, helpers = Path(__file__).parents[:2]
    child = subprocess.Popen([sys.executable, "-c", program, state, here, helpers])
    deadline = time.monotonic() + 60
    while not state.exists() and time.monotonic() < deadline and child.poll() is None:
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    data, later = held_world(200), held_world(100, seed=1)
    done: list[int] = []
    # Two epochs more than were finished, and the same from the start.
    train(data, later, replace(QUICK, epochs=1), state, lambda one: done.append(one.epoch))
    assert done == []
    import torch

    epochs = len(torch.load(state, weights_only=True)["history"]) + 2
    resumed = train(data, later, replace(QUICK, epochs=epochs), state)
    assert same(resumed.network, train(data, later, replace(QUICK, epochs=epochs)).network)


def test_the_state_of_another_training_is_refused(tmp_path):
    data, later, state = held_world(200), held_world(100, seed=1), tmp_path / "state"
    train(data, later, replace(QUICK, epochs=1), state)
    with pytest.raises(NotTheSameTraining, match="other settings or other data.*remove this one"):
        train(data, later, replace(QUICK, epochs=1, hidden=9), state)
    with pytest.raises(NotTheSameTraining):
        train(held_world(200, seed=7), later, replace(QUICK, epochs=1), state)
    state.write_bytes(b"torn")
    with pytest.raises(NotTheSameTraining, match="cannot read.*remove the file to start over"):
        train(data, later, replace(QUICK, epochs=1), state)


def test_saying_stop_stops():
    trained = train(
        held_world(200), held_world(100, seed=1), QUICK, None, lambda one: one.epoch == 2
    )
    assert len(trained.history) == 2


def test_without_labels_it_says_what_is_missing():
    data = held_world(50)
    unlabelled = replace(data, label=np.full(50, -1, np.int8))
    with pytest.raises(CannotTrain, match="0 labelled episodes.*gather more logs"):
        train(unlabelled, data, QUICK)


def test_batches_hold_every_row_once_and_rows_of_like_length():
    lengths = np.random.default_rng(0).integers(1, 64, 1000)
    batches = bucketed_batches(lengths, 32, np.random.default_rng(1))
    assert sorted(np.concatenate(batches).tolist()) == list(range(1000))
    padded = sum(len(rows) * int(lengths[rows].max()) for rows in batches)
    assert padded < 1.25 * lengths.sum()


def test_what_auc_the_last_epoch_reaches_is_not_what_a_shuffled_label_would_give():
    data = held_world(400)
    shuffled = replace(data, label=np.random.default_rng(0).permutation(data.label))
    trained = train(shuffled, held_world(200, seed=1), QUICK)
    unseen = held_world(400, seed=4)
    margin = trained.network.margins(unseen.steps, unseen.offsets)
    assert roc_auc((unseen.label == 1).astype(float), margin) < 0.65
