"""Replace names in a pass over events by keyed hashes, so that an export can be shared.

The same name gets the same pseudonym wherever it appears and in every export with the same key.
Without the key, nobody can compute the pseudonym of a name that they guess.

People and hosts are known as such. The template of a hold reason is free text: anybody can write
anything into a reason. So a template keeps the words of HTCondor and of the operating system, and
every other word is replaced.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import signal
import stat
import zlib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from condor_advice.gather.errors import AdviceError
from condor_advice.gather.files import check_trusted, private_directory
from condor_advice.gather.regular import read_regular
from condor_advice.gather.store import default_store_path
from condor_advice.preprocess.holds.hold_reasons import HOLD_REASONS
from condor_advice.preprocess.holds.steps import Names, Steps
from condor_advice.preprocess.holds.templates import parse_reason
from condor_advice.preprocess.holds.timeline import Timeline

KEY_BYTES = 32
_DIGITS = 16  # of a pseudonym: 64 bits
_WORD = re.compile(r"\w+(?:'\w+)*")
_SHORT_NUMBER = re.compile(r"\d{1,3}$", re.ASCII)  # an errno, or a status of HTTP
# Words of HTCondor's messages, protocols and attributes that the examples of hold_reasons.py lack.
_MORE_WORDS = """
    address host image name number path setting size slot time url user
    aborted allocated because cannot could create credentials did directory does download due error
    execute exit exited expression failed failure file files first for from has have hook if in
    instead into is it lack line local message more no non not of open or out permission peer
    progress protocol reason receive received receiving s script send sending sent server shadow
    signal space specified starter status than that the timeout to transfer unknown upload using
    via was when while with zero
    box file ftp gdrive git gs gsiftp http https onedrive osdf pelican s3 stash
    FILETRANSFER PREPARE_JOB SYSTEM_PERIODIC_HOLD SYSTEM_PERIODIC_REMOVE
    CurrentTime DiskUsage EnteredCurrentStatus ExitBySignal ExitCode ExitSignal ImageSize
    JobCurrentStartDate JobDuration JobRunCount JobStatus JobUniverse MemoryUsage NumHolds
    NumJobCompletions NumJobStarts NumShadowStarts NumSystemHolds OnExitHold OnExitRemove
    PeriodicHold PeriodicRelease PeriodicRemove QDate RemoteUserCpu RemoteWallClockTime
    RequestCpus RequestDisk RequestGPUs RequestMemory ResidentSetSize
    false ifThenElse isUndefined true undefined
"""


def default_key_path() -> Path:
    """Return where this user's key is kept: beside the default store."""
    return default_store_path().with_name("pseudonyms.key")


def read_or_make_key(path: Path) -> bytes:
    """Return the key in a file; make the file, private to its owner, if it is missing."""
    try:
        private_directory(path.parent)
        check_trusted(path, writing=True)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            pass
        else:
            with open(descriptor, "w") as file:
                file.write(secrets.token_hex(KEY_BYTES) + "\n")
        text = read_regular(path, 1024)
        readable_by_others = os.stat(path).st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    except OSError as error:
        raise AdviceError(
            f"{path}: cannot read or create the key of the pseudonyms ({error.strerror}); name "
            "another file with --key"
        ) from error
    if readable_by_others:
        raise AdviceError(
            f"{path}: others may read the key, and could find the names behind pseudonyms; "
            f"`chmod 600 {path}`, or name another file with --key"
        )
    try:
        key = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise AdviceError(
            f"{path}: not a key of pseudonyms, which has {2 * KEY_BYTES} hexadecimal digits; name "
            "another file with --key, which is created if it is missing"
        )
    return key


@cache
def known_words() -> frozenset[str]:
    """Return the words, in lower case, that HTCondor and the operating system write."""
    examples = (reason.example for reason in HOLD_REASONS)
    texts = [parse_reason(text, code, subcode).template for code, subcode, text in examples]
    texts.append(_MORE_WORDS)
    texts += [os.strerror(number) for number in errno.errorcode]
    texts += [number.name for number in signal.Signals]
    texts += [str(signal.strsignal(number)) for number in signal.Signals]
    return frozenset(word.lower() for text in texts for word in _WORD.findall(text))


class Pseudonyms:
    """Pseudonyms under one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def _digest(self, text: str) -> bytes:
        data = text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, key=self._key, digest_size=_DIGITS // 2).digest()

    def of(self, kind: str, name: str) -> str:
        """Return the pseudonym of a name; nothing stays nothing."""
        return f"{kind}-{self._digest(name).hex()}" if name else ""

    def in_template(self, template: str) -> str:
        """Return a template with every word replaced that is neither HTCondor's nor a number."""

        def replaced(match: re.Match[str]) -> str:
            word = match[0]
            if word.lower() in known_words() or _SHORT_NUMBER.match(word):
                return word
            return self.of("word", word)

        return _WORD.sub(replaced, template)

    def of_kin(self, number: int) -> int:
        """Return another number below zero for the hash of a batch's name or a log's path."""
        digest = self._digest(f"kin {number}")
        return -(int.from_bytes(digest, "big") >> 2) - 1


class PseudonymousTimeline(Timeline):
    """A timeline whose steps and names tell no names of people, hosts, files or batches."""

    def __init__(self, timeline: Timeline, pseudonyms: Pseudonyms) -> None:
        super().__init__(timeline.sources)
        self._timeline = timeline
        self._pseudonyms = pseudonyms
        self._templates: dict[int, int] = {}
        self._kin: dict[int, int] = {}

    def counts(self) -> Counter[str]:
        """Return what was odd about the logs' clocks."""
        return self._timeline.counts()

    def batches(self) -> Iterator[Steps]:
        """Yield the steps of the timeline with pseudonyms in them."""
        for steps in self._timeline.batches():
            self._follow(self._timeline.names)
            steps["template"] = self._mapped(steps["template"], self._templates)
            for field in ("batch", "dag"):  # a DAG is a job's number above zero
                hashed = steps[field] < 0
                for number in np.unique(steps[field][hashed]).tolist():
                    self._kin.setdefault(number, self._pseudonyms.of_kin(number))
                steps[field][hashed] = self._mapped(steps[field][hashed], self._kin)
            yield steps

    def _follow(self, real: Names) -> None:
        """Give pseudonyms to the names that are new since the last batch; numbers stay."""
        for kind, names, own in (
            ("ap", real.access_points, self.names.access_points),
            ("ep", real.points, self.names.points),
            ("owner", real.owners, self.names.owners),
        ):
            for name, number in list(names.items())[len(own) :]:
                own[self._pseudonyms.of(kind, name)] = number
        for number, template in real.templates.items():
            if number not in self._templates:
                text = self._pseudonyms.in_template(template)
                self._templates[number] = zlib.crc32(text.encode()) & 0x7FFFFFFF
                self.names.templates[self._templates[number]] = text

    @staticmethod
    def _mapped(numbers: npt.NDArray[np.int64], new: dict[int, int]) -> npt.NDArray[np.int64]:
        distinct, which = np.unique(numbers, return_inverse=True)
        mapped = np.array([new.get(number, number) for number in distinct.tolist()], distinct.dtype)
        return mapped[which] if len(numbers) else numbers
