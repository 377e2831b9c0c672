"""Read a sweep file: W&B's own format, and a section of ours that W&B ignores.

All problems of a file are reported at once, each with its line, so that nobody has to fix one
mistake, start again, and meet the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from condor_advice.dag.space import DEFAULTS, DISTRIBUTIONS, Parameter
from condor_advice.gather.errors import AdviceError, UsageError

METHODS = ("grid", "random", "bayes")
SECTION = "condor_advice"
# W&B's keys for how its own agent starts a program; here DAGMan starts the trials.
_IGNORED = ("program", "command", "controller", "parent", "launch", "scheduler", "job", "imageuri")
_TEXTS = ("project", "entity", "name", "description")
_TOP = (*_TEXTS, *_IGNORED, "method", "metric", "parameters", "early_terminate", "run_cap", SECTION)
SOURCES = ("recording", "logs", "store", "export")


class BadSweepFile(UsageError):
    """The sweep file has problems; the message lists each with its line."""

    def __init__(self, path: Path, problems: list[tuple[int, str]]) -> None:
        self.problems = sorted(problems, key=lambda problem: problem[0])
        lines = "\n".join(f"{path}:{line}: {text}" for line, text in self.problems)
        super().__init__(
            f"{path}: {len(problems)} problem{'s' if len(problems) > 1 else ''}; "
            f"nothing was written or submitted\n{lines}"
        )


@dataclass(frozen=True)
class Metric:
    """The metric that a sweep optimizes."""

    name: str
    goal: str = "minimize"
    target: float | None = None

    def loss(self, value: float) -> float:
        """Return the value as a loss: lower is better."""
        return -value if self.goal == "maximize" else value

    def reached(self, value: float) -> bool:
        """Return whether a value reaches the target."""
        return self.target is not None and self.loss(value) <= self.loss(self.target)


@dataclass(frozen=True)
class Hyperband:
    """When to stop poor trials early."""

    bands: tuple[int, ...]  # epochs after which a trial is compared with the others
    eta: float = 3.0


@dataclass(frozen=True)
class SweepSource:
    """Where episodes come from: one access point's events, or an export of them."""

    kind: str  # one of SOURCES
    value: str
    line: int = 0


@dataclass(frozen=True)
class Resources:
    """What a node requests of the pool, and how often it is retried."""

    cpus: int = 1
    memory_mb: int = 2048
    disk_mb: int = 4096
    requirements: str = ""
    max_running: int = 0  # trials at a time; 0 means no limit
    retries: int = 2  # of a trial whose failure another run may not repeat
    hold_minutes: int = 60  # a node held longer than this is removed and retried
    checkpoint_seconds: int = 120  # least time between two checkpoints of a trial


@dataclass(frozen=True)
class Environment:
    """The Python that a node uses on its execution point."""

    kind: str = "bundle"  # or "python": one installed there; or "image": that of a container
    value: str = ""


@dataclass(frozen=True)
class SplitShares:
    """How episodes are divided by time."""

    train: float = 0.6
    validation: float = 0.2
    gap_seconds: float = 3600


@dataclass(frozen=True)
class SweepFile:
    """A checked sweep file."""

    path: Path
    method: str
    metric: Metric
    parameters: tuple[Parameter, ...]
    sources: tuple[SweepSource, ...]
    hyperband: Hyperband | None = None
    run_cap: int | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    environment: Environment = field(default_factory=Environment)
    split: SplitShares = field(default_factory=SplitShares)
    seeds: tuple[int, ...] = (0,)
    search_seed: int = 0
    engine: str = "own"  # or "wandb"
    tracking: str = "offline"  # or "off"
    candidates: int = 3  # how many of the best trials are evaluated on the test split
    config: Mapping[str, Any] = field(default_factory=dict)  # W&B's keys, as W&B expects them

    @property
    def name(self) -> str:
        """The name in the file, or else the file's own name."""
        return self.texts.get("name") or self.path.stem


def read_sweep_file(
    path: Path,
    known: Mapping[str, Any],
    metrics: tuple[str, ...],
    recordings: Collection[str] = (),
) -> SweepFile:
    """Read and check a file.

    `known` maps each parameter that a trial understands to a value of its type. `metrics` are
    those that a trial reports. `recordings` are those that `data` may name.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot read the sweep file ({error}); name another") from None
    yaml = _yaml()
    loader = _loader(yaml)
    try:
        node = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise BadSweepFile(path, [(line, f"not valid YAML: {error.problem}")]) from None
    if node is None:
        raise BadSweepFile(path, [(1, "the file is empty; see docs/sweeps.md for an example")])
    return _Reader(path, loader(text), known, metrics, recordings).read(node)


def _yaml() -> Any:
    try:
        import yaml
    except ImportError as error:
        raise AdviceError(
            "sweeps need PyYAML, which is not installed; pip install 'condor-advice[train]'"
        ) from error
    return yaml


def _loader(yaml: Any) -> Any:
    import re

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Reads 1e-4 as a number, where YAML 1.1 reads it as text."""

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"),
        list("-+0123456789"),
    )
    return Loader


class _Reader:
    """Reads one file and collects its problems."""

    def __init__(
        self,
        path: Path,
        loader: Any,
        known: Mapping[str, Any],
        metrics: tuple[str, ...],
        recordings: Collection[str],
    ) -> None:
        self.path, self.loader, self.known, self.metrics = path, loader, known, metrics
        self.recordings = recordings
        self.problems: list[tuple[int, str]] = []

    def say(self, node: Any, text: str) -> None:
        self.problems.append((node.start_mark.line + 1, text))

    # ---- helpers ----------------------------------------------------------------------

    def value(self, node: Any) -> Any:
        return self.loader.construct_object(node, deep=True)

    def table(self, node: Any, label: str) -> dict[str, Any]:
        """Return a mapping's nodes by key; if it is not a mapping, note a problem and return {}."""
        if getattr(node, "id", "") != "mapping":
            self.say(node, f"{label} must be a mapping of keys to values")
            return {}
        nodes: dict[str, Any] = {}
        for key, value in node.value:
            name = str(self.value(key))
            if name in nodes:
                self.say(key, f"{label}: {name} appears twice; keep one")
            nodes[name] = value
        return nodes

    def only(self, table: dict[str, Any], allowed: tuple[str, ...], label: str) -> None:
        for name, node in table.items():
            if name not in allowed:
                self.say(node, f"{label}: unknown key {name!r}; use one of {', '.join(allowed)}")

    def take(
        self,
        table: dict[str, Any],
        name: str,
        default: Any,
        good: Callable[[Any], bool],
        expected: str,
    ) -> Any:
        if name not in table:
            return default
        value = self.value(table[name])
        if not good(value):
            self.say(table[name], f"{name} must be {expected}, not {value!r}")
            return default
        return value

    # ---- the file ---------------------------------------------------------------------

    def read(self, root: Any) -> SweepFile:
        top = self.table(root, "the sweep file")
        self.only(top, _TOP, "a sweep file")
        method = self.take(top, "method", None, METHODS.__contains__, " or ".join(METHODS))
        if "method" not in top:
            self.say(root, f"no method; add one of {', '.join(METHODS)}")
        metric = self._metric(top, root)
        parameters = self._parameters(top, root, method)
        hyperband = self._early_terminate(top)
        run_cap = self.take(top, "run_cap", None, _whole(1), "a whole number, at least 1")
        texts = {
            name: self.take(top, name, "", lambda v: isinstance(v, str), "text") for name in _TEXTS
        }
        ours = self._ours(top, root)
        if self.problems:
            raise BadSweepFile(self.path, self.problems)
        config = {
            name: self.value(node) for name, node in top.items() if name not in (SECTION, *_IGNORED)
        }
        return SweepFile(
            self.path,
            method,
            metric,
            tuple(parameters),
            hyperband=hyperband,
            run_cap=run_cap,
            texts={name: value for name, value in texts.items() if value},
            config=config,
            **ours,
        )

    def _metric(self, top: dict[str, Any], root: Any) -> Metric:
        if "metric" not in top:
            self.say(root, f"no metric; add one, for example name: {self.metrics[0]}")
            return Metric(self.metrics[0])
        table = self.table(top["metric"], "metric")
        self.only(table, ("name", "goal", "target", "impute", "impute_while_running"), "metric")
        name = self.take(
            table,
            "name",
            self.metrics[0],
            self.metrics.__contains__,
            "one that trials report (" + ", ".join(self.metrics) + ")",
        )
        if "name" not in table:
            self.say(top["metric"], "metric has no name")
        goals = ("minimize", "maximize")
        goal = self.take(table, "goal", "minimize", goals.__contains__, "minimize or maximize")
        target = self.take(table, "target", None, _number, "a number")
        return Metric(name, goal, target)

    def _parameters(self, top: dict[str, Any], root: Any, method: str | None) -> list[Parameter]:
        if "parameters" not in top:
            self.say(root, "no parameters; add those to search")
            return []
        parameters = []
        for name, node in self.table(top["parameters"], "parameters").items():
            if name not in self.known:
                self.say(
                    node,
                    f"unknown parameter {name!r}; use one of {', '.join(self.known)}",
                )
            parameter = self._parameter(name, node)
            if parameter is None:
                continue
            parameters.append(parameter)
            if method == "grid" and parameter.choices() is None:
                self.say(
                    node,
                    f"{name}: a grid needs choices (value, values, int_uniform or q_uniform), "
                    f"not {parameter.distribution}",
                )
            if name in self.known:
                self._check_type(parameter, node)
        if method == "bayes" and parameters and all(p.is_constant for p in parameters):
            self.say(top["parameters"], "bayes needs at least one parameter that varies")
        if not parameters and not self.problems:
            self.say(top["parameters"], "no parameters; add those to search")
        return parameters

    def _parameter(self, name: str, node: Any) -> Parameter | None:
        before = len(self.problems)
        table = self.table(node, f"parameter {name}")
        if "parameters" in table:
            self.say(node, f"{name}: nested parameters are not supported; list them flat")
        settings = {key: self.value(value) for key, value in table.items()}
        kind = settings.pop("distribution", None) or _implied(settings)
        if kind == "categorical" and "probabilities" in settings:
            kind = "categorical_w_probabilities"
        if len(self.problems) > before:
            return None
        if kind is None:
            self.say(
                node,
                f"{name}: give a value, values, min and max, or a distribution "
                f"({', '.join(DISTRIBUTIONS)})",
            )
            return None
        if kind not in DISTRIBUTIONS:
            self.say(
                node,
                f"{name}: unknown distribution {kind!r}; use one of {', '.join(DISTRIBUTIONS)}",
            )
            return None
        wanted = DISTRIBUTIONS[kind]
        extra = [key for key in settings if key not in wanted]
        for key in extra:
            self.say(table[key], f"{name}: {kind} takes {', '.join(wanted)}, not {key!r}")
        for key in wanted:
            if key not in settings and key not in DEFAULTS:
                self.say(node, f"{name}: {kind} needs {key}")
        filled = {key: settings.get(key, DEFAULTS.get(key)) for key in wanted}
        if len(self.problems) == before:
            for text in _wrong(kind, filled):
                self.say(node, f"{name}: {text}")
        return Parameter(name, kind, filled) if len(self.problems) == before else None

    def _check_type(self, parameter: Parameter, node: Any) -> None:
        example = self.known[parameter.name]
        drawn = parameter.choices() or [parameter.at(share / 8) for share in range(9)]
        for value in drawn:
            if not _fits(value, example):
                self.say(
                    node,
                    f"{parameter.name} must be {_kind_of(example)}, but {value!r} is possible here",
                )
                return

    def _early_terminate(self, top: dict[str, Any]) -> Hyperband | None:
        if "early_terminate" not in top:
            return None
        before = len(self.problems)
        node = top["early_terminate"]
        table = self.table(node, "early_terminate")
        self.only(table, ("type", "min_iter", "max_iter", "s", "eta", "strict"), "early_terminate")
        self.take(table, "type", None, lambda v: v == "hyperband", "hyperband")
        if table and "type" not in table:
            self.say(node, "early_terminate has no type; add type: hyperband")
        eta = self.take(table, "eta", 3, lambda v: _number(v) and v > 1, "a number above 1")
        first = self.take(table, "min_iter", None, _whole(1), "a whole number, at least 1")
        last = self.take(table, "max_iter", None, _whole(1), "a whole number, at least 1")
        s = self.take(table, "s", None, _whole(1), "a whole number, at least 1")
        if "min_iter" not in table and not {"max_iter", "s"} <= set(table):
            self.say(node, "early_terminate needs min_iter, or max_iter and s")
        if len(self.problems) > before:
            return None
        bands = bands_of(eta, first, last, s)
        if not bands:
            self.say(node, f"max_iter {last} with eta {eta} leaves no band; raise max_iter")
        return Hyperband(bands, float(eta))

    # ---- our section ------------------------------------------------------------------

    def _ours(self, top: dict[str, Any], root: Any) -> dict[str, Any]:
        if SECTION not in top:
            self.say(root, f"no {SECTION} section; add one with data: [...]")
            return {}
        table = self.table(top[SECTION], SECTION)
        self.only(
            table,
            (
                "data",
                "split",
                "seeds",
                "search_seed",
                "resources",
                "environment",
                "engine",
                "tracking",
                "candidates",
            ),
            SECTION,
        )
        return {
            "sources": self._sources(table, top[SECTION]),
            "split": self._split(table),
            "seeds": tuple(self.take(table, "seeds", [0], _some_whole, "a list of whole numbers")),
            "search_seed": self.take(table, "search_seed", 0, _whole(0), "a whole number"),
            "resources": self._resources(table),
            "environment": self._environment(table),
            "engine": self.take(
                table, "engine", "own", ("own", "wandb").__contains__, "own or wandb"
            ),
            "tracking": self.take(
                table,
                "tracking",
                "offline",
                ("offline", "off", False).__contains__,
                "offline or off",
            )
            or "off",
            "candidates": self.take(
                table, "candidates", 3, _whole(1), "a whole number, at least 1"
            ),
        }

    def _sources(self, table: dict[str, Any], section: Any) -> tuple[SweepSource, ...]:
        if "data" not in table:
            self.say(section, f"{SECTION} has no data; name {' or '.join(SOURCES)} to train on")
            return ()
        node = table["data"]
        if node.id != "sequence" or not node.value:
            self.say(node, "data must be a list, for example [{recording: pool_a}]")
            return ()
        sources = []
        for item in node.value:
            entry = self.table(item, "an entry of data")
            if len(entry) != 1 or not set(entry) <= set(SOURCES):
                self.say(item, f"an entry of data names one of {', '.join(SOURCES)}")
                continue
            [(kind, value)] = entry.items()
            text = self.value(value)
            if not isinstance(text, str) or not text:
                self.say(value, f"{kind} must be a name or a path, not {text!r}")
                continue
            if problem := self._missing(kind, text):
                self.say(value, problem)
            absolute = text if kind == "recording" else str(self._beside(text))
            sources.append(SweepSource(kind, absolute, item.start_mark.line + 1))
        return tuple(sources)

    def _beside(self, text: str) -> Path:
        """Resolve a path relative to the sweep file."""
        return (self.path.parent / Path(text).expanduser()).absolute()

    def _missing(self, kind: str, text: str) -> str | None:
        if kind == "recording":
            if text in self.recordings:
                return None
            return f"no recording {text!r}; choose from: {', '.join(self.recordings) or 'none'}"
        path = self._beside(text)
        if kind == "export" and not (path / "schema.json").is_file():
            return f"{path}: no export; write one with `condor-advice export {text}`"
        if kind == "store" and not path.is_file():
            return f"{path}: no store; fill one with `condor-advice gather`"
        if kind == "logs" and not path.exists():
            return f"{path}: no event log here"
        return None

    def _split(self, table: dict[str, Any]) -> SplitShares:
        if "split" not in table:
            return SplitShares()
        inner = self.table(table["split"], "split")
        self.only(inner, ("train", "validation", "gap_seconds"), "split")
        inside = "a share between 0 and 1"

        def share(value: Any) -> bool:
            return _number(value) and 0 < value < 1

        train = self.take(inner, "train", 0.6, share, inside)
        validation = self.take(inner, "validation", 0.2, share, inside)
        gap = self.take(inner, "gap_seconds", 3600, lambda v: _number(v) and v >= 0, "seconds")
        if train + validation >= 1:
            self.say(
                table["split"],
                "train and validation leave nothing to test on; they must add up to less than 1",
            )
        return SplitShares(train, validation, gap)

    def _resources(self, table: dict[str, Any]) -> Resources:
        if "resources" not in table:
            return Resources()
        inner = self.table(table["resources"], "resources")
        defaults = Resources()
        self.only(inner, tuple(Resources.__dataclass_fields__), "resources")
        values: dict[str, Any] = {}
        for name in inner:
            default = getattr(defaults, name, None)
            if isinstance(default, int):
                least = 1 if name in ("cpus", "memory_mb", "disk_mb", "hold_minutes") else 0
                values[name] = self.take(
                    inner, name, default, _whole(least), f"a whole number, at least {least}"
                )
            elif isinstance(default, str):
                values[name] = self.take(
                    inner,
                    name,
                    default,
                    lambda v: isinstance(v, str) and "\n" not in v,
                    "an expression on one line",
                )
        return Resources(**values)

    def _environment(self, table: dict[str, Any]) -> Environment:
        if "environment" not in table:
            return Environment()
        node = table["environment"]
        if node.id == "scalar" and self.value(node) == "bundle":
            return Environment()
        entry = self.table(node, "environment") if node.id == "mapping" else {}
        if len(entry) == 1 and set(entry) <= {"python", "image"}:
            [(kind, value)] = entry.items()
            text = self.value(value)
            if isinstance(text, str) and text and not any(c in text for c in "\n\"'"):
                if kind == "image" and text.endswith(".sif") and "://" not in text:
                    # An image file is transferred from here.
                    text = str(self._beside(text))
                    if not Path(text).is_file():
                        self.say(value, f"{text}: no image here")
                return Environment(kind, text)
        self.say(node, "environment must be bundle, {python: PATH} or {image: NAME}")
        return Environment()


def bands_of(
    eta: float, first: int | None, last: int | None, s: int | None, most: int = 10_000
) -> tuple[int, ...]:
    """Return the epochs after which hyperband compares trials, as W&B documents them.

    Given `last` (max_iter) and `s`, count down from `last`; otherwise up from `first` (min_iter).
    """
    bands = []
    if last is not None and s is not None:
        band = float(last)
        for _ in range(s):
            band /= eta
            if band < 1:
                break
            bands.append(int(band))
    elif first is not None:
        band = float(first)
        while band <= most:
            bands.append(int(band))
            band *= eta
    return tuple(sorted(set(bands)))


def _implied(settings: Mapping[str, Any]) -> str | None:
    """Return the distribution that W&B assumes when none is named."""
    if "value" in settings:
        return "constant"
    if "values" in settings:
        return "categorical"
    if "min" in settings and "max" in settings:
        whole = all(_whole_number(settings[edge]) for edge in ("min", "max"))
        return "int_uniform" if whole else "uniform"
    return None


def _wrong(kind: str, s: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the settings of a distribution."""
    if "values" in s:
        if not isinstance(s["values"], list) or not s["values"]:
            yield "values must be a list with at least one value"
            return
        for value in s["values"]:
            if not isinstance(value, str | int | float | bool | None):
                yield f"a value must be text, a number, true, false or null, not {value!r}"
    if "probabilities" in s:
        p = s["probabilities"]
        if not isinstance(p, list) or not all(_number(v) and v >= 0 for v in p):
            yield "probabilities must be a list of numbers, none below 0"
        elif len(p) != len(s["values"]):
            yield f"there are {len(s['values'])} values but {len(p)} probabilities"
        elif not math.isclose(sum(p), 1, abs_tol=1e-6):
            yield f"probabilities add up to {sum(p):g}, not 1"
    for key in ("min", "max", "mu", "sigma", "a", "b", "q"):
        if key in s and not _number(s[key]):
            yield f"{key} must be a number, not {s[key]!r}"
            return
    if "min" in s:
        if s["min"] > s["max"]:
            yield f"min {s['min']} is above max {s['max']}"
        if kind == "int_uniform" and not all(_whole_number(s[e]) for e in ("min", "max")):
            yield "int_uniform needs whole numbers"
        if kind.endswith("_values") and s["min"] <= 0:
            yield f"{kind} needs min above 0: min is the value itself, not its logarithm"
        if kind in ("log_uniform", "q_log_uniform", "inv_log_uniform") and s["max"] > 700:
            yield f"max of {kind} is a natural logarithm; {s['max']} is too large"
    for key in ("q", "a", "b"):
        if key in s and s[key] <= 0:
            yield f"{key} must be above 0"
    if s.get("sigma", 0) < 0:
        yield "sigma must not be below 0"


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(least: int) -> Callable[[Any], bool]:
    return lambda value: _whole_number(value) and value >= least


def _some_whole(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(_whole(0)(item) for item in value)
        and len(set(value)) == len(value)
    )


def _fits(value: Any, example: Any) -> bool:
    if isinstance(example, bool):
        return isinstance(value, bool)
    if isinstance(example, int):
        return _whole_number(value)
    if isinstance(example, float):
        return _number(value)
    return isinstance(value, type(example))


def _kind_of(example: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    return names.get(type(example), type(example).__name__)
