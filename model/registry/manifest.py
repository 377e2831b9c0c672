"""A model's manifest: how it was made, and the checksums of its files.

A model directory has plain files (.npz arrays, JSON) and `manifest.json`, which is written last: a
directory with a manifest is complete. Each file is read once and checked against the manifest,
and the checked bytes are used. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import UsageError
from condor_advice.gather.files import replace_file, sync
from condor_advice.gather.regular import open_regular
from condor_advice.model.arrays import (
    MOST_MODEL_BYTES,
    Arrays,
    UnusableModel,
    check_finite,
    read_arrays,
)

MANIFEST = "manifest.json"
MANIFEST_FORMAT = 1
HELD = "held"  # the kind of model in this registry
# Libraries that a model's figures depend on, if installed.
LIBRARIES = ("condor-advice", "numpy", "scikit-learn", "torch", "xgboost-cpu", "xgboost")
MODEL_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TRAIN = "train it again with `condor-advice train`, or use another of `condor-advice model list`"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Checksum and size of one file."""

    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything about a model except its arrays."""

    name: str
    data_hash: str  # of the episodes it was trained on: see `hash_arrays`
    features: tuple[str, ...]
    metrics: Mapping[str, Any]  # by part: {"validation": {...}, "test": {...}}
    settings: Mapping[str, Any]
    seeds: Mapping[str, int]
    trained_on: Mapping[str, Any]  # sources, episodes, from, until, ...
    model: Mapping[str, Any] = field(default_factory=dict)  # what the model needs besides arrays
    kind: str = HELD
    created: str = field(default_factory=lambda: now())
    libraries: Mapping[str, str] = field(default_factory=lambda: libraries())
    files: Mapping[str, FileEntry] = field(default_factory=dict)  # filled in by `write`

    def columns(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the indices of the model's features in `names`; raise if one is missing."""
        where = {name: index for index, name in enumerate(names)}
        missing = [name for name in self.features if name not in where]
        if missing:
            raise UnusableModel(
                f"model {self.name}: needs the feature {missing[0]}"
                + (f" and {len(missing) - 1} others" if len(missing) > 1 else "")
                + f", which this condor-advice does not compute; {_TRAIN}"
            )
        return np.array([where[name] for name in self.features], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The checked files of a model."""

    directory: Path
    manifest: Manifest
    checksum: str  # of the manifest, and so of all files
    content: Mapping[str, bytes]

    def arrays(self, name: str, *, finite: bool = True) -> Arrays:
        """Return the arrays of one .npz file; with `finite`, refuse NaN and infinity in them."""
        if name not in self.content:
            raise UnusableModel(f"{self.directory}: the model has no file {name}; {_TRAIN}")
        arrays = read_arrays(self.content[name], self.directory / name)
        if finite:
            check_finite(arrays, self.directory / name)
        return arrays


def write(directory: Path, manifest: Manifest) -> Manifest:
    """Write the manifest for the files in a directory; call it last.

    It lists every file, but no directories, such as the model card's: nothing in them is loaded.
    """
    if not MODEL_NAME.fullmatch(manifest.name):
        raise UsageError(
            f"{manifest.name!r} is not a valid model name; use up to 64 of a-z, 0-9, '.', '_' and "
            "'-', beginning with a letter or digit"
        )
    entries = {}
    for path in sorted(directory.iterdir()):
        _refuse_link(path)
        if path.is_file() and path.name != MANIFEST and not path.name.startswith("."):
            if not _FILE.fullmatch(path.name):
                raise UsageError(f"{path}: this file cannot be part of a model; rename it")
            entries[path.name] = _entry(path.read_bytes())
            sync(path)
    whole = replace(manifest, files=entries)
    body = _plain({"format": MANIFEST_FORMAT, **asdict(whole)})
    body["checksum"] = _checksum(body)
    replace_file(directory / MANIFEST, (json.dumps(body, indent=1) + "\n").encode())
    return whole


def verify(directory: Path) -> Manifest:
    """Check every file of a model; raise UnusableModel with the file and the problem."""
    return read(directory).manifest


def read(directory: Path) -> ModelFiles:
    """Read a model's files and check them against the manifest."""
    manifest, checksum = read_manifest(directory)
    content = {}
    for name, entry in manifest.files.items():
        path = directory / name
        try:
            content[name] = read_file(path)
        except OSError as error:
            raise UnusableModel(
                f"{path}: listed in the manifest, but cannot be read ({error.strerror}); "
                f"the model is incomplete: {_TRAIN}"
            ) from error
        actual = _entry(content[name])
        if actual.bytes != entry.bytes:
            raise UnusableModel(
                f"{path}: has {actual.bytes:,} bytes, but the manifest says {entry.bytes:,}; "
                f"the file is truncated or was changed: {_TRAIN}"
            )
        if actual.sha256 != entry.sha256:
            raise UnusableModel(
                f"{path}: its SHA-256 is not the manifest's; the file was changed after training: "
                f"{_TRAIN}"
            )
    return ModelFiles(directory, manifest, checksum, content)


def read_file(path: Path) -> bytes:
    """Read one file of a model; refuse links, anything but regular files, and huge files.

    A link in a model that somebody else made could name any file that we may read.
    """
    _refuse_link(path)
    with open_regular(path, follow=False) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_MODEL_BYTES:
            raise UnusableModel(
                f"{path}: has {size:,} bytes, and {MOST_MODEL_BYTES:,} are allowed; {_TRAIN}"
            )
        return file.read(MOST_MODEL_BYTES)


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise UnusableModel(
            f"{path}: a symbolic link, which no model may contain; put the file itself there, or "
            "use another model"
        )


def read_manifest(directory: Path) -> tuple[Manifest, str]:
    """Return a model's manifest and its checksum, without reading the other files."""
    path = directory / MANIFEST
    try:
        body = json.loads(read_file(path), parse_float=_finite, parse_constant=_finite)
    except FileNotFoundError:
        raise UnusableModel(
            f"{path}: not found; the directory is not a model, or is incomplete; {_TRAIN}"
        ) from None
    except OSError as error:
        raise UnusableModel(f"{path}: cannot be read ({error.strerror}); {_TRAIN}") from error
    except ValueError as error:
        raise UnusableModel(f"{path}: not valid JSON ({error}); {_TRAIN}") from error
    if not isinstance(body, dict) or not isinstance(body.get("format"), int):
        raise UnusableModel(f"{path}: not the manifest of a model; {_TRAIN}")
    if body["format"] > MANIFEST_FORMAT:
        raise UnusableModel(
            f"{path}: format {body['format']}, but this condor-advice reads formats up to "
            f"{MANIFEST_FORMAT}; upgrade condor-advice, or {_TRAIN}"
        )
    if body.get("kind") != HELD:
        raise UnusableModel(
            f"{path}: a model of kind {body.get('kind')!r}, not for held jobs; {_TRAIN}"
        )
    checksum = body.pop("checksum", None)
    if checksum != _checksum(body):
        raise UnusableModel(
            f"{path}: its checksum is wrong; the manifest was changed by hand or damaged: {_TRAIN}"
        )
    del body["format"]
    known = {entry.name for entry in fields(Manifest)}
    if wrong := sorted(known ^ body.keys()):
        raise UnusableModel(f"{path}: unknown or missing entries: {', '.join(wrong)}; {_TRAIN}")
    try:
        body["features"] = tuple(map(str, body["features"]))
        body["files"] = {name: FileEntry(**entry) for name, entry in body["files"].items()}
    except (TypeError, AttributeError) as error:
        raise UnusableModel(f"{path}: an entry has the wrong type ({error}); {_TRAIN}") from error
    for name in body["files"]:
        if not _FILE.fullmatch(name):
            raise UnusableModel(f"{path}: lists a file outside the model ({name!r}); {_TRAIN}")
    return Manifest(**body), str(checksum)


# ---- helpers -------------------------------------------------------------------------------


def now() -> str:
    """Return the current time in UTC, as in a manifest."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def new_name(created: str, data_hash: str) -> str:
    """Return a name that sorts by time and differs between training data."""
    return f"held-{datetime.fromisoformat(created):%Y%m%d-%H%M%S}-{data_hash[:6]}"


def libraries() -> dict[str, str]:
    """Return the versions of the installed LIBRARIES."""
    from importlib import metadata  # slow to import, and only for training

    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _finite(text: str) -> float:
    """Parse a number of a manifest; NaN and infinity are not JSON, and no weight is infinite."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _entry(data: bytes) -> FileEntry:
    return FileEntry(hashlib.sha256(data).hexdigest(), len(data))


def _checksum(body: Mapping[str, Any]) -> str:
    """Return the hash of a manifest without its checksum, independent of its layout."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Convert a value for JSON: NumPy's numbers to plain ones, NaN and infinity to null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
