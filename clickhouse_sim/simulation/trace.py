"""The trace: what happened in a run, as text lines and as one hash over them.

Two runs of one tape must have equal hashes, in any process. Where they differ, `first_difference` shows the first
line that does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from clickhouse_sim.simulation.marks import Mark

Listener = Callable[[str, str, "Mark | None"], None]
"""Is told who did what, and the mark of the kind of event that it is, if it is one."""

_LINES_PER_HASHING = 1000


class Trace:
    """Lines in the order of events: `<virtual seconds> <who> <what>` for effects, `choice …` for draws.

    `now` tells virtual time in seconds. Lines are kept only with `keep_lines`; the hash is always there. A
    `listener`, when set, is told of each effect as it happens; it must not change anything.
    """

    def __init__(self, now: Callable[[], float], *, keep_lines: bool = False) -> None:
        self.listener: Listener | None = None
        self._now = now
        self._kept: list[str] | None = [] if keep_lines else None
        self._pending: list[str] = []
        self._hash = blake2b(digest_size=16)

    def note(self, who: str, what: str, mark: Mark | None = None) -> None:
        """An effect: a request, a reply, a disk operation, a message, a crash."""
        self._add(f"{self._now():.6f} {who} {what}")
        if self.listener is not None:
            self.listener(who, what, mark)

    def choice(self, label: str, options: int, index: int) -> None:
        """A draw; fits `Tape.observer`."""
        self._add(f"choice {label} {index}/{options}")

    @property
    def lines(self) -> list[str]:
        """The kept lines so far; none without `keep_lines`."""
        self._hash_pending()
        return self._kept or []

    def digest(self) -> str:
        """The hash of all lines so far, 32 hex digits."""
        self._hash_pending()
        return self._hash.hexdigest()

    def _add(self, line: str) -> None:
        if "\n" in line:
            line = line.replace("\n", "\\n")
        self._pending.append(line)
        if len(self._pending) >= _LINES_PER_HASHING:
            self._hash_pending()

    def _hash_pending(self) -> None:
        self._hash.update("".join(f"{line}\n" for line in self._pending).encode())
        if self._kept is not None:
            self._kept += self._pending
        self._pending.clear()


class Difference(NamedTuple):
    """Where two traces part: the line number (from 0), and each one's line there (None: it had ended)."""

    position: int
    one: str | None
    other: str | None


def first_difference(one: Sequence[str], other: Sequence[str]) -> Difference | None:
    """The first line in which two traces differ, None if they are equal."""
    for position in range(max(len(one), len(other))):
        left = one[position] if position < len(one) else None
        right = other[position] if position < len(other) else None
        if left != right:
            return Difference(position, left, right)
    return None


def fingerprint(content: bytes) -> str:
    """Content as it stands in a trace line: its length and a short hash."""
    return f"{len(content)}:{blake2b(content, digest_size=4).hexdigest()}"
