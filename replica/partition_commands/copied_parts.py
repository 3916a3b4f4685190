"""Parts of one table that become parts of another one of the same server, in one multi with a REPLACE_RANGE entry.

ClickHouse: StorageReplicatedMergeTree.cpp, `replacePartitionFrom`, `movePartitionToTable`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from coordinator.api import BadVersion, CoordinationError, Create, Delete, MultiFailed, Operation, SessionLost, Set
from replica.errors import ClickHouseError
from replica.insert.block_number import BlockNumberLock
from replica.log_entry import EntryType, LogEntry, ReplacedPart, ReplaceRange
from replica.operations.commit_part import activate_all, publish_all, withdraw_all
from replica.part_log import PartEventType
from replica.part_name import PartName
from replica.partition_commands.logged import Logged
from replica.session import ServerSession
from replica.storage.part_store import StoredPart, TemporaryPart
from replica.table_state import TableState
from replica.to_the_end import to_the_end


@dataclass(slots=True)
class CopiedParts:
    """Copies on their way into `state`: each with its lock, its name, and the id that is to keep a second one out."""

    state: TableState
    session: ServerSession
    source: TableState
    parts: list[tuple[TemporaryPart, PartName]] = field(default_factory=list)
    _replaced: list[ReplacedPart] = field(default_factory=list)
    _locks: list[BlockNumberLock] = field(default_factory=list)
    _id_paths: list[str] = field(default_factory=list)

    async def copy(self, originals: Sequence[StoredPart], *, once: bool) -> None:
        """Take a number for each part and link its files.

        With `once`, a part whose content came in that way before is left out.
        """
        for part in originals:
            id_path = self._id_path(part) if once else ""
            lock = await self._lock(part.name.partition_id, id_path)
            if lock is None:
                continue
            name = PartName(part.name.partition_id, lock.number, lock.number, part.name.level)
            self._locks.append(lock)
            self._id_paths.append(id_path)
            self.parts.append((await self.state.store.copy(self.source.store, part), name))
            self._replaced.append(ReplacedPart(part.name, name, part.header.total))

    def _id_path(self, part: StoredPart) -> str:
        """The znode of the id; "" for a content that is among these parts already."""
        table = self.state.znodes.table
        path = table.attached_from_another_table(part.name.partition_id, part.header.total)
        return "" if path in self._id_paths else path

    async def _lock(self, partition_id: str, id_path: str) -> BlockNumberLock | None:
        numbers = self.state.block_numbers
        if id_path:
            return await numbers.allocate_unless_known(self.session, partition_id, id_path)
        return await numbers.allocate_delimiter(self.session, partition_id)

    async def commit(
        self, drop_range: PartName, delimiter: BlockNumberLock | None, alter_partition_version: int
    ) -> Logged | None:
        """Let the parts count, instead of what is in a range of more than one block; the entry that says so.

        None, and nothing has happened, when another statement has changed whole partitions since that version.
        A cancellation waits until it is known.
        """
        return await to_the_end(self._commit(drop_range, delimiter, alter_partition_version))

    async def _commit(
        self, drop_range: PartName, delimiter: BlockNumberLock | None, alter_partition_version: int
    ) -> Logged | None:
        state, table = self.state, self.state.znodes.table
        entry = LogEntry(
            type=EntryType.REPLACE_RANGE,
            create_time=int(state.now()),
            source_replica=state.znodes.name,
            replace_range=ReplaceRange(drop_range, self.source.database, self.source.name, tuple(self._replaced)),
        )
        parts, self.parts = self.parts, []
        published = await publish_all(state, parts)
        operations = [
            *self._registrations(published),
            *([Delete(delimiter.path)] if delimiter is not None else []),
            Set(table.alter_partition_version, b"", alter_partition_version),
            Set(table.log, b""),
            Create(f"{table.log}/log-", entry.to_text().encode(), sequential=True),
        ]
        try:
            results = await self.session.multi_checked(operations)
        except SessionLost:
            for part in published:
                state.uncertain_parts.add(part.name, only_copy=False)
            raise
        except (ClickHouseError, CoordinationError) as problem:
            await withdraw_all(state, parts)
            if not isinstance(problem, MultiFailed):
                raise
            if isinstance(problem.error, BadVersion):
                return None
            raise problem.error from problem
        self._locks.clear()
        activate_all(state, published, entry.drop_range)
        self._tell_part_log(published)
        return Logged.made(entry, results[-1])

    def _registrations(self, published: Sequence[StoredPart]) -> list[Operation]:
        operations: list[Operation] = []
        for part, id_path, lock in zip(published, self._id_paths, self._locks, strict=True):
            if id_path:
                operations.append(Create(id_path, str(part.name).encode()))
            operations.append(Create(self.state.znodes.part(str(part.name)), part.header.to_bytes()))
            operations.append(Delete(lock.path))
        return operations

    def _tell_part_log(self, published: Sequence[StoredPart]) -> None:
        for part in published:
            self.state.part_log.add(
                PartEventType.NEW_PART,
                str(part.name),
                part.name.partition_id,
                rows=part.rows,
                size_in_bytes=part.bytes_on_disk,
            )

    async def give_up(self) -> None:
        """Leave nothing of what was not committed."""
        for temporary, _ in self.parts:
            await self.state.store.discard(temporary)
        for lock in self._locks:
            await lock.release()
