"""A model's manifest: whole files are read, everything else is refused with a reason."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from condor_advice.gather.errors import UsageError
from condor_advice.model.arrays import UnusableModel, hash_arrays, load_arrays, save_arrays
from condor_advice.model.registry import manifest
from condor_advice.model.registry.manifest import Manifest

EXAMPLE = Manifest(
    name="held-a",
    data_hash="0" * 64,
    features=("hold_code", "job_age"),
    metrics={"test": {"brier": 0.1, "roc_auc": float("nan")}},
    settings={"depth": 4},
    seeds={"trees": 7},
    trained_on={"episodes": 10},
)


class Trap:
    """What a planted pickle would do: leave a mark where it was run."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.mark),))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    save_arrays(directory / "trees.npz", {"value": np.arange(100.0)})
    (directory / "held.json").write_text('{"release_above": 0.6}')
    manifest.write(directory, EXAMPLE)
    return directory


def rewrite(directory: Path, **changes: Any) -> None:
    """Change the manifest as someone would who also puts its checksum right."""
    path = directory / manifest.MANIFEST
    body = json.loads(path.read_text()) | changes
    del body["checksum"]
    body["checksum"] = manifest._checksum(body)
    path.write_text(json.dumps(body))


def test_what_was_written_is_read_back_with_its_files(directory: Path) -> None:
    files = manifest.read(directory)
    assert files.manifest.features == EXAMPLE.features
    assert files.manifest.metrics == {"test": {"brier": 0.1, "roc_auc": None}}
    assert set(files.manifest.files) == {"trees.npz", "held.json"}
    assert np.array_equal(files.arrays("trees.npz")["value"], np.arange(100.0))
    assert json.loads(files.content["held.json"]) == {"release_above": 0.6}
    assert "numpy" in files.manifest.libraries
    assert manifest.verify(directory) == files.manifest


@pytest.mark.parametrize("kept", [0, 1, 50])
def test_a_half_written_file_is_refused(directory: Path, kept: int) -> None:
    path = directory / "trees.npz"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UnusableModel, match="trees.npz: has .* bytes, but .* truncated.*train"):
        manifest.verify(directory)


def test_every_changed_byte_of_a_model_is_noticed(directory: Path) -> None:
    for name in ("trees.npz", manifest.MANIFEST):
        path = directory / name
        whole = path.read_bytes()
        for place in range(0, len(whole), 7):
            changed = bytearray(whole)
            changed[place] ^= 0x01
            path.write_bytes(changed)
            with pytest.raises(UnusableModel, match=name):
                manifest.verify(directory)
        path.write_bytes(whole)
    manifest.verify(directory)


def test_a_model_without_its_last_file_is_incomplete(directory: Path) -> None:
    (directory / manifest.MANIFEST).unlink()
    with pytest.raises(UnusableModel, match="is incomplete"):
        manifest.verify(directory)


def test_a_missing_file_is_named(directory: Path) -> None:
    (directory / "held.json").unlink()
    with pytest.raises(UnusableModel, match="held.json: listed in the manifest"):
        manifest.verify(directory)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": manifest.MANIFEST_FORMAT + 1}, "upgrade condor-advice"),
        ({"format": "one"}, "not the manifest of a model"),
        ({"kind": "failure"}, "not for held jobs"),
        ({"surprise": 1}, "unknown or missing entries: surprise"),
        ({"features": 3}, "an entry has the wrong type"),
        ({"files": {"x.npz": [1, 2]}}, "an entry has the wrong type"),
        ({"files": {"../x.npz": {"sha256": "", "bytes": 0}}}, "outside the model"),
        ({"files": {"/etc/passwd": {"sha256": "", "bytes": 0}}}, "outside the model"),
    ],
)
def test_an_unknown_schema_is_refused(
    directory: Path, changes: dict[str, Any], message: str
) -> None:
    rewrite(directory, **changes)
    with pytest.raises(UnusableModel, match=message):
        manifest.verify(directory)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"format": 1}', "\x00\xff"])
def test_a_manifest_that_is_none_is_refused(directory: Path, text: str) -> None:
    (directory / manifest.MANIFEST).write_text(text)
    with pytest.raises(UnusableModel, match="manifest.json"):
        manifest.verify(directory)


def test_a_planted_pickle_is_not_run(directory: Path, tmp_path: Path) -> None:
    mark = tmp_path / "it was run"
    arrays = io.BytesIO()
    np.savez(arrays, value=np.array([Trap(mark)], dtype=object))
    for planted in (pickle.dumps(Trap(mark)), arrays.getvalue()):
        (directory / "trees.npz").write_bytes(planted)
        manifest.write(directory, EXAMPLE)  # the one who planted it made the checksums right
        with pytest.raises(UnusableModel, match="trees.npz: not an .npz file of plain arrays"):
            manifest.read(directory).arrays("trees.npz")
        assert not mark.exists()
    with np.load(directory / "trees.npz", allow_pickle=True) as trap:
        assert len(trap["value"]) == 1
    assert mark.exists()  # the trap works where someone is careless


def test_objects_are_not_written_either(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="[Oo]bject"):
        save_arrays(tmp_path / "x.npz", {"x": np.array([{}], dtype=object)})
    assert list(tmp_path.iterdir()) == []


def test_the_same_arrays_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_arrays(tmp_path / name, {"x": np.arange(5), "y": np.array(["t"])})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert load_arrays(tmp_path / "a")["y"][0] == "t"


def test_a_hash_tells_data_apart_by_type_shape_and_value() -> None:
    arrays = [
        np.arange(4),
        np.arange(4.0),
        np.arange(4).reshape(2, 2),
        np.array([0, 1, 2, 4]),
    ]
    assert len({hash_arrays([array]) for array in arrays}) == len(arrays)
    nan = np.array([np.nan, 1.0])
    other = nan.copy()
    other.view(np.uint64)[0] |= 1  # another NaN
    assert hash_arrays([nan]) == hash_arrays([other])


def test_features_are_found_by_name_and_a_missing_one_is_said() -> None:
    assert EXAMPLE.columns(["job_age", "x", "hold_code"]).tolist() == [2, 0]
    with pytest.raises(UnusableModel, match="needs the feature hold_code and 1 others"):
        EXAMPLE.columns(["x"])


@pytest.mark.parametrize("name", ["", "../x", "A", "a b", "x" * 65, ".x"])
def test_a_name_that_is_no_file_name_is_refused(directory: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid model name"):
        manifest.write(directory, replace(EXAMPLE, name=name))


def test_a_file_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("zeros.npy", "w", force_zip64=True) as entry,
    ):
        for _ in range(9):
            entry.write(bytes(64 << 20))
    assert (tmp_path / "bomb.npz").stat().st_size < 1 << 20
    monkeypatch.setattr(zipfile.ZipFile, "read", None)  # nothing is unpacked
    with pytest.raises(UnusableModel, match=r"bomb\.npz: would take 603,979,776 bytes in memory"):
        load_arrays(tmp_path / "bomb.npz")


def test_an_array_larger_than_its_file_is_refused(tmp_path: Path) -> None:
    header = {"descr": "<f8", "fortran_order": True, "shape": (1 << 50, 8)}
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive, archive.open("x.npy", "w") as entry:
        np.lib.format.write_array_header_1_0(entry, header)
    with pytest.raises(UnusableModel, match=r"a\.npz: not an \.npz file of plain arrays"):
        load_arrays(tmp_path / "a.npz")
