"""The gate: what stands between one life of a replica and the world.

A crash is not a cancellation: a `finally` block of a killed process does not run. So the gate closes first, and from
that instant no effect passes: an operation under way never completes, one that is begun is cancelled where it
stands. Only then are the tasks of that life dropped; whatever they do while they unwind meets a closed gate.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar, copy_context


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


_current_gate: ContextVar[Gate] = ContextVar("current_gate")


def context_of(gate: Gate) -> Context:
    """A context for tasks of this gate's life; the tasks that they make inherit it."""
    context = copy_context()
    context.run(_current_gate.set, gate)
    return context


def belongs_to(context: Context, gate: Gate) -> bool:
    """Whether a task with this context is of this gate's life."""
    return context.get(_current_gate) is gate
