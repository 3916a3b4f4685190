"""DROP and DETACH PARTITION, TRUNCATE: a range is written into the log for each partition that has blocks.

ClickHouse: StorageReplicatedMergeTree.cpp, `dropAllPartsInPartitions`.
"""

from __future__ import annotations

from coordinator.api import BadVersion, Create, Delete, MultiFailed, Operation, Set
from replica.commands import DropPartition
from replica.errors import CannotAssignAlter
from replica.insert.block_number import BlockNumberLock
from replica.log_entry import EntryType, LogEntry
from replica.part_name import PartName
from replica.partition_commands.logged import Logged, check_alter_sync, wait_until_done
from replica.partition_commands.meant_partition import meant_partition
from replica.partition_commands.range_to_drop import clear_range
from replica.session import ServerSession
from replica.table_state import TableState

TRIES = 1000
"""How often a statement begins anew because another one has changed whole partitions meanwhile."""


async def drop_partition(state: TableState, command: DropPartition) -> None:
    """Write the entries and wait for them.

    Raises TableIsReadOnly, CannotAssignAlter, what `clear_range` and `wait_until_done` raise, and CoordinationError.
    """
    check_alter_sync(command.alter_sync)
    meant = meant_partition(state, command.partition, command.partition_id)
    for _ in range(TRIES):
        entries = await _write_entries(state, state.writable_session(), meant, command.detach)
        if entries is not None:
            await wait_until_done(state, entries, command.alter_sync)
            return
    raise too_many_tries(state)


def too_many_tries(state: TableState) -> CannotAssignAlter:
    return CannotAssignAlter(
        f"Others change whole partitions of {state.full_name} all the time: given up after {TRIES} tries"
    )


async def _write_entries(
    state: TableState, session: ServerSession, meant: str | None, detach: bool
) -> list[Logged] | None:
    """What is in the log now; None when another statement was quicker."""
    table = state.znodes.table
    _, alter_stat = await session.get(table.alter_partition_version)
    partitions = await session.children(table.block_numbers) if meant is None else [meant]
    locks: list[BlockNumberLock] = []
    entries: list[LogEntry] = []
    operations: list[Operation] = []
    try:
        for partition_id in partitions:
            locks.append(lock := await state.block_numbers.allocate_delimiter(session, partition_id))
            if lock.number == 0:
                continue  # there has never been anything
            entry = _entry(state, PartName.drop_range(partition_id, lock.number - 1), detach)
            entries.append(entry)
            operations += [_create(state, entry), Delete(lock.path)]
        for entry in entries:
            assert entry.new_part is not None
            await clear_range(state, session, entry.new_part)
        if not entries:
            return []
        operations += [Set(table.alter_partition_version, b"", alter_stat.version), Set(table.log, b"")]
        results = await session.multi_checked(operations)
        locks = [lock for lock in locks if lock.number == 0]
        return [Logged.made(entry, result) for entry, result in zip(entries, results[::2], strict=False)]
    except MultiFailed as failure:
        if isinstance(failure.error, BadVersion):
            return None
        raise failure.error from failure
    finally:
        for lock in locks:
            await lock.release()


def _entry(state: TableState, drop_range: PartName, detach: bool) -> LogEntry:
    return LogEntry(
        type=EntryType.DROP_RANGE,
        create_time=int(state.now()),
        source_replica=state.znodes.name,
        new_part=drop_range,
        is_detach=detach,
    )


def _create(state: TableState, entry: LogEntry) -> Create:
    return Create(f"{state.znodes.table.log}/log-", entry.to_text().encode(), sequential=True)
