"""Thousands of small logs: each costs what it holds, whatever else the store has."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from condor_advice.gather import collect
from condor_advice.gather.clock import Clock
from condor_advice.gather.collect import Collector
from condor_advice.gather.store import Store

LOGS = 30


@pytest.fixture
def logs(tmp_path: Path, event_log: Callable[[str], Path]) -> list[str]:
    """Return copies of a real log."""
    paths = [tmp_path / f"job{number}.log" for number in range(LOGS)]
    for path in paths:
        shutil.copy(event_log("released_and_succeeded.log"), path)
    return [str(path) for path in paths]


def gather(store: Store, logs: list[str]) -> Collector:
    collector = Collector(store, logs, access_point="ap", clock=Clock(UTC))
    collector.read()
    return collector


def test_a_logs_pieces_are_found_by_an_index(tmp_path: Path, logs: list[str]) -> None:
    with Store(tmp_path / "store") as store:
        gather(store, logs)
        statements: list[str] = []
        store._db.set_trace_callback(statements.append)
        assert len(list(store.pieces(log=logs[-1]))) == 1
        store._db.set_trace_callback(None)
        [select] = [text for text in statements if "pieces.id >" in text][:1]
        plan = [row[3] for row in store.rows(f"EXPLAIN QUERY PLAN {select}")]
    assert any("pieces_by_log (log=? AND id>?)" in step for step in plan), plan


def test_a_second_look_opens_no_log_that_has_not_changed(
    tmp_path: Path, logs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    tail = collect.LogTail

    def open_log(log: str, *args: Any, **settings: Any) -> Any:
        opened.append(log)
        return tail(log, *args, **settings)

    with Store(tmp_path / "store") as store:
        gather(store, logs)
        monkeypatch.setattr(collect, "LogTail", open_log)
        with open(logs[3], "ab") as grown, open(logs[4], "rb") as other:
            grown.write(other.read())
        shutil.copy(logs[6], f"{logs[7]}.old")
        again = gather(store, logs)
    assert opened == [logs[3], logs[7]]
    assert [log for log, result in again.gathered.items() if result.events] == [logs[3]]


def test_a_stop_between_logs_is_answered_before_the_next_one(
    tmp_path: Path, logs: list[str]
) -> None:
    with Store(tmp_path / "store") as store:
        collector = Collector(store, logs, access_point="ap", clock=Clock(UTC))
        collector.read(lambda _: collector.stop())
        assert len(store.cursors()) == 1
    with sqlite3.connect(tmp_path / "store") as db:
        assert db.execute("SELECT count(*) FROM pieces").fetchone() == (1,)
