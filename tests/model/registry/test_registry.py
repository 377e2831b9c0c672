"""The registry: whole versions, a gate, switches that are never half done, a way back."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from held_world import held_world
from small_models import write_model

from condor_advice.advise.commands.model import model as model_command
from condor_advice.gather.errors import AdviceError, UsageError
from condor_advice.model.arrays import UnusableModel, load_arrays, save_arrays
from condor_advice.model.held.data import HeldData
from condor_advice.model.held.model import HeldModel
from condor_advice.model.registry import manifest
from condor_advice.model.registry import versions as registry
from condor_advice.model.registry.places import STARTER
from condor_advice.model.registry.versions import SHIPPED, NotPromoted, Registry

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def window() -> HeldData:
    return held_world(800, seed=3)


@pytest.fixture
def kept(tmp_path: Path) -> Registry:
    """A registry with a sensible model, a better one and one that is wrong."""
    models = Registry(tmp_path / "registry", shipped=write_model(tmp_path, "as-shipped", 0.0))
    for name, slope in (("plain", 0.1), ("good", 0.6), ("wrong", -1.0)):
        models.add(write_model(tmp_path, name, slope))
    return models


def answering(models: Registry) -> str:
    return HeldModel.load(models.current()).name


def test_a_new_registry_is_private_and_a_shared_one_stays_readable(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        models = Registry(tmp_path / "new" / "registry")
        models.add(write_model(tmp_path, "plain", 0.1))
        below = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
        assert {path.stat().st_mode & 0o777 for path in below if path.is_dir()} == {0o700}
        assert {path.stat().st_mode & 0o777 for path in below if path.is_file()} == {0o600}
        for path in below:  # the owner shares it
            path.chmod(0o755 if path.is_dir() else 0o644)
        models.add(write_model(tmp_path, "good", 0.6))
        below = [path for path in (tmp_path / "new").rglob("*") if path.name != ".lock"]
        assert {path.stat().st_mode & 0o777 for path in below if path.is_dir()} == {0o755}
        assert {path.stat().st_mode & 0o777 for path in below if path.is_file()} == {0o644}
    finally:
        os.umask(before)


def test_links_in_a_registry_are_refused_and_their_targets_kept(
    kept: Registry, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    lock, state = kept.directory / ".lock", kept.directory / registry.STATE
    lock.unlink()
    lock.symlink_to(precious)
    with pytest.raises(AdviceError, match="lock file is a symbolic link; .* remove it"):
        kept.remove("plain")
    lock.unlink()
    state.rename(tmp_path / "state")
    state.symlink_to(tmp_path / "state")
    kept.directory.chmod(0o1777)
    with pytest.raises(UnusableModel, match="symbolic link in a directory that others"):
        kept.current()
    assert precious.read_text() == "kept"


@pytest.mark.parametrize("place", ["trees.npz", "manifest.json", "card/card.md", "card"])
def test_a_model_with_a_link_is_refused_before_anything_is_copied(
    tmp_path: Path, place: str
) -> None:
    model = write_model(tmp_path, "plain", 0.1)
    (model / "card").mkdir(exist_ok=True)
    (model / "card" / "card.md").write_text("the card")
    moved = (model / place).rename(tmp_path / "secret")
    (model / place).symlink_to(moved)
    models = Registry(tmp_path / "registry")
    with pytest.raises(UnusableModel, match=f"{place}: a symbolic link, which no model may"):
        models.add(model)
    assert not (tmp_path / "registry" / "models" / "plain").exists()


def test_a_link_in_a_version_is_refused_even_by_force(kept: Registry, tmp_path: Path) -> None:
    trees = kept.path("good") / "trees.npz"
    trees.rename(tmp_path / "elsewhere")
    trees.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnusableModel, match="symbolic link"):
        kept.promote("good", force=True)
    secret = kept.path("plain") / "card" / "secret"
    secret.parent.mkdir(exist_ok=True)
    secret.symlink_to("/etc/shadow")
    out = tmp_path / "out"
    done = CliRunner().invoke(
        model_command, ["--models", str(kept.directory), "card", "plain", "--out", str(out)]
    )
    assert isinstance(done.exception, UnusableModel)
    assert "secret: a symbolic link" in str(done.exception)
    assert not out.exists()


def test_weights_that_are_not_finite_are_refused_even_by_force(tmp_path: Path) -> None:
    model = write_model(tmp_path, "plain", 0.1)
    arrays = load_arrays(model / "trees.npz")
    arrays["value"][1] = np.nan
    save_arrays(model / "trees.npz", arrays)
    manifest.write(model, manifest.read_manifest(model)[0])
    models = Registry(tmp_path / "registry")
    models.add(model)
    with pytest.raises(UnusableModel, match=r"trees\.npz: value has values that are not finite"):
        models.promote("plain", force=True)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_manifest_with_a_number_that_is_not_finite_is_refused(
    tmp_path: Path, number: str
) -> None:
    path = write_model(tmp_path, "plain", 0.1) / "manifest.json"
    path.write_text(path.read_text().replace('"slope": 0.1', f'"slope": {number}'))
    with pytest.raises(UnusableModel, match="is not a finite number"):
        manifest.read(path.parent)


def test_the_shipped_model_answers_until_another_is_promoted(
    kept: Registry, window: HeldData
) -> None:
    assert Registry("/nowhere").current() == STARTER
    assert (answering(kept), kept.current_name()) == ("as-shipped", SHIPPED)
    result = kept.promote("good", window)
    assert result is not None
    assert (result.verdict, result.passed) == ("better", True)
    assert (answering(kept), kept.current_name()) == ("good", "good")
    assert [version.name for version in kept.versions()] == [SHIPPED, "plain", "good", "wrong"]
    assert [version.name for version in kept.versions() if version.current] == ["good"]


def test_a_worse_model_does_not_get_through_the_gate_and_the_history_says_why(
    kept: Registry, window: HeldData
) -> None:
    kept.promote("plain", window)
    with pytest.raises(NotPromoted, match="wrong: not promoted, plain stays: .* is worse: Brier"):
        kept.promote("wrong", window)
    assert answering(kept) == "plain"
    last = kept.history()[-1]
    assert (last.action, last.name, last.before) == ("keep", "wrong", "plain")
    assert last.gate is not None
    assert last.gate["difference"] > 0
    with pytest.raises(UsageError, match="no episodes to compare on"):
        kept.promote("wrong")
    kept.promote("wrong", force=True)
    assert answering(kept) == "wrong"
    assert kept.history()[-1].forced


def test_a_retraining_is_decided_in_one_call(
    kept: Registry, window: HeldData, tmp_path: Path
) -> None:
    kept.promote("plain", window)
    assert kept.propose(write_model(tmp_path, "again-wrong", -0.5), window).verdict == "worse"
    assert answering(kept) == "plain"
    assert kept.propose(write_model(tmp_path, "newer", 0.6), window).passed
    assert answering(kept) == "newer"


def test_rollback_goes_back_step_by_step_to_the_shipped_model(
    kept: Registry, window: HeldData
) -> None:
    kept.promote("plain", window)
    kept.promote("good", window)
    assert (kept.rollback().back, answering(kept)) == ("plain", "plain")
    assert (kept.rollback().back, answering(kept)) == (SHIPPED, "as-shipped")
    with pytest.raises(UsageError, match="nothing to roll back to"):
        kept.rollback()
    actions = [switch.action for switch in kept.history() if switch.action != "add"]
    assert actions == ["promote", "promote", "rollback", "rollback"]


def test_rollback_passes_over_a_model_that_was_damaged_since(
    kept: Registry, window: HeldData
) -> None:
    kept.promote("plain", window)
    kept.promote("good", window)
    (kept.path("plain") / "trees.npz").write_bytes(b"")
    done = kept.rollback()
    assert (done.left, done.back) == ("good", SHIPPED)
    assert "truncated" in done.passed_over[0]


def test_a_damaged_current_model_is_refused_and_can_be_rolled_back(
    kept: Registry, window: HeldData
) -> None:
    kept.promote("good", window)
    trees = kept.path("good") / "trees.npz"
    changed = bytearray(trees.read_bytes())
    changed[len(changed) // 2] ^= 1
    trees.write_bytes(changed)
    with pytest.raises(UnusableModel, match=r"trees.npz: its SHA-256 is not the manifest's"):
        HeldModel.load(kept.current())
    problems = {version.name: version.problem for version in kept.versions()}
    assert "SHA-256" in (problems["good"] or "")
    with pytest.raises(UnusableModel, match="SHA-256"):
        kept.verify("good")
    kept.rollback()
    assert answering(kept) == "as-shipped"


def test_a_whole_model_put_in_the_place_of_another_is_refused(
    kept: Registry, window: HeldData, tmp_path: Path
) -> None:
    kept.promote("good", window)
    forged = write_model(tmp_path / "forged", "good", -3.0)
    manifest.verify(forged)
    for path in forged.iterdir():
        (kept.path("good") / path.name).write_bytes(path.read_bytes())
    with pytest.raises(UnusableModel, match="not the model that was added under this name"):
        kept.current()


def test_a_model_that_replaces_a_damaged_one_needs_no_comparison(
    kept: Registry, window: HeldData
) -> None:
    kept.promote("good", window)
    (kept.path("good") / "trees.npz").unlink()
    result = kept.promote("plain", window)
    assert result is not None
    assert "cannot be used" in result.reason
    assert answering(kept) == "plain"


def test_a_planted_pickle_is_not_run_on_the_way_to_an_answer(tmp_path: Path) -> None:
    mark = tmp_path / "it was run"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(mark),))

    place = write_model(tmp_path, "trap", 1.0)
    arrays = io.BytesIO()
    np.savez(arrays, feature=np.array([Trap()], dtype=object))
    (place / "trees.npz").write_bytes(arrays.getvalue())
    manifest.write(place, manifest.read_manifest(place)[0])
    models = Registry(tmp_path / "registry")
    models.add(place)
    with pytest.raises(UnusableModel, match="not an .npz file of plain arrays"):
        models.promote("trap", force=True)
    assert not mark.exists()
    assert models.current() == STARTER


def test_adding_the_same_model_again_changes_nothing_and_another_of_its_name_is_refused(
    kept: Registry, tmp_path: Path
) -> None:
    before = kept.history()
    assert kept.add(tmp_path / "good") == "good"
    assert kept.history() == before
    with pytest.raises(UsageError, match="there is another model named 'good'"):
        kept.add(write_model(tmp_path / "other", "good", 2.0))


def test_a_model_can_be_removed_unless_it_answers(kept: Registry, window: HeldData) -> None:
    kept.promote("good", window)
    with pytest.raises(UsageError, match="is current; roll back first"):
        kept.remove("good")
    kept.rollback()
    kept.remove("good")
    assert not (kept.directory / "models" / "good").exists()
    with pytest.raises(UsageError, match="no model named 'good'"):
        kept.path("good")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot read the registry"),
        ('{"format": 99}', "not in format 1"),
        ('{"format": 1, "promoted": []}', "damaged"),
        (
            '{"format": 1, "promoted": ["../x"], "checksums": {}, "history": []}',
            "is not a valid model name",
        ),
        (
            '{"format": 1, "promoted": ["x"], "checksums": {}, "history": []}',
            "x is current, but not among the versions",
        ),
    ],
)
def test_a_damaged_registry_is_refused_with_what_next(
    kept: Registry, text: str, message: str
) -> None:
    (kept.directory / registry.STATE).write_text(text)
    with pytest.raises(UnusableModel, match=message):
        kept.current()


def test_a_registry_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    models = Registry(tmp_path / "file" / "registry")
    with pytest.raises(Exception, match="cannot write models here .*CONDOR_ADVICE_MODELS"):
        models.add(write_model(tmp_path, "any", 1.0))


def crash_after(calls: int, place: Path, model: Path) -> bool:
    """Add and promote a model in a process that dies at the n-th change to the disk."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    left = calls

    def or_die(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if not left:
                os._exit(9)  # as kill -9 would: nothing is cleaned up
            left -= 1
            return call(*args, **kwargs)

        return counted

    for name in ("replace", "fsync", "mkdir", "open"):
        setattr(os, name, or_die(getattr(os, name)))
    models = Registry(place)
    models.add(model)
    models.promote("second", force=True)
    os._exit(0)


def test_a_crash_at_any_moment_leaves_the_old_model_or_the_new_one(tmp_path: Path) -> None:
    first, second = (write_model(tmp_path, name, 1.0) for name in ("first", "second"))
    crashes, done = 0, False
    while not done:
        models = Registry(tmp_path / f"registry{crashes}")
        models.add(first)
        models.promote("first", force=True)
        done = crash_after(crashes, models.directory, second)
        name = answering(models)
        assert name == "second" if done else name in ("first", "second")
        # What was left behind is in nobody's way.
        models.add(second)
        if answering(models) != "second":
            models.promote("second", force=True)
        assert answering(models) == "second"
        assert models.rollback().back == "first"
        assert not [version.problem for version in models.versions()[1:] if version.problem]
        crashes += 1
    assert crashes > 20


WRITER = """
    import sys
    from condor_advice.gather.errors import UsageError
    from condor_advice.model.registry.versions import Registry, RegistryBusy
    models, name, done = Registry(sys.argv[1]), sys.argv[2], 0
    while done < 15:
        try:
            models.promote(name, force=True)
            done += 1
        except (UsageError, RegistryBusy) as error:
            assert "already" in str(error) or "while" in str(error), error
            try:
                models.rollback()
            except UsageError:
                pass
"""


def test_two_processes_switching_at_once_never_show_half_a_switch(tmp_path: Path) -> None:
    models = Registry(tmp_path / "registry")
    for name in ("first", "second"):
        models.add(write_model(tmp_path, name, 1.0))
    code = textwrap.dedent(WRITER)
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(models.directory), name])
        for name in ("first", "second")
    ]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        seen.add(answering(models))
    assert [writer.returncode for writer in writers] == [0, 0]
    assert {"first", "second"} <= seen <= {"first", "second", "starter"}
    promoted = [switch.name for switch in models.history() if switch.action == "promote"]
    assert sorted(promoted) == ["first"] * 15 + ["second"] * 15
    state = json.loads((models.directory / registry.STATE).read_text())
    assert (state["promoted"] or [SHIPPED])[-1] == models.current_name()


def test_asking_for_the_current_model_does_not_load_the_gate() -> None:
    code = (
        "import sys; from condor_advice.model.registry.versions import Registry\n"
        "Registry('/nowhere').current()\n"
        "print('condor_advice.model.registry.gate' in sys.modules, 'torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False"]
