"""Kinds of pools: one folder per kind, with scenarios, programs and owners of its own.

A kind is a package with a docstring, a `KIND` value (`PoolKind`) and one module per scenario,
in the format of `lab/scenarios`; one of them is `healthy`. Modules whose names begin with an
underscore are helpers. The owners of a kind run the same programs again and again. What is
wrong with a program stays wrong in its next clusters until somebody fixes it, and owners may
remove a cluster and submit the program once more.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from condor_advice.gather.errors import UsageError
from condor_advice.lab import names
from condor_advice.lab.owners import BEHAVIOURS

if TYPE_CHECKING:
    from condor_advice.lab.world import JobBatch, LabWorld


class BatchNaming(Enum):
    """How owners name the clusters of one program."""

    NUMBERED = "numbered"  # stem-007
    DATED = "dated"  # stem_20260917
    SAME = "same"  # the stem alone, every time


@dataclass(frozen=True, slots=True)
class PoolKind:
    """The settings of one kind of pool. Options of the command line override some of them."""

    # The owners and what they do about holds.
    owners: int = 12
    owner_names: Sequence[str] = names.OWNER_NAMES
    behaviours: Mapping[str, float] = field(default_factory=lambda: dict(BEHAVIOURS))
    randomised_owners: float = 0.5  # share of the owners who release at random moments
    randomised_seconds: float = 35.0  # mean wait before a randomised release
    randomised_releases: tuple[int, int] = (3, 7)  # per job, before a randomised owner removes it
    haste: float = 1.0  # multiplies the delays of the other owners
    sweeping: tuple[float, float] = (0.0, 0.6)  # how often they act on the whole cluster
    resubmits: float = 0.0  # share of removals after which the program is submitted again
    mended: float = 0.5  # share of these resubmissions without the fault

    # The programs.
    programs: Sequence[str] = ("main.sh",)  # names of executables
    projects: Sequence[str] = names.PROJECTS
    data_words: Sequence[str] = names.DATA_WORDS
    programs_per_owner: tuple[int, int] = (1, 3)
    activity_spread: float = 0.5  # sigma of the log of how often a program is submitted
    persistence: float = 0.5  # chance that the next cluster of a program has the same scenario
    naming: BatchNaming = BatchNaming.NUMBERED
    cluster_sizes: Mapping[int, float] = field(default_factory=lambda: {1: 3.0, 2: 2.0, 5: 1.0})
    run_seconds: tuple[float, float] = (1.0, 3.0)  # minimum; mean of the exponential part
    # Changes a plain batch before the scenario does. `Random` is the same for all batches of a
    # program, so that a program keeps its requests and policies.
    dress: Callable[[JobBatch, Random], None] | None = None

    # The pool.
    batches_per_minute: float = 22.0
    pace: float = 1.0
    personalities: Sequence[str] = ("steady", "steady", "steady", "steady")
    point_prefix: str = "node"
    memory_policy: str = "stock"
    iso_dates: bool = True
    # Further configuration of the pool: the site's own policies.
    config: Callable[[LabWorld], str] | None = None


def kind_names() -> list[str]:
    """Return the names of the kinds in this folder."""
    return sorted(info.name for info in pkgutil.iter_modules(__path__) if info.ispkg)


def load_kind(name: str) -> PoolKind:
    """Return the settings of a kind."""
    if name not in kind_names():
        raise UsageError(
            f"unknown kind of pool {name!r}; choose from {', '.join(kind_names()) or 'none'}"
        )
    kind: PoolKind = importlib.import_module(f"{__name__}.{name}").KIND
    return kind
