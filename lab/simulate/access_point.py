"""Simulate access points: users submit clusters, jobs run, are held, released and removed.

Users have habits and deadlines. Some clusters have a fault, execution points have bad hours,
file servers have outages. A held job waits for its owner, who acts on what the hold looks like.
The profile says how often things happen. Two controllers keep the share of held jobs and the
holds per held job at the profile's targets.

Clusters are simulated in the order of submission. Events later than the next submission wait
in memory, so the log is written in order in one pass, and memory does not grow with the
number of jobs.
"""

from __future__ import annotations

import bisect
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import BinaryIO

import numpy as np

from condor_advice.gather.errors import UsageError
from condor_advice.lab import names
from condor_advice.lab.simulate.event_writer import EventWriter, SortedLog
from condor_advice.lab.simulate.faults import BAD_MACHINE, FAULTS, Fault
from condor_advice.lab.simulate.population import (
    DAY,
    HOUR,
    Cluster,
    Machine,
    draw_machine,
    draw_user,
    draw_windows,
    mean_cluster_size,
)
from condor_advice.lab.simulate.profile import Profile
from condor_advice.lab.simulate.result import SimulationResult
from condor_advice.lab.truth import Truth, utc

_BLOCK_JOBS = 20_000


class SimulatedAccessPoint:
    """One access point: draws its clusters and writes its log."""

    def __init__(
        self,
        name: str,
        jobs: int,
        seed: int,
        profile: Profile,
        log: BinaryIO,
        write_truth: Callable[[str], object],
        result: SimulationResult,
    ) -> None:
        self.name, self.jobs, self.profile, self.result = name, jobs, profile, result
        self.shape, self.targets = profile.shape, profile.targets
        self.write_truth = write_truth
        self.rng = Random(f"{seed}/{name}")
        self.numpy = np.random.default_rng([seed, int(name[2:])])
        self.start = int(datetime.fromisoformat(self.shape.start).replace(tzinfo=UTC).timestamp())
        self.upgrade = self.start + self.shape.upgrade_after_days * DAY
        span = jobs / self.targets.jobs_per_day * DAY * 1.5 + 30 * DAY
        # Execution points and outages belong to the pool: all access points share them.
        world = Random(f"{seed}/world")
        self.hosts = [
            draw_machine(world, number, self.shape, self.start, span)
            for number in range(self.shape.execution_points)
        ]
        self.outages = draw_windows(
            world,
            self.start,
            span,
            7 * DAY / max(self.shape.outages_per_week, 1e-9),
            self.shape.outage_hours * HOUR,
        )
        self.outage_starts = [since for since, _ in self.outages]
        self.fault_names = list(profile.faults)
        weights = [profile.faults[fault] for fault in self.fault_names]
        self.users = [
            draw_user(self.rng, rank, self.shape, weights, self.start, span)
            for rank in range(self.shape.users)
        ]
        self.user_weights = [user.weight for user in self.users]
        address = (
            f"<10.0.0.{name[2:]}:9618?addrs=10.0.0.{name[2:]}-9618&alias={name}"
            f".example.org&noUDP&sock=schedd_1201_{seed % 65536:04x}>"
        )
        self.log = SortedLog(log, profile.log, address)
        self.held_jobs = self.holds = self.seen = 0
        self.expected_mean_size = mean_cluster_size(self.shape)

    def run(self) -> None:
        """Simulate all clusters, a block at a time."""
        self.log.header(self.start, self.name)
        clusters = self._clusters()
        pending: Cluster | None = next(clusters, None)
        last = self.start
        while pending is not None:
            block_jobs = 0
            while pending is not None and block_jobs < _BLOCK_JOBS:
                self._simulate(pending)
                block_jobs += pending.procs
                last = pending.submit
                pending = next(clusters, None)
            self.log.flush(pending.submit if pending is not None else None)
        self.result.events += self.log.events
        self.result.bytes += self.log.bytes
        self.result.days = max(self.result.days, (last - self.start) / DAY)

    def _clusters(self) -> Iterator[Cluster]:
        now, done, number = float(self.start), 0, 1
        rate = self.targets.jobs_per_day / DAY
        while done < self.jobs:
            cluster = self._draw_cluster(number, now, self.jobs - done)
            done += cluster.procs
            yield cluster
            number += self.rng.choice((1, 1, 1, 2))  # some ids never reach the queue
            # A quieter time follows a big cluster, so that jobs per day stay on target.
            ahead = done - rate * (now - self.start)
            calm = min(max(1 + ahead / (0.1 * self.targets.jobs_per_day), 0.2), 8.0)
            busy = 1 + 0.6 * math.sin((now % DAY / DAY - 0.3) * 2 * math.pi)
            now += self.rng.expovariate(1) * self.expected_mean_size / rate * calm / busy

    def _draw_cluster(self, number: int, now: float, left: int) -> Cluster:
        rng, shape = self.rng, self.shape
        [user] = rng.choices(self.users, self.user_weights)
        procs = 1
        if rng.random() > shape.single_job_share:
            procs = int(1 + rng.paretovariate(shape.cluster_exponent))
        procs = min(procs, shape.largest_cluster, left)
        run = shape.run_minutes_median * 60 * rng.lognormvariate(0, shape.run_minutes_sigma)
        cluster = Cluster(
            number,
            user,
            int(now),
            procs,
            memory=rng.choice((1024, 2048, 2048, 4096, 8192)),
            disk=rng.choice((1, 2, 4, 10)) << 20,
            run_seconds=min(max(run, 20.0), 40.0 * HOUR),
            uses_url=rng.random() < 0.5,
            automatic=rng.random() < user.automatic,
            batch=names.batch(rng),
            program=names.program(rng),
            data=names.data(rng),
        )
        self.result.users[user.name] += procs
        self.result.largest_cluster = max(self.result.largest_cluster, procs)
        self._draw_fault(cluster)
        return cluster

    def _draw_fault(self, cluster: Cluster) -> None:
        """Decide whether the cluster has a fault, steered to the target share of held jobs."""
        rng = self.rng
        wanted = self.targets.held_share * (self.seen + cluster.procs)
        deficit = wanted - self.held_jobs
        self.seen += cluster.procs
        if deficit < 0.5 or rng.random() < 0.6:
            return
        [cluster.fault] = rng.choices(self.fault_names, cluster.user.faults)
        fault = FAULTS[cluster.fault]
        # A wrong path hits all jobs of a cluster, a bad input some of them.
        hit = cluster.procs if rng.random() < 0.35 else rng.random() * cluster.procs
        cluster.hits = max(1, min(cluster.procs, int(hit), int(2 * deficit) + 1))
        if fault.nature == "ends":
            cluster.ends = cluster.submit + HOUR * rng.lognormvariate(0.9, 1.2)
        cluster.chance = rng.choice((0.2, 0.4, 0.6, 0.8))
        cluster.factor = rng.uniform(1.02, 2.2)

    @property
    def tenacity(self) -> float:
        """Return what to add to the log odds of a release to keep holds per held job on target."""
        lacking = self.targets.holds_per_held_job * self.held_jobs - self.holds
        return min(max(lacking / 80, -5.0), 3.0)

    def _simulate(self, cluster: Cluster) -> None:
        """Draw all first runs of a cluster at once; simulate the troubled jobs one by one."""
        n, rng = cluster.procs, self.numpy
        # Jobs of a large cluster start one after the other as slots become free.
        wait = (
            self.shape.wait_minutes_median * 60 * rng.lognormal(0, 1.0, n)
            + np.arange(n) * rng.exponential(1.5)
        ).astype(np.int64) + 2
        run = np.maximum(cluster.run_seconds * rng.lognormal(0, 0.35, n), 5).astype(np.int64)
        host = rng.integers(0, len(self.hosts), n)
        slot = rng.integers(1, 48, n)
        used = np.maximum(cluster.memory * rng.uniform(0.05, 0.9), 2) * rng.uniform(0.8, 1.1, n)
        bad_exit = rng.random(n) < self.shape.failing_share
        evicted = rng.random(n) < self.shape.evictions_per_run
        hits = set()
        if cluster.fault:
            hits = set(rng.choice(n, size=cluster.hits, replace=False).tolist())
        # The loop below mostly indexes these, and plain lists are faster than arrays.
        waits, runs, hosts, slots = wait.tolist(), run.tolist(), host.tolist(), slot.tolist()
        useds, bad_exits = used.astype(np.int64).tolist(), bad_exit.tolist()
        evictions = evicted.tolist()
        self.result.jobs += n
        for proc in range(n):
            begin = cluster.submit + waits[proc]
            outage = cluster.uses_url and self.in_outage(begin)
            if proc in hits or evictions[proc] or outage or self.hosts[hosts[proc]].is_bad(begin):
                TroubledJob(self, cluster, proc, proc in hits, evictions[proc], outage).live(
                    begin, runs[proc], hosts[proc], slots[proc], useds[proc], bad_exits[proc]
                )
            else:
                self._plain_job(
                    cluster,
                    proc,
                    begin,
                    runs[proc],
                    self.hosts[hosts[proc]],
                    slots[proc],
                    useds[proc],
                    bad_exits[proc],
                )

    def in_outage(self, when: float) -> bool:
        """Draw whether a transfer fails at that time; even in an outage most work."""
        nth = bisect.bisect_right(self.outage_starts, when) - 1
        return (
            nth >= 0
            and when < self.outages[nth][1]
            and self.rng.random() < self.shape.outage_severity
        )

    def _plain_job(
        self,
        cluster: Cluster,
        proc: int,
        begin: int,
        run: int,
        host: Machine,
        slot: int,
        used: int,
        bad_exit: bool,
    ) -> None:
        """Write the events of an untroubled job, as most jobs are."""
        write = EventWriter(self.log, cluster, proc)
        write.submitted(cluster.submit)
        write.started(begin, host, slot)
        write.image_size(begin + min(8, run), used // 2 + 1)
        if run > 900:
            write.image_size(begin + 600, used)
        write.finished(begin + run + 2, run, used, self.exit_text(bad_exit))

    def exit_text(self, bad_exit: bool) -> str:
        """Return how the job ended, as a 005 event words it."""
        if not bad_exit:
            return "(1) Normal termination (return value 0)"
        if self.rng.random() < 0.25:
            signal = self.rng.choice((6, 9, 11, 15))
            return f"(0) Abnormal termination (signal {signal})\n\t(0) No core file"
        return f"(1) Normal termination (return value {self.rng.choice((1, 1, 2, 127, 139))})"


class TroubledJob:
    """A job that may be held or evicted, from its submission to its end."""

    def __init__(
        self,
        ap: SimulatedAccessPoint,
        cluster: Cluster,
        proc: int,
        hit: bool,
        evicted: bool,
        outage: bool,
    ) -> None:
        self.ap, self.cluster, self.proc, self.rng = ap, cluster, proc, ap.rng
        self.hit, self.evicted, self.outage = hit, evicted, outage
        self.fixed: float | None = None
        self.holds: list[tuple[int, int]] = []
        self.causes: list[Fault] = []
        self.write = EventWriter(ap.log, cluster, proc)

    def live(
        self, begin: int, run: int, host_number: int, slot: int, used: int, bad_exit: bool
    ) -> None:
        """Simulate the job until it ends, or until a hold that nobody releases."""
        ap, rng = self.ap, self.rng
        self.write.submitted(self.cluster.submit)
        when, outcome = begin, "left"
        while True:
            host = ap.hosts[host_number]
            fault = self._fault_now(host, host_number, when)
            if fault is not None:
                when = self._hold(fault, when, run, host, slot, used)
                released = self._owner(fault, when)
                if released is None:
                    outcome = "NEVER_RELEASED"
                    break
                when, removed = released
                if removed:
                    outcome = "REMOVED"
                    break
            else:
                self.write.started(when, host, slot)
                if self.evicted:
                    self.evicted = False
                    when += max(5, int(run * rng.random()))
                    self.write.evicted(when, 1022, 0, "Job vacated by schedd", used)
                else:
                    self.write.image_size(when + min(8, run), used // 2 + 1)
                    self.write.finished(when + run + 2, run, used, ap.exit_text(bad_exit))
                    outcome = "FAILED" if bad_exit else "SUCCEEDED"
                    break
            when += 2 + int(120 * rng.lognormvariate(0, 1))
            host_number, slot = rng.randrange(len(ap.hosts)), rng.randrange(1, 48)
            run = max(5, int(self.cluster.run_seconds * rng.lognormvariate(0, 0.35)))
            bad_exit = rng.random() < ap.shape.failing_share
        self._account(outcome)

    def _fault_now(self, host: Machine, host_number: int, when: int) -> Fault | None:
        """Return the fault that holds the job if it starts now on this execution point."""
        cluster, ap = self.cluster, self.ap
        if self.hit and cluster.fault and self.fixed is None:
            fault = FAULTS[cluster.fault]
            active = {
                "always": True,
                "ends": when < cluster.ends,
                "chance": not self.holds or self.rng.random() < cluster.chance,
                # The same execution points fail every job of the cluster.
                "host": not self.holds
                or (host_number * 2654435761 + cluster.number) % 100 < 100 * cluster.chance,
            }[fault.nature]
            if active:
                return fault
        if host.is_bad(when):
            return BAD_MACHINE
        outage = self.outage or (bool(self.holds) and cluster.uses_url and ap.in_outage(when))
        self.outage = False
        if outage:
            return FAULTS["url_outage"]
        return None

    def _hold(self, fault: Fault, when: int, run: int, host: Machine, slot: int, used: int) -> int:
        """Write the run up to the hold; return the time of the hold."""
        ap, cluster, rng, write = self.ap, self.cluster, self.rng, self.write
        old = when < ap.upgrade and host.old
        wording = rng.choice(fault.old if old else fault.new)
        if fault.family == "memory":
            used = int(cluster.memory * cluster.factor)
        scratch = f"/var/lib/condor/execute/dir_{rng.randrange(2000, 60000)}"
        details = {
            "slot": f"slot1_{slot}@{host.name}",
            "ap": ap.name,
            "ap_ip": f"10.0.0.{ap.name[2:]}",
            "ip": host.ip,
            "port": rng.randrange(20000, 60000),
            "scratch": scratch,
            "home": f"/home/{cluster.user.name}/{cluster.batch}",
            "data": cluster.data,
            "program": cluster.program,
            "request": cluster.memory,
            "used": used,
            "owner": cluster.user.name,
            "exit": rng.choice((1, 2, 134)),
        }
        reason = wording.text.format_map(details)
        starter_says = reason.partition(": ")[2] if reason.startswith("Error from") else reason
        if fault.stage == "input":
            write.transfers_in(when, host, slot)
            when += rng.randrange(2, 30)
        elif fault.stage != "idle":
            write.started(when, host, slot)
            if fault.stage == "exec":
                when += rng.randrange(1, 12)
            else:
                if fault.stage == "run":
                    write.image_size(when + 8, used)
                share = rng.random() if fault.stage == "run" else 1.0
                when += max(10, int(run * share))
                if fault.stage in ("output", "exit"):
                    write.transfers_out(when)
        if fault.stage in ("input", "exec", "output") or wording.code in (21, 34):
            write.remote_error(when, details["slot"], starter_says, wording.code, wording.subcode)
            write.evicted(when + 1, wording.code, wording.subcode, reason, used)
        write.held(when + 1, reason, wording.code, wording.subcode)
        self.holds.append((wording.code, wording.subcode))
        self.causes.append(fault)
        ap.holds += 1
        ap.result.holds += 1
        ap.result.codes[f"{wording.code}/{wording.subcode}"] += 1
        if len(self.holds) == 1:
            ap.held_jobs += 1
            ap.result.held_jobs += 1
        elif len(self.holds) > 1:
            same = self.holds[-1][0] == self.holds[-2][0]
            ap.result.outcomes["HELD_SAME" if same else "HELD_OTHER"] += 1
        return when + 1

    def _owner(self, fault: Fault, held: int) -> tuple[int, bool] | None:
        """Let the owner act; return when, and whether they removed the job; None: no action."""
        cluster, rng, user, count = self.cluster, self.rng, self.cluster.user, len(self.holds)
        tenacity = self.ap.tenacity
        if cluster.automatic and fault.family != "people" and count <= 8 and tenacity > -2.5:
            when = held + int(rng.choice((300, 600, 1200, 3600)) * rng.uniform(0.9, 1.2))
            self.write.released(
                when,
                "The job attribute PeriodicRelease expression "
                "'(NumHolds < 9) && (time() - EnteredCurrentStatus > 300)' "
                "evaluated to TRUE",
            )
            return when, False
        hurry = any(0 < deadline - held < 2 * DAY for deadline in user.deadlines)
        odds = math.log(user.release / (1 - user.release)) + tenacity
        odds += (0.8 if hurry else 0.0) - 0.25 * (count - 1)
        odds -= 0.8 if fault.family in ("memory", "disk", "executable") else 0.0
        delay = user.visit_hours * (0.3 if hurry else 1.0) * rng.expovariate(1) * HOUR
        hour = (held + delay) % DAY / HOUR
        if not 7 <= hour < 22:  # nobody looks at night
            delay += ((31 - hour) % 24) * HOUR
        when = held + 60 + int(delay)
        if rng.random() < 1 / (1 + math.exp(-odds)):
            if fault.fixable and rng.random() < user.fix:
                when += int(rng.expovariate(1 / 1800))
                if rng.random() < user.skill:
                    self.fixed = when
            self.write.released(when, f"via condor_release (by user {user.name})")
            return when, False
        if rng.random() < 0.6:
            self.write.aborted(when, f"via condor_rm (by user {user.name})")
            self.ap.result.outcomes["NEVER_RELEASED"] += 1
            return when, True
        return None

    def _account(self, outcome: str) -> None:
        """Count the outcome of the last hold, and record the truth about the job."""
        if not self.holds and not self.hit:
            return
        cluster = self.cluster
        if self.holds and outcome != "REMOVED":
            self.ap.result.outcomes[outcome] += 1
        fault = FAULTS[cluster.fault] if self.hit and cluster.fault else None
        main_cause = fault or self.causes[0]
        ends = cluster.ends if fault and fault.nature == "ends" else None
        row = Truth(
            cluster.number,
            self.proc,
            cluster.user.name,
            cluster.fault or "healthy",
            main_cause.family,
            main_cause.description,
            main_cause.nature != "always",
            utc(ends),
            utc(self.fixed),
        )
        other_causes = [
            {"hold": number, "cause": cause.description}
            for number, cause in enumerate(self.causes, 1)
            if cause is not fault
        ]
        row.struck.extend(other_causes)
        self.ap.write_truth(json.dumps({"access_point": self.ap.name, **asdict(row)}) + "\n")


def simulate(jobs: int, seed: int, out: Path, profile: Profile) -> SimulationResult:
    """Write `out`/apN/EventLog for each access point and `out`/truth.jsonl."""
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty; name a new directory for the logs")
    out.mkdir(parents=True, exist_ok=True)
    result = SimulationResult(out, seconds=0.0, access_points=profile.shape.access_points)
    began = time.perf_counter()
    with (out / "truth.jsonl").open("w") as truth:
        for number in range(1, profile.shape.access_points + 1):
            share = jobs // profile.shape.access_points
            share += number <= jobs % profile.shape.access_points
            name = f"ap{number}"
            (out / name).mkdir()
            with (out / name / "EventLog").open("wb") as log:
                SimulatedAccessPoint(name, share, seed, profile, log, truth.write, result).run()
    result.seconds = time.perf_counter() - began
    (out / "manifest.json").write_text(
        json.dumps({"seed": seed, "profile": asdict(profile), **result.as_json(profile)}, indent=1)
        + "\n"
    )
    return result
