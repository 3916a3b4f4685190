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
from replica.errors import TableIsReadOnly
from replica.session import ServerSession
from replica.znodes import ReplicaZnodes, sequence_number

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BlockNumberLock:
    """A number that is ours while its znode lives, that is at most as long as the session."""

    number: int
    path: str
    session: ServerSession

    async def release(self) -> None:
        """Give the number back unused; it becomes a gap. A lock that cannot be removed dies with its session."""
        try:
            await self.session.delete(self.path)
        except CoordinationError as problem:
            log.info("the lock of block number %d goes with its session: %s", self.number, problem)


@dataclass(frozen=True, slots=True)
class Conflict:
    """A deduplication id that exists already; no number was taken."""

    block_id: str


class BlockNumbers:
    """Takes block numbers for one table; remembers which partitions have their znode."""

    def __init__(self, replica: ReplicaZnodes) -> None:
        self._replica = replica
        self._table = replica.table
        self._known_partitions: set[str] = set()

    async def allocate(
        self, session: ServerSession, partition_id: str, block_ids: Sequence[str]
    ) -> BlockNumberLock | Conflict:
        """The next number of the partition, in one round trip, or the first id that is taken.

        Raises TableIsReadOnly when this replica was dropped, and CoordinationError.
        """
        await self._ensure_partition(session, partition_id)
        checks: list[Operation] = [CheckNotExists(self._table.deduplication_hash(each)) for each in block_ids]
        value = self._table.insert_lock_value if block_ids else self._table.other_lock_value
        prefix = f"{self._table.partition(partition_id)}/block-"
        take_number = Create(prefix, value.encode(), ephemeral=True, sequential=True)
        try:
            path = (await session.multi([*checks, take_number]))[-1]
        except MultiFailed as failure:
            if failure.index < len(checks) and isinstance(failure.error, NodeExists):
                return Conflict(block_ids[failure.index])
            raise failure.error from failure
        assert isinstance(path, str)
        return BlockNumberLock(sequence_number(path), path, session)

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
