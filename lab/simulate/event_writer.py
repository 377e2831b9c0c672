"""Job events in the layout of HTCondor's user log, written in the order of time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import BinaryIO

import numpy as np

from condor_advice.lab.simulate.population import DAY, HOUR, Cluster, Machine
from condor_advice.lab.simulate.profile import LogSettings


class Stamps:
    """Turn Unix times into the log's dates; each date is formatted once."""

    def __init__(self, iso: bool) -> None:
        self._format = "%Y-%m-%d" if iso else "%m/%d"
        # A table of all seconds of a day is faster than formatting each.
        self._clock = [f"{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}" for s in range(DAY)]
        self._days: dict[int, str] = {}

    def __call__(self, when: int) -> str:
        """Return the date and time as the log writes them."""
        day, second = divmod(when, DAY)
        if day not in self._days:
            self._days[day] = datetime.fromtimestamp(day * DAY, UTC).strftime(self._format)
        return f"{self._days[day]} {self._clock[second]}"


class SortedLog:
    """One access point's event log. Events wait here until nothing earlier can follow."""

    def __init__(self, file: BinaryIO, settings: LogSettings, address: str) -> None:
        self.address, self.ad_information = address, settings.ad_information
        self.stamps = Stamps(settings.iso_dates)
        self.events = self.bytes = 0
        self._file = file
        self._times: list[int] = []
        self._texts: list[str] = []

    def header(self, when: int, creator: str) -> None:
        """Write the 008 event that opens a global event log."""
        text = (
            f"008 (-01.-01.-01) {self.stamps(when)} Global JobLog: ctime={when} "
            f"id=1.1201.{when}.0.1.{when}.0 sequence=1 size=0 events=0 offset=0 "
            f"event_off=0 max_rotation=1 creator_name=<{creator}>"
        )
        self.add(when, text.ljust(255) + "\n...\n", 1)

    def add(self, when: int, text: str, events: int) -> None:
        """Add the text of one or more events of one moment."""
        self._times.append(when)
        self._texts.append(text)
        self.events += events

    def flush(self, before: int | None) -> None:
        """Write all events earlier than `before`, or all when it is None."""
        times = np.asarray(self._times, dtype=np.int64)
        order = np.argsort(times, kind="stable")
        ready = len(times) if before is None else int(np.searchsorted(times[order], before))
        texts = self._texts
        data = "".join([texts[i] for i in order[:ready].tolist()]).encode()
        self._file.write(data)
        self.bytes += len(data)
        kept = order[ready:].tolist()
        self._times = [self._times[i] for i in kept]
        self._texts = [texts[i] for i in kept]


class EventWriter:
    """Write the events of one job in the layout of HTCondor's user log."""

    __slots__ = ("cluster", "holds", "job", "log", "proc", "slot", "starts")

    def __init__(self, log: SortedLog, cluster: Cluster, proc: int) -> None:
        self.log, self.cluster, self.proc = log, cluster, proc
        self.job = f"({cluster.number:03d}.{proc:03d}.000)"
        self.starts = self.holds = 0
        self.slot = ""

    def _write(self, when: int, *events: tuple[int, str]) -> None:
        """Write events of one moment together: fewer texts to sort, the same order."""
        stamp = self.log.stamps(when)
        ads = self.log.ad_information
        text = ""
        for kind, body in events:
            text += f"{kind:03d} {self.job} {stamp} {body}\n...\n"
            if ads:
                text += self._ad(kind, when, stamp)
        self.log.add(when, text, len(events) * (1 + ads))

    def _ad(self, kind: int, when: int, stamp: str) -> str:
        """Return the 028 event that EVENT_LOG_JOB_AD_INFORMATION_ATTRS adds after each event."""
        name, mine = _EVENT_NAMES[kind]
        moment = datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
        holds = f"NumHolds = {self.holds}\n" if self.holds else ""
        return (
            f"028 {self.job} {stamp} Job ad information event triggered.\n"
            f'Cluster = {self.cluster.number}\nEventTime = "{moment}"\nEventTypeNumber = 28\n'
            f'MyType = "{mine}"\n{holds}NumJobStarts = {self.starts}\n'
            f'Owner = "{self.cluster.user.name}"\nProc = {self.proc}\n'
            f"RequestDisk = {self.cluster.disk}\nRequestMemory = {self.cluster.memory}\n"
            f'Subproc = 0\nTriggerEventTypeName = "{name}"\nTriggerEventTypeNumber = {kind}'
            "\n...\n"
        )

    def submitted(self, when: int) -> None:
        """Write 000."""
        self._write(
            when,
            (
                0,
                f"Job submitted from host: {self.log.address}\n"
                f'    [ JobBatchName = "{self.cluster.batch}" ]',
            ),
        )

    def _transfer_begins(self, when: int, host: Machine, slot: int) -> None:
        self.slot = f"slot1_{slot}@{host.name}"
        self._write(
            when,
            (
                40,
                "Started transferring input files\n\tTransferring to host: "
                f"<{host.ip}:9618?addrs={host.ip}-9618&alias={host.name}&noUDP&"
                f"sock=slot1_{slot}_8021_{slot:04x}>",
            ),
        )

    def transfers_in(self, when: int, host: Machine, slot: int) -> None:
        """Write an input transfer after which the job does not start."""
        self._transfer_begins(when, host, slot)
        self._write(when + 1, (40, "Finished transferring input files"))

    def started(self, when: int, host: Machine, slot: int) -> None:
        """Write the input transfer and 001."""
        self._transfer_begins(when, host, slot)
        cluster = self.cluster
        self._write(
            when + 1,
            (40, "Finished transferring input files"),
            (
                1,
                f"Job executing on host: {host.address}\n\tSlotName: {self.slot}\n"
                f'\tCondorScratchDir = "/var/lib/condor/execute/dir_{when % 58000 + 2000}"\n'
                f"\tCpus = 1\n\tDisk = {cluster.disk}\n\tGPUs = 0\n\tMemory = "
                f"{cluster.memory}",
            ),
        )
        self.starts += 1

    def image_size(self, when: int, used: int) -> None:
        """Write 006: memory used, in MB."""
        self._write(
            when,
            (
                6,
                f"Image size of job updated: {used * 1100}\n\t{used}  -  "
                f"MemoryUsage of job (MB)\n\t{used * 1021}  -  ResidentSetSize "
                "of job (KB)",
            ),
        )

    def transfers_out(self, when: int) -> None:
        """Write the output transfer, as two 040 events."""
        self._write(
            when,
            (40, "Started transferring output files"),
            (40, "Finished transferring output files"),
        )

    def finished(self, when: int, run: int, used: int, exit_text: str) -> None:
        """Write the output transfer and 005."""
        self.transfers_out(when - 1)
        cpu = _cpu(int(run * 0.93))
        cluster = self.cluster
        sent, received = 1000 + run % 9000, 4000 + used * 7
        self._write(
            when,
            (
                5,
                (
                    f"Job terminated.\n\t{exit_text}\n\t\t{cpu}  -  Run Remote Usage\n"
                    f"\t\t{_NO_CPU}  -  Run Local Usage\n\t\t{cpu}  -  Total Remote Usage\n"
                    f"\t\t{_NO_CPU}  -  Total Local Usage\n"
                    f"\t{sent}  -  Run Bytes Sent By Job\n"
                    f"\t{received}  -  Run Bytes Received By Job\n"
                    f"\t{sent}  -  Total Bytes Sent By Job\n"
                    f"\t{received * self.starts}  -  Total Bytes Received By Job\n"
                    f"{_resources(cluster, used, decimals=True)}\n"
                    f"\t   TimeExecute (s)      : {_usage(cluster, run, True)}{_NO_CELLS}\n"
                    f"\t   TimeSlotBusy (s)     : {_usage(cluster, run + 2, True)}{_NO_CELLS}"
                ),
            ),
        )

    def evicted(self, when: int, code: int, subcode: int, reason: str, used: int) -> None:
        """Write 004."""
        self._write(
            when,
            (
                4,
                (
                    f"Job was evicted. Code {code} Subcode {subcode}\n\t(0) CPU times\n"
                    f"\t\t{_NO_CPU}  -  Run Remote Usage\n\t\t{_NO_CPU}  -  Run Local Usage\n"
                    "\t0  -  Run Bytes Sent By Job\n\t0  -  Run Bytes Received By Job\n"
                    f"\tReason: {reason}\n{_resources(self.cluster, used, decimals=False)}"
                ),
            ),
        )

    def remote_error(self, when: int, slot: object, text: str, code: int, subcode: int) -> None:
        """Write 021."""
        self._write(
            when, (21, f"Error from starter on {slot}:\n\t{text}\n\tCode {code} Subcode {subcode}")
        )

    def held(self, when: int, reason: str, code: int, subcode: int) -> None:
        """Write 012."""
        self.holds += 1
        self._write(when, (12, f"Job was held.\n\t{reason}\n\tCode {code} Subcode {subcode}"))

    def released(self, when: int, reason: str) -> None:
        """Write 013."""
        self._write(when, (13, f"Job was released.\n\t{reason}"))

    def aborted(self, when: int, reason: str) -> None:
        """Write 009."""
        self._write(when, (9, f"Job was aborted.\n\t{reason}"))


_NO_CELLS = " " * 20  # times are neither requested nor allocated
_NO_CPU = "Usr 0 00:00:00, Sys 0 00:00:00"
_EVENT_NAMES = {
    0: ("ULOG_SUBMIT", "SubmitEvent"),
    1: ("ULOG_EXECUTE", "ExecuteEvent"),
    4: ("ULOG_JOB_EVICTED", "JobEvictedEvent"),
    5: ("ULOG_JOB_TERMINATED", "JobTerminatedEvent"),
    6: ("ULOG_IMAGE_SIZE", "JobImageSizeEvent"),
    9: ("ULOG_JOB_ABORTED", "JobAbortedEvent"),
    12: ("ULOG_JOB_HELD", "JobHeldEvent"),
    13: ("ULOG_JOB_RELEASED", "JobReleaseEvent"),
    21: ("ULOG_REMOTE_ERROR", "RemoteErrorEvent"),
    40: ("ULOG_FILE_TRANSFER", "FileTransferEvent"),
}


def _cpu(seconds: int) -> str:
    days, rest = divmod(seconds, DAY)
    hours, rest = divmod(rest, HOUR)
    return f"Usr {days} {hours:02d}:{rest // 60:02d}:{rest % 60:02d}, Sys 0 00:00:{rest % 50:02d}"


def _usage(cluster: Cluster, number: int, decimals: bool) -> str:
    """Format a whole number for the usage column.

    HTCondor aligns that column on the decimal point as soon as one number in it has
    decimals, and widens it for a number that does not fit; the disk is always the longest.
    """
    wide = max(8, len(str(cluster.disk // 9)) + 3 * decimals)
    return f"{number:>{wide - 3}}   " if decimals else f"{number:>{wide}}"


def _resources(cluster: Cluster, used: int, decimals: bool) -> str:
    """Return the table of usage, request and allocation that ends a run, without its times."""
    head = cluster.tables.get(decimals)
    if head is None:
        wide = len(_usage(cluster, 0, decimals))
        head = cluster.tables[decimals] = (
            f"\tPartitionable Resources : {'Usage':>{wide}}  Request Allocated \n"
            f"\t   Cpus                 : {'0.93' if decimals else '0':>{wide}} "
            f"       1         1 \n"
            f"\t   Disk (KB)            : {_usage(cluster, cluster.disk // 9, decimals)} "
            f"{cluster.disk:>8} {cluster.disk:>9} \n"
            f"\t   GPUs                 : {'':>{wide}}                  0 \n"
        )
    return (
        f"{head}\t   Memory (MB)          : {_usage(cluster, used, decimals)} "
        f"{cluster.memory:>8} {cluster.memory:>9} "
    )
