"""MOVE PARTITION TO TABLE: copies into the other table, then a drop here. ClickHouse does it in two commits as well.

ClickHouse: StorageReplicatedMergeTree.cpp, `movePartitionToTable`.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from coordinator.api import BadVersion, CoordinationError, Create, Delete, MultiFailed, Set
from replica.commands import MovePartition
from replica.errors import BadArguments, CannotAssignAlter, KeeperException
from replica.insert.block_number import BlockNumberLock
from replica.log_entry import EntryType, LogEntry
from replica.part_name import PartName
from replica.partition_commands.copied_parts import CopiedParts
from replica.partition_commands.drop_partition import TRIES, too_many_tries
from replica.partition_commands.intent import drop_replace_intent
from replica.partition_commands.logged import Logged, check_alter_sync, wait_until_done
from replica.partition_commands.meant_partition import one_partition
from replica.partition_commands.other_table import check_same_structure, other_table
from replica.partition_commands.range_to_drop import clear_range
from replica.partition_commands.replace_partition import active_parts, nothing_to_drop, pull_before_the_intent_ends
from replica.session import ServerSession
from replica.table_state import TableState


async def move_partition(state: TableState, command: MovePartition) -> None:
    """Move the parts that are active here; what is inserted into the partition meanwhile is refused.

    Raises as `replace_partition`, CannotAssignAlter also when another statement changes whole partitions of this
    table at the same time, and KeeperException when the parts are in both because the second commit failed.
    """
    check_alter_sync(command.alter_sync)
    destination = other_table(state, command.to_database, command.to_table)
    if destination is state:
        raise BadArguments(f"MOVE PARTITION moves to another table, and {state.full_name} is the same")
    check_same_structure(state, destination)
    partition_id = one_partition(state, command.partition, command.partition_id)
    session = state.writable_session()
    _, alter_stat = await session.get(state.znodes.table.alter_partition_version)
    async with AsyncExitStack() as ending:
        delimiter = await state.block_numbers.allocate_delimiter(session, partition_id)
        ending.push_async_callback(delimiter.release)
        if delimiter.number == 0:
            return
        drop_range = PartName.drop_range(partition_id, delimiter.number)
        await ending.enter_async_context(drop_replace_intent(state, drop_range))
        await _announce(state, session, alter_stat.version)
        await clear_range(state, session, drop_range)
        arrived = await _bring_in(state, destination, session, partition_id)
        await wait_until_done(destination, [arrived], command.alter_sync)
        dropped = await _drop(state, session, drop_range, delimiter)
        await pull_before_the_intent_ends(state)
    await wait_until_done(state, [dropped], command.alter_sync)


async def _announce(state: TableState, session: ServerSession, version: int) -> None:
    """Make whoever else changes whole partitions of the source begin anew."""
    try:
        await session.multi_checked([Set(state.znodes.table.alter_partition_version, b"", version)])
    except MultiFailed as failure:
        if isinstance(failure.error, BadVersion):
            raise CannotAssignAlter(
                f"Another statement changes whole partitions of {state.full_name} now: try again"
            ) from failure
        raise failure.error from failure


async def _bring_in(source: TableState, destination: TableState, session: ServerSession, partition_id: str) -> Logged:
    for _ in range(TRIES):
        destination.writable_session()
        _, alter_stat = await session.get(destination.znodes.table.alter_partition_version)
        copied = CopiedParts(destination, session, source)
        try:
            await copied.copy(active_parts(source, partition_id), once=False)
            entry = await copied.commit(nothing_to_drop(partition_id), None, alter_stat.version)
        finally:
            await copied.give_up()
        if entry is not None:
            return entry
    raise too_many_tries(destination)


async def _drop(
    state: TableState, session: ServerSession, drop_range: PartName, delimiter: BlockNumberLock
) -> Logged:
    log = state.znodes.table.log
    entry = LogEntry(
        type=EntryType.DROP_RANGE,
        create_time=int(state.now()),
        source_replica=state.znodes.name,
        new_part=drop_range,
    )
    create = Create(f"{log}/log-", entry.to_text().encode(), sequential=True)
    try:
        results = await session.multi_checked([create, Set(log, b""), Delete(delimiter.path)])
    except CoordinationError as problem:
        raise KeeperException(
            f"The parts are in the other table, but whether they are still in {state.full_name} is not known: "
            f"look, and drop partition {drop_range.partition_id} there ({problem})"
        ) from problem
    return Logged.made(entry, results[0])
