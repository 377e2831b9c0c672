"""Record the event logs beside this file on a real pool: `python tests/logs/record.py`.

Each case is submitted, the owner does what the case says, and the log is kept with the
machine's names and paths replaced. The recordings are committed; this is how to renew them.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from pathlib import Path

from condor_advice.gather.events import JobStatus
from condor_advice.lab.pool import EventLog, Pool

HERE = Path(__file__).parent
GROW = (
    "import time\nkept = []\nfor _ in range(40):\n"
    "    kept.append(bytearray(8 << 20))\n    time.sleep(0.2)\n"
)

# name -> submit description; held jobs stay held unless OWNER says otherwise.
CASES = {
    "completed": "executable = /bin/sleep\narguments = 1\nqueue 3",
    "exit_nonzero": "executable = /bin/sh\narguments = \"-c 'exit 3'\"\nqueue",
    "killed_by_signal": "executable = /bin/sh\narguments = \"-c 'kill -9 $$'\"\nqueue",
    "missing_input": "executable = /bin/sh\narguments = -c true\n"
    "transfer_input_files = inputs/run_17.dat\nqueue 4",
    "missing_output": "executable = /bin/true\ntransfer_output_files = result.h5\nqueue 3",
    "bad_interpreter": "executable = analyse.sh\nqueue",
    "exec_format": "executable = model.bin\nqueue",
    "no_initialdir": "executable = /bin/true\ninitialdir = gone\nqueue",
    "memory_exceeded": "executable = /usr/bin/python3\narguments = grow.py\n"
    "transfer_executable = false\ntransfer_input_files = grow.py\nrequest_memory = 64\n"
    "request_disk = 1G\nqueue 2",
    "disk_exceeded": "executable = /bin/sh\nrequest_disk = 4096\n"
    "arguments = \"-c 'head -c 40000000 /dev/zero > scratch.dat; sleep 20'\"\nqueue",
    "duration_exceeded": "executable = /bin/sleep\narguments = 60\n"
    "allowed_execute_duration = 2\nqueue",
    "periodic_hold": "executable = /bin/sleep\narguments = 60\n"
    "periodic_hold = JobStatus == 2 && time() - JobCurrentStartDate > 2\n"
    'periodic_hold_reason = "ran longer than its owner allows"\nqueue',
    "on_exit_hold": "executable = /bin/sh\narguments = \"-c 'exit 5'\"\n"
    'on_exit_hold = ExitCode =!= 0\non_exit_hold_reason = strcat("exit code ", ExitCode)\n'
    "queue 2",
    "held_by_owner": "executable = /bin/sleep\narguments = 60\nqueue",
    "submitted_on_hold": "executable = /bin/true\nhold = true\nqueue",
    "released_and_succeeded": "executable = /bin/cat\narguments = table.csv\n"
    "transfer_input_files = table.csv\nqueue 3",
    "released_and_held_again": "executable = /bin/true\ntransfer_output_files = never.dat\nqueue",
    "removed_while_held": "executable = /bin/true\ntransfer_input_files = nowhere.dat\nqueue",
    "removed_while_running": "executable = /bin/sleep\narguments = 60\nqueue",
    "evicted": "executable = /bin/sleep\narguments = 8\nqueue",
}
# Those of one analysis, so that the demo shows several reasons at once.
DEMO = (
    "completed", "missing_input", "missing_output", "memory_exceeded", "on_exit_hold",
    "bad_interpreter", "duration_exceeded", "held_by_owner", "released_and_succeeded",
    "released_and_held_again",
)  # fmt: skip
FORMATS = {
    "global_utc_subsecond": "ISO_DATE, UTC, SUB_SECOND",
    "global_no_year": "",
    "global_no_year_utc": "UTC",
    "global_json": "JSON",
    "global_json_utc": "JSON, UTC, SUB_SECOND",
    "global_xml": "XML",
}
ATTRIBUTES = ("Owner", "RequestMemory", "RequestDisk", "NumJobStarts", "NumHolds", "JobBatchName")


def main() -> None:
    """Record every case, then a few of them in every format of the global log."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        with Pool() as pool:
            prepare(work)
            clusters = {case: submit(pool, work, case) for case in CASES}
            play_owner(pool, work, clusters)
            settle(pool)
            for case in CASES:
                keep(pool, work, (work / f"{case}.log").read_text(), f"{case}.log")
            demo = [(work / f"{case}.log").read_text() for case in DEMO]
            keep(pool, work, merge(demo), "../../advise/demo.log")
    for name, options in FORMATS.items():
        record_format(name, options)


def prepare(work: Path) -> None:
    """Write the files that the cases need, and leave out those they miss."""
    (work / "analyse.sh").write_text("#!/opt/tools/bin/python9\nprint(1)\n")
    (work / "model.bin").write_bytes(b"\x7fELF-not-really\0\0\0")
    (work / "grow.py").write_text(GROW)
    (work / "gone").mkdir()
    for script in ("analyse.sh", "model.bin"):
        (work / script).chmod(0o755)


def submit(pool: Pool, work: Path, case: str) -> int:
    """Submit one case with a log of its own."""
    description = (
        f"log = {work / case}.log\nshould_transfer_files = YES\nbatch_name = survey\n"
        f"request_memory = 128\n{CASES[case]}"
    )
    cluster = pool.submit(description, cwd=work)
    if "initialdir = gone" in description:  # it must exist at submit time, and not later
        shutil.rmtree(work / "gone")
    return cluster


def play_owner(pool: Pool, work: Path, clusters: dict[str, int]) -> None:
    """Do what the owners of these jobs did."""
    pool.wait_for(clusters["released_and_succeeded"], JobStatus.HELD)
    (work / "table.csv").write_text("1,2,3\n")
    pool.run(["condor_release", str(clusters["released_and_succeeded"])])
    pool.wait_for(clusters["removed_while_running"], JobStatus.RUNNING)
    pool.run(["condor_rm", str(clusters["removed_while_running"])])
    pool.wait_for(clusters["held_by_owner"], JobStatus.RUNNING)
    pool.run(["condor_hold", str(clusters["held_by_owner"])])
    pool.wait_for(clusters["removed_while_held"], JobStatus.HELD)
    pool.run(["condor_rm", str(clusters["removed_while_held"])])
    pool.run(["condor_vacate_job", "-fast", str(clusters["evicted"])], check=False)
    pool.wait_for(clusters["released_and_held_again"], JobStatus.HELD)
    pool.run(["condor_release", str(clusters["released_and_held_again"])])
    pool.wait_for(clusters["submitted_on_hold"], JobStatus.HELD)
    pool.run(["condor_release", str(clusters["submitted_on_hold"])])


def settle(pool: Pool) -> None:
    """Wait until no job is idle or running any more."""
    deadline = time.monotonic() + 120
    busy = "JobStatus == 1 || JobStatus == 2"
    while pool.run(["condor_q", "-allusers", "-af", "ClusterId", "-constraint", busy]).stdout:
        if time.monotonic() > deadline:
            break
        time.sleep(1)


def record_format(name: str, options: str) -> None:
    """Record the global event log in one format."""
    log = EventLog(format_options=options, ad_attributes=ATTRIBUTES)
    with tempfile.TemporaryDirectory() as directory, Pool(event_log=log) as pool:
        work = Path(directory)
        prepare(work)
        for case in ("completed", "missing_input", "exit_nonzero", "on_exit_hold"):
            submit(pool, work, case)
        settle(pool)
        pool.run(["condor_rm", "-all"])
        time.sleep(2)
        keep(pool, work, pool.event_log.read_text(), f"{name}.log")


def merge(logs: list[str]) -> str:
    """Return the events of several logs in the order of their time."""
    events = [event for log in logs for event in log.split("\n...\n") if event.strip()]
    stamp = re.compile(r"\) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
    events.sort(key=lambda event: stamp.search(event)[1])  # type: ignore[index]
    return "".join(event + "\n...\n" for event in events)


def keep(pool: Pool, work: Path, text: str, name: str) -> None:
    """Write a log without this machine's names, users and paths."""
    replacements = {
        str(work): "/home/alice/survey",
        str(pool.directory): "/var/lib/condor",
        f"user {pool.account}": "user alice",
        f'"{pool.account}"': '"alice"',
        f">{pool.account}<": ">alice<",
    }
    for old, new in replacements.items():
        text = text.replace(old, new)
    (HERE / name).write_text(text)


if __name__ == "__main__":
    main()
