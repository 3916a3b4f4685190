"""Copies the shared log into the replica's own queue, pointer and entries in one multi.

ClickHouse: ReplicatedMergeTreeQueue.cpp, `pullLogsToQueue`, and StorageReplicatedMergeTree.cpp,
`queueUpdatingTask`. One pull at a time; between pulls it waits for a watch on the log, not for a timer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from coordinator.api import CoordinationError, Create, NoNode, Operation, SessionLost, Set, Stat, Watch
from replica.commands import Action
from replica.errors import Aborted, ClickHouseError, LogicalError, UnexpectedNodeInZooKeeper
from replica.log_entry import LogEntry
from replica.session import ServerSession
from replica.table_state import TableState
from replica.znodes import sequence_number

log = logging.getLogger(__name__)

MAX_MULTI_OPS = 100
RETRY_SECONDS = 1.0


def insert_time_operations(state: TableState) -> list[Operation]:
    """What brings the replica's insert-time znodes up to date; nothing if they are."""
    changed = state.queue.take_insert_time_changes()
    times = (
        (state.znodes.min_unprocessed_insert_time, changed.min_unprocessed),
        (state.znodes.max_processed_insert_time, changed.max_processed),
    )
    return [Set(path, str(time).encode()) for path, time in times if time is not None]


class LogPuller:
    """The puller of one table under one session."""

    def __init__(self, state: TableState, session: ServerSession) -> None:
        self._state = state
        self._session = session
        self._znodes = state.znodes
        self._one_at_a_time = asyncio.Lock()
        self._batch_size = 1

    async def run(self) -> None:
        """Pull whenever the log changes, until the session is lost or the replica's znodes are gone.

        Other errors stand in the table's state.
        """
        while True:
            await self._state.blockers.wait_until_going(Action.PULLING_REPLICATION_LOG)
            watch = Watch()
            try:
                await self.pull(watch)
            except SessionLost:
                return
            except LogicalError:
                raise  # the queue in memory is not the one in the znodes any more: nothing may go on
            except Aborted:
                continue  # it was stopped meanwhile
            except (ClickHouseError, CoordinationError) as problem:
                self._state.last_queue_update_exception = str(problem)
                log.warning("%s: cannot copy the log: %s", self._state.full_name, problem)
                if isinstance(problem, NoNode) and await self._is_gone():
                    return
                await asyncio.sleep(RETRY_SECONDS)
                continue
            await watch.wait()

    async def _is_gone(self) -> bool:
        try:
            return await self._session.exists(self._znodes.root) is None
        except CoordinationError:
            return False

    async def pull(self, watch: Watch | None = None) -> int:
        """Copy every new entry; the version of the log znode that the copy is at least as new as.

        Raises Aborted while SYSTEM STOP PULLING REPLICATION LOG holds, and CoordinationError.
        """
        async with self._one_at_a_time:
            self._state.blockers.check(Action.PULLING_REPLICATION_LOG)
            self._state.queue_update_started = self._state.now()
            session, table = self._session, self._znodes.table
            pointer_text, _ = await session.get(self._znodes.log_pointer)
            _, log_stat = await session.get(table.log)
            names = await session.children(table.log, watch)
            pointer = await self._pointer(pointer_text, names)
            new = [name for name in names if name >= f"log-{pointer:010d}"]
            for batch in self._batches(new):
                await self._copy(batch)
            self._state.last_queue_update = self._state.now()
            return log_stat.version

    async def _pointer(self, text: bytes, names: list[str]) -> int:
        """The number of the next entry to copy; a replica's first pull starts at the oldest entry there is."""
        if text:
            return int(text)
        first = sequence_number(names[0]) if names else 0
        await self._session.set(self._znodes.log_pointer, str(first).encode())
        return first

    def _batches(self, names: list[str]) -> Iterator[list[str]]:
        """Batches of 1, 2, 4 … 100 entries; the size keeps growing from one pull to the next."""
        start = 0
        while start < len(names):
            size = self._batch_size
            self._batch_size = min(2 * size, MAX_MULTI_OPS)
            yield names[start : start + size]
            start += size

    async def _copy(self, names: list[str]) -> None:
        state = self._state
        if not names[-1].startswith("log-"):
            raise UnexpectedNodeInZooKeeper(f"{names[-1]} in {self._znodes.table.log} is no log entry")
        found = await self._read(names)
        entries = [LogEntry.from_znode(data, stat) for data, stat in found]
        creates: list[Operation] = [
            Create(f"{self._znodes.queue}/queue-", data, sequential=True) for data, _ in found
        ]
        operations = [*creates, Set(self._znodes.log_pointer, str(sequence_number(names[-1]) + 1).encode())]
        state.queue.expect_inserts(entries)
        operations += insert_time_operations(state)
        results = await self._session.multi_checked(operations)
        for path, entry in zip(results, entries, strict=False):
            assert isinstance(path, str)
            state.queue.insert(path.rsplit("/", 1)[1], entry)
        state.queue_changed.set()

    async def _read(self, names: list[str]) -> list[tuple[bytes, Stat]]:
        """Data and stat of entries. Raises NoNode if one vanished since the listing."""
        paths = [self._znodes.table.log_entry(name) for name in names]
        read = []
        for path, found in zip(paths, await self._session.get_many(paths), strict=True):
            if found is None:
                raise NoNode(path)
            read.append(found)
        return read
