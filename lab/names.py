"""Neutral names for programs, files and batches, the same for all causes.

Every scenario draws its names from here, so that no model can learn the cause from a name.
A test checks that names and scenarios are independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

OWNER_NAMES = (
    "amara",
    "bjorn",
    "chiara",
    "dmitri",
    "elif",
    "farid",
    "greta",
    "hana",
    "ines",
    "jonas",
    "kavya",
    "lars",
    "mei",
    "nadia",
    "oskar",
    "priya",
    "quinn",
    "rosa",
    "stefan",
    "tariq",
    "uma",
    "viktor",
    "wanda",
    "ximena",
    "yusuf",
    "zoe",
)
PROJECTS = (
    "alignment",
    "batch7",
    "cosmo",
    "detector",
    "ensemble",
    "folding",
    "genome",
    "hydro",
    "imaging",
    "jets",
    "kinetics",
    "lattice",
    "mesh",
    "neuro",
    "orbit",
    "plasma",
)
_PROGRAMS = (
    "analyse",
    "assemble",
    "bootstrap",
    "calibrate",
    "classify",
    "compare",
    "evolve",
    "extract",
    "filter",
    "fit",
    "infer",
    "integrate",
    "main",
    "merge",
    "process",
    "reduce",
    "render",
    "sample",
    "scan",
    "simulate",
    "solve",
    "train",
    "transform",
    "worker",
)
_PROGRAM_ENDINGS = ("", ".sh", ".py", ".bin", "_v2", "-job")
DATA_WORDS = (
    "array",
    "block",
    "chunk",
    "config",
    "cube",
    "events",
    "frames",
    "grid",
    "hits",
    "index",
    "input",
    "mask",
    "model",
    "panel",
    "params",
    "part",
    "ref",
    "samples",
    "seeds",
    "series",
    "table",
    "tile",
    "weights",
)
_DATA_ENDINGS = (".dat", ".csv", ".h5", ".json", ".npy", ".tar", ".txt", ".zip")


def program(rng: Random) -> str:
    """Draw a file name for an executable."""
    return rng.choice(_PROGRAMS) + rng.choice(_PROGRAM_ENDINGS)


def data(rng: Random, words: Sequence[str] = DATA_WORDS) -> str:
    """Draw a file name for an input or an output."""
    return f"{rng.choice(words)}_{rng.randrange(1000):03d}{rng.choice(_DATA_ENDINGS)}"


def arguments(rng: Random) -> str:
    """Draw arguments as users write them; no program in the lab reads them."""
    words = []
    for _ in range(rng.randrange(4)):
        flag = rng.choice(("--seed", "--chunk", "--threads", "--level", "-n", "-k", "--step"))
        words.append(f"{flag} {rng.randrange(100)}")
    if rng.random() < 0.5:
        words.append("$(Process)")
    return " ".join(words)


def batch(rng: Random) -> str:
    """Draw a batch name."""
    return f"{rng.choice(PROJECTS)}-{rng.choice(DATA_WORDS)}-{rng.randrange(100):02d}"
