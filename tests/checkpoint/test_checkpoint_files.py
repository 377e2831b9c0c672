"""Checkpoint files survive what may happen to them."""

import os
import subprocess
import sys

import pytest

from condor_checkpoint import CheckpointFiles


def read(path):
    with open(path, "rb") as file:
        return file.read()


def test_the_newest_two_are_kept_and_the_newest_is_loaded(tmp_path):
    files = CheckpointFiles(str(tmp_path / "checkpoints"))
    for state in (b"one", b"two", b"three"):
        files.write(state)
    assert [read(path) for path in files.complete()] == [b"three", b"two"]
    assert files.load(read) == b"three"


def test_a_save_that_raises_leaves_the_one_before_and_no_litter(tmp_path):
    files = CheckpointFiles(str(tmp_path))
    files.write(b"good")

    def break_off():
        with files.writing() as path:
            with open(path, "wb") as file:
                file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert [os.path.basename(path) for path in files.complete()] == ["checkpoint-000001"]
    assert os.listdir(tmp_path) == ["checkpoint-000001"]


def test_a_process_killed_in_the_middle_of_a_save_leaves_the_one_before(tmp_path):
    program = f"""
import os, signal
from condor_checkpoint import CheckpointFiles
files = CheckpointFiles({str(tmp_path)!r})
files.write(b"good")
with files.writing() as path, open(path, "wb") as file:
    file.write(b"half"); file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    files = CheckpointFiles(str(tmp_path))
    assert files.load(read) == b"good"
    files.write(b"better")  # the litter is not in the way
    assert files.load(read) == b"better"


def test_a_full_disk_leaves_the_one_before(tmp_path):
    files = CheckpointFiles(str(tmp_path))
    files.write(b"good")

    def fill():
        with files.writing() as path:
            os.symlink("/dev/full", path)  # every write to it finds the disk full
            with open(path, "wb") as file:
                file.write(b"x" * 100_000)

    with pytest.raises(OSError, match="No space left"):
        fill()
    assert files.load(read) == b"good"


def test_one_that_cannot_be_read_is_named_and_the_one_before_is_used(tmp_path, capsys):
    files = CheckpointFiles(str(tmp_path))
    files.write(b"41")
    with open(files.write(b"42"), "wb") as file:
        file.write(b"torn")
    assert files.load(lambda path: int(read(path))) == 41
    assert "checkpoint-000002: cannot be read" in capsys.readouterr().err


def test_without_a_checkpoint_there_is_nothing_to_load(tmp_path):
    assert CheckpointFiles(str(tmp_path)).load(read) is None


def test_there_is_never_room_needed_for_more_than_are_kept(tmp_path):
    files = CheckpointFiles(str(tmp_path))
    for number in range(4):
        with files.writing() as path:
            assert len(files.complete()) <= 1
            with open(path, "wb") as file:
                file.write(b"%d" % number)
    assert len(files.complete()) == 2
