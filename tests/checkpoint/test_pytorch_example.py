"""A PyTorch training that is interrupted and resumed ends exactly as one that was not."""

import random

import pytest

from condor_checkpoint import CheckpointFiles
from condor_checkpoint.pytorch import TrainingState

torch = pytest.importorskip("torch")


def make():
    torch.manual_seed(3)
    random.seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def train(model, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        data = torch.randn(16, 4) * random.random()
        model(data).pow(2).mean().backward()
        optimizer.step()


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_resuming_changes_nothing(tmp_path):
    model, optimizer = make()
    train(model, optimizer, 20)
    expected = weights(model)

    files = CheckpointFiles(str(tmp_path))
    model, optimizer = make()
    train(model, optimizer, 12)
    TrainingState(model, optimizer, step=12).save(files)
    train(model, optimizer, 3)  # lost

    model, optimizer = make()
    state = TrainingState(model, optimizer, step=0)
    assert state.restore(files)
    train(model, optimizer, 20 - state.progress["step"])
    assert torch.equal(weights(model), expected)


def test_without_a_checkpoint_the_training_begins_at_the_beginning(tmp_path):
    model, optimizer = make()
    state = TrainingState(model, optimizer, step=0)
    assert not state.restore(CheckpointFiles(str(tmp_path)))
    assert state.progress == {"step": 0}
