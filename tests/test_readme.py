"""The README's tour, run as a reader would run it: every line that it shows must really appear."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def tour() -> list[tuple[str, list[str]]]:
    """Each command with the lines that the README shows below it."""
    steps: list[tuple[str, list[str]]] = []
    for block in _BLOCK.findall((ROOT / "README.md").read_text()):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append((line[2:], []))
            else:
                steps[-1][1].append(line)
    return steps


def test_the_tour_shows_what_really_happens(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    try:
        for command, shown in tour():
            missing = terminal.run_until_shown(command, shown)
            assert missing == [], f"$ {command}\nsaid\n{terminal.last}\nand not {missing}"
    finally:
        terminal.run("chsim down")


class Terminal:
    """Runs commands with a terminal as stdout, in one folder."""

    def __init__(self, folder: Path) -> None:
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        chsim = bin_folder / "chsim"
        chsim.write_text(f'#!/bin/sh\nexec {sys.executable} -m clickhouse_sim "$@"\n')
        chsim.chmod(0o755)
        self._folder = folder
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "CHSIM_DIR"},
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "160",
            "TERM": "xterm",
        }
        self.last = ""

    def run_until_shown(self, command: str, shown: list[str]) -> list[str]:
        """Run a command; a SELECT again for a while, for replicas catch up in their own time. The lines not said."""
        deadline = time.monotonic() + 30
        while True:
            said = self.run(command)
            missing = [line for line in shown if not any(_fits(line, each) for each in said)]
            if not missing or "SELECT" not in command or time.monotonic() > deadline:
                return missing
            time.sleep(0.5)

    def run(self, command: str) -> list[str]:
        """Run a command; the lines that it said, on stdout and stderr."""
        controller, terminal = pty.openpty()
        with subprocess.Popen(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=subprocess.PIPE,
        ) as process:
            os.close(terminal)
            said = _read_all(controller)
            assert process.stderr is not None
            said += process.stderr.read()
        self.last = _STYLE.sub("", said.decode()).replace("\r\n", "\n")
        assert process.returncode == 0, f"$ {command}\n{self.last}"
        return self.last.splitlines()


def _read_all(controller: int) -> bytes:
    chunks = []
    while True:
        try:
            chunk = os.read(controller, 65536)
        except OSError:  # the other end of a terminal is closed
            chunk = b""
        if not chunk:
            os.close(controller)
            return b"".join(chunks)
        chunks.append(chunk)


def _fits(shown: str, said: str) -> bool:
    """Whether a line is the one shown, in which `…` stands for anything."""
    pattern = ".*".join(re.escape(piece) for piece in shown.rstrip().split("…"))
    return re.fullmatch(pattern, said.rstrip()) is not None
