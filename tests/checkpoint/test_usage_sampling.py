"""What the job uses: real processes, made-up control groups, and files that are not there."""

import os
import subprocess
import sys
import time

import pytest

from condor_checkpoint.condor import Job, Limits, number, parse_ad
from condor_checkpoint.sample import PAGE, Sampler, directory_size, process_tree

MEGABYTE = 1 << 20


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def fake_root(tmp_path, cgroup):
    """A process 10 with a child 11, in the given group."""
    for pid, parent, children in ((10, 1, "11 "), (11, 10, "")):
        proc = tmp_path / "proc" / str(pid)
        write(proc / "task" / str(pid) / "children", children)
        after = ["S", str(parent), *["0"] * 9, "100", "50", *["0"] * 8, "1000", *["0"] * 20]
        write(proc / "stat", f"{pid} (a) b) {' '.join(after)}\n")
        write(proc / "io", "rchar: 5\nread_bytes: 4096\nwrite_bytes: 8192\n")
        (proc / "fd").mkdir()
        for descriptor in "012":
            (proc / "fd" / descriptor).touch()
    write(tmp_path / "proc/10/cgroup", cgroup)
    write(
        tmp_path / "proc/10/net/dev",
        "Inter-| Receive | Transmit\n face |bytes packets\n"
        "    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0\n"
        "  eth0: 1000 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n",
    )
    return tmp_path


def sampler(root, **settings):
    return Sampler(Job({}), pid=10, root=str(root), **settings)


def test_a_group_of_version_2_is_read_and_caches_do_not_count(tmp_path):
    root = fake_root(tmp_path, "0::/htcondor/slot1\n")
    group = tmp_path / "sys/fs/cgroup/htcondor/slot1"
    write(group / "cgroup.procs", "10\n11\n")
    write(group / "memory.current", f"{100 * MEGABYTE}\n")
    write(group / "memory.stat", f"anon 1\ninactive_file {30 * MEGABYTE}\n")
    write(group / "memory.max", "max\n")
    write(group / "cpu.stat", "usage_usec 2500000\n")
    write(group.parent / "memory.max", f"{512 * MEGABYTE}\n")  # set on the group above
    sample = sampler(root).take()
    assert sample.memory == 70 * MEGABYTE
    assert sample.memory_limit == 512 * MEGABYTE
    assert sample.cpu == 2.5


def test_a_group_of_version_1_is_read(tmp_path):
    root = fake_root(tmp_path, "4:memory:/job\n1:cpu:/\n0::/\n")
    group = tmp_path / "sys/fs/cgroup/memory/job"
    write(group / "cgroup.procs", "10\n11\n")
    write(group / "memory.usage_in_bytes", f"{100 * MEGABYTE}\n")
    write(group / "memory.stat", f"total_inactive_file {MEGABYTE}\n")
    write(group / "memory.limit_in_bytes", f"{256 * MEGABYTE}\n")
    write(group.parent / "memory.limit_in_bytes", "9223372036854771712\n")
    sample = sampler(root).take()
    assert sample.memory == 99 * MEGABYTE
    assert sample.memory_limit == 256 * MEGABYTE
    assert sample.cpu == 3.0  # of both processes, from /proc


def test_a_group_shared_with_others_sets_the_limit_but_not_the_usage(tmp_path):
    root = fake_root(tmp_path, "0::/\n")
    group = tmp_path / "sys/fs/cgroup"
    write(group / "cgroup.procs", "1\n10\n11\n")
    write(group / "memory.current", f"{900 * MEGABYTE}\n")
    write(group / "memory.max", f"{2048 * MEGABYTE}\n")
    sample = sampler(root).take()
    assert sample.memory == 2 * 1000 * PAGE
    assert sample.memory_limit == 2048 * MEGABYTE


def test_the_lower_of_the_slot_and_the_group_is_the_limit(tmp_path):
    root = fake_root(tmp_path, "0::/\n")
    write(tmp_path / "sys/fs/cgroup/memory.current", "1")
    write(tmp_path / "sys/fs/cgroup/memory.max", f"{2048 * MEGABYTE}\n")
    limits = Limits(memory=128.0 * MEGABYTE)
    assert sampler(root, limits=limits).take().memory_limit == 128 * MEGABYTE


def test_network_and_storage_are_summed_without_the_loopback(tmp_path):
    sample = sampler(fake_root(tmp_path, "")).take()
    assert (sample.received, sample.sent) == (1000.0, 500.0)
    assert (sample.read, sample.written) == (8192.0, 16384.0)
    assert (sample.open_files, sample.processes) == (3.0, 2.0)


def test_what_an_ended_process_used_still_counts(tmp_path):
    root = fake_root(tmp_path, "")
    watch = sampler(root)
    assert watch.take().cpu == 3.0
    write(tmp_path / "proc/10/task/10/children", "")
    assert watch.take().cpu == 3.0


def test_nothing_readable_gives_nothing_and_no_error(tmp_path):
    sample = sampler(tmp_path / "nowhere", scratch=str(tmp_path / "gone")).take()
    assert (sample.memory, sample.cpu, sample.received, sample.disk) == (None,) * 4


def test_files_with_nonsense_in_them_give_nothing_and_no_error(tmp_path):
    root = fake_root(tmp_path, "0::/\n")
    for name in ("memory.current", "memory.max", "memory.stat", "cpu.stat"):
        write(tmp_path / "sys/fs/cgroup" / name, "¿?\n")
    write(tmp_path / "proc/10/stat", "10 (x")
    write(tmp_path / "proc/11/io", "permission denied")
    sample = sampler(root).take()
    assert sample.memory == 1000 * PAGE


def test_without_the_list_of_children_the_tree_is_found_by_parents(tmp_path):
    root = fake_root(tmp_path, "")
    for pid in (10, 11):
        os.remove(tmp_path / f"proc/{pid}/task/{pid}/children")
    assert process_tree(str(root / "proc"), 10) == {10, 11}


def test_a_real_child_is_counted():
    grow = (
        "x = bytearray(b'x') * (60 << 20); print('ready', flush=True); import time; time.sleep(60)"
    )
    watch = Sampler(Job({}))
    before = watch.take()
    with subprocess.Popen([sys.executable, "-c", grow], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        sample = watch.take()
        child.kill()
    assert sample.memory is not None
    assert before.memory is not None
    assert sample.memory - before.memory > 55 * MEGABYTE
    assert sample.processes == (before.processes or 0) + 1


def test_a_file_with_two_names_counts_once(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    os.link(tmp_path / "a", tmp_path / "b")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "c").write_bytes(b"x" * 50_000)
    assert 140_000 < (directory_size(str(tmp_path)) or 0.0) < 180_000


def test_a_scratch_directory_that_is_slow_to_walk_is_walked_rarely(tmp_path, monkeypatch):
    walks = []

    def slow(path):
        walks.append(path)
        time.sleep(0.05)
        return 1.0

    monkeypatch.setattr("condor_checkpoint.sample.directory_size", slow)
    watch = Sampler(Job({}), scratch=str(tmp_path))
    for _ in range(5):
        assert watch.take().disk == 1.0
    assert len(walks) == 1


def test_ads_are_read_and_expressions_left_out():
    ad = parse_ad(
        'Memory = 64\nDisk = 20480.5\nWantIOProxy = true\nName = "a \\"b\\" c"\n'
        "MemoryUsage = ((ResidentSetSize + 1023) / 1024)\nX = undefined\nnonsense\n"
    )
    assert ad == {"Memory": 64, "Disk": 20480.5, "WantIOProxy": True, "Name": 'a "b" c'}
    assert number(ad, "memory") == 64.0
    assert number(ad, "WantIOProxy") is None


def job_with(tmp_path, ad="", machine=""):
    write(tmp_path / ".job.ad", ad)
    write(tmp_path / ".machine.ad", machine)
    return Job(
        {
            "_CONDOR_SCRATCH_DIR": str(tmp_path),
            "_CONDOR_JOB_AD": str(tmp_path / ".job.ad"),
            "_CONDOR_MACHINE_AD": str(tmp_path / ".machine.ad"),
        }
    )


def test_limits_come_from_the_slot_before_the_request(tmp_path):
    limits = job_with(
        tmp_path,
        "RequestMemory = 100\nRequestDisk = 1000\n",
        "Memory = 128\nDisk = 2048\nCpus = 4\nMachineMaxVacateTime = 10\n",
    ).limits()
    assert limits.memory == 128 * MEGABYTE
    assert limits.disk == 2048 * 1024
    assert (limits.cpus, limits.grace) == (4.0, 10.0)


@pytest.mark.parametrize(
    ("ad", "machine", "left"),
    [
        ("AllowedExecuteDuration = 600", "", 600),
        ("AllowedJobDuration = 900\nJobCurrentStartDate = {now}", "", 900),
        ("AllowedExecuteDuration = 600", "GLIDEIN_ToDie = {soon}", 100),
        ("", "TimeToLive = 2147483647\nMyCurrentTime = {now}", None),
        ("", "TimeToLive = 50\nMyCurrentTime = {now}", 50),
    ],
)
def test_the_first_known_end_counts(tmp_path, ad, machine, left):
    now = int(time.time())
    words = {"now": now, "soon": now + 100}
    end = job_with(tmp_path, ad.format(**words), machine.format(**words)).limits().end
    assert (end is None) if left is None else end == pytest.approx(now + left, abs=2)


def test_the_starters_update_is_found_in_both_places(tmp_path):
    job = job_with(tmp_path / "scratch")
    assert job.usage() == {}
    write(tmp_path / "scratch/.update.ad", "DiskUsage = 7\n")
    assert job.usage()["DiskUsage"] == 7
    write(tmp_path / "htcondor/.update.ad", "DiskUsage = 8\n")
    assert job.usage()["DiskUsage"] == 8


def test_the_job_begins_below_the_starter(tmp_path):
    # shell (20) started by the starter (10) started this process
    me = os.getpid()
    for pid, parent, name in ((10, 1, "condor_starter"), (20, 10, "sh"), (me, 20, "python")):
        after = ["S", str(parent), *["0"] * 40]
        write(tmp_path / f"proc/{pid}/stat", f"{pid} ({name}) {' '.join(after)}")
        write(tmp_path / f"proc/{pid}/comm", f"{name}\n")
    job = Job({"_CONDOR_SCRATCH_DIR": str(tmp_path)})
    assert Sampler(job, root=str(tmp_path)).pid == 20
    assert Sampler(Job({}), root=str(tmp_path)).pid == me
    write(tmp_path / "proc/10/comm", "init\n")
    assert Sampler(job, root=str(tmp_path)).pid == me


def test_outside_condor_there_is_nothing_to_say_and_nobody_to_tell():
    job = Job({})
    assert not job.is_condor
    assert job.limits() == Limits()
    assert job.chirp({"ChirpCheckpointTime": 1}) is False
