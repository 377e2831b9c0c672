"""The same fault is the same family, whatever version of HTCondor words it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from condor_advice.preprocess.holds.reason_coverage import measure
from condor_advice.preprocess.holds.templates import FAMILIES, TEMPLATE_BUCKETS, parse_reason

MEMORY = [
    (21, 102, "Error from slot1_1@ep1@host.example.org: memory usage exceeded request_memory"),
    (
        21,
        1001,
        "Error from slot1_9@e7.example.org: Policy violation. Memory limit exceeded: "
        "requested 1000MB, used 1576MB.",
    ),
    (26, 0, "The job's memory usage of 3000 MB exceeds its request of 2048 MB"),
    (
        34,
        0,
        "Error from slot1_7@e28.example.org: Job has gone over memory limit of 3072 "
        "megabytes. Peak usage: 3080 megabytes.",
    ),
    (
        34,
        102,
        "Error from slot1_7@e28.example.org: Job has gone over cgroup memory limit of 128 "
        "megabytes. Last measured usage: 5 megabytes.  Consider resubmitting with a higher "
        "request_memory.",
    ),
]
OUTPUT_MISSING = [
    (
        13,
        2,
        "Error from slot1@a.example.org: STARTER at 10.0.0.2 failed to send file(s) to "
        "<10.0.0.1:9618>: error reading from /var/lib/condor/execute/dir_9/out put.dat: (errno 2) "
        "No such file or directory; SHADOW failed to receive file(s) from <10.0.0.2:27308>",
    ),
    (
        12,
        2,
        "Transfer output files failure at execution point slot1_7@b.example.org while "
        "sending files to access point ap7. Details: 1 total failures: first failure: reading from "
        "file /scratch/dir_26290/never.out: (errno 2) No such file or directory",
    ),
]
INPUT_MISSING = [
    (
        13,
        2,
        "Error from slot1@a.example.org: SHADOW at 10.0.0.1 failed to send file(s) to "
        "<10.0.0.2:38171>: error reading from /home/anna/in.tar: (errno 2) No such file or "
        "directory; STARTER failed to receive file(s) from <10.0.0.1:9618>",
    ),
    (
        13,
        2,
        "Transfer input files failure at access point ap2001 while sending files to "
        "execution point slot1_2@c.example.org. Details: reading from file /home/anna/in.tar: "
        "(errno 2) No such file or directory",
    ),
]


@pytest.mark.parametrize(
    ("family", "reasons"),
    [("memory", MEMORY), ("output_missing", OUTPUT_MISSING), ("input_missing", INPUT_MISSING)],
)
def test_old_and_new_wordings_and_codes_are_one_family(
    family: str, reasons: list[tuple[int, int, str]]
) -> None:
    assert {parse_reason(text, code, sub).family for code, sub, text in reasons} == {family}


@pytest.mark.parametrize(
    ("family", "code", "subcode", "text"),
    [
        (
            "exec_missing",
            6,
            2,
            "Error from slot1@h.example.org: Failed to execute '/home/a/b c.sh' "
            "with arguments 1 2: (errno=2: 'No such file or directory')",
        ),
        (
            "exec_format",
            6,
            8,
            "Error from slot1@h: Failed to execute '/x/y': (errno=8: 'Exec format error')",
        ),
        (
            "url",
            13,
            256,
            "Transfer input files failure at execution point slot1_1@h using protocol "
            "http. Details: The requested URL returned error: 503 ( URL file = http://x.org/a )|",
        ),
        (
            "credential",
            13,
            256,
            "Transfer input files failure at execution point slot1_1@h using "
            "protocol http. Details: The requested URL returned error: 403 "
            "( URL file = http://x.org/a )",
        ),
        (
            "no_space",
            13,
            28,
            "Transfer input files failure at execution point slot1_1@h while "
            "receiving files from access point ap. Details: writing to file /x: (errno 28) "
            "No space left on device",
        ),
        (
            "working_directory",
            14,
            2,
            "Cannot access initial working directory /home/a/b: No such file or directory",
        ),
        ("duration", 47, 0, "The job exceeded allowed execute duration of 20:00:00"),
        (
            "job_policy",
            3,
            0,
            "The job attribute PeriodicHold expression 'NumJobStarts > 3' evaluated to TRUE",
        ),
        (
            "exit_status",
            3,
            0,
            "The job attribute OnExitHold expression 'ExitCode =!= 0' evaluated to TRUE",
        ),
        ("disk", 34, 104, "Error from slot1@h: disk usage exceeded allocated disk"),
        ("user", 1, 0, "via condor_hold (by user anna)"),
        ("unspecified", None, None, ""),
        ("other", 99, 0, "something new"),
    ],
)
def test_families_of_common_reasons(
    family: str, code: int | None, subcode: int | None, text: str
) -> None:
    assert parse_reason(text, code, subcode).family == family


def test_variables_are_taken_out_and_numbers_become_values() -> None:
    reason = parse_reason(MEMORY[1][2], 21, 1001)
    assert reason.template == (
        "Policy violation. Memory limit exceeded: requested <number>MB, used <number>MB."
    )
    assert (reason.used_mb, reason.limit_mb, reason.point) == (1576, 1000, "slot1_9@e7.example.org")
    used = parse_reason("memory usage of 2.5 GB exceeds the request of 1024 MB", 26, 0)
    assert (used.used_mb, used.limit_mb) == (2560, 1024)
    url = parse_reason("The requested URL returned error: 503 ( URL file = http://a/b )", 13, 256)
    assert url.http_status == 503
    assert "503" in url.template
    assert ("url", "http://a/b") in url.variables


def test_an_errno_of_any_length_is_read_or_left_out() -> None:
    """Anybody can write a hold reason; one must not stop the pass over everybody's holds."""
    assert parse_reason("x (errno 2) y", 13, 2).errno == 2
    for digits in (400, 5000):
        assert parse_reason(f"x (errno {'9' * digits}) y", 13, 2).errno is None


def test_templates_do_not_depend_on_who_where_and_how_much() -> None:
    found = defaultdict(set)
    for number in range(50):
        for code, subcode, text in (*MEMORY, *INPUT_MISSING, *OUTPUT_MISSING):
            text = text.replace("anna", f"user{number}").replace("1576", str(2000 + number))
            text = text.replace("slot1_7", f"slot2_{number}").replace("10.0.0", f"10.{number}.0")
            text = text.replace("example.org", f"site{number}.edu")
            text = text.replace("dir_9", f"dir_{number}")
            found[code, subcode, text.split()[0]].add(parse_reason(text, code, subcode).template)
    sizes = {key: len(templates) for key, templates in found.items()}
    assert max(sizes.values()) <= 3, sizes


def test_the_bucket_of_a_template_is_the_same_everywhere() -> None:
    reason = parse_reason(MEMORY[0][2], 21, 102)
    assert reason.template == "memory usage exceeded request_memory"
    assert reason.template_id == 355909761
    assert 1 <= reason.bucket < TEMPLATE_BUCKETS
    assert parse_reason("", None, None).bucket == 0
    assert len(set(FAMILIES)) == len(FAMILIES)


def test_no_hold_of_the_pool_samples_is_without_a_family(shared: Path) -> None:
    found = measure(p for p in sorted((shared / "pool" / "samples").glob("*.log")))
    assert found["holds"] > 10
    assert found["unassigned"] == 0
    assert found["templates"] <= found["texts"]
