"""`condor-advice export --pseudonymous`: no name in the logs is in what it writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from condor_advice.advise.commands.export import export
from condor_advice.gather.errors import AdviceError, UsageError
from condor_advice.lab.recording import unpack
from condor_advice.preprocess.holds.export import ExportedEpisodes
from condor_advice.preprocess.holds.pseudonyms import Pseudonyms, known_words, read_or_make_key

# What a person wrote into a reason: a name without any sign that it is one.
SPOKEN = "Brunhilde wants to look at projektgamma first"
TYPED_HOLD = f"""\
012 (4711.000.000) 2026-11-02 10:00:00 Job was held.
\t{SPOKEN} (by user isolde)
\tCode 1 Subcode 0
...
012 (4712.000.000) 2026-11-02 10:01:00 Job was held.
\tTransfer input files failure at access point ap.tintagel.example while sending files to \
execution point slot1@marke. Details: reading from file /home/isolde/potion recipe.txt: (errno 2) \
No such file or directory
\tCode 13 Subcode 2
...
"""
# Signs of a name in the text of an event log.
NAMES = tuple(
    re.compile(pattern)
    for pattern in (
        r'\bOwner = "([^"]+)"',
        r'\bUser = "([^"@]+)',
        r'\bJobBatchName = "([^"]+)"',
        r"by user (\w+)",
        r"[\w.-]+@([\w.@-]+\w)",  # slot1@host
        r"alias=([\w.-]+)",
        r"(\d+\.\d+\.\d+\.\d+):\d+",
        r"(?:access|execution) point (\S*[A-Za-z]\S*?)[.:]?\s",
        r"host: <?([\w.-]+)",
    )
)
PATHS = re.compile(r"(?<![\w/])(?:[A-Za-z][\w+.-]*:/)?(?:/[\w.+-]+)+")


def names_in(text: str) -> set[str]:
    """All names of people, hosts, batches and files in the text of a log."""
    names = {name for pattern in NAMES for name in pattern.findall(text)}
    for path in PATHS.findall(text):
        names |= {path, *path.split("/")[1:]}
    # A name that is also a word of HTCondor's (a file `input`, a host `ap`) proves nothing.
    usual = known_words()
    parts = {part for name in names for part in re.split(r"[/@:]", name)}
    return {
        name
        for name in names | parts
        if len(name) > 3 and name.lower() not in usual and not name.isdigit()
    }


def contents(directory: Path) -> Iterator[str]:
    """All that a reader of an export can see: raw bytes, metadata, and every text in a table."""
    for path in sorted(directory.iterdir()):
        yield path.name
        yield path.read_bytes().decode("latin-1")
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            yield str(table.schema)
            for column in table.columns:
                if str(column.type) in ("string", "large_string"):
                    yield "\n".join(text for text in column.unique().to_pylist() if text)


def run(*arguments: object) -> None:
    result = CliRunner().invoke(export, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def logs(simulated: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("logs")
    typed = base / "typed.log"
    typed.write_text(TYPED_HOLD)
    recording = unpack("pool_b", base)
    return [typed, simulated(300, ads=True), *sorted((recording / "events").iterdir())]


@pytest.fixture(scope="module")
def exports(logs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same logs exported with their names, and without."""
    base = tmp_path_factory.mktemp("exports")
    named = [f"--log={log}" for log in logs] + ["--access-point", "ap.tintagel.example"]
    run(base / "plain", *named, "--zone", "UTC")
    run(base / "shared", *named, "--zone", "UTC", "--pseudonymous", "--key", base / "key")
    return base / "plain", base / "shared"


def test_no_name_in_the_logs_is_in_the_export(logs: list[Path], exports: tuple[Path, Path]) -> None:
    plain, shared = exports
    names = {name for log in logs for name in names_in(log.read_text())}
    names |= {*SPOKEN.split()} - {"to", "at", "first", "look", "wants"}
    names |= {"ap.tintagel.example", *(str(log) for log in logs)}
    assert {"isolde", "Brunhilde", "projektgamma", "/home/isolde/potion", "marke"} <= names
    assert len(names) > 100
    # schema.json, the names of columns and `condor_hold` are there whatever the logs say.
    schema = (shared / "schema.json").read_text()
    assert schema == (plain / "schema.json").read_text()
    usual = schema + str(pq.read_schema(shared / "events.parquet")) + "condor_hold"
    names -= {name for name in names if name in usual and name.isalpha() and name.islower()}
    assert {"isolde", "Brunhilde", "projektgamma", "/home/isolde/potion", "marke"} <= names
    shown = "\n".join(contents(shared))
    assert [name for name in sorted(names) if name in shown] == []
    # The same search finds names where they are: the search itself works.
    shown = "\n".join(contents(plain))
    seen = {name for name in names if name in shown}
    assert {"Brunhilde", "projektgamma", "ap.tintagel.example"} <= seen
    assert len(seen) > 5


def test_pseudonyms_stand_for_the_same_names_everywhere(exports: tuple[Path, Path]) -> None:
    for file in ("episodes.parquet", "events.parquet"):
        real, hidden = (pq.read_table(directory / file) for directory in exports)
        for column in ("access_point", "point", "owner", "template"):
            pairs = set(zip(real[column].to_pylist(), hidden[column].to_pylist(), strict=True))
            assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
    for column in ("batch", "dag"):
        real, hidden = (
            pq.read_table(directory / "episodes.parquet")[column].to_numpy()
            for directory in exports
        )
        pairs = set(zip(real.tolist(), hidden.tolist(), strict=True))
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
        assert all(a == b if a >= 0 else a != b and b < 0 for a, b in pairs)
    assert (real < 0).any() or (real > 0).any()


def test_features_and_outcomes_do_not_depend_on_names(exports: tuple[Path, Path]) -> None:
    plain, shared = (ExportedEpisodes(directory) for directory in exports)
    rows = np.arange(len(plain))
    assert len(rows) > 200
    # The bucket of a template follows its text; all else is the same.
    chosen = [name != "hold_template" for name in plain.feature_names]
    features, hidden = plain.features(rows), shared.features(rows)
    assert features[:, chosen].tobytes() == hidden[:, chosen].tobytes()
    assert np.array_equal(plain.label, shared.label)
    assert np.array_equal(plain.time, shared.time)


def test_templates_keep_the_words_of_htcondor(exports: tuple[Path, Path]) -> None:
    templates = set(pq.read_table(exports[1] / "episodes.parquet")["template"].to_pylist())
    assert any("No such file or directory" in template for template in templates)
    changed = [template for template in templates if "word-" in template]
    assert 1 <= len(changed) < len(templates) / 2


def test_another_key_gives_other_pseudonyms(tmp_path: Path) -> None:
    first, again = (Pseudonyms(read_or_make_key(tmp_path / "one" / "key")) for _ in range(2))
    other = Pseudonyms(read_or_make_key(tmp_path / "other"))
    assert first.of("owner", "isolde") == again.of("owner", "isolde")
    assert first.of("owner", "isolde") != other.of("owner", "isolde")
    assert first.of("owner", "") == ""
    assert (tmp_path / "one" / "key").stat().st_mode & 0o777 == 0o600


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    read_or_make_key(tmp_path / "key")
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(AdviceError, match=r"others may read the key.*chmod 600"):
        read_or_make_key(tmp_path / "key")
    (tmp_path / "key").write_text("secret")
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(AdviceError, match="not a key of pseudonyms"):
        read_or_make_key(tmp_path / "key")


def test_files_of_an_earlier_export_never_stay_beside_pseudonyms(
    logs: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run(out, "--log", logs[0])
    arguments = [str(out), "--log", str(logs[0]), "--pseudonymous", "--no-events"]
    refused = CliRunner().invoke(export, [*arguments, "--key", str(tmp_path / "key")])
    assert isinstance(refused.exception, UsageError)
    assert "is not empty" in str(refused.exception)
    new = [str(tmp_path / "new"), *arguments[1:], "--key", str(tmp_path / "new" / "key")]
    refused = CliRunner().invoke(export, new)
    assert "must not get the key" in str(refused.exception)
    assert not (tmp_path / "new").exists()


def test_a_key_without_pseudonyms_is_a_mistake(tmp_path: Path) -> None:
    refused = CliRunner().invoke(export, [str(tmp_path / "out"), "--key", str(tmp_path / "key")])
    assert refused.exit_code == 2
    assert "--pseudonymous" in refused.output
