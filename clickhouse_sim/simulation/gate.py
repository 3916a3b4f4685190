"""The gate: what stands between one life of a replica and the world.

A crash is not a cancellation: a `finally` block of a killed process does not run. So the gate closes first, and from
that instant no effect passes: an operation under way never completes, one that is begun is cancelled where it
stands. Only then are the tasks of that life dropped; whatever they do while they unwind meets a closed gate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


class Gate:
    """Open from a replica's start to its crash, then closed for ever."""

    def __init__(self) -> None:
        self.open = True

    def check(self) -> None:
        """Raises CancelledError, which no `except Exception` holds up, once the gate is closed."""
        if not self.open:
            raise asyncio.CancelledError("the replica is dead")

    async def through(self, operation: Callable[[], Awaitable[T]]) -> T:
        """The operation's result, if the gate is open before it and still open after it."""
        self.check()
        result = await operation()
        self.check()
        return result


# Which life the running task belongs to; every task inherits it from the one that makes it.
current_gate: ContextVar[Gate | None] = ContextVar("current_gate", default=None)
