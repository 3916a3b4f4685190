"""Processes of the operating system: start one in the background, recognise it again, stop it.

A process is known by its pid and by when it started, so that a pid which the system gave to another process in
the meantime (or after a reboot) is never mistaken for it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_POLL_SECONDS = 0.02
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A pid and the start of its process, in the system's own words."""

    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        return start_of(self.pid) == self.started

    @property
    def is_paused(self) -> bool:
        """Whether a SIGSTOP holds it."""
        return _state_and_start(self.pid) == ("T", self.started)

    def send(self, number: signal.Signals) -> None:
        """Signal the process; one that is gone is left in peace."""
        if self.is_alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def wait_gone(self, seconds: float) -> bool:
        """Wait until the process is gone, at most so long; whether it is."""
        return _wait(lambda: not self.is_alive, seconds)

    def wait_paused(self, paused: bool, seconds: float) -> bool:
        """Wait until a SIGSTOP holds the process (or no longer does), at most so long; whether it is so."""
        return _wait(lambda: self.is_paused == paused, seconds)


def _wait(is_so: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def spawn(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> ProcessId:
    """Start a command in a session of its own, its output appended to `log`; it outlives its parent."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **environment},
        )
    started = start_of(process.pid) or "gone at once"
    process.returncode = 0  # detached on purpose: this parent does not wait for it, and is not warned about it
    return ProcessId(process.pid, started)


def start_of(pid: int) -> str | None:
    """When the process with this pid started, or None when there is none (or only its zombie)."""
    _reap(pid)
    found = _state_and_start(pid)
    return None if found is None or found[0] in ("Z", "X") else found[1]


def _state_and_start(pid: int) -> tuple[str, str] | None:
    """The letter of the process's state, and when it started, in the system's words."""
    if not _BOOT_ID.exists():
        return _by_ps(pid)
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # After the command's name in parentheses: state is field 3, the start in clock ticks since boot field 22.
    fields = status.rpartition(")")[2].split()
    return fields[0], f"{_BOOT_ID.read_text().strip()} {fields[19]}"


def _by_ps(pid: int) -> tuple[str, str] | None:
    answer = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = answer.stdout.strip().partition(" ")
    return (state[:1], started.strip()) if started else None


def _reap(pid: int) -> None:
    """Collect the exit status of a child of ours; of any other process nothing is known here."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
