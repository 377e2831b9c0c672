"""Plain arrays in files: models are stored so, and reading them cannot run code."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import AdviceError
from condor_advice.gather.files import replace_file

Arrays = dict[str, npt.NDArray[Any]]

_PLAIN_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([<|][fiub]\d)', 'fortran_order': False, "
    rb"'shape': \(([\d, ]*)\), \} *\n",
    re.DOTALL,
)
_TRAIN = "train the model again, or use another one"
# Of a model's file, compressed or not. Models have a few MB.
MOST_MODEL_BYTES = 512 << 20


class UnusableModel(AdviceError):
    """A model file is missing or damaged, or does not fit its input."""


def save_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays as .npz; equal arrays give equal bytes. Objects are refused."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy")  # dated 1980, not now
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
    replace_file(path, buffer.getvalue())


def load_arrays(path: Path, most_bytes: int | None = MOST_MODEL_BYTES) -> Arrays:
    """Read what `save_arrays` wrote; refuse pickled objects and more than `most_bytes`."""
    try:
        return read_arrays(path.read_bytes(), path, most_bytes)
    except OSError as error:
        raise UnusableModel(f"{path}: cannot be read ({error.strerror}); {_TRAIN}") from error


def read_arrays(data: bytes, path: Path, most_bytes: int | None = MOST_MODEL_BYTES) -> Arrays:
    """Return the arrays in the bytes of an .npz file; `path` is for the message."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            # zipfile never unpacks more of an entry than its header says.
            size = sum(entry.file_size for entry in archive.infolist())
            if most_bytes is not None and size > most_bytes:
                raise UnusableModel(
                    f"{path}: would take {size:,} bytes in memory, and {most_bytes:,} are "
                    f"allowed; {_TRAIN}"
                )
            return {
                name.removesuffix(".npy"): _read_array(archive.read(name))
                for name in archive.namelist()
            }
    except (
        OSError,
        ValueError,
        EOFError,
        MemoryError,  # of an array whose header says more than its file has
        NotImplementedError,  # of a compression that we do not write
        RuntimeError,  # of an encrypted file
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise UnusableModel(f"{path}: not an .npz file of plain arrays ({error}); {_TRAIN}") from (
            error
        )


def check_finite(arrays: Mapping[str, npt.NDArray[Any]], path: Path) -> None:
    """Refuse weights that are not numbers: every answer would be NaN or certain."""
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise UnusableModel(f"{path}: {name} has values that are not finite; {_TRAIN}")


def _read_array(raw: bytes) -> npt.NDArray[Any]:
    """Return the array of an .npy file.

    NumPy parses each header as Python code, which takes longer than reading a model's arrays.
    This parses the headers of plain arrays, and leaves all others to NumPy.
    """
    header = _PLAIN_HEADER.match(raw)
    if header is None:
        array: npt.NDArray[Any] = np.lib.format.read_array(io.BytesIO(raw), allow_pickle=False)
        return array
    kind, sizes = header.groups()
    shape = tuple(int(size) for size in sizes.split(b",") if size.strip())
    return np.frombuffer(raw, kind.decode(), offset=header.end()).reshape(shape).copy()


def hash_arrays(arrays: Iterable[npt.NDArray[Any]]) -> str:
    """Return the SHA-256 of the types, shapes and values of arrays; all NaNs are equal."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        if array.dtype.kind == "f":
            array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
