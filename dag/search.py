"""Choose the next trial's parameters, and which trials to stop early.

Grid, random and Bayesian search and hyperband mean what they mean at W&B; the tests compare them
with W&B's own engine (the `sweeps` package). That engine is not the default: each trial asks in
its own process, and importing the engine takes more than two seconds of CPU. This module needs
at most NumPy, and only for `bayes`.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from condor_advice.dag.space import Parameter, combinations
from condor_advice.dag.sweepfile import Hyperband, Metric

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

FIRST_DRAWS = 4  # random trials before Bayesian search begins
PROPOSED_POINTS = 2000  # random points among which Bayesian search chooses
MOST_POINTS = 200  # a Gaussian process takes time cubic in them


@dataclass(frozen=True)
class KnownTrial:
    """What the search knows about one trial."""

    number: int
    parameters: Mapping[str, Any]
    losses: Mapping[int, float] = field(default_factory=dict)  # epoch -> loss, lower is better
    running: bool = False
    failed: bool = False

    @property
    def best(self) -> float | None:
        """The lowest finite loss."""
        return min((v for v in self.losses.values() if math.isfinite(v)), default=None)


def propose(
    method: str,
    parameters: Sequence[Parameter],
    known: Sequence[KnownTrial],
    number: int,
    seed: int,
) -> dict[str, Any] | None:
    """Return the parameters for trial `number`, or None when a grid is used up.

    The same known trials, number and seed give the same answer.
    """
    if method == "grid":
        return _next_of_grid(parameters, known)
    draws = random.Random(f"{seed}/{number}")
    if method == "bayes":
        done = [trial for trial in known if not trial.running]
        if sum(trial.best is not None for trial in done) >= FIRST_DRAWS:
            return _bayes(parameters, known, draws)
    return {parameter.name: parameter.at(draws.random()) for parameter in parameters}


def _next_of_grid(
    parameters: Sequence[Parameter], known: Sequence[KnownTrial]
) -> dict[str, Any] | None:
    taken = {_key(trial.parameters) for trial in known}
    for combination in combinations(parameters):
        if _key(combination) not in taken:
            return combination
    return None


def _key(parameters: Mapping[str, Any]) -> str:
    return json.dumps(parameters, sort_keys=True)


# ---- Bayesian search ------------------------------------------------------------------------


def _bayes(
    parameters: Sequence[Parameter], known: Sequence[KnownTrial], draws: random.Random
) -> dict[str, Any]:
    """Return the point of greatest expected improvement under a Gaussian process.

    A failed trial counts as the worst result so far, so that the search avoids it. A running
    trial counts as what the process predicts for it, so that it is not proposed twice.
    """
    import numpy as np

    free = [parameter for parameter in parameters if not parameter.is_constant]

    def point(trial: KnownTrial) -> list[float]:
        return [parameter.share(trial.parameters[parameter.name]) for parameter in free]

    losses = {t.number: t.best for t in known if t.best is not None and not t.running}
    worst = max(losses.values())
    done = [t for t in known if t.number in losses or (t.failed and not t.running)]
    done = sorted(done, key=lambda t: losses.get(t.number, worst))[:MOST_POINTS]
    x = np.array([point(trial) for trial in done])
    y = np.array([losses.get(trial.number, worst) for trial in done])
    mean, scale = float(y.mean()), float(y.std()) or 1.0
    y = (y - mean) / scale
    length, noise = _likeliest(x, y)
    pending = [point(trial) for trial in known if trial.running]
    if pending:
        believed = _predict(x, y, np.array(pending), length, noise)[0]
        x, y = np.concatenate((x, pending)), np.concatenate((y, believed))

    rng = np.random.default_rng(draws.getrandbits(64))
    best = x[np.argmin(y)]
    near = best + rng.normal(0, 0.1, (PROPOSED_POINTS // 4, len(free)))
    shares = np.concatenate((rng.random((PROPOSED_POINTS, len(free))), np.clip(near, 0, 1)))
    values = [
        {p.name: p.at(float(s)) for p, s in zip(free, row, strict=True)} for row in shares.tolist()
    ]
    # Judge a point at the value it stands for: choices and steps round it.
    at = np.array([[p.share(v[p.name]) for p in free] for v in values])
    expected, deviation = _predict(x, y, at, length, noise)
    gain = _expected_improvement(expected, deviation, float(y.min()))
    taken = {_key({p.name: t.parameters[p.name] for p in free}) for t in known}
    for index in np.argsort(-gain, kind="stable").tolist():
        if _key(values[index]) not in taken:
            chosen = values[index]
            break
    else:  # every point was tried: repeat the most promising
        chosen = values[int(np.argmax(gain))]
    constants = {p.name: p.at(0) for p in parameters if p.is_constant}
    return {p.name: (constants | chosen)[p.name] for p in parameters}


def _kernel(a: Floats, b: Floats, length: float) -> Floats:
    """Return the Matern 3/2 kernel, which W&B's engine uses."""
    import numpy as np

    square = (a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2 * a @ b.T
    distance = np.sqrt(3 * np.maximum(square, 0)) / length
    kernel: Floats = (1 + distance) * np.exp(-distance)
    return kernel


def _likeliest(x: Floats, y: Floats) -> tuple[float, float]:
    """Return the length scale and noise that make the results most likely."""
    import numpy as np

    best = (-math.inf, 1.0, 1e-2)
    for length in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2):
        kernel = _kernel(x, x, length)
        for noise in (1e-4, 1e-2, 1e-1):
            lower = np.linalg.cholesky(kernel + noise * np.eye(len(x)))
            half = np.linalg.solve(lower, y)
            likelihood = -0.5 * float(half @ half) - float(np.log(np.diag(lower)).sum())
            best = max(best, (likelihood, length, noise))
    return best[1], best[2]


def _predict(
    x: Floats, y: Floats, at: Floats, length: float, noise: float
) -> tuple[Floats, Floats]:
    import numpy as np

    lower = np.linalg.cholesky(_kernel(x, x, length) + noise * np.eye(len(x)))
    across = np.linalg.solve(lower, _kernel(x, at, length))
    mean = across.T @ np.linalg.solve(lower, y)
    variance = np.maximum(1 - (across**2).sum(0), 1e-12)
    return mean, np.sqrt(variance)


def _expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    import numpy as np

    z = (best - mean) / deviation
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in z.tolist()])
    gain: Floats = (best - mean) * below + deviation * density
    return gain


# ---- hyperband ------------------------------------------------------------------------------


def next_band(hyperband: Hyperband | None, epoch: int, epochs: int) -> int:
    """Return the epoch after which a trial that has done `epoch` epochs is next compared."""
    bands = hyperband.bands if hyperband else ()
    return min((band for band in bands if epoch < band < epochs), default=epochs)


def should_stop(hyperband: Hyperband, known: Sequence[KnownTrial], number: int) -> str | None:
    """Return why to stop a trial at the band it has reached, or None to continue it.

    As at W&B, its best loss must be among the best 1/eta of all trials' losses at that band.
    """
    [trial] = [trial for trial in known if trial.number == number]
    reached = max(trial.losses, default=0)
    band = max((band for band in hyperband.bands if band <= reached), default=None)
    if band is None or trial.best is None:
        return None
    at_band = sorted(loss for t in known if math.isfinite(loss := t.losses.get(band, math.nan)))
    if not at_band:
        return None
    threshold = at_band[min(int(len(at_band) / hyperband.eta), len(at_band) - 1)]
    if trial.best <= threshold:
        return None
    return (
        f"its best after {band} epochs is {trial.best:.6g}; the best 1/{hyperband.eta:g} of "
        f"{len(at_band)} trials reached {threshold:.6g}"
    )


# ---- W&B's own engine -----------------------------------------------------------------------


def propose_by_wandb(
    config: Mapping[str, Any], metric: Metric, known: Sequence[KnownTrial], number: int, seed: int
) -> dict[str, Any] | None:
    """Return the parameters that W&B's `sweeps` package would try next."""
    import numpy as np

    sweeps = wandb_engine()
    random.seed(f"{seed}/{number}")
    np.random.seed(random.getrandbits(32))
    runs = []
    for trial in known:
        state = "running" if trial.running else "failed" if trial.failed else "finished"
        history = [{metric.name: metric.loss(loss)} for _, loss in sorted(trial.losses.items())]
        runs.append(
            sweeps.SweepRun(
                name=str(trial.number),
                state=state,
                config={name: {"value": value} for name, value in trial.parameters.items()},
                sampledHistory=history,
                summaryMetrics=history[-1] if history else {},
            )
        )
    run = sweeps.next_run(dict(config), runs)
    if run is None:
        return None
    # JSON cannot hold NumPy scalars.
    return {
        name: value["value"].item() if isinstance(value["value"], np.generic) else value["value"]
        for name, value in run.config.items()
    }


def wandb_engine() -> Any:
    """Import W&B's engine, or raise an error that says how to install it."""
    import warnings

    from condor_advice.gather.errors import AdviceError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it was written for an older pydantic
            import sweeps
    except ImportError as error:
        raise AdviceError(
            "engine: wandb needs W&B's `sweeps` package; pip install sweeps, or use engine: own"
        ) from error
    return sweeps
