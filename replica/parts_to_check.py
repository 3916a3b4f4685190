"""Parts that something is wrong with, or may be: a queue of names with the times at which to look at them.

ClickHouse: ReplicatedMergeTreePartCheckThread.cpp, `enqueuePart`. Kept in memory only: whoever misses a part again
puts it here again.
"""

from __future__ import annotations

import asyncio

from replica.part_name import PartName


class PartsToCheck:
    """The names in the order in which they came; each is there once. Times are seconds since 1970."""

    def __init__(self) -> None:
        self._due: dict[PartName, float] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, name: object) -> bool:
        return name in self._due

    def add(self, name: PartName, due: float) -> None:
        """Look at the part then; nothing if it is to be looked at anyway."""
        if name not in self._due:
            self._due[name] = due
            self._changed.set()

    def put_off(self, name: PartName, due: float) -> None:
        """Look again later, after the others."""
        self.settle(name)
        self.add(name, due)

    def settle(self, name: PartName) -> None:
        """The part needs no look any more."""
        self._due.pop(name, None)

    def due(self, now: float) -> PartName | None:
        """The first one whose time has come."""
        return next((name for name, due in self._due.items() if due <= now), None)

    async def wait(self, now: float) -> None:
        """Wait until one more is there, or the time of one has come."""
        self._changed.clear()
        seconds = min((due - now for due in self._due.values()), default=None)
        try:
            async with asyncio.timeout(None if seconds is None else max(0.0, seconds)):
                await self._changed.wait()
        except TimeoutError:
            pass
