"""A site's policies come from files, and a setting that is not known is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from condor_advice.advise import site as sites
from condor_advice.advise.site import Site, load_site
from condor_advice.gather.errors import UsageError


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    system, own = tmp_path / "etc.toml", tmp_path / "condor-advice" / "site.toml"
    own.parent.mkdir()
    monkeypatch.setattr(sites, "SYSTEM_FILE", system)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("CONDOR_ADVICE_SITE", raising=False)
    return system, own


def test_without_files_nothing_is_assumed(files: tuple[Path, Path]) -> None:
    assert load_site() == Site()


def test_a_users_file_counts_more_than_the_systems(files: tuple[Path, Path]) -> None:
    system, own = files
    system.write_text('name = "the pool"\nremove_held_after_days = 14\nfatal_codes = ["34/102"]\n')
    own.write_text("remove_held_after_days = 7\n[acting]\nconfidence = 0.9\n")
    found = load_site()
    assert (found.name, found.remove_held_after_days) == ("the pool", 7)
    assert found.is_fatal(34, 102)
    assert not found.is_fatal(34, 104)
    assert found.acting == {"confidence": 0.9}
    assert found.sources == (str(system), str(own))


def test_only_the_systems_file_unlocks_other_peoples_jobs(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    system, own = files
    own.write_text("show_others = true\n")
    assert not load_site().show_others
    monkeypatch.setenv("CONDOR_ADVICE_SITE", str(own))
    assert not load_site().show_others
    monkeypatch.delenv("CONDOR_ADVICE_SITE")
    system.write_text("show_others = true\n")
    own.write_text("show_others = false\n")
    assert load_site().show_others


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("remove_after = 3", "unknown setting 'remove_after'"),
        ("max_holds = 'often'", "max_holds is 'often'; it must be of type int"),
        ("max_holds = true", "max_holds is True; it must be of type int"),
        ("fatal_codes = 34", "fatal_codes is 34; it must be of type list"),
        ("= 3", "not TOML"),
    ],
)
def test_what_is_wrong_is_said_with_its_file(
    files: tuple[Path, Path], text: str, message: str
) -> None:
    files[1].write_text(text)
    with pytest.raises(UsageError, match="site.toml") as caught:
        load_site()
    assert message in str(caught.value)


def test_a_file_that_is_named_must_exist(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDOR_ADVICE_SITE", str(tmp_path / "none.toml"))
    with pytest.raises(UsageError, match="no such file"):
        load_site()
