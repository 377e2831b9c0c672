"""Recordings of lab runs: write, scrub, pack and unpack them.

A recording holds `events/EventLog` with its rotations, `userlogs/`, `jobs.jsonl` (the last
ad of each job), `epochs.jsonl` (one ad for each run of a job), `truth.jsonl` and
`manifest.json`. A packed recording is one `.tar.xz`; those shipped are in `recordings/`, with
one manifest for all.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import re
import socket
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from condor_advice.gather.errors import AdviceError
from condor_advice.lab.truth import (
    HOLD_OUTCOMES,
    JobKey,
    LoggedHold,
    Truth,
    in_order,
    mark_struck,
    read_holds,
    read_truth,
    tabulate,
    utc,
    write_truth,
)

if TYPE_CHECKING:
    from condor_advice.lab.run import LabSettings
    from condor_advice.lab.world import LabWorld

SHIPPED_RECORDINGS = Path(__file__).with_name("recordings")

# Attributes that describe this machine, not the job, or are long and of no use.
_DROPPED = re.compile(
    r"^(Environment|Env|CondorPlatform|StarterIpAddr|StartdIpAddr|RemoteSlotID|PublicClaimId"
    r"|.*ClaimIds?|CoreSize|UserLog|.*IpAddr|LastRemotePool|AutoCluster.*|.*_RAW|Recent.*"
    r"|Block(Read|Write).*|Stats.*|StartdPrincipal|ServerTime|Requirements|TargetType|Stream.*"
    r"|LeaveJobInQueue|CommittedS.*|Num(Ckpts|Restarts)|OrigMaxHosts|M(in|ax)Hosts)$"
)


class RecordingError(AdviceError):
    """A recording cannot be used, or may not be shipped."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A finished run."""

    directory: Path
    manifest: Mapping[str, Any]

    def table(self) -> str:
        """Return the table of scenarios and outcomes as text."""
        return format_table(self.manifest["episodes_by_scenario"])


def format_table(table: Mapping[str, Mapping[str, int]]) -> str:
    """Format a table with a row per scenario and a column per outcome."""
    width = max([len(name) for name in table] + [8])
    heads = [outcome.replace("NEVER_RELEASED", "NEVER_REL") for outcome in HOLD_OUTCOMES]
    lines = [" ".join([f"{'scenario':{width}}", *(f"{head:>10}" for head in heads), f"{'all':>6}"])]
    total: Counter[str] = Counter()
    for name, counts in table.items():
        total.update(counts)
        lines.append(
            " ".join(
                [
                    f"{name:{width}}",
                    *(f"{counts.get(o, 0):10d}" for o in HOLD_OUTCOMES),
                    f"{sum(counts.values()):6d}",
                ]
            )
        )
    lines.append(
        " ".join(
            [
                f"{'all':{width}}",
                *(f"{total[o]:10d}" for o in HOLD_OUTCOMES),
                f"{sum(total.values()):6d}",
            ]
        )
    )
    return "\n".join(lines)


def leave_recording(
    out: Path,
    work: Path,
    release: Path,
    truths: list[Truth],
    ads: list[dict[str, Any]],
    epochs: list[dict[str, Any]],
    world: LabWorld,
    settings: LabSettings,
    version: str,
) -> Recording:
    """Copy what the pool wrote to `out`, scrubbed, and write the manifest."""
    scrub = Scrubber(work, release)
    (out / "events").mkdir()
    logs = []
    for path in in_order(work / "pool" / "events" / "EventLog"):
        copy = out / "events" / path.name
        copy.write_text(scrub(path.read_text(errors="replace")))
        logs.append(copy)
    (out / "userlogs").mkdir()
    for path in sorted([*(work / "home").rglob("*.log"), *world.spool.rglob("*.log")]):
        if path.stat().st_size and not path.name.endswith((".dagman.log", "job_queue.log")):
            name = "-".join(path.relative_to(work).parts[1:])
            (out / "userlogs" / name).write_text(scrub(path.read_text(errors="replace")))
    _write_ads(out / "jobs.jsonl", ads, scrub)
    _write_ads(out / "epochs.jsonl", epochs, scrub)

    rows = {(row.cluster, row.proc): row for row in truths}
    holds = read_holds(logs)
    projects = {(ad["ClusterId"], ad["ProcId"]): str(ad.get("ProjectName", "")) for ad in ads}
    mark_struck(rows, holds, [*world.troubles, *world.over_share], projects)
    write_truth(out / "truth.jsonl", rows.values())
    manifest = {
        "htcondor": version,
        "settings": asdict(settings),
        "execution_points": {point.name: point.personality for point in world.points},
        "troubles": [
            {"where": t.point, "what": t.kind, "since": utc(t.since), "until": utc(t.until)}
            for t in [*world.troubles, *world.over_share]
        ],
        **_counts(logs, rows, holds),
    }
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return Recording(out, manifest)


def _counts(
    logs: Sequence[Path], rows: dict[JobKey, Truth], holds: Sequence[LoggedHold]
) -> dict[str, Any]:
    """Return what the manifest says about the content of a recording."""
    return {
        "jobs": len(rows),
        "events": _count_events(logs),
        "episodes": len(holds),
        "episodes_by_code": dict(Counter(f"{h.code}/{h.subcode}" for h in holds).most_common()),
        "episodes_by_scenario": {
            name: dict(counts) for name, counts in tabulate(holds, rows).items()
        },
    }


def thin(directory: Path, out: Path, share: float, seed: int) -> Recording:
    """Write a recording of some of the programs, drawn without a look at their outcomes.

    A program is an owner and the name of an executable. All clusters of a program stay or go,
    over the whole length of the recording, so that no outcome is cut off.
    """
    program_of = {}
    for line in (directory / "jobs.jsonl").read_text().splitlines():
        ad = json.loads(line)
        program_of[ad["ClusterId"]] = (ad["Owner"], Path(ad["Cmd"]).name)
    programs = sorted(set(program_of.values()))
    chosen = set(Random(f"{seed}/thin").sample(programs, k=round(share * len(programs))))
    kept = {cluster for cluster, program in program_of.items() if program in chosen}

    (out / "events").mkdir(parents=True)
    (out / "userlogs").mkdir()
    logs = []
    for path in in_order(directory / "events" / "EventLog"):
        copy = out / "events" / path.name
        copy.write_text("".join(_events_of(path.read_text(), kept)))
        logs.append(copy)
    for path in sorted((directory / "userlogs").iterdir()):
        if text := "".join(_events_of(path.read_text(), kept)):
            (out / "userlogs" / path.name).write_text(text)
    for name in ("jobs.jsonl", "epochs.jsonl"):
        lines = (directory / name).read_text().splitlines(keepends=True)
        (out / name).write_text(
            "".join(line for line in lines if json.loads(line)["ClusterId"] in kept)
        )
    rows = {
        job: row for job, row in read_truth(directory / "truth.jsonl").items() if job[0] in kept
    }
    write_truth(out / "truth.jsonl", rows.values())
    manifest = {
        **json.loads((directory / "manifest.json").read_text()),
        "thinned": {"programs": len(chosen), "of": len(programs), "seed": seed},
        **_counts(logs, rows, read_holds(logs)),
    }
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return Recording(out, manifest)


def _events_of(text: str, clusters: set[int]) -> Iterator[str]:
    """Yield the events of these clusters, and those of no job, as they stand in a log."""
    for event in re.split(r"(?<=^\.\.\.\n)", text, flags=re.MULTILINE):
        if not event:
            continue
        cluster = re.match(r"\d{3} \((-?\d+)\.", event)
        if cluster is None or int(cluster[1]) <= 0 or int(cluster[1]) in clusters:
            yield event


def _write_ads(path: Path, ads: Iterable[dict[str, Any]], scrub: Scrubber) -> None:
    with path.open("w") as file:
        for ad in ads:
            kept = {key: value for key, value in sorted(ad.items()) if not _DROPPED.match(key)}
            file.write(scrub(json.dumps(kept)) + "\n")


def _count_events(logs: Iterable[Path]) -> dict[str, int]:
    header = re.compile(r"^(\d{3}) \(-?\d+\.-?\d+\.-?\d+\) ", re.MULTILINE)
    counts: Counter[str] = Counter()
    for path in logs:
        counts.update(header.findall(path.read_text()))
    return dict(sorted(counts.items()))


class Scrubber:
    """Replaces this machine's names and paths in a text by those of an access point."""

    def __init__(self, work: Path, release: Path) -> None:
        roots = {
            str(work / "home"): "/home",
            str(work / "pool"): "/var/lib/condor",
            str(work / "points"): "/srv/points",
            str(work / "soft"): "/srv/soft",
            str(work): "/srv/lab",
            str(release): "/usr",
        }
        self._words = [
            (re.compile(re.escape(old) + r"(?![\w.-])"), new) for old, new in roots.items()
        ]
        # The account that root's daemons borrow; see pool.py.
        self._words.append((re.compile(r"\b(games|daemon|root)(?=@|\"|\)|$)"), "condor"))
        host = socket.gethostname()
        self._words.append((re.compile(rf"\b{re.escape(host)}\b"), "ap.example.org"))

    def __call__(self, text: str) -> str:
        """Return the scrubbed text."""
        for pattern, new in self._words:
            text = pattern.sub(new, text)
        return text


def traces_of_this_machine(text: str, work: Path | None = None) -> list[str]:
    """Return words in the text that identify this machine or its user."""
    words = [socket.gethostname(), "/tmp/", "/root", str(Path.home()), os.getcwd()]
    words += [str(work)] if work else []
    return sorted({word for word in words if len(word) > 3 and word in text})


def pack(directory: Path, target: Path) -> None:
    """Write a recording as one reproducible .tar.xz."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        # The user logs repeat the global log; the dictionary below spans them all, so the
        # second copy costs next to nothing.
        for path in sorted(p for p in directory.rglob("*") if p.is_file()):
            text = path.read_text()
            if traces := traces_of_this_machine(text):
                raise RecordingError(
                    f"{path}: contains {', '.join(traces)}; scrub it before you ship it"
                )
            info = tarfile.TarInfo(f"{target.name.split('.')[0]}/{path.relative_to(directory)}")
            data = text.encode()
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    # In text the next byte depends on the bytes before it, not on its position.
    text_only = {"preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 27, **text_only}]
    target.write_bytes(lzma.compress(buffer.getvalue(), lzma.FORMAT_XZ, filters=filters))


def ship(directory: Path, name: str, use: str, into: Path = SHIPPED_RECORDINGS) -> dict[str, Any]:
    """Pack a recording beside the others, add it to their manifest and return its entry."""
    target = into / f"{name}.tar.xz"
    into.mkdir(parents=True, exist_ok=True)
    pack(directory, target)
    entry = {
        "use": use,
        "sha256": hashlib.sha256(target.read_bytes()).hexdigest(),
        "bytes": target.stat().st_size,
        **json.loads((directory / "manifest.json").read_text()),
    }
    entry.pop("troubles", None)  # long, and in the recording itself
    path = into / "manifest.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**known, name: entry}, indent=1, sort_keys=True) + "\n")
    return entry


def shipped() -> dict[str, dict[str, Any]]:
    """Return the manifest entries of the recordings in the package, by name."""
    path = SHIPPED_RECORDINGS / "manifest.json"
    entries: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    return entries


def unpack(name: str, into: Path) -> Path:
    """Check a shipped recording, unpack it below `into` and return its directory."""
    known = shipped()
    if name not in known:
        raise RecordingError(f"no recording named {name!r}; choose from {', '.join(known)}")
    data = (SHIPPED_RECORDINGS / f"{name}.tar.xz").read_bytes()
    if hashlib.sha256(data).hexdigest() != known[name]["sha256"]:
        raise RecordingError(
            f"{SHIPPED_RECORDINGS / name}.tar.xz is damaged: its checksum is not that in the "
            "manifest; download it again"
        )
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:xz") as tar:
        tar.extractall(into, filter="data")
    _date(into / name)
    return into / name


def _date(directory: Path) -> None:
    """Date a recording's files by its end: readers take the year of a log from there."""
    with (directory / "jobs.jsonl").open() as ads:
        ended = max(json.loads(ad)["EnteredCurrentStatus"] for ad in ads)
    for path in directory.rglob("*"):
        os.utime(path, (ended, ended))
