"""Children of a job with the hook end as they would without it."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

# Fork is what hands the handlers on, and is no longer the default everywhere.
PRELUDE = """
import multiprocessing, os, signal, sys, time
from condor_checkpoint import Checkpoint
context = multiprocessing.get_context("fork")
def sleep(seconds):
    time.sleep(seconds)
    return seconds
"""


def run_program(text, timeout=20, status=0, **settings):
    """Run a program in a process group of its own, so that no orphan outlives the test."""
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(text)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **settings,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == status, err
    return out


def assert_gone(pid):
    status = Path(f"/proc/{pid}/stat")
    until = time.monotonic() + 5
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < until, f"process {pid} is still there"
        time.sleep(0.05)


@pytest.mark.parametrize("interval", [0, 0.05])
def test_a_process_is_terminated(interval):
    out = run_program(f"""
        with Checkpoint(lambda reason: None, interval={interval}):
            child = context.Process(target=sleep, args=(60,), daemon=True)
            child.start()
            time.sleep(0.3)
            child.terminate()
            child.join(5)
            print(child.exitcode)
    """)
    assert out == "-15\n"


def test_a_process_that_is_terminated_at_once_gets_the_signal():
    # The signal arrives during the fork, before the child can undo anything.
    out = run_program("""
        with Checkpoint(lambda reason: None, interval=0):
            for _ in range(100):
                child = context.Process(target=sleep, args=(60,), daemon=True)
                child.start()
                child.terminate()
                child.join(5)
                assert child.exitcode == -15, child.exitcode
        print("done")
    """)
    assert out == "done\n"


def test_a_busy_pool_is_left_at_once():
    out = run_program("""
        begun = time.monotonic()
        with Checkpoint(lambda reason: None, interval=0.05):
            with context.Pool(2) as pool:
                pool.map_async(sleep, [60, 60])
                time.sleep(0.3)
        print(time.monotonic() - begun < 10)
    """)
    assert out == "True\n"


def test_workers_do_not_survive_the_interpreter():
    out = run_program("""
        with Checkpoint(lambda reason: None, interval=0.05):
            child = context.Process(target=sleep, args=(60,), daemon=True)
            child.start()
            time.sleep(0.3)
            print(child.pid, flush=True)
    """)
    assert_gone(int(out))


def test_a_worker_of_a_process_pool_executor_is_terminated():
    out = run_program("""
        import concurrent.futures
        with Checkpoint(lambda reason: None, interval=0.05):
            executor = concurrent.futures.ProcessPoolExecutor(2, mp_context=context)
            futures = [executor.submit(sleep, 60) for _ in range(2)]
            time.sleep(0.5)
            os.kill(next(iter(executor._processes)), signal.SIGTERM)
            for future in futures:
                try:
                    future.result(10)
                except concurrent.futures.process.BrokenProcessPool:
                    print("broken", flush=True)
            executor.shutdown()
    """)
    assert out == "broken\n" * 2


def test_a_thread_may_fork():
    out = run_program("""
        import threading
        codes = []
        def fork():
            child = context.Process(target=sleep, args=(60,), daemon=True)
            child.start()
            time.sleep(0.3)
            child.terminate()
            child.join(5)
            codes.append(child.exitcode)
        with Checkpoint(lambda reason: None, interval=0.05):
            thread = threading.Thread(target=fork)
            thread.start()
            thread.join()
        print(codes)
    """)
    assert out == "[-15]\n"


@pytest.mark.parametrize("preexec", ["None", "lambda: None"])
def test_a_subprocess_is_terminated_and_inherits_no_blocked_signal(preexec):
    out = run_program(f"""
        import subprocess
        with Checkpoint(lambda reason: None, interval=0.05):
            child = subprocess.Popen(["sleep", "60"], preexec_fn={preexec})
            child.terminate()
            print(child.wait(5), flush=True)
            subprocess.run(["grep", "SigBlk", "/proc/self/status"], preexec_fn={preexec})
    """)
    assert out == f"-15\nSigBlk:\t{0:016x}\n"


def test_a_subprocess_of_asyncio_is_terminated():
    out = run_program("""
        import asyncio
        from condor_checkpoint import AsyncCheckpoint
        async def main():
            async with AsyncCheckpoint(lambda reason: None, interval=0.05) as checkpoint:
                child = await asyncio.create_subprocess_exec("sleep", "60")
                await checkpoint.apoll()
                child.terminate()
                print(await asyncio.wait_for(child.wait(), 5))
        asyncio.run(main())
    """)
    assert out == "-15\n"


def test_the_workers_of_a_data_loader_end():
    pytest.importorskip("torch")
    out = run_program(
        """
        import torch
        class Slow(torch.utils.data.Dataset):
            def __len__(self):
                return 100
            def __getitem__(self, index):
                if index > 3:
                    time.sleep(60)
                return index
        with Checkpoint(lambda reason: None, interval=0.05):
            loader = torch.utils.data.DataLoader(
                Slow(), num_workers=2, multiprocessing_context="fork")
            batches = iter(loader)
            print(int(next(batches)))
            workers = [worker.pid for worker in batches._workers]
            begun = time.monotonic()
            os.kill(workers[0], signal.SIGTERM)
            del batches
            print(time.monotonic() - begun < 30)
        print(*workers)
        """,
        timeout=60,
    )
    first, quick, pids = out.splitlines()
    assert (first, quick) == ("0", "True")
    for pid in pids.split():
        assert_gone(int(pid))


def test_a_child_has_the_handler_of_the_program_and_no_checkpoint():
    out = run_program("""
        signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True))
        checkpoint = Checkpoint(lambda reason: print("saved", flush=True), interval=0.05)
        with checkpoint:
            checkpoint.request()
            child = os.fork()
            if child == 0:
                os.kill(os.getpid(), signal.SIGTERM)
                print(checkpoint.poll(), repr(checkpoint.due()), flush=True)
                os._exit(0)
            os.waitpid(child, 0)
            checkpoint.poll()
    """)
    assert out.splitlines() == ["mine", "False ''", "saved"]


def test_a_child_may_start_a_checkpoint_of_its_own(tmp_path):
    out = run_program(
        """
        checkpoint = Checkpoint(lambda reason: print(reason, flush=True), interval=0.01)
        with checkpoint:
            time.sleep(0.1)
            if os.fork() == 0:
                with checkpoint:
                    checkpoint.request("in the child")
                    checkpoint.poll()
                os._exit(0)
            os.wait()
        """,
        cwd=tmp_path,
    )
    assert out == "in the child\n"


def test_a_save_that_forks_leaves_no_time_limit_in_the_child():
    out = run_program("""
        def save(reason):
            child = context.Process(
                target=lambda: print(signal.getsignal(signal.SIGALRM) is signal.SIG_DFL))
            child.start()
            child.join()
        with Checkpoint(save, interval=0) as checkpoint:
            checkpoint.request()
            checkpoint.poll()
    """)
    assert out == "True\n"


def test_a_handler_that_was_installed_over_ours_still_works_after_the_end():
    run_program(
        """
        with Checkpoint(lambda reason: None, interval=0):
            ours = signal.getsignal(signal.SIGTERM)
            signal.signal(signal.SIGTERM, lambda *args: ours(*args))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
        """,
        status=-signal.SIGTERM,
    )
