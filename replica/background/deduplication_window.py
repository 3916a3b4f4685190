"""Forgets deduplication ids that are too many or too old.

ClickHouse: ReplicatedMergeTreeCleanupThread.cpp, `clearOldBlocks`. The window is measured when somebody cleans up: in
between there are more ids than it holds, and all of them deduplicate. Each generation of ids has a directory of its
own, which is cleaned even if this replica writes nothing there: others may, and what an upgrade leaves must go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.api import BadVersion, NoNode, RequestRefused
from replica.dedup.hashes import HashKind
from replica.session import ServerSession
from replica.settings import MergeTreeSettings
from replica.table_state import TableState

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeduplicationId:
    """A block id in the coordination service: `created` is the ctime of its znode in milliseconds."""

    name: str
    created: int
    version: int


def outside_window(ids: Iterable[DeduplicationId], size: int, seconds: int) -> list[DeduplicationId]:
    """The ids to forget: all but the `size` newest, and those older than `seconds` before the newest; newest first.

    Time stands still while nobody inserts: the newest id is the clock, so it never grows too old itself.
    """
    newest_first = sorted(ids, key=lambda each: (each.created, each.name), reverse=True)
    oldest = newest_first[0].created - 1000 * seconds if newest_first else 0
    return [each for position, each in enumerate(newest_first) if position >= size or each.created < oldest]


def window_of(kind: HashKind, settings: MergeTreeSettings) -> tuple[int, int]:
    """How many ids of a generation are kept, and for how many seconds."""
    if kind is HashKind.ASYNC:
        return (
            settings.replicated_deduplication_window_for_async_inserts,
            settings.replicated_deduplication_window_seconds_for_async_inserts,
        )
    return settings.replicated_deduplication_window, settings.replicated_deduplication_window_seconds


class DeduplicationWindows:
    """Keeps the ids of one table within their windows, one a generation."""

    def __init__(self, state: TableState, session: ServerSession) -> None:
        self._windows = [DeduplicationWindow(state, session, kind) for kind in HashKind]

    async def forget_outside(self) -> int:
        """Remove what is outside of the windows now; how many ids. Raises CoordinationError if it cannot look."""
        return sum([await window.forget_outside() for window in self._windows])


class DeduplicationWindow:
    """Keeps the ids of one directory within their window, and remembers those that it has looked at."""

    def __init__(self, state: TableState, session: ServerSession, kind: HashKind = HashKind.UNIFIED) -> None:
        self._state = state
        self._session = session
        self._kind = kind
        self._directory = state.znodes.table.deduplication_directory(kind)
        self._known: dict[str, DeduplicationId] = {}

    async def forget_outside(self) -> int:
        """Remove the ids that are outside of the window now; how many. Raises CoordinationError if it cannot look."""
        await self._look()
        outside = outside_window(self._known.values(), *window_of(self._kind, self._state.structure.settings))
        return sum(await asyncio.gather(*(self._forget(each) for each in outside)))

    async def _look(self) -> None:
        """Know exactly the ids that are there. Only new ones are asked about: an id never changes."""
        names = await self._session.children(self._directory)
        self._known = {name: self._known[name] for name in names if name in self._known}
        unknown = [name for name in names if name not in self._known]
        found = await self._session.get_many([f"{self._directory}/{name}" for name in unknown]) if unknown else []
        for name, answer in zip(unknown, found, strict=True):
            if answer is not None:
                self._known[name] = DeduplicationId(name, answer[1].ctime, answer[1].version)

    async def _forget(self, each: DeduplicationId) -> bool:
        try:
            await self._session.delete(f"{self._directory}/{each.name}", each.version)
        except (NoNode, BadVersion):
            del self._known[each.name]  # another replica was quicker, or wrote it: the next look will tell
            return False
        except RequestRefused as problem:
            log.warning("%s: cannot forget a deduplication id: %s", self._state.full_name, problem)
            return False
        del self._known[each.name]
        return True
