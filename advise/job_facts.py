"""What a person would look up about a held job: its last message, its workflow, its deadlines.

The ad and the files it names are a stranger's. Only regular files are opened, little is read, and
control characters are removed.
"""

from __future__ import annotations

import os
import re
from datetime import datetime

from condor_advice.advise.holds import Hold
from condor_advice.advise.overview import span_words
from condor_advice.advise.remedies import PATHS_FAULT, named_path
from condor_advice.gather.foreign_text import one_line
from condor_advice.gather.regular import open_regular

TAIL_BYTES = 4096  # of a job's error file
LONGEST_MESSAGE = 200  # characters
_TERMINAL_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def last_message(hold: Hold) -> str:
    """Return the last line of the job's error file; empty if there is none.

    A file that is older than the job belongs to another one.
    """
    name = hold.ad.get("Err")
    if not name or name == os.devnull or hold.past:
        return ""
    path = os.path.join(str(hold.ad.get("Iwd", "")), str(name))
    try:
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            if status.st_mtime < float(hold.ad.get("QDate", 0)):
                return ""
            file.seek(max(0, status.st_size - TAIL_BYTES))
            tail = file.read(TAIL_BYTES)
    except OSError:
        return ""
    text = _CONTROL.sub("", _TERMINAL_CODES.sub("", tail.decode("utf-8", "replace")))
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return one_line(lines[-1], LONGEST_MESSAGE) if lines else ""


def workflow(hold: Hold) -> str:
    """Name the job's DAG node and workflow; empty if it is in none."""
    node, manager = hold.ad.get("DAGNodeName"), hold.ad.get("DAGManJobId")
    if not node:
        return ""
    batch = hold.ad.get("JobBatchName")
    return f"node {node}" + (f" of workflow {manager}" if manager is not None else "") + (
        f" ({batch})" if batch else ""
    )  # fmt: skip


def missing_directory(hold: Hold) -> str:
    """Return the first directory that is missing on the way to the file the reason names."""
    path = named_path(hold.reason) if hold.family in PATHS_FAULT else None
    if path is None or not hold.ad or hold.past:
        return ""
    missing = ""
    parent = os.path.dirname(path.rstrip("/"))
    while parent not in ("", "/") and not os.path.exists(parent):
        missing, parent = parent, os.path.dirname(parent)
    return missing


def removal(hold: Hold, now: datetime) -> str:
    """Say when the job's own timer removes it; empty if it has none."""
    timer = hold.ad.get("TimerRemove")
    if not isinstance(timer, int | float) or isinstance(timer, bool) or timer <= 0:
        return ""
    left = timer - now.timestamp()
    return f"its own timer removes it in {span_words(left)}" if left > 0 else (
        "its own timer removes it now"
    )  # fmt: skip
