"""DROP_RANGE and DROP_PART: what the range contains goes, after a copy in `detached/` if the entry says detach.

ClickHouse: StorageReplicatedMergeTree.cpp, `executeDropRange`.
"""

from __future__ import annotations

from replica.errors import LogicalError
from replica.operations.clear_range import (
    delete_inside,
    parts_inside,
    refuse_undecided_parts,
    remove_covered_entries,
    unregister_inside,
)
from replica.queue import QueuedEntry
from replica.session import ServerSession
from replica.storage.part_store import PartState
from replica.table_state import TableState


async def drop_range(state: TableState, session: ServerSession, queued: QueuedEntry) -> None:
    """Drop or detach the range; a part that is already outdated is not detached.

    Raises PartIsTemporarilyLocked while a part in the range may still be of an insert, and CoordinationError.
    """
    dropped = queued.entry.drop_range
    if dropped is None:
        raise LogicalError(f"Log entry {queued.znode_name} does not say what it drops")
    await remove_covered_entries(state, session, dropped, queued.entry)
    refuse_undecided_parts(state, dropped)
    if queued.entry.is_detach:
        for part in parts_inside(state, dropped):
            if part.state is PartState.ACTIVE:
                await state.store.copy_to_detached(part)
    state.store.drop(dropped)
    await unregister_inside(state, session, dropped)
    await delete_inside(state, dropped)
