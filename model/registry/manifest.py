"""A model's manifest: what it was made from, and by which its files are known to be whole.

A model directory holds plain files (.npz arrays, JSON) and `manifest.json`, which is written
last: a directory that has one is complete. Files are read once, checked against the manifest
and handed on as bytes, so that what is checked is what is used. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import math
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
from condor_advice.model.arrays import Arrays, UnusableModel, read_arrays

MANIFEST = "manifest.json"
MANIFEST_FORMAT = 1
HELD = "held"  # the kind of model that this registry keeps
# What a model's figures depend on, as far as it is installed.
LIBRARIES = ("condor-advice", "numpy", "scikit-learn", "torch", "xgboost-cpu", "xgboost")
MODEL_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TRAIN = "train it again with `condor-advice train`, or use another of `condor-advice model list`"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file as it was when the manifest was written."""

    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that is known of a model beside its arrays."""

    name: str
    data_hash: str  # of the episodes it was trained on: see `hash_arrays`
    features: tuple[str, ...]
    metrics: Mapping[str, Any]  # by part: {"validation": {...}, "test": {...}}
    settings: Mapping[str, Any]
    seeds: Mapping[str, int]
    trained_on: Mapping[str, Any]  # for people: sources, episodes, from, until, ...
    model: Mapping[str, Any] = field(default_factory=dict)  # what the model needs beside arrays
    kind: str = HELD
    created: str = field(default_factory=lambda: now())
    libraries: Mapping[str, str] = field(default_factory=lambda: libraries())
    files: Mapping[str, FileEntry] = field(default_factory=dict)  # filled in by `write`

    def columns(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return where the model's features are among these; all must be there."""
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
    """A model's files as they were checked."""

    directory: Path
    manifest: Manifest
    checksum: str  # of the manifest, and so of all files
    content: Mapping[str, bytes]

    def arrays(self, name: str) -> Arrays:
        """Return the arrays of one .npz file."""
        return read_arrays(self._bytes(name), self.directory / name)

    def json(self, name: str) -> Any:
        """Return one JSON file."""
        try:
            return json.loads(self._bytes(name))
        except ValueError as error:
            raise UnusableModel(f"{self.directory / name}: {error}; {_TRAIN}") from error

    def _bytes(self, name: str) -> bytes:
        if name not in self.content:
            raise UnusableModel(f"{self.directory}: the model has no file {name}; {_TRAIN}")
        return self.content[name]


def write(directory: Path, manifest: Manifest) -> Manifest:
    """Write the manifest of the files that are in a directory; call it last.

    Every file beside the manifest is taken in. Directories, such as the model card's, are not:
    nothing in them is ever loaded.
    """
    if not MODEL_NAME.fullmatch(manifest.name):
        raise UsageError(
            f"{manifest.name!r} cannot name a model; use up to 64 of a-z, 0-9, '.', '_' and '-', "
            "beginning with a letter or digit"
        )
    entries = {}
    for path in sorted(directory.iterdir()):
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
    """Check every file of a model; raises UnusableModel with the file and what is wrong."""
    return read(directory).manifest


def read(directory: Path) -> ModelFiles:
    """Read a model's files, each checked against the manifest."""
    manifest, checksum = read_manifest(directory)
    content = {}
    for name, entry in manifest.files.items():
        path = directory / name
        try:
            content[name] = path.read_bytes()
        except OSError as error:
            raise UnusableModel(
                f"{path}: named by the manifest but cannot be read ({error.strerror}); "
                f"the model is incomplete: {_TRAIN}"
            ) from error
        found = _entry(content[name])
        if found.bytes != entry.bytes:
            raise UnusableModel(
                f"{path}: has {found.bytes:,} bytes where the manifest says {entry.bytes:,}; "
                f"it is half written or was changed: {_TRAIN}"
            )
        if found.sha256 != entry.sha256:
            raise UnusableModel(
                f"{path}: its SHA-256 is not the manifest's; it was changed after training: "
                f"{_TRAIN}"
            )
    return ModelFiles(directory, manifest, checksum, content)


def read_manifest(directory: Path) -> tuple[Manifest, str]:
    """Return a model's manifest and its checksum, without looking at the other files."""
    path = directory / MANIFEST
    try:
        body = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UnusableModel(
            f"{path}: not there, so this is no model or a half-written one; {_TRAIN}"
        ) from None
    except OSError as error:
        raise UnusableModel(f"{path}: cannot be read ({error.strerror}); {_TRAIN}") from error
    except ValueError as error:
        raise UnusableModel(f"{path}: no valid JSON ({error}); {_TRAIN}") from error
    if not isinstance(body, dict) or not isinstance(body.get("format"), int):
        raise UnusableModel(f"{path}: not the manifest of a model; {_TRAIN}")
    if body["format"] > MANIFEST_FORMAT:
        raise UnusableModel(
            f"{path}: format {body['format']}, but this condor-advice reads formats up to "
            f"{MANIFEST_FORMAT}; upgrade condor-advice, or {_TRAIN}"
        )
    if body.get("kind") != HELD:
        raise UnusableModel(
            f"{path}: a model of kind {body.get('kind')!r}, not one for held jobs; {_TRAIN}"
        )
    checksum = body.pop("checksum", None)
    if checksum != _checksum(body):
        raise UnusableModel(
            f"{path}: its checksum is wrong; the manifest was changed by hand or damaged: {_TRAIN}"
        )
    del body["format"]
    known = {one.name for one in fields(Manifest)}
    if wrong := sorted(known ^ body.keys()):
        raise UnusableModel(f"{path}: unknown or missing entries: {', '.join(wrong)}; {_TRAIN}")
    try:
        body["features"] = tuple(map(str, body["features"]))
        body["files"] = {name: FileEntry(**entry) for name, entry in body["files"].items()}
    except (TypeError, AttributeError) as error:
        raise UnusableModel(f"{path}: an entry of the wrong kind ({error}); {_TRAIN}") from error
    for name in body["files"]:
        if not _FILE.fullmatch(name):
            raise UnusableModel(f"{path}: names a file outside of the model ({name!r}); {_TRAIN}")
    return Manifest(**body), str(checksum)


# ---- small parts ---------------------------------------------------------------------------


def now() -> str:
    """Return this second in UTC, as a manifest has it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def new_name(created: str, data_hash: str) -> str:
    """Return a name that sorts by time and tells models of different data apart."""
    return f"held-{datetime.fromisoformat(created):%Y%m%d-%H%M%S}-{data_hash[:6]}"


def libraries() -> dict[str, str]:
    """Return the versions of what a model's figures depend on."""
    from importlib import metadata  # slow to load, and only training asks

    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _entry(data: bytes) -> FileEntry:
    return FileEntry(hashlib.sha256(data).hexdigest(), len(data))


def _checksum(body: Mapping[str, Any]) -> str:
    """Return the hash of the manifest without its own checksum, whatever its layout."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: NumPy's numbers as plain ones, NaN and infinity as null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
