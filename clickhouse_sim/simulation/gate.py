"""The gate: what stands between one life of a replica and the world.

A crash is not a cancellation: a `finally` block of a killed process does not run. So the gate closes first, and from
that instant no effect passes: an operation under way never completes, one that is begun is cancelled where it
stands. Only then are the tasks of that life dropped; whatever they do while they unwind meets a closed gate.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar


class Gate:
    """Open from a replica's start to its crash, then closed for ever."""

    def __init__(self) -> None:
        self.open = True

    def close(self) -> None:
        self.open = False

    def check(self) -> None:
        """Raises CancelledError, which no `except Exception` holds up, once the gate is closed."""
        if not self.open:
            raise asyncio.CancelledError("the replica is dead")


# Which life the running task belongs to; every task inherits it from the one that makes it.
current_gate: ContextVar[Gate | None] = ContextVar("current_gate", default=None)
