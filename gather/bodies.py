"""Parse the text of one event into attributes, under HTCondor's own names."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from condor_advice.gather.classads import assignment, classad_value

Ad = dict[str, Any]

# Every event has these; JobEvent keeps them as fields of its own, not in its ad.
HEADER_ATTRIBUTES = frozenset(
    ("Cluster", "Proc", "Subproc", "EventTime", "EventTypeNumber", "MyType")
)

_CODES = re.compile(r"^\s*Code (-?\d+) Subcode (-?\d+)\s*$")
_NUMBER_LINE = re.compile(r"^\s*(-?\d+(?:\.\d+)?)  -  (.+?)\s*$")
_USAGE_LINE = re.compile(r"^\s*(Usr .*?, Sys .*?)\s+-\s+(.+?)\s*$")
_TERMINATION = re.compile(
    r"\(([01])\) (?:Normal termination \(return value (-?\d+)\)"
    r"|Abnormal termination \(signal (-?\d+)\))"
)
_RESOURCE = re.compile(r"^\s*([A-Za-z]\w*)(?: \(\w+\))?\s*:")
# Lines of a 004 body that are not its reason.
_EVICTION_LINE = re.compile(r"\(\d\)|Usr |-?\d+  -  |Partitionable Resources|\w+(?: \(\w+\))? +:")
_USAGE_NAMES = {
    "Run Remote Usage": "RunRemoteUsage",
    "Run Local Usage": "RunLocalUsage",
    "Total Remote Usage": "TotalRemoteUsage",
    "Total Local Usage": "TotalLocalUsage",
}
_NUMBER_NAMES = {
    "MemoryUsage of job (MB)": "MemoryUsage",
    "ResidentSetSize of job (KB)": "ResidentSetSize",
    "ProportionalSetSize of job (KB)": "ProportionalSetSize",
    "Run Bytes Sent By Job": "SentBytes",
    "Run Bytes Received By Job": "ReceivedBytes",
    "Total Bytes Sent By Job": "TotalSentBytes",
    "Total Bytes Received By Job": "TotalReceivedBytes",
    "Run Bytes Sent By Job For Checkpoint": "SentBytes",
    "Run Bytes Sent By Node": "SentBytes",
    "Run Bytes Received By Node": "ReceivedBytes",
    "Total Bytes Sent By Node": "TotalSentBytes",
    "Total Bytes Received By Node": "TotalReceivedBytes",
}
# The numbers of a 040 event, as condor_event.h has them.
TRANSFER_TYPES = {
    "Entered queue to transfer input files": 1,
    "Started transferring input files": 2,
    "Finished transferring input files": 3,
    "Entered queue to transfer output files": 4,
    "Started transferring output files": 5,
    "Finished transferring output files": 6,
}


def parse_body(kind: int, text: str) -> Ad:
    """Return the attributes of a text event, given the text after its time stamp."""
    head, *lines = text.splitlines() or [""]
    try:
        return _PARSERS.get(kind, _nothing)(head, lines)
    except (ValueError, OverflowError):  # a number with more digits than HTCondor writes
        return {}


def _nothing(head: str, lines: list[str]) -> Ad:
    return {}


def _after(head: str, words: str) -> str | None:
    """Return what follows `words` in the header, or None."""
    return head.split(words, 1)[1].strip() if words in head else None


def _put(ad: Ad, name: str, value: object) -> None:
    if value not in (None, ""):
        ad[name] = value


def _reason(lines: list[str]) -> str:
    """Return a reason's lines as one text, without HTCondor's indentation.

    An empty line ends the reason: what follows says how the job ended on the execution point.
    """
    return "\n".join(line.strip() for line in lines).strip().split("\n\n")[0]


def _codes(ad: Ad, line: str, code: str, subcode: str) -> bool:
    match = _CODES.match(line)
    if match:
        ad[code], ad[subcode] = int(match[1]), int(match[2])
    return bool(match)


def _submit(head: str, lines: list[str]) -> Ad:
    ad: Ad = {}
    _put(ad, "SubmitHost", _after(head, "host: "))
    notes = []
    for text in filter(None, (line.strip() for line in lines)):
        if text.startswith("WARNING: "):
            _put(ad, "Warnings", text.removeprefix("WARNING: "))
            continue
        if text.startswith("["):
            ad["StructuredNotes"] = classad_value(text)
        elif text.startswith("DAG Node: "):  # as written by older versions of HTCondor
            ad["StructuredNotes"] = {"DAGNodeName": text.removeprefix("DAG Node: ")}
        notes.append(text)
    # The schedd writes log notes (DAGMan's node among them) before user notes.
    ad.update(zip(("LogNotes", "UserNotes"), notes, strict=False))
    return ad


def _execute(head: str, lines: list[str]) -> Ad:
    ad: Ad = {}
    _put(ad, "ExecuteHost", _after(head, "host: "))
    properties: Ad = {}
    for line in lines:
        if line.strip().startswith("SlotName: "):
            ad["SlotName"] = line.split("SlotName: ", 1)[1].strip()
        elif pair := assignment(line):
            properties[pair[0]] = pair[1]
    _put(ad, "ExecuteProps", properties or None)
    return ad


def _executable_error(head: str, lines: list[str]) -> Ad:
    match = re.match(r"\((-?\d+)\) (.*)", head)
    return {"ExecuteErrorType": int(match[1]), "Reason": match[2]} if match else {}


def _usages(lines: list[str]) -> Ad:
    """Read the lines common to many events: CPU times, bytes, sizes, the resource table."""
    ad: Ad = {}
    columns: list[tuple[str, int]] = []
    for line in lines:
        if match := _NUMBER_LINE.match(line):
            name = _NUMBER_NAMES.get(match[2])
            if name is not None:
                ad[name] = float(match[1]) if name.endswith("Bytes") else int(float(match[1]))
        elif match := _USAGE_LINE.match(line):
            if match[2] in _USAGE_NAMES:
                ad[_USAGE_NAMES[match[2]]] = match[1]
        elif "Resources :" in line:
            columns = column_ends(line)
        elif columns and (name := resource_name(line)):
            _resource(ad, name, line, columns)
    return ad


def parse_resource(line: str, headline: str) -> Ad:
    """Read one row of the resource table under its headline."""
    ad: Ad = {}
    if name := resource_name(line):
        _resource(ad, name, line, column_ends(headline))
    return ad


def resource_name(line: str) -> str | None:
    """Return the resource of a row of the resource table; None if it is not such a row."""
    match = _RESOURCE.match(line)
    return match[1] if match else None


def column_ends(line: str) -> list[tuple[str, int]]:
    """Return the titles of the columns after the colon, and where their cells end."""
    begin = line.index(":") + 1
    return [(m[0], begin + m.end()) for m in re.finditer(r"\S+", line[begin:])]


def _resource(ad: Ad, name: str, line: str, columns: list[tuple[str, int]]) -> None:
    """Read one row of the resource table into `XUsage`, `RequestX`, `X` and `AssignedX`.

    Cells are right-aligned under their titles and may be blank. A number too wide for its cell
    pushes the others to the right, so a cell belongs to the nearest title.
    """
    patterns = {"Usage": "{}Usage", "Request": "Request{}", "Allocated": "{}", "Assigned": ""}
    begin = line.index(":") + 1
    cells = [(m[0], begin + m.end()) for m in re.finditer(r"\"[^\"]*\"|\S+", line[begin:])]
    if len(cells) == len(columns):
        placed = [(title, cell) for (title, _), (cell, _) in zip(columns, cells, strict=True)]
    else:
        placed = [(min(columns, key=lambda c: abs(c[1] - end))[0], cell) for cell, end in cells]
    for title, cell in placed:
        if title == "Assigned":
            ad[f"Assigned{name}"] = classad_value(cell)
        elif title in patterns:
            ad[patterns[title].format(name)] = classad_value(cell)


def _termination(ad: Ad, lines: list[str]) -> None:
    for line in lines:
        if match := _TERMINATION.search(line):
            ad["TerminatedNormally"] = match[2] is not None
            if match[2] is not None:
                ad["ReturnValue"] = int(match[2])
            else:
                ad["TerminatedBySignal"] = int(match[3])
        elif "Corefile in: " in line:
            ad["CoreFile"] = line.split("Corefile in: ", 1)[1].strip()


def _terminated(head: str, lines: list[str]) -> Ad:
    ad = _usages(lines)
    _termination(ad, lines[:2])
    return ad


def _node_terminated(head: str, lines: list[str]) -> Ad:
    ad = _terminated(head, lines)
    if match := re.match(r"Node (-?\d+) terminated", head):
        ad["Node"] = int(match[1])
    return ad


def _node_execute(head: str, lines: list[str]) -> Ad:
    ad = _execute(head, lines)
    if match := re.match(r"Node (-?\d+) executing", head):
        ad["Node"] = int(match[1])
    return ad


def _evicted(head: str, lines: list[str]) -> Ad:
    ad = _usages(lines)
    status = lines[0] if lines else ""
    requeued = "requeued" in status
    ad["Checkpointed"] = "(1) Job was checkpointed" in status
    ad["TerminatedAndRequeued"] = requeued
    ad["TerminatedNormally"] = False
    if match := re.search(r"Code (-?\d+) Subcode (-?\d+)", head):
        ad["ReasonCode"], ad["ReasonSubCode"] = int(match[1]), int(match[2])
    if requeued:
        _termination(ad, lines[1:])
    for line in lines[1:]:
        text = line.strip()
        if text.startswith("Reason: "):
            ad["Reason"] = text.removeprefix("Reason: ")
        elif requeued and text and not _EVICTION_LINE.match(text):
            ad["Reason"] = text
    return ad


def _image_size(head: str, lines: list[str]) -> Ad:
    ad = _usages(lines)
    size = _after(head, "updated: ")
    if size and size.lstrip("-").isdigit():
        ad["Size"] = int(size)
    return ad


def _shadow_exception(head: str, lines: list[str]) -> Ad:
    ad = _usages(lines)
    if lines and not _NUMBER_LINE.match(lines[0]):
        _put(ad, "Message", lines[0].strip())
    return ad


def _generic(head: str, lines: list[str]) -> Ad:
    return {"Info": head} if head else {}


def _with_reason(head: str, lines: list[str]) -> Ad:
    ad: Ad = {}
    _put(ad, "Reason", _reason(lines))
    return ad


def _suspended(head: str, lines: list[str]) -> Ad:
    match = re.search(r"actually suspended: (-?\d+)", "\n".join(lines))
    return {"NumberOfPIDs": int(match[1])} if match else {}


def _held(head: str, lines: list[str]) -> Ad:
    ad: Ad = {}
    body = [line for line in lines if not _codes(ad, line, "HoldReasonCode", "HoldReasonSubCode")]
    reason = _reason(body)
    # HTCondor writes this if it has no reason, and reads it back as none.
    _put(ad, "HoldReason", "" if reason == "Reason unspecified" else reason)
    return ad


def _post_script(head: str, lines: list[str]) -> Ad:
    ad: Ad = {}
    _termination(ad, lines)
    for line in lines:
        if line.strip().startswith("DAG Node: "):
            ad["DAGNodeName"] = line.split("DAG Node: ", 1)[1].strip()
    return ad


def _remote_error(head: str, lines: list[str]) -> Ad:
    ad: Ad = {}
    match = re.match(r"(Error|Warning) from (\S+) on (.*?):?\s*$", head)
    if match:
        ad["Daemon"], ad["ExecuteHost"] = match[2], match[3]
        if match[1] == "Warning":
            ad["CriticalError"] = False
    body = [line for line in lines if not _codes(ad, line, "HoldReasonCode", "HoldReasonSubCode")]
    _put(ad, "ErrorMsg", _reason(body))
    return ad


def _disconnected(head: str, lines: list[str]) -> Ad:
    ad: Ad = {"EventDescription": head.strip()}
    reasons = []
    for line in lines:
        text = line.strip()
        if match := re.match(r"(?:Trying to|Can not) reconnect to (\S+)(?: (<.*>))?", text):
            ad["StartdName"] = match[1].rstrip(",")
            _put(ad, "StartdAddr", match[2])
        elif text.startswith("Can not reconnect"):
            ad["NoReconnectReason"] = text
        elif text:
            reasons.append(text)
    _put(ad, "DisconnectReason", "\n".join(reasons))
    return ad


def _reconnected(head: str, lines: list[str]) -> Ad:
    ad: Ad = {"EventDescription": "Job reconnected"}
    _put(ad, "StartdName", _after(head, "reconnected to "))
    for line in lines:
        text = line.strip()
        for words, name in (
            ("startd address: ", "StartdAddr"),
            ("starter address: ", "StarterAddr"),
        ):
            if text.startswith(words):
                ad[name] = text.removeprefix(words)
    return ad


def _reconnect_failed(head: str, lines: list[str]) -> Ad:
    ad: Ad = {"EventDescription": "Job reconnect impossible: rescheduling job"}
    for line in lines:
        text = line.strip()
        if match := re.match(r"Can not reconnect to (\S+), rescheduling", text):
            ad["StartdName"] = match[1]
        elif text and "Reason" not in ad:
            ad["Reason"] = text
    return ad


def _labelled(**names: str) -> Callable[[str, list[str]], Ad]:
    """Return a parser for bodies of `Label: value` lines."""
    wanted = {label.replace("_", "-"): name for label, name in names.items()}

    def parse(head: str, lines: list[str]) -> Ad:
        ad: Ad = {}
        for line in lines:
            label, colon, value = line.strip().partition(": ")
            if colon and label in wanted:
                _put(ad, wanted[label], value.strip())
        return ad

    return parse


def _job_ad(head: str, lines: list[str]) -> Ad:
    pairs = filter(None, map(assignment, lines))
    return {name: value for name, value in pairs if name not in HEADER_ATTRIBUTES}


def _attribute_update(head: str, lines: list[str]) -> Ad:
    ad: Ad = {}
    changed = re.match(r"Changing job attribute (\S+) from (.*) to (.*)$", head)
    if changed:
        ad["Attribute"], ad["PriorValue"], ad["Value"] = changed.groups()
    elif match := re.match(r"Setting job attribute (\S+) to (.*)$", head):
        ad["Attribute"], ad["Value"] = match.groups()
    return ad


def _cluster_remove(head: str, lines: list[str]) -> Ad:
    ad: Ad = {}
    text = "\n".join(line.strip() for line in lines)
    if match := re.search(r"Materialized (\d+) jobs from (\d+) items", text):
        ad["NextProcId"], ad["NextRow"] = int(match[1]), int(match[2])
    _put(ad, "Notes", text)
    return ad


def _factory(head: str, lines: list[str]) -> Ad:
    ad: Ad = {}
    words = []
    for line in lines:
        text = line.strip()
        if match := re.match(r"(PauseCode|HoldCode) (-?\d+)$", text):
            ad[match[1]] = int(match[2])
        elif text:
            words.append(text)
    _put(ad, "Reason", "\n".join(words))
    return ad


def _transfer(head: str, lines: list[str]) -> Ad:
    ad: Ad = {}
    if head.strip() in TRANSFER_TYPES:
        ad["Type"] = TRANSFER_TYPES[head.strip()]
    for line in lines:
        if match := re.match(r"\s*Transferring (?:to|from) host: (.*)$", line):
            ad["Host"] = match[1].strip()
        elif match := re.match(r"\s*Seconds spent in queue: (\d+)", line):
            ad["QueueingDelay"] = int(match[1])
    return ad


_PARSERS: dict[int, Callable[[str, list[str]], Ad]] = {
    0: _submit,
    1: _execute,
    2: _executable_error,
    3: lambda head, lines: _usages(lines),
    4: _evicted,
    5: _terminated,
    6: _image_size,
    7: _shadow_exception,
    8: _generic,
    9: _with_reason,
    10: _suspended,
    12: _held,
    13: _with_reason,
    14: _node_execute,
    15: _node_terminated,
    16: _post_script,
    17: _labelled(RM_Contact="RMContact", JM_Contact="JMContact", Can_Restart_JM="RestartableJM"),
    18: _labelled(Reason="Reason"),
    19: _labelled(RM_Contact="RMContact"),
    20: _labelled(RM_Contact="RMContact"),
    21: _remote_error,
    22: _disconnected,
    23: _reconnected,
    24: _reconnect_failed,
    25: _labelled(GridResource="GridResource"),
    26: _labelled(GridResource="GridResource"),
    27: _labelled(GridResource="GridResource", GridJobId="GridJobId"),
    28: _job_ad,
    33: _attribute_update,
    34: _with_reason,
    35: _submit,
    36: _cluster_remove,
    37: _factory,
    38: _factory,
    40: _transfer,
    46: _with_reason,
}
