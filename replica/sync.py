"""SYSTEM SYNC REPLICA: copy the log, then wait for what the queue has at that moment.

ClickHouse: StorageReplicatedMergeTree.cpp, `waitForProcessingQueue`; ReplicatedMergeTreeQueue.cpp, `addSubscriber`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from replica.commands import SyncMode
from replica.errors import TimeoutExceeded
from replica.log_entry import EntryType
from replica.queue import ReplicationQueue

if TYPE_CHECKING:
    from replica.table_state import TableState

_LIGHTWEIGHT_TYPES = frozenset(
    (EntryType.GET_PART, EntryType.ATTACH_PART, EntryType.DROP_RANGE, EntryType.DROP_PART, EntryType.REPLACE_RANGE)
)
_NAMED_IN_ERRORS = 5


class Puller(Protocol):
    """Copies the log on demand while a replica is active."""

    async def pull(self) -> int:
        """The version of the log that was copied. Raises Aborted while pulling is stopped, and CoordinationError."""
        ...


async def sync_replica(state: TableState, mode: SyncMode) -> None:
    """Wait as the mode says, `receive_timeout` at most.

    Raises TableIsReadOnly, TimeoutExceeded with what is still waited for, and what the pull raises.
    """
    await state.puller().pull()
    if mode is SyncMode.PULL:
        return
    queue, seconds = state.queue, state.server.settings.receive_timeout
    remaining = everything(queue) if mode is SyncMode.STRICT else those_of_now(queue, mode)
    try:
        async with asyncio.timeout(seconds):
            await state.wait_for_progress(lambda: not remaining())
    except TimeoutError:
        names = remaining()
        shown = ", ".join(names[:_NAMED_IN_ERRORS]) + (", …" if len(names) > _NAMED_IN_ERRORS else "")
        raise TimeoutExceeded(
            f"SYNC REPLICA {state.full_name}: {shown} not done after {seconds:g} s (receive_timeout); "
            "system.replication_queue says why"
        ) from None


def everything(queue: ReplicationQueue) -> Callable[[], list[str]]:
    """What to wait for until the queue is empty, entries that come meanwhile included."""
    return lambda: [queued.znode_name for queued in queue]


def those_of_now(queue: ReplicationQueue, mode: SyncMode) -> Callable[[], list[str]]:
    """What to wait for of the entries that are in the queue at this call; later ones do not count."""
    light = mode is SyncMode.LIGHTWEIGHT
    names = [queued.znode_name for queued in queue if not light or queued.entry.type in _LIGHTWEIGHT_TYPES]
    return lambda: [name for name in names if name in queue]
