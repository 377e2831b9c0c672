"""Measure the speed of the models for held jobs: default training, and scoring many episodes."""

from __future__ import annotations

import argparse
import json
import resource
import time
from dataclasses import replace

import numpy as np

from condor_advice.lab.training_data import recorded, training_recordings
from condor_advice.model.held import lstm_training
from condor_advice.model.held.data import HeldData, join
from condor_advice.model.held.model import HeldModel
from condor_advice.model.held.parts import Inputs
from condor_advice.model.held.train import HeldSettings, assemble, learn
from condor_advice.model.registry.places import STARTER

EPISODES = 100_000
FORWARDS = 300  # forward passes of torch, one episode each; the rest is extrapolated
TARGET_SECONDS, TARGET_RATIO = 300, 20


def main() -> None:
    """Measure and print one line each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=EPISODES)
    episodes = parser.parse_args().episodes
    began, used = time.perf_counter(), _cpu()
    data = join([recorded(name).data for name in training_recordings()])
    settings = HeldSettings()
    learned = learn(data, settings)
    assemble(learned, settings, settings.parts)
    _print(
        "held.train",
        seconds=round(time.perf_counter() - began, 1),
        cpu_seconds=round(_cpu() - used, 1),
        episodes=len(data),
        target_seconds=TARGET_SECONDS,
    )
    # Score with the shipped model, and with all parts: that is the slowest possible model.
    parts = {part: assemble(learned, settings, (part,)).model for part in settings.parts}
    many = _many(data, episodes)
    model = HeldModel.load(STARTER)
    began = time.perf_counter()
    model.predict(Inputs.of(many))
    shipped = time.perf_counter() - began
    began = time.perf_counter()
    for part in parts.values():
        part.predict(Inputs.of(many))
    ours = time.perf_counter() - began
    began = time.perf_counter()
    parts["lstm"].predict(Inputs.of(many))
    network = time.perf_counter() - began
    one_by_one = _torch_forwards(many) * episodes / FORWARDS
    _print(
        "held.score",
        episodes=episodes,
        seconds=round(shipped, 2),
        episodes_per_second=round(episodes / shipped),
        shipped_parts=sorted(model.weights),
        all_parts_seconds=round(ours, 2),
        lstm_seconds=round(network, 2),
        torch_one_by_one_seconds=round(one_by_one, 1),
        ratio=round(one_by_one / shipped, 1),
        all_parts_ratio=round(one_by_one / ours, 1),
        lstm_ratio=round(one_by_one / network, 1),
        target_ratio=TARGET_RATIO,
    )


def _many(data: HeldData, episodes: int) -> HeldData:
    return data.take(np.arange(episodes) % len(data))


def _torch_forwards(data: HeldData) -> float:
    """Return the seconds that torch takes for some episodes, one forward pass each."""
    import torch

    settings = lstm_training.LstmSettings()
    torch.set_num_threads(1)
    some = data.take(np.arange(FORWARDS))
    trained = lstm_training.train(some, some, replace(settings, epochs=1))
    network = lstm_training.build(settings)
    network.load_state_dict({k: torch.from_numpy(v) for k, v in trained.weights.items()})
    network.eval()
    inputs = lstm_training.one_by_one(trained, some)
    began = time.perf_counter()
    with torch.no_grad():
        for episode in inputs:
            network(*episode)
    return time.perf_counter() - began


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _print(name: str, **figures: object) -> None:
    print(json.dumps({"benchmark": name, **figures, "date": time.strftime("%Y-%m-%d")}), flush=True)


if __name__ == "__main__":
    main()
