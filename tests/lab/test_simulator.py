"""The simulator writes HTCondor's format, meets its profile, and repeats itself for a seed."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from condor_advice.gather.errors import UsageError
from condor_advice.lab.simulate import PROFILES, Profile, SimulationResult, simulate
from condor_advice.lab.truth import LoggedHold, read_holds

LOGS = Path(__file__).resolve().parents[1] / "logs"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> SimulationResult:
    return simulate(25_000, 5, tmp_path_factory.mktemp("simulated") / "out", Profile.read())


@pytest.fixture(scope="module")
def holds(result: SimulationResult) -> list[LoggedHold]:
    return read_holds([result.directory / "ap1" / "EventLog"])


def events_in(text: str) -> Iterator[str]:
    return (block for block in text.split("\n...\n") if block.strip())


def changed_profile(tmp_path: Path, change: Callable[[str], str]) -> Profile:
    path = tmp_path / "changed.toml"
    path.write_text(change((PROFILES / "ospool.toml").read_text()))
    return Profile.read(path)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    digests = []
    for run, seed in enumerate((3, 3, 4)):
        out = simulate(3000, seed, tmp_path / str(run), Profile.read()).directory
        digests.append(
            [
                hashlib.sha256((out / name).read_bytes()).hexdigest()
                for name in ("ap1/EventLog", "truth.jsonl")
            ]
        )
    assert digests[0] == digests[1]
    assert digests[0][0] != digests[2][0]


def test_the_default_profile_comes_out_as_the_ospool_reports_it(result: SimulationResult) -> None:
    measured = result.comparison(Profile.read().targets)
    # This is less than half a day of jobs, and one cluster can be a sixth of it.
    for name, tolerance in (
        ("jobs_per_day", 0.2),
        ("held_share", 0.15),
        ("holds_per_held_job", 0.12),
    ):
        wanted = measured[name]["wanted"]
        assert measured[name]["measured"] == pytest.approx(wanted, rel=tolerance), name
    assert measured["repeat_share"]["measured"] > 0.5
    assert result.largest_cluster > 200
    figures = result.as_json(Profile.read())
    assert figures["share_of_busiest_tenth_of_users"] > 0.5


def test_the_counts_it_reports_are_those_in_the_log(
    result: SimulationResult, holds: list[LoggedHold]
) -> None:
    text = (result.directory / "ap1" / "EventLog").read_text()
    kinds = Counter(block[:3] for block in events_in(text))
    assert sum(kinds.values()) == result.events
    assert kinds["000"] == result.jobs == 25_000
    assert kinds["012"] == result.holds
    assert len({hold.job for hold in holds}) == result.held_jobs
    assert Counter(f"{hold.code}/{hold.subcode}" for hold in holds) == result.codes
    assert Counter(hold.outcome for hold in holds) == result.outcomes


def test_events_are_in_time_order(result: SimulationResult) -> None:
    stamps = re.findall(
        r"^\d{3} \(\d+\.\d+\.\d+\) (\S+ \S+)",
        (result.directory / "ap1" / "EventLog").read_text(),
        re.MULTILINE,
    )
    assert stamps == sorted(stamps)


def test_one_fault_has_old_and_new_wordings_and_codes(result: SimulationResult) -> None:
    assert {"34/0", "34/102", "21/102", "26/0"} <= set(result.codes)
    assert {"13/2", "12/2"} <= set(result.codes)


def test_the_truth_names_every_held_job_and_its_cause(
    result: SimulationResult, holds: list[LoggedHold]
) -> None:
    rows = {
        (row["cluster"], row["proc"]): row
        for row in map(json.loads, (result.directory / "truth.jsonl").read_text().splitlines())
    }
    assert {hold.job for hold in holds} <= set(rows)
    assert all(row["cause"] and row["access_point"] == "ap1" for row in rows.values())
    assert {row["transient"] for row in rows.values()} == {True, False}


def test_permanent_causes_never_succeed_and_the_same_reason_goes_both_ways(
    result: SimulationResult, holds: list[LoggedHold]
) -> None:
    rows = {
        (row["cluster"], row["proc"]): row
        for row in map(json.loads, (result.directory / "truth.jsonl").read_text().splitlines())
    }
    outcomes: Counter[tuple[int, int, str]] = Counter()
    for hold in holds:
        row = rows[hold.job]
        outcomes[hold.code, hold.subcode, hold.outcome] += 1
        if not row["transient"] and not row["fixed"] and not row["struck"]:
            assert hold.outcome != "SUCCEEDED"
    both = [
        (code, subcode)
        for code, subcode, outcome in outcomes
        if outcome == "SUCCEEDED" and outcomes[code, subcode, "HELD_SAME"]
    ]
    assert len(both) >= 5


def test_htcondor_reads_it_without_complaint(tmp_path: Path) -> None:
    profile = changed_profile(
        tmp_path, lambda text: text.replace("ad_information = false", "ad_information = true")
    )
    result = simulate(1500, 2, tmp_path / "out", profile)
    log = result.directory / "ap1" / "EventLog"
    code = (
        "import collections, json, sys, htcondor2\n"
        "kinds = collections.Counter()\n"
        "for event in htcondor2.JobEventLog(sys.argv[1]).events(0):\n"
        "    kinds[int(event.type)] += 1\n"
        "    if int(event.type) == 12: event['HoldReasonCode'], event['HoldReason']\n"
        "    if int(event.type) == 28: event['TriggerEventTypeNumber'], event['Owner']\n"
        "print(json.dumps(kinds))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(log)],
        capture_output=True,
        text=True,
        check=True,
        env={"CONDOR_CONFIG": "ONLY_ENV"},
    )
    assert done.stderr == ""
    read = {int(kind): count for kind, count in json.loads(done.stdout).items()}
    written = Counter(int(block[:3]) for block in events_in(log.read_text()))
    assert read == written
    assert read[28] == sum(written.values()) - written[28] - written[8]


SAYS_ANYTHING = {9: (1,), 12: (1,), 13: (1,), 21: (1,)}  # event -> lines of free text


def layout_of(event: str) -> tuple[str, ...]:
    """Return an event without numbers, names and free text; keep tabs and words."""
    kind = int(event[:3])
    lines = event.split("\n")
    shapes = []
    for number, line in enumerate(lines):
        if number in SAYS_ANYTHING.get(kind, ()) or line.startswith("\tReason:"):
            line = re.match(r"\s*(Reason:)?", line)[0] + "TEXT"
        line = re.sub(r"<[^>]*>", "<>", line)
        line = re.sub(r'"[^"]*"', '""', line)
        line = re.sub(r"slot\S+@[\w.@-]+", "SLOT", line)
        line = re.sub(r"\d+(\.\d+)?", "N", line)
        shapes.append(re.sub(r"(?<=\S) +", " ", line))
    return tuple(shapes)


def test_each_kind_of_event_is_laid_out_as_in_a_real_log(result: SimulationResult) -> None:
    real: dict[int, set[tuple[str, ...]]] = {}
    for log in LOGS.glob("*.log"):
        text = log.read_text()
        if log.name.startswith("global") or not text.startswith("000 ("):
            continue
        for event in events_in(text):
            real.setdefault(int(event[:3]), set()).add(layout_of(event))
    ours: dict[int, set[tuple[str, ...]]] = {}
    seen: Counter[int] = Counter()
    for event in events_in((result.directory / "ap1" / "EventLog").read_text()):
        kind = int(event[:3])
        seen[kind] += 1
        if kind != 8 and seen[kind] < 1000:
            ours.setdefault(kind, set()).add(layout_of(event))
    assert set(ours) == {0, 1, 4, 5, 6, 9, 12, 13, 21, 40}
    strange = {}
    for kind, layouts in ours.items():
        if kind == 0:  # the real logs here have no batch name
            layouts = {layout[:1] for layout in layouts}
        known = real[kind] if kind != 0 else {layout[:1] for layout in real[kind]}
        # The usage table has more or fewer rows, depending on how long the job ran.
        known_lines = {line for layout in known for line in layout}
        for layout in layouts:
            unknown = [line for line in layout if line not in known_lines]
            if unknown:
                strange[kind] = unknown
    assert strange == {}


def test_the_table_of_usage_is_aligned_as_htcondor_does(result: SimulationResult) -> None:
    def tables(text: str) -> list[list[str]]:
        found = re.findall(r"\tPartitionable Resources :.*\n(?:\t   \w.*\n?)+", text)
        return [table.rstrip("\n").split("\n") for table in found]

    real = tables((LOGS / "completed.log").read_text())
    ours = tables((result.directory / "ap1" / "EventLog").read_text()[:400_000])
    assert real
    assert ours
    for table in [*real, *ours]:
        assert len({len(line) for line in table}) == 1
        assert {line.index(":") for line in table} == {25}


def test_dates_without_a_year_and_several_access_points_are_possible(tmp_path: Path) -> None:
    profile = changed_profile(
        tmp_path,
        lambda text: text.replace("iso_dates = true", "iso_dates = false").replace(
            "access_points = 1", "access_points = 3"
        ),
    )
    result = simulate(900, 6, tmp_path / "out", profile)
    for name in ("ap1", "ap2", "ap3"):
        text = (result.directory / name / "EventLog").read_text()
        assert re.search(r"^000 \(001\.000\.000\) 03/02 \d\d:\d\d:\d\d ", text, re.MULTILINE)
    assert result.jobs == 900
    logs = {(result.directory / f"ap{n}" / "EventLog").read_bytes() for n in (1, 2, 3)}
    assert len(logs) == 3


def test_memory_does_not_grow_with_the_number_of_jobs(tmp_path: Path) -> None:
    def peak(jobs: int) -> int:
        code = (
            "import resource, sys\nfrom pathlib import Path\n"
            "from condor_advice.lab.simulate import Profile, simulate\n"
            f"simulate({jobs}, 1, Path(sys.argv[1]), Profile.read())\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / str(jobs))],
            capture_output=True,
            text=True,
            check=True,
        )
        return int(done.stdout)

    assert peak(45_000) < 1.4 * peak(21_000)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda text: text.replace("users = 140", "usrs = 140"), "missing keys: users, usrs"),
        (lambda text: text.replace("exec_format", "exec_fromat"), "unknown fault: exec_fromat"),
        (lambda text: text + "\n[more]\n", "unknown: more"),
        (lambda text: text + "\n[[[", "cannot read the profile"),
    ],
)
def test_a_wrong_profile_is_refused_with_the_reason(
    tmp_path: Path, change: Callable[[str], str], complaint: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(complaint)):
        changed_profile(tmp_path, change)


def test_a_directory_in_use_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(UsageError, match="not empty"):
        simulate(10, 1, tmp_path, Profile.read())
