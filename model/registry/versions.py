"""The registry: versions of models, which of them is current, and the history of switches.

A registry is a directory: `models/NAME/` for each version, and `registry.json` with the current
version, the checksum of every version, and the history. A switch replaces this file by a rename:
a reader sees the old state or the new one, and a crash leaves one of the two. Writers take turns
with a lock that the kernel releases when its holder dies. Versions never change once added.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from condor_advice.gather.errors import AdviceError, UsageError
from condor_advice.gather.files import (
    UnsafeFile,
    as_readable_as,
    check_trusted,
    open_lock,
    private_directory,
    replace_file,
)
from condor_advice.model.arrays import UnusableModel
from condor_advice.model.held.model import HeldModel
from condor_advice.model.registry import manifest
from condor_advice.model.registry.manifest import Manifest
from condor_advice.model.registry.places import STARTER
from condor_advice.model.registry.places import default_models_path as default_models_path

if TYPE_CHECKING:  # advice needs the current model only, and must not import the gate
    from condor_advice.model.held.data import HeldData
    from condor_advice.model.registry.gate import GateResult

STATE = "registry.json"
_STATE_FORMAT = 1
CARD = "card"  # directory of the model card; nothing in it is loaded
SHIPPED = "shipped"  # comes with condor-advice; current until another is promoted
LOCK_SECONDS = 30.0
HISTORY_KEPT = 200


class RegistryBusy(AdviceError):
    """Another process is changing the registry."""


class NotPromoted(AdviceError):
    """The gate rejected the candidate."""

    def __init__(self, result: GateResult) -> None:
        super().__init__(
            f"model {result.candidate}: not promoted, {result.current} stays: {result.reason}"
        )
        self.result = result


@dataclass(frozen=True, slots=True)
class Switch:
    """One entry of the history."""

    at: str
    action: str  # "add", "promote", "keep", "rollback" or "remove"
    name: str
    before: str | None = None  # the previous current version
    forced: bool = False
    gate: Mapping[str, Any] | None = None  # the figures of the comparison


@dataclass(frozen=True, slots=True)
class Version:
    """One model of the registry."""

    name: str
    directory: Path
    current: bool
    manifest: Manifest | None  # None if the model cannot be used
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Rollback:
    """The result of a rollback."""

    left: str
    back: str
    passed_over: tuple[str, ...]  # why versions between the two were skipped


@dataclass(slots=True)
class _State:
    promoted: list[str] = field(default_factory=list)  # the last is current
    checksums: dict[str, str] = field(default_factory=dict)
    history: list[Switch] = field(default_factory=list)


class Registry:
    """Models by name. Any number of processes may read and write at the same time."""

    def __init__(self, directory: Path | str | None = None, *, shipped: Path = STARTER) -> None:
        self.directory = Path(directory) if directory else default_models_path()
        self.shipped = shipped

    # ---- reading

    def current(self) -> Path:
        """Return the directory of the current model: the last promoted, or the shipped one.

        This checks that the directory is the version that was added. Loading checks the files.
        """
        state = self._read()
        if not state.promoted:
            return self.shipped
        name = state.promoted[-1]
        if name == SHIPPED:
            return self.shipped
        self._known_checksum(name, state)
        return self._place(name)

    def current_name(self) -> str:
        """Return the name of the current model."""
        state = self._read()
        return state.promoted[-1] if state.promoted else SHIPPED

    def versions(self) -> list[Version]:
        """Return the shipped model and all versions, oldest first; `problem` marks damage."""
        state = self._read()
        current = state.promoted[-1] if state.promoted else SHIPPED
        return [self._version(name, current, state) for name in (SHIPPED, *state.checksums)]

    def path(self, name: str) -> Path:
        """Return the directory of one version, damaged or not."""
        state = self._read()
        if name == SHIPPED:
            return self.shipped
        if name not in state.checksums:
            known = ", ".join([SHIPPED, *state.checksums])
            raise UsageError(f"{self.directory}: no model named {name!r}; known models: {known}")
        return self._place(name)

    def verify(self, name: str) -> Manifest:
        """Check all files of one version; raise UnusableModel with the problem."""
        path = self.path(name)
        if name != SHIPPED:
            self._known_checksum(name, self._read())
        return manifest.verify(path)

    def history(self) -> list[Switch]:
        """Return the history, oldest first."""
        return self._read().history

    # ---- writing

    def add(self, model_directory: Path) -> str:
        """Copy a model into the registry, completely or not at all; return its name.

        Adding the same model again changes nothing.
        """
        files, card = manifest.read(model_directory), card_files(model_directory)
        name, checksum = files.manifest.name, files.checksum
        if name == SHIPPED:
            raise UsageError(f"{model_directory}: the name {SHIPPED!r} is reserved; rename it")
        with self._changing() as state:
            if name in state.checksums:
                if state.checksums[name] == checksum:
                    return name
                raise UsageError(
                    f"{self.directory}: there is another model named {name!r}; train under another "
                    "name, or remove that one with `condor-advice model remove`"
                )
            place = self._place(name)
            for left_behind in place.parent.glob(".incoming-*"):  # by a crash; we hold the lock
                _discard(left_behind)
            incoming = place.with_name(f".incoming-{os.getpid()}")
            incoming.mkdir()
            for file, data in files.content.items():
                replace_file(incoming / file, data)
            text = manifest.read_file(model_directory / manifest.MANIFEST)
            replace_file(incoming / manifest.MANIFEST, text)
            for file, data in card.items():
                (incoming / CARD).mkdir(exist_ok=True)
                replace_file(incoming / CARD / file, data)
            if manifest.read(incoming).checksum != checksum:
                raise UnusableModel(f"{model_directory}: changed while being read; add it again")
            _discard(place)  # left by a crash between the rename and the new state
            os.replace(incoming, place)
            state.checksums[name] = checksum
            self._note(state, Switch(manifest.now(), "add", name, _current(state)))
        return name

    def promote(
        self, name: str, window: HeldData | None = None, force: bool = False
    ) -> GateResult | None:
        """Make a version the current one if it passes the gate on the newest episodes.

        Raises NotPromoted with the figures if it does not. `force` promotes it whatever the gate
        says, and the history records that; the model must be intact even then.
        """
        self.verify(name)
        candidate = HeldModel.load(self.path(name))
        compared_with = self.current_name()
        if compared_with == name:
            raise UsageError(f"model {name}: already current")
        result = None
        if window is not None:
            result = self._gate(candidate, compared_with, window)
        elif not force:
            raise UsageError(
                f"model {name}: no episodes to compare on; name a store or logs with known "
                "outcomes, or use --force"
            )
        passed = force or (result is not None and result.passed)
        with self._changing() as state:
            before = _current(state) or SHIPPED
            if before != compared_with:
                raise RegistryBusy(
                    f"{self.directory}: {before} was promoted while {name} was compared with "
                    f"{compared_with}; promote {name} again to compare these two"
                )
            if name != SHIPPED and name not in state.checksums:
                raise UsageError(f"{self.directory}: {name} was removed in the meantime")
            gate = result.as_dict() if result else None
            action = "promote" if passed else "keep"
            self._note(state, Switch(manifest.now(), action, name, before, force, gate))
            if passed:
                state.promoted.append(name)
        if not passed:
            assert result is not None
            raise NotPromoted(result)
        return result

    def propose(self, model_directory: Path, window: HeldData) -> GateResult:
        """Add a newly trained model, and promote it if it passes the gate.

        Retraining calls this; the history records the decision.
        """
        name = self.add(model_directory)
        try:
            result = self.promote(name, window)
        except NotPromoted as kept:
            return kept.result
        assert result is not None
        return result

    def rollback(self) -> Rollback:
        """Go back to the previous current version.

        Damaged versions are skipped: rollback is for when something is wrong, and it must not
        fail because of a second problem.
        """
        with self._changing() as state:
            if not state.promoted:
                raise UsageError(
                    f"{self.directory}: the shipped model is current; nothing to roll back to"
                )
            left = state.promoted.pop()
            passed_over = []
            while state.promoted:
                version = self._version(state.promoted[-1], left, state)
                if version.problem is None:
                    break
                passed_over.append(version.problem)
                state.promoted.pop()
            back = _current(state) or SHIPPED
            self._note(state, Switch(manifest.now(), "rollback", back, left))
        return Rollback(left, back, tuple(passed_over))

    def remove(self, name: str) -> None:
        """Delete a version that is not current."""
        with self._changing() as state:
            if name not in state.checksums:
                raise UsageError(f"{self.directory}: no model named {name!r} to remove")
            if state.promoted and state.promoted[-1] == name:
                raise UsageError(f"model {name}: is current; roll back first")
            del state.checksums[name]
            state.promoted = _without_repeats(
                [promoted for promoted in state.promoted if promoted != name]
            )
            self._note(state, Switch(manifest.now(), "remove", name, _current(state)))
        # Delete the files last: a crash before leaves a directory that no entry names.
        with self._changing() as state:
            if name not in state.checksums:
                _discard(self._place(name))

    # ---- helpers

    def _gate(self, candidate: HeldModel, current: str, window: HeldData) -> GateResult:
        from condor_advice.model.registry.gate import GateResult, compare

        try:
            answering = HeldModel.load(self.path(current))
        except UnusableModel as error:
            return GateResult(
                current,
                candidate.name,
                "better",
                f"the current model cannot be used, so any intact one is better ({error})",
            )
        return compare(answering, candidate, window)

    def _version(self, name: str, current: str, state: _State) -> Version:
        path = self.shipped if name == SHIPPED else self._place(name)
        try:
            if name != SHIPPED:
                self._known_checksum(name, state)
            return Version(name, path, name == current, manifest.verify(path))
        except UnusableModel as error:
            return Version(name, path, name == current, None, str(error))

    def _known_checksum(self, name: str, state: _State) -> None:
        """Raise UnusableModel for an intact version that is not the one that was added."""
        if name not in state.checksums:
            raise UnusableModel(
                f"{self.directory / STATE}: {name} is current, but not among the versions; "
                "use `condor-advice model rollback`"
            )
        _, checksum = manifest.read_manifest(self._place(name))
        if checksum != state.checksums[name]:
            raise UnusableModel(
                f"{self._place(name)}: not the model that was added under this name; it was "
                "replaced: use `condor-advice model rollback`, or promote another one"
            )

    def _place(self, name: str) -> Path:
        return self.directory / "models" / name

    def _read(self) -> _State:
        path = self.directory / STATE
        try:
            check_trusted(path, writing=False)
            body = json.loads(path.read_bytes())
        except UnsafeFile as error:
            raise UnusableModel(str(error)) from None
        except FileNotFoundError:
            return _State()
        except (OSError, ValueError) as error:
            raise UnusableModel(
                f"{path}: cannot read the registry ({error}); restore the file, or remove it and "
                "add the models below models/ again"
            ) from error
        if not isinstance(body, dict) or body.get("format") != _STATE_FORMAT:
            raise UnusableModel(
                f"{path}: not in format {_STATE_FORMAT}; upgrade condor-advice, or name another "
                "registry with CONDOR_ADVICE_MODELS"
            )
        try:
            state = _State(
                list(map(str, body["promoted"])),
                {str(name): str(checksum) for name, checksum in body["checksums"].items()},
                [Switch(**entry) for entry in body["history"]],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise UnusableModel(
                f"{path}: damaged ({error!r}); restore the file, or remove it and add the models "
                "again"
            ) from error
        for name in (*state.checksums, *state.promoted):
            if name != SHIPPED and not manifest.MODEL_NAME.fullmatch(name):
                raise UnusableModel(f"{path}: {name!r} is not a valid model name; restore the file")
        return state

    @contextlib.contextmanager
    def _changing(self) -> Iterator[_State]:
        """Yield the state under the lock; write it if it changed and nothing failed."""
        try:
            private_directory(self.directory)
            lock = open_lock(self.directory / ".lock", self.directory)
        except OSError as error:
            raise AdviceError(
                f"{self.directory}: cannot write models here ({error.strerror}); name another "
                "directory with CONDOR_ADVICE_MODELS"
            ) from error
        try:
            _wait_for(lock, self.directory)
            state = self._read()
            before = json.dumps(_body(state))
            with as_readable_as(self.directory):
                (self.directory / "models").mkdir(exist_ok=True)
                yield state
                del state.history[:-HISTORY_KEPT]
                after = json.dumps(_body(state), indent=1)
                if json.dumps(_body(state)) != before:
                    replace_file(self.directory / STATE, (after + "\n").encode())
        finally:
            os.close(lock)

    def _note(self, state: _State, switch: Switch) -> None:
        state.history.append(switch)


def card_files(model_directory: Path) -> dict[str, bytes]:
    """Return the files of a model's card by name; none if it has no card.

    The manifest does not list them, so links and special files are refused here.
    """
    place = model_directory / CARD
    if place.is_symlink():
        raise UnusableModel(
            f"{place}: a symbolic link, which no model may contain; put the card itself there, or "
            "remove the link"
        )
    if not place.is_dir():
        return {}
    try:
        return {path.name: manifest.read_file(path) for path in sorted(place.iterdir())}
    except OSError as error:
        raise UnusableModel(
            f"{error.filename}: cannot be read as part of the model's card ({error.strerror}); "
            "remove it from there"
        ) from error


def _body(state: _State) -> dict[str, Any]:
    return {"format": _STATE_FORMAT, **asdict(state)}


def _current(state: _State) -> str | None:
    return state.promoted[-1] if state.promoted else None


def _without_repeats(names: list[str]) -> list[str]:
    return [name for name, before in zip(names, [None, *names], strict=False) if name != before]


def _wait_for(lock: int, directory: Path) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise RegistryBusy(
                    f"{directory}: another process is changing the registry; try again in a moment"
                ) from None
            time.sleep(0.02)


def _discard(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)
