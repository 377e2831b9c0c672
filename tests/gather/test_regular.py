"""Files that strangers name are opened only if they are regular, and without waiting."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from condor_advice.gather.clock import Clock, find_zone
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.regular import open_regular, read_regular, read_start, size_of_regular
from condor_advice.gather.sequences import read_log


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    assert read_regular(tmp_path / "file", 4) == b"text"
    assert read_start(tmp_path / "file", 2) == b"te"
    assert size_of_regular(str(tmp_path / "file")) == 4


def test_nothing_else_is_opened(pipe: Path) -> None:
    for path in (pipe, Path("/dev/zero"), Path("/dev/tty")):
        with pytest.raises(OSError, match="not a regular file|No such device"):
            open_regular(path)
        assert size_of_regular(str(path)) is None
    with pytest.raises(IsADirectoryError):
        open_regular(pipe.parent)
    with pytest.raises(OSError, match="null"):
        open_regular("a\0b")
    assert size_of_regular("a\0b") is None


def test_a_large_or_slow_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_regular(tmp_path / "file", 4)
    with pytest.raises(TimeoutError):
        read_regular(tmp_path / "file", 5, seconds=-1)
    with pytest.raises(AdviceError, match="larger than 4 bytes"):
        read_log(tmp_path / "file", Clock(find_zone(None)), most_bytes=4)


@pytest.mark.parametrize("name", ["pipe", "/dev/zero"])
def test_a_log_that_is_no_regular_file_is_a_clear_error(pipe: Path, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "condor_advice", "--log", pipe.parent / name],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "cannot read the log (not a regular file)" in done.stderr
    assert "Traceback" not in done.stderr
