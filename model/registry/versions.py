"""The registry: versions of models, which of them answers, and how it came to that.

A registry is a directory: `models/NAME/` per version and one file, `registry.json`, that says
which is current, what every version's checksum is, and what was switched when and why. That
file alone is what a switch changes, by a rename: a reader sees the state before or after, never
something between, and a crash leaves one of the two. Writers take turns through a lock that the
kernel frees when its holder dies. Versions are never changed once they are in.
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
from condor_advice.gather.files import replace_file
from condor_advice.model.arrays import UnusableModel
from condor_advice.model.held.model import HeldModel
from condor_advice.model.registry import manifest
from condor_advice.model.registry.manifest import Manifest
from condor_advice.model.registry.places import STARTER
from condor_advice.model.registry.places import default_models_path as default_models_path

if TYPE_CHECKING:  # advice asks for the current model alone, and should not pay for the gate
    from condor_advice.model.held.data import HeldData
    from condor_advice.model.registry.gate import GateResult

STATE = "registry.json"
_STATE_FORMAT = 1
CARD = "card"  # a directory beside the model's files, for people; nothing in it is loaded
SHIPPED = "shipped"  # what comes with condor-advice, and answers until another is promoted
LOCK_SECONDS = 30.0
HISTORY_KEPT = 200


class RegistryBusy(AdviceError):
    """Another process is changing the registry."""


class NotPromoted(AdviceError):
    """The gate did not let the candidate pass."""

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
    before: str | None = None  # what was current before
    forced: bool = False
    gate: Mapping[str, Any] | None = None  # the figures it was decided by


@dataclass(frozen=True, slots=True)
class Version:
    """One model of the registry."""

    name: str
    directory: Path
    current: bool
    manifest: Manifest | None  # None where it cannot be used
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Rollback:
    """What a rollback did."""

    left: str
    back: str
    passed_over: tuple[str, ...]  # why versions between the two were not taken


@dataclass(slots=True)
class _State:
    promoted: list[str] = field(default_factory=list)  # the last one is current
    checksums: dict[str, str] = field(default_factory=dict)
    history: list[Switch] = field(default_factory=list)


class Registry:
    """Models by name. Any number of processes may read, and they may write at the same time."""

    def __init__(self, directory: Path | str | None = None, *, shipped: Path = STARTER) -> None:
        self.directory = Path(directory) if directory else default_models_path()
        self.shipped = shipped

    # ---- reading

    def current(self) -> Path:
        """Return the directory of the model that answers: the promoted one, or the shipped one.

        Its files are checked when it is loaded. That it is the version that was added, and not
        another put in its place, is checked here.
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
        """Return the name of the model that answers."""
        state = self._read()
        return state.promoted[-1] if state.promoted else SHIPPED

    def versions(self) -> list[Version]:
        """Return the shipped model and all versions, oldest first, damaged ones with a reason."""
        state = self._read()
        current = state.promoted[-1] if state.promoted else SHIPPED
        found = [self._version(SHIPPED, current, state)]
        return found + [self._version(name, current, state) for name in state.checksums]

    def path(self, name: str) -> Path:
        """Return the directory of one version, whole or not."""
        state = self._read()
        if name == SHIPPED:
            return self.shipped
        if name not in state.checksums:
            known = ", ".join([SHIPPED, *state.checksums])
            raise UsageError(f"{self.directory}: no model named {name!r}; there are {known}")
        return self._place(name)

    def verify(self, name: str) -> Manifest:
        """Check all files of one version; raises UnusableModel with what is wrong."""
        path = self.path(name)
        if name != SHIPPED:
            self._known_checksum(name, self._read())
        return manifest.verify(path)

    def history(self) -> list[Switch]:
        """Return what was added and switched, oldest first."""
        return self._read().history

    # ---- writing

    def add(self, model_directory: Path) -> str:
        """Copy a model into the registry, whole or not at all; return its name.

        The same model may be added again, which changes nothing.
        """
        files = manifest.read(model_directory)
        name, checksum = files.manifest.name, files.checksum
        if name == SHIPPED:
            raise UsageError(f"{model_directory}: no model may be named {SHIPPED!r}; rename it")
        with self._changing() as state:
            if name in state.checksums:
                if state.checksums[name] == checksum:
                    return name
                raise UsageError(
                    f"{self.directory}: has another model named {name!r}; train under another "
                    "name, or remove that one with `condor-advice model remove`"
                )
            place = self._place(name)
            for left_behind in place.parent.glob(".incoming-*"):  # by a crash: the lock is ours
                _discard(left_behind)
            incoming = place.with_name(f".incoming-{os.getpid()}")
            incoming.mkdir()
            for file, data in files.content.items():
                replace_file(incoming / file, data)
            text = (model_directory / manifest.MANIFEST).read_bytes()
            replace_file(incoming / manifest.MANIFEST, text)
            if (model_directory / CARD).is_dir():
                shutil.copytree(model_directory / CARD, incoming / CARD)
            if manifest.read(incoming).checksum != checksum:
                raise UnusableModel(f"{model_directory}: changed while it was read; add it again")
            _discard(place)  # what a crash between the rename and the state left behind
            os.replace(incoming, place)
            state.checksums[name] = checksum
            self._note(state, Switch(manifest.now(), "add", name, _current(state)))
        return name

    def promote(
        self, name: str, window: HeldData | None = None, force: bool = False
    ) -> GateResult | None:
        """Make a version the one that answers, if it passes the gate on the newest episodes.

        Raises NotPromoted, with the figures, where it does not. With `force` it is promoted
        whatever the gate says, and the history tells so; the model must be whole even then.
        """
        self.verify(name)
        candidate = HeldModel.load(self.path(name))
        compared_with = self.current_name()
        if compared_with == name:
            raise UsageError(f"model {name}: is the current one already")
        result = None
        if window is not None:
            result = self._gate(candidate, compared_with, window)
        elif not force:
            raise UsageError(
                f"model {name}: without episodes to compare on it is not promoted; name a store "
                "or logs with known outcomes, or use --force"
            )
        passed = force or (result is not None and result.passed)
        with self._changing() as state:
            before = _current(state) or SHIPPED
            if before != compared_with:
                raise RegistryBusy(
                    f"{self.directory}: {before} was promoted while {name} was compared with "
                    f"{compared_with}; promote it again to compare them"
                )
            if name != SHIPPED and name not in state.checksums:
                raise UsageError(f"{self.directory}: {name} was removed meanwhile")
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
        """Add a freshly trained model, compare it with the current one, promote it or keep that.

        This is the decision of a retraining: one call, and the history tells what it was.
        """
        name = self.add(model_directory)
        try:
            result = self.promote(name, window)
        except NotPromoted as kept:
            return kept.result
        assert result is not None
        return result

    def rollback(self) -> Rollback:
        """Go back to what answered before.

        Versions that have been damaged since are passed over: this is the command for when
        something is wrong, and it must not fail because more than one thing is.
        """
        with self._changing() as state:
            if not state.promoted:
                raise UsageError(
                    f"{self.directory}: the shipped model answers; there is nothing to go back to"
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
        """Delete a version that does not answer."""
        with self._changing() as state:
            if name not in state.checksums:
                raise UsageError(f"{self.directory}: no model named {name!r} can be removed")
            if state.promoted and state.promoted[-1] == name:
                raise UsageError(f"model {name}: is the current one; roll back first")
            del state.checksums[name]
            state.promoted = _without_repeats([one for one in state.promoted if one != name])
            self._note(state, Switch(manifest.now(), "remove", name, _current(state)))
        # Only now: a crash here leaves a directory that nothing names.
        with self._changing() as state:
            if name not in state.checksums:
                _discard(self._place(name))

    # ---- parts

    def _gate(self, candidate: HeldModel, current: str, window: HeldData) -> GateResult:
        from condor_advice.model.registry.gate import GateResult, compare

        try:
            answering = HeldModel.load(self.path(current))
        except UnusableModel as error:
            return GateResult(
                current,
                candidate.name,
                "better",
                f"the current model cannot be used, so any whole one is better ({error})",
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
        """Refuse a version that is whole but not the one that was added."""
        if name not in state.checksums:
            raise UnusableModel(
                f"{self.directory / STATE}: names {name} but does not know it; "
                "use `condor-advice model rollback`"
            )
        _, checksum = manifest.read_manifest(self._place(name))
        if checksum != state.checksums[name]:
            raise UnusableModel(
                f"{self._place(name)}: not the model that was added under this name; it was "
                "replaced: use `condor-advice model rollback`, or promote another"
            )

    def _place(self, name: str) -> Path:
        return self.directory / "models" / name

    def _read(self) -> _State:
        path = self.directory / STATE
        try:
            body = json.loads(path.read_bytes())
        except FileNotFoundError:
            return _State()
        except (OSError, ValueError) as error:
            raise UnusableModel(
                f"{path}: cannot be read ({error}); restore it, or remove it and add the models "
                "below models/ again"
            ) from error
        if not isinstance(body, dict) or body.get("format") != _STATE_FORMAT:
            raise UnusableModel(
                f"{path}: of another format than {_STATE_FORMAT}; upgrade condor-advice, or name "
                "another registry with CONDOR_ADVICE_MODELS"
            )
        try:
            state = _State(
                list(map(str, body["promoted"])),
                {str(name): str(one) for name, one in body["checksums"].items()},
                [Switch(**entry) for entry in body["history"]],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise UnusableModel(
                f"{path}: damaged ({error!r}); restore it, or remove it and add the models again"
            ) from error
        for name in (*state.checksums, *state.promoted):
            if name != SHIPPED and not manifest.MODEL_NAME.fullmatch(name):
                raise UnusableModel(f"{path}: {name!r} cannot name a model; restore the file")
        return state

    @contextlib.contextmanager
    def _changing(self) -> Iterator[_State]:
        """Hand out the state and, unless something fails, put the changed one in its place."""
        try:
            (self.directory / "models").mkdir(parents=True, exist_ok=True)
            lock = os.open(self.directory / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise AdviceError(
                f"{self.directory}: models cannot be written here ({error.strerror}); name "
                "another place with CONDOR_ADVICE_MODELS"
            ) from error
        try:
            _wait_for(lock, self.directory)
            state = self._read()
            before = json.dumps(_body(state))
            yield state
            del state.history[:-HISTORY_KEPT]
            after = json.dumps(_body(state), indent=1)
            if json.dumps(_body(state)) != before:
                replace_file(self.directory / STATE, (after + "\n").encode())
        finally:
            os.close(lock)

    def _note(self, state: _State, switch: Switch) -> None:
        state.history.append(switch)


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
