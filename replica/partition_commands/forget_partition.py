"""FORGET PARTITION: the znode of an empty partition's block numbers goes; whoever inserts again begins with 0.

ClickHouse: StorageReplicatedMergeTree.cpp, `forgetPartition`. It looks at its own parts only. Numbers that begin anew
give old names to new parts, so here no replica may have, or still have to do, anything in the partition.
"""

from __future__ import annotations

from coordinator.api import CheckNotExists, Delete, MultiFailed, NodeExists, NoNode, RequestRefused
from replica.commands import ForgetPartition
from replica.errors import CannotForgetPartition
from replica.log_entry import LogEntry
from replica.part_name import PartName
from replica.partition_commands.drop_partition import TRIES, too_many_tries
from replica.partition_commands.meant_partition import one_partition
from replica.session import ServerSession
from replica.table_state import TableState
from replica.znodes import ReplicaZnodes


async def forget_partition(state: TableState, command: ForgetPartition) -> None:
    """Forget it. Raises CannotForgetPartition for one that is not empty or not known, and CoordinationError."""
    partition_id = one_partition(state, command.partition, command.partition_id)
    for _ in range(TRIES):
        await state.puller().pull()
        if await _forget(state, state.writable_session(), partition_id):
            return
    raise too_many_tries(state)


async def _forget(state: TableState, session: ServerSession, partition_id: str) -> bool:
    """False when the log has grown meanwhile.

    The number of the next log entry makes it safe: an insert that comes in between either holds a lock, which is a
    child of the znode, or it has written that entry.
    """
    table = state.znodes.table
    next_entry = await _next_entry(session, table.log)
    try:
        locks = await session.children(table.partition(partition_id))
    except NoNode:
        raise CannotForgetPartition(f"Partition {partition_id} is unknown") from None
    if locks:
        raise _in_use(partition_id)
    for name in await session.children(table.replicas):
        if reason := await _why_not_empty(session, table.replica(name), partition_id, next_entry):
            raise CannotForgetPartition(f"Partition {partition_id} is not empty: {reason}")
    try:
        await session.multi_checked(
            [CheckNotExists(table.log_entry(f"log-{next_entry:010d}")), Delete(table.partition(partition_id))]
        )
    except MultiFailed as failure:
        if failure.index == 0 and isinstance(failure.error, NodeExists):
            return False
        if isinstance(failure.error, RequestRefused):
            raise _in_use(partition_id) from failure
        raise failure.error from failure
    return True


async def _next_entry(session: ServerSession, log: str) -> int:
    """The number that the next log entry will have: as many children as were ever made."""
    stat = await session.exists(log)
    if stat is None:
        raise NoNode(log)
    return (stat.cversion + stat.num_children) // 2


async def _why_not_empty(
    session: ServerSession, replica: ReplicaZnodes, partition_id: str, next_entry: int
) -> str | None:
    """What a replica still has, or has to do, of what is in the log before that entry.

    What was in the queue when it was looked at, or has become a part by then: the order of the looks leaves no gap.
    """
    pointer, _ = await session.get(replica.log_pointer)
    if int(pointer or b"0") < next_entry:
        return f"{replica.name} has not copied the whole log"
    names = await session.children(replica.queue)
    answers = await session.get_many([replica.queue_entry(name) for name in names])
    for name, answer in zip(names, answers, strict=True):
        if answer is not None and partition_id in _partitions(LogEntry.from_znode(*answer)):
            return f"{replica.name} has not done {name} yet"
    for part in filter(None, map(PartName.try_parse, await session.children(replica.parts))):
        if part.partition_id == partition_id:
            return f"{replica.name} has part {part}"
    return None


def _partitions(entry: LogEntry) -> set[str]:
    parts = (entry.new_part, entry.drop_range, *entry.virtual_parts)
    return {part.partition_id for part in parts if part is not None}


def _in_use(partition_id: str) -> CannotForgetPartition:
    return CannotForgetPartition(f"Partition {partition_id} is not empty: something is being inserted into it")
