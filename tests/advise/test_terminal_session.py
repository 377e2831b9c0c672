"""A person at a terminal: through tmux, and through a terminal emulator that is always there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pyte
import pytest

PROMPT = "ready> "
COMMAND = f"{sys.executable} -m condor_advice"


class Screen:
    """A shell on a screen of some size, drawn as a terminal would."""

    def __init__(self, columns: int, lines: int, env: dict[str, str]) -> None:
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.Stream(self.screen)
        self.child = pexpect.spawn(
            "/bin/sh", env=env, dimensions=(lines, columns), encoding="utf-8", timeout=20
        )

    def type(self, line: str) -> None:
        """Type a line, and wait until the next prompt is there."""
        self.child.sendline(line)
        self.child.expect_exact(PROMPT)
        self.stream.feed(self.child.before or "")

    def shown(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    def colours(self, word: str) -> set[str]:
        """Return the colours in which a word stands at the beginning of a line."""
        found = set()
        for row, line in enumerate(self.screen.display):
            if line.startswith(word):
                found |= {self.screen.buffer[row][column].fg for column in range(len(word))}
        return found


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Screen]]:
    made: list[Screen] = []

    def make(columns: int = 90, lines: int = 200, **more: str) -> Screen:
        env = {
            "PATH": "/usr/bin:/bin", "TERM": "xterm", "PS1": PROMPT, "HOME": str(tmp_path),
            "LANG": "C.UTF-8", **more,
        }  # fmt: skip
        made.append(Screen(columns, lines, env))
        made[-1].child.expect_exact(PROMPT)
        made[-1].child.sendline("stty -echo")
        made[-1].child.expect_exact(PROMPT)
        return made[-1]

    yield make
    for screen in made:
        screen.child.close(force=True)


def test_a_terminal_shows_a_table_and_colours(
    terminal: Callable[..., Screen], event_log: Callable[[str], Path]
) -> None:
    screen = terminal()
    logs = " ".join(f"--log {event_log(name)}" for name in ("missing_input.log", "exec_format.log"))
    screen.type(f"{COMMAND} {logs}")
    shown = screen.shown()
    assert any(line.startswith("FIX  4 jobs  input file missing ") for line in shown)
    assert screen.colours("FIX") <= {"brown", "yellow"}
    assert screen.colours("FIX")
    assert any("held jobs: " in line for line in shown)


def test_no_color_is_respected(
    terminal: Callable[..., Screen], event_log: Callable[[str], Path]
) -> None:
    screen = terminal(NO_COLOR="1")
    screen.type(f"{COMMAND} --log {event_log('missing_input.log')}")
    assert screen.colours("FIX") == {"default"}


def test_a_narrow_terminal_breaks_no_words(
    terminal: Callable[..., Screen], event_log: Callable[[str], Path]
) -> None:
    screen = terminal(columns=48)
    screen.type(f"{COMMAND} --log {event_log('held_by_owner.log')}")
    words = " ".join(" ".join(screen.shown()).split())
    assert "somebody held it on purpose with condor_hold" in words


def test_a_pager_or_a_pipe_gets_no_colours(
    terminal: Callable[..., Screen], event_log: Callable[[str], Path]
) -> None:
    screen = terminal()
    screen.type(f"{COMMAND} --log {event_log('missing_input.log')} | cat")
    assert screen.colours("FIX") == {"default"}
    screen.type(f"{COMMAND} --log {event_log('missing_input.log')} | head -n 1")
    assert not any("Traceback" in line or "Error" in line for line in screen.shown())


def test_watching_looks_again_and_ends_with_ctrl_c(
    terminal: Callable[..., Screen], event_log: Callable[[str], Path], tmp_path: Path
) -> None:
    log = tmp_path / "job.log"
    whole = event_log("released_and_succeeded.log").read_bytes()
    held = whole.index(b"...\n", whole.index(b"\n012 (")) + 4
    log.write_bytes(whole[:held])
    screen = terminal()
    quick = "import condor_advice.advise.commands.job as j; j.WATCH_SECONDS = 0.5; j.job()"
    screen.child.sendline(f'{sys.executable} -c "{quick}" --watch --log {log}')
    screen.child.expect("1 held job: ")
    log.write_bytes(whole)
    screen.child.expect("No job is on hold")
    screen.child.sendintr()
    screen.child.expect_exact(PROMPT)


def test_a_session_in_tmux(event_log: Callable[[str], Path], tmp_path: Path) -> None:
    tmux = shutil.which("tmux")
    if tmux is None:
        pytest.skip("tmux is not installed; the sessions above ran in a terminal emulator")
    server = [tmux, "-f", "/dev/null", "-S", str(tmp_path / "tmux")]
    env = {name: value for name, value in os.environ.items() if name not in ("TMUX", "NO_COLOR")}
    shell = "/bin/sh"

    def call(*arguments: str) -> str:
        done = subprocess.run(
            [*server, *arguments], env=env, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    def wait_for(words: str) -> str:
        deadline = time.monotonic() + 60
        while words not in (shown := call("capture-pane", "-p", "-e", "-S", "-200")):
            assert time.monotonic() < deadline, shown
            time.sleep(0.2)
        return shown

    call("new-session", "-d", "-x", "80", "-y", "50", shell)
    try:
        call("send-keys", f"{COMMAND} --log {event_log('missing_input.log')}", "Enter")
        shown = wait_for("held jobs:")
        assert "\x1b[1m\x1b[33mFIX" in shown
        call("send-keys", "clear", "Enter")
        call("resize-window", "-x", "50", "-y", "50")
        call("send-keys", f"{COMMAND} --log {event_log('held_by_owner.log')}", "Enter")
        shown = wait_for("held job:")
        assert "\x1b[1m\x1b[36mASK" in shown
    finally:
        call("kill-server")
