"""A block number: one multi that refuses a known deduplication id and otherwise takes the next number.

The number is the suffix of an ephemeral sequential znode, which is at the same time the lock that keeps merges
from passing over a number still being inserted (EphemeralLockInZooKeeper.cpp;
StorageReplicatedMergeTree.cpp, `allocateBlockNumber`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.api import (
    Check,
    CheckNotExists,
    CoordinationError,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    Set,
)
from replica.errors import TableIsReadOnly, UnexpectedNodeInZooKeeper
from replica.session import ServerSession
from replica.znodes import ReplicaZnodes

log = logging.getLogger(__name__)

# The counter of sequential znodes is a signed number of 32 bits; past its end names would come again.
LAST_BLOCK_NUMBER = 2**31 - 1
HIGH_BLOCK_NUMBER = LAST_BLOCK_NUMBER // 10 * 9


@dataclass(frozen=True, slots=True)
class BlockNumberLock:
    """A number that is ours while its znode lives, that is at most as long as the session."""

    number: int
    path: str
    session: ServerSession

    @property
    def warning(self) -> str:
        """What an operator should know of a number near the end of its counter, "" for any other."""
        if self.number < HIGH_BLOCK_NUMBER:
            return ""
        return (
            f"block number {self.number} is near the last one, {LAST_BLOCK_NUMBER}: before it comes, move the "
            f"partition to a new table ({self.path.rpartition('/')[0]})"
        )

    async def release(self) -> None:
        """Give the number back unused; it becomes a gap. A lock that cannot be removed dies with its session."""
        try:
            await self.session.delete(self.path)
        except NoNode:
            pass  # a commit or a DROP PARTITION has taken it away
        except CoordinationError as problem:
            log.info("the lock of block number %d goes with its session: %s", self.number, problem)


@dataclass(frozen=True, slots=True)
class Conflict:
    """The znode of a deduplication id that exists already; no number was taken."""

    path: str


class BlockNumbers:
    """Takes block numbers for one table; remembers which partitions have their znode."""

    def __init__(self, replica: ReplicaZnodes) -> None:
        self._replica = replica
        self._table = replica.table
        self._known_partitions: set[str] = set()

    async def allocate(
        self, session: ServerSession, partition_id: str, deduplication_paths: Sequence[str]
    ) -> BlockNumberLock | Conflict:
        """The next number for an insert, in one round trip, or the first znode of an id that is there.

        Raises TableIsReadOnly when this replica was dropped, UnexpectedNodeInZooKeeper when the numbers are used up,
        and CoordinationError.
        """
        taken = await self._take(session, partition_id, self._table.insert_lock_value, deduplication_paths)
        return taken if isinstance(taken, BlockNumberLock) else Conflict(deduplication_paths[taken])

    async def allocate_delimiter(self, session: ServerSession, partition_id: str) -> BlockNumberLock:
        """A number that nobody's insert has: all smaller ones were given out before. Raises as `allocate`."""
        taken = await self._take(session, partition_id, self._table.other_lock_value, [])
        assert isinstance(taken, BlockNumberLock)
        return taken

    async def allocate_unless_known(
        self, session: ServerSession, partition_id: str, id_path: str
    ) -> BlockNumberLock | None:
        """A number for a part of another table; None if the znode of its id is there. Raises as `allocate`."""
        taken = await self._take(session, partition_id, self._table.other_lock_value, [id_path])
        return taken if isinstance(taken, BlockNumberLock) else None

    async def _take(
        self, session: ServerSession, partition_id: str, value: str, id_paths: Sequence[str]
    ) -> BlockNumberLock | int:
        """The lock, which holds `value`, or the position of the first of these znodes that exists."""
        checks: list[Operation] = [CheckNotExists(path) for path in id_paths]
        prefix = f"{self._table.partition(partition_id)}/block-"
        take_number = Create(prefix, value.encode(), ephemeral=True, sequential=True)
        while True:
            await self._ensure_partition(session, partition_id)
            try:
                path = (await session.multi([*checks, take_number]))[-1]
                break
            except MultiFailed as failure:
                if failure.index < len(checks) and isinstance(failure.error, NodeExists):
                    return failure.index
                if failure.index < len(checks) or not isinstance(failure.error, NoNode):
                    raise failure.error from failure
                self._known_partitions.discard(partition_id)  # somebody said FORGET PARTITION
        assert isinstance(path, str)
        return await self._checked(session, path, path.removeprefix(prefix))

    async def _checked(self, session: ServerSession, path: str, digits: str) -> BlockNumberLock:
        lock = BlockNumberLock(int(digits) if digits.isdecimal() else LAST_BLOCK_NUMBER + 1, path, session)
        if lock.number > LAST_BLOCK_NUMBER:
            await lock.release()
            raise UnexpectedNodeInZooKeeper(
                f"{path} is past {LAST_BLOCK_NUMBER}, the last block number that a partition can have: it takes no "
                "more inserts. Move it to a new table"
            )
        if lock.warning:
            log.warning("%s", lock.warning)
        return lock

    async def _ensure_partition(self, session: ServerSession, partition_id: str) -> None:
        if partition_id in self._known_partitions:
            return
        partition = self._table.partition(partition_id)
        if await session.exists(partition) is None:
            await self._create_partition(session, partition)
        self._known_partitions.add(partition_id)

    async def _create_partition(self, session: ServerSession, partition: str) -> None:
        # The version of block_numbers tells others that the set of partitions changed.
        operations: list[Operation] = [
            Check(self._replica.host),
            Create(partition),
            Set(self._table.block_numbers, b""),
        ]
        try:
            await session.multi(operations)
        except MultiFailed as failure:
            if isinstance(failure.error, NodeExists):
                return
            if failure.index == 0 and isinstance(failure.error, NoNode):
                raise TableIsReadOnly(f"Replica {self._replica.name} was dropped: {self._replica.root}") from failure
            raise failure.error from failure
