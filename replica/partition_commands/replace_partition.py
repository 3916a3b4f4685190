"""REPLACE PARTITION FROM and ATTACH PARTITION FROM another table of this server.

ClickHouse: StorageReplicatedMergeTree.cpp, `replacePartitionFrom`.
"""

from __future__ import annotations

import contextlib
from contextlib import AsyncExitStack

from coordinator.api import CoordinationError
from replica.commands import ReplacePartition
from replica.errors import Aborted, TableIsReadOnly
from replica.part_name import PartName
from replica.partition_commands.copied_parts import CopiedParts
from replica.partition_commands.drop_partition import TRIES, too_many_tries
from replica.partition_commands.intent import drop_replace_intent
from replica.partition_commands.logged import Logged, check_alter_sync, wait_until_done
from replica.partition_commands.meant_partition import one_partition
from replica.partition_commands.other_table import check_same_structure, other_table
from replica.partition_commands.range_to_drop import clear_range
from replica.storage.part_store import StoredPart
from replica.table_state import TableState


async def replace_partition(state: TableState, command: ReplacePartition) -> None:
    """Bring copies of the other table's active parts in; with `replace`, they are all that the partition has then.

    Raises UnknownTable, IncompatibleColumns, BadArguments, TableIsReadOnly, CannotAssignAlter, what `clear_range` and
    `wait_until_done` raise, and CoordinationError.
    """
    check_alter_sync(command.alter_sync)
    source = other_table(state, command.from_database, command.from_table)
    check_same_structure(state, source)
    partition_id = one_partition(state, command.partition, command.partition_id)
    for _ in range(TRIES):
        entry = await _replace(state, source, partition_id, command.replace)
        if entry is not None:
            await wait_until_done(state, [entry], command.alter_sync)
            return
    raise too_many_tries(state)


async def _replace(state: TableState, source: TableState, partition_id: str, replace: bool) -> Logged | None:
    """What is in the log now; None when another statement was quicker."""
    session, table = state.writable_session(), state.znodes.table
    _, alter_stat = await session.get(table.alter_partition_version)
    async with AsyncExitStack() as ending:
        delimiter = await state.block_numbers.allocate_delimiter(session, partition_id)
        ending.push_async_callback(delimiter.release)
        drop_range = nothing_to_drop(partition_id)
        if replace and delimiter.number > 0:
            drop_range = PartName.drop_range(partition_id, delimiter.number)
            await ending.enter_async_context(drop_replace_intent(state, drop_range))
        copied = CopiedParts(state, session, source)
        ending.push_async_callback(copied.give_up)
        await copied.copy(active_parts(source, partition_id), once=not drop_range.is_fake_drop_range)
        if drop_range.is_fake_drop_range:
            await clear_range(state, session, drop_range)
        entry = await copied.commit(drop_range, delimiter, alter_stat.version)
        if entry is not None:
            await pull_before_the_intent_ends(state)
        return entry


async def pull_before_the_intent_ends(state: TableState) -> None:
    """Let the queue know the entry before anything begins in its range: without that it would be in vain, no more."""
    with contextlib.suppress(Aborted, TableIsReadOnly, CoordinationError):
        await state.puller().pull()


def nothing_to_drop(partition_id: str) -> PartName:
    """The range of one block that a REPLACE_RANGE has when it only adds parts."""
    return PartName(partition_id, 0, 0, 0)


def active_parts(source: TableState, partition_id: str) -> list[StoredPart]:
    """Those of one partition, in order of their blocks."""
    return [part for part in source.store.active_parts() if part.name.partition_id == partition_id]
