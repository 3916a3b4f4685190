"""Processes that a bench starts, and that are gone when it is over."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

LOOPBACK = "127.0.0.1"
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.02


class NotMeasured(Exception):
    """Something failed, or does not come up; the message says what."""


class NotInstalled(NotMeasured):
    """A program to compare with is not here; the message says how to install it."""


class Process:
    """One child process, away from the terminal's Ctrl-C, so that only `stop` ends it."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        """Output is appended to `log`."""
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        """Raises NotMeasured, with the end of the log, when it ends or takes longer."""
        deadline = time.monotonic() + seconds
        while not holds():
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-5:])
                raise NotMeasured(f"{what}: not so {'at its end' if ended else f'after {seconds:.0f} s'}\n{tail}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """SIGTERM, a bounded wait, then SIGKILL. Harmless when it is gone."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL. Harmless when it is gone."""
        self._process.kill()
        self._process.wait()


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody listens on now, all different."""
    listeners = [socket.socket() for _ in range(count)]
    try:
        for listener in listeners:
            listener.bind((LOOPBACK, 0))
        return [int(listener.getsockname()[1]) for listener in listeners]
    finally:
        for listener in listeners:
            listener.close()


def wait_until(holds: Callable[[], bool], what: str, seconds: float) -> None:
    """Look again and again, so rarely that looking costs little and tells the time to a twentieth of itself.

    Raises NotMeasured when it takes longer than `seconds`.
    """
    started = time.monotonic()
    while not holds():
        waited = time.monotonic() - started
        if waited > seconds:
            raise NotMeasured(f"{what}: not so after {seconds:.0f} s")
        time.sleep(max(_POLL_SECONDS, waited / 20))
