"""The lab reads outcomes from the log by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from condor_advice.lab.truth import (
    LoggedHold,
    Truth,
    in_order,
    mark_struck,
    read_holds,
    read_truth,
    tabulate,
    write_truth,
)
from condor_advice.lab.world import Trouble


@pytest.mark.parametrize(
    ("log", "outcomes"),
    [
        ("released_and_succeeded.log", ["SUCCEEDED"] * 3),
        ("released_and_held_again.log", ["HELD_SAME", "NEVER_RELEASED"]),
        ("removed_while_held.log", ["NEVER_RELEASED"]),
        ("memory_exceeded.log", ["NEVER_RELEASED"] * 2),
        ("completed.log", []),
    ],
)
def test_real_logs_have_these_outcomes(
    event_log: Callable[[str], Path], log: str, outcomes: list[str]
) -> None:
    assert [hold.outcome for hold in read_holds([event_log(log)])] == outcomes


def write_log(path: Path, *events: str) -> Path:
    path.write_text("".join(f"{event}\n...\n" for event in events))
    return path


def test_a_release_whose_end_is_not_in_the_log_is_unknown(tmp_path: Path) -> None:
    log = write_log(
        tmp_path / "EventLog",
        "012 (001.000.000) 2026-01-01 10:00:00 Job was held.\n\twhy\n\tCode 13 Subcode 2",
        "013 (001.000.000) 2026-01-01 10:01:00 Job was released.\n\tby hand",
        "012 (002.000.000) 01/01 10:00:00 Job was held.\n\twhy\n\tCode 3 Subcode -7",
        "013 (002.000.000) 01/01 10:01:00 Job was released.\n\tby hand",
        "012 (002.000.000) 01/01 10:02:00 Job was held.\n\twhy\n\tCode 6 Subcode 2",
        "013 (002.000.000) 01/01 10:03:00 Job was released.\n\tby hand",
        "005 (002.000.000) 01/01 10:04:00 Job terminated.\n\t(1) Normal termination (return "
        "value 3)",
    )
    holds = read_holds([log])
    assert [(h.code, h.subcode, h.number, h.outcome) for h in holds] == [
        (13, 2, 1, "UNKNOWN"),
        (3, -7, 1, "HELD_OTHER"),
        (6, 2, 2, "FAILED"),
    ]


def test_rotated_files_are_read_oldest_first(tmp_path: Path) -> None:
    for name in ("EventLog", "EventLog.1", "EventLog.10", "EventLog.2", "EventLog.lock"):
        (tmp_path / name).touch()
    names = [path.name for path in in_order(tmp_path / "EventLog")]
    assert names == ["EventLog.10", "EventLog.2", "EventLog.1", "EventLog"]


def test_a_hold_on_a_point_in_trouble_is_recognised(tmp_path: Path) -> None:
    log = write_log(
        tmp_path / "EventLog",
        "012 (001.000.000) 2026-01-01 10:00:30 Job was held.\n\tError from slot1_1@node03@h: "
        "hook failed\n\tCode 19 Subcode 1",
        "012 (002.000.000) 2026-01-01 12:00:30 Job was held.\n\tError from slot1_1@node03@h: "
        "hook failed\n\tCode 19 Subcode 1",
    )
    holds: list[LoggedHold] = read_holds([log])
    since = holds[0].at.timestamp() - 20
    rows = {(n, 0): Truth(n, 0, "mei", "exit_bug", "exit", "a bug", False) for n in (1, 2)}
    mark_struck(rows, holds, [Trouble("node03", "hook", since, since + 60)], {})
    assert [strike["cause"] for strike in rows[1, 0].struck] == ["hook"]
    assert rows[2, 0].struck == []
    assert set(tabulate(holds, rows)) == {"(struck: hook)", "exit_bug"}
    write_truth(tmp_path / "truth.jsonl", rows.values())
    assert read_truth(tmp_path / "truth.jsonl") == rows
