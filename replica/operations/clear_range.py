"""What every entry that drops a range does: free the queue of what the range makes needless, and take its parts away.

ClickHouse: ReplicatedMergeTreeQueue.cpp, `removePartProducingOpsInRange`; MergeTreeData.cpp,
`removePartsInRangeFromWorkingSet`.
"""

from __future__ import annotations

import contextlib

from coordinator.api import Delete, MultiFailed, NoNode
from replica.errors import PartIsTemporarilyLocked
from replica.log_entry import LogEntry
from replica.log_puller import MAX_MULTI_OPS, insert_time_operations
from replica.part_log import PartEventType
from replica.part_name import PartName
from replica.session import ServerSession
from replica.storage.part_store import PartState, StoredPart
from replica.table_state import TableState


def refuse_undecided_parts(state: TableState, drop_range: PartName) -> None:
    """Raises PartIsTemporarilyLocked while it is not known of a part in the range whether it was committed.

    If it was, it came before the entry that drops the range, and is to go with the others. None comes later: whoever
    wrote the entry has removed the locks of the inserts in the range before.
    """
    for part in parts_inside(state, drop_range):
        if part.state is PartState.PRE_ACTIVE:
            raise PartIsTemporarilyLocked(
                f"It is not known yet whether part {part.name} was committed: {drop_range} is dropped once it is"
            )


def parts_inside(state: TableState, drop_range: PartName) -> list[StoredPart]:
    """The parts of this replica, in whatever state, that the range contains."""
    return [part for part in state.store.parts() if drop_range.contains(part.name)]


async def remove_covered_entries(
    state: TableState, session: ServerSession, drop_range: PartName, covering: LogEntry
) -> None:
    """Take the entries that make parts in the range out of the queue, and wait until none of them is running."""
    queue = state.queue
    covered = queue.entries_inside(drop_range, covering)
    for queued in covered:
        queue.remove(queued, successful=False)
    for queued in covered:
        with contextlib.suppress(NoNode):
            await session.delete(state.znodes.queue_entry(queued.znode_name))
    if operations := insert_time_operations(state):
        await session.multi(operations)
    if covered:
        await state.note_progress()
        await state.wait_for_progress(lambda: not any(queued.currently_executing for queued in covered))


async def unregister_inside(state: TableState, session: ServerSession, drop_range: PartName) -> None:
    """Remove the znodes of this replica's parts in the range."""
    names = filter(None, map(PartName.try_parse, await session.children(state.znodes.parts)))
    paths = [state.znodes.part(str(name)) for name in names if drop_range.contains(name)]
    for start in range(0, len(paths), MAX_MULTI_OPS):
        await _delete(session, paths[start : start + MAX_MULTI_OPS])


async def delete_inside(state: TableState, drop_range: PartName) -> None:
    """Delete what was dropped in the range from the disk, before the entry leaves the queue.

    What is unregistered is not to be on the disk without an entry that says why: a start would take it for a part of
    another table.
    """
    for part in await state.store.delete_dropped(drop_range):
        state.part_log.add(
            PartEventType.REMOVE_PART,
            str(part.name),
            part.name.partition_id,
            rows=part.rows,
            size_in_bytes=part.bytes_on_disk,
        )


async def _delete(session: ServerSession, paths: list[str]) -> None:
    try:
        await session.multi_checked([Delete(path) for path in paths])
    except MultiFailed as failure:
        if not isinstance(failure.error, NoNode):
            raise failure.error from failure
        if rest := [path for path in paths if path != paths[failure.index]]:  # a cleanup was quicker
            await _delete(session, rest)
