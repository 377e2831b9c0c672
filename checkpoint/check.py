"""Read a submit description before the job runs, and say where its checkpoints would be lost."""

from __future__ import annotations

import os
import re
import shlex
from typing import Dict, List, Sequence

from condor_checkpoint.robust import read_text

DIRECTORY = "checkpoints"  # unless the job names another one
ON_EVICTION = "ON_EXIT_OR_EVICT"
PYZ = "condor_checkpoint.pyz"
_SETTING = re.compile(r"^\s*([+\w.]+)\s*=\s*(.*?)\s*$")
_MACRO = re.compile(r"\$\((\w+)\)")
_COPY = re.compile(r"\bcp\s+(-\w*[rRa]\w*)\s")
_PYTHON_DIRECTORY = re.compile(r"""\bdirectory\s*=\s*["']([^"']+)["']""")

Settings = Dict[str, str]


def check_file(path: str, existing: Sequence[str] = ()) -> List[str]:
    """Return the problems of a submit description, one sentence each.

    `existing` names outputs that the program creates when it starts.
    """
    text = read_text(path)
    if text is None:
        raise ValueError(f"{path}: cannot read the submit description")
    problems: List[str] = []
    for settings in parse_submit(text):
        for problem in Check(settings, os.path.dirname(path), existing).problems():
            if problem not in problems:
                problems.append(problem)
    return problems


def parse_submit(text: str) -> List[Settings]:
    """Return the settings as they stand at each queue statement; names are in lower case."""
    settings: Settings = {}
    queued: List[Settings] = []
    for line in text.replace("\\\n", " ").splitlines():
        match = _SETTING.match(line)
        if re.match(r"\s*queue\b", line, re.IGNORECASE):
            queued.append({name: _expand(value, settings) for name, value in settings.items()})
        elif match and not line.lstrip().startswith("#"):
            settings[match.group(1).lower()] = match.group(2)
    if not queued:
        raise ValueError("the submit description has no queue statement")
    return queued


def _expand(text: str, settings: Settings) -> str:
    for _ in range(10):  # a macro may name others, and by mistake itself
        expanded = _MACRO.sub(lambda m: settings.get(m.group(1).lower(), m.group(0)), text)
        if expanded == text:
            break
        text = expanded
    return text


class Check:
    """The problems of one set of settings."""

    def __init__(self, settings: Settings, base: str, existing: Sequence[str]) -> None:
        self.settings = settings
        self.base = os.path.join(base, settings.get("initialdir", ""))
        self.inputs = self._list("transfer_input_files")
        self.existing = {_plain(name) for name in (*existing, *map(os.path.basename, self.inputs))}
        self.words = _words(settings.get("arguments", settings.get("args", "")))
        self.sources = self._sources()
        self.directory = _plain(self._find_directory())

    def _list(self, name: str) -> List[str]:
        value = self.settings.get(name, "").strip('"')
        return [_plain(item) for item in value.split(",") if item.strip()]

    def _sources(self) -> List[str]:
        """Return the text of the job's Python programs, as far as they are here."""
        names = [self.settings.get("executable", ""), *self.inputs]
        texts = (read_text(os.path.join(self.base, n)) for n in names if n.endswith(".py"))
        return [text for text in texts if text and "condor_checkpoint" in text]

    def _find_directory(self) -> str:
        if "--directory" in self.words[:-1]:
            return self.words[self.words.index("--directory") + 1]
        for source in self.sources:
            match = _PYTHON_DIRECTORY.search(source)
            if match:
                return match.group(1)
        return DIRECTORY

    def problems(self) -> List[str]:
        """Return one sentence for each problem."""
        problems = [*self._program(), *self._kill_signal()]
        # On a shared file system the checkpoints are not in the scratch directory.
        if self.settings.get("should_transfer_files", "").upper() != "NO":
            problems += [*self._eviction(), *self._hold()]
        return problems

    def _eviction(self) -> List[str]:
        when = self.settings.get("when_to_transfer_output", "").upper()
        if when != ON_EVICTION:
            return [
                "an eviction loses the checkpoint; add "
                f"when_to_transfer_output = {ON_EVICTION} and "
                f"transfer_output_files = {self.directory}"
            ]
        outputs = self._list("transfer_output_files")
        if self.directory not in outputs:
            return [
                f"an eviction loses the checkpoint: HTCondor transfers {self.directory} only if "
                f"transfer_output_files names it; add it there"
            ]
        return self._may_be_missing("transfer_output_files", outputs, "at an eviction")

    def _hold(self) -> List[str]:
        code = self.settings.get("checkpoint_exit_code")
        files = self._list("transfer_checkpoint_files")
        if code is None or self.directory not in files:
            return [
                "a hold loses the checkpoint, because nothing is transferred then; add "
                f"checkpoint_exit_code = 85 and transfer_checkpoint_files = {self.directory}"
            ]
        problems = self._may_be_missing("transfer_checkpoint_files", files, "after a save")
        wrapped = "run" in self.words
        if wrapped and "--exit-after" not in self.words:
            problems.append(
                f"checkpoint_exit_code = {code}, but the program never exits with it; "
                "add --exit-after auto to the arguments"
            )
        elif not wrapped and self.sources and not any("exit_after" in s for s in self.sources):
            problems.append(
                f"checkpoint_exit_code = {code}, but the program never exits with it; "
                'use Checkpoint(..., exit_after="auto")'
            )
        return problems

    def _may_be_missing(self, setting: str, names: Sequence[str], moment: str) -> List[str]:
        return [
            f"{setting} names {name}: if it does not exist {moment}, the transfer fails and the "
            f"checkpoint is lost; write it to {self.directory}/ instead, or create it when the "
            f"job starts and pass --exists-at-start {name}"
            for name in names
            if name != self.directory
            and not name.startswith(self.directory + "/")
            and name not in self.existing
        ]

    def _program(self) -> List[str]:
        problems = []
        mentioned = " ".join(
            self.settings.get(name, "") for name in ("executable", "arguments", "environment")
        )
        transferred = [self.settings.get("executable", ""), *self.inputs]
        if PYZ in mentioned and PYZ not in map(os.path.basename, transferred):
            problems.append(f"the job uses {PYZ}, but transfer_input_files does not name it")
        for word in self.words:
            if _COPY.search(word) and "CONDOR_CHECKPOINT_PATH" not in word:
                problems.append(
                    f"the command {word!r} copies into its last copy at the second save; copy to "
                    f'"$CONDOR_CHECKPOINT_PATH", with --directory {self.directory}'
                )
        return problems

    def _kill_signal(self) -> List[str]:
        name = self.settings.get("kill_sig", "SIGTERM").upper()
        if name in ("SIGTERM", "TERM", "15") or any("signals" in s for s in self.sources):
            return []
        return [
            f"kill_sig = {name}, but an eviction is announced to the hook by SIGTERM; remove it"
        ]


def _plain(name: str) -> str:
    """Return a file name in the form in which two of them can be compared."""
    return os.path.normpath(name.strip()) if name.strip() else ""


def _words(arguments: str) -> List[str]:
    """Split arguments as HTCondor does: in double quotes, with single quotes inside."""
    if arguments.startswith('"') and arguments.endswith('"') and len(arguments) > 1:
        arguments = arguments[1:-1].replace('""', '\\"')
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()
