"""From an entry's type to its operation.

ClickHouse: StorageReplicatedMergeTree.cpp, `executeLogEntry`.
"""

from __future__ import annotations

from replica.log_entry import PART_PRODUCING_TYPES, EntryType
from replica.operations.attach_part import attach_part
from replica.operations.drop_range import drop_range
from replica.operations.get_part import get_part
from replica.operations.has_part import has_part
from replica.operations.merge_parts import merge_parts
from replica.operations.refused import refusal
from replica.operations.replace_range import replace_range
from replica.queue import QueuedEntry
from replica.session import ServerSession
from replica.table_state import TableState


async def execute(state: TableState, session: ServerSession, queued: QueuedEntry) -> None:
    """Carry the entry out; it leaves the queue then.

    Raises the ClickHouseError, CoordinationError or OSError that the entry then shows as its last exception, and
    NotDone or NoFreeSlot when the attempt has ended without its work and without an error.
    """
    entry = queued.entry
    part = entry.new_part if entry.type in PART_PRODUCING_TYPES else None
    if part is not None and await has_part(state, session, part):
        return
    match entry.type:
        case EntryType.GET_PART:
            await get_part(state, session, queued)
        case EntryType.ATTACH_PART:
            await attach_part(state, session, queued)
        case EntryType.MERGE_PARTS:
            await merge_parts(state, session, queued)
        case EntryType.DROP_RANGE | EntryType.DROP_PART:
            await drop_range(state, session, queued)
        case EntryType.REPLACE_RANGE:
            await replace_range(state, session, queued)
        case _:
            raise refusal(queued)
