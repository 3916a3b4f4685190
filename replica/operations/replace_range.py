"""REPLACE_RANGE: bring copies of another table's parts in, and drop what they replace.

ClickHouse: StorageReplicatedMergeTree.cpp, `executeReplaceRange`.
"""

from __future__ import annotations

import contextlib
import logging

from coordinator.api import CoordinationError
from replica.errors import ClickHouseError, LogicalError, NoReplicaHasPart, NoSuchDataPart
from replica.log_entry import ReplacedPart, ReplaceRange
from replica.operations.clear_range import (
    delete_inside,
    refuse_undecided_parts,
    remove_covered_entries,
    unregister_inside,
)
from replica.operations.commit_part import commit_parts
from replica.operations.get_part import download, exact_source, find_source
from replica.operations.has_part import has_part
from replica.part_name import PartName
from replica.queue import QueuedEntry
from replica.session import ServerSession
from replica.storage.part_store import TemporaryPart
from replica.table_state import TableState

log = logging.getLogger(__name__)


async def replace_range(state: TableState, session: ServerSession, queued: QueuedEntry) -> None:
    """Have all new parts, from one moment on, and nothing in the range any more.

    A new part that a later entry drops anyway is left out. Raises NoReplicaHasPart for one that is found nowhere,
    PartIsTemporarilyLocked as `drop_range`, and whatever copying, fetching and committing raise.
    """
    replace, dropped = queued.entry.replace_range, queued.entry.drop_range
    if replace is None:
        raise LogicalError(f"Log entry {queued.znode_name} does not say what it replaces")
    if dropped is not None:
        await remove_covered_entries(state, session, dropped, queued.entry)
        refuse_undecided_parts(state, dropped)
    await commit_parts(state, session, await _missing_parts(state, session, queued, replace), dropped)
    if dropped is not None:
        await unregister_inside(state, session, dropped)
        await delete_inside(state, dropped)


async def _missing_parts(
    state: TableState, session: ServerSession, queued: QueuedEntry, replace: ReplaceRange
) -> list[tuple[TemporaryPart, PartName]]:
    """The new parts, or bigger ones that cover them, that this replica does not have; none is left after an error."""
    missing: list[tuple[TemporaryPart, PartName]] = []
    try:
        for part in replace.parts:
            covered = any(name.contains(part.new) for _, name in missing)
            needless = not state.queue.will_be(part.new)  # a later entry drops it, or has dropped it already
            if covered or needless or await has_part(state, session, part.new):
                continue
            missing.append(await _bring(state, session, queued, replace, part))
    except (ClickHouseError, CoordinationError, OSError):
        for temporary, _ in missing:
            with contextlib.suppress(OSError):
                await state.store.discard(temporary)
        raise
    return missing


async def _bring(
    state: TableState, session: ServerSession, queued: QueuedEntry, replace: ReplaceRange, part: ReplacedPart
) -> tuple[TemporaryPart, PartName]:
    """From the table that it comes from, if that is here and has it, else from a replica."""
    source = state.server.tables.get((replace.from_database, replace.from_table))
    original = None if source is None else source.store.get(part.source)
    if source is not None and original is not None and original.header.total == part.checksum:
        try:
            return await state.store.copy(source.store, original), part.new
        except NoSuchDataPart as problem:
            log.info("%s: %s is on its way out of its table: %s", state.full_name, part.source, problem)
    replica = await exact_source(state, session, part.new)
    if replica is not None:
        return await download(state, session, replica, part.new), part.new
    found = await find_source(state, session, queued, part.new)
    if found is None:
        raise NoReplicaHasPart(
            f"No active replica has part {part.new} or covering part (cannot execute {queued.znode_name}: "
            f"{queued.entry.type} {replace.drop_range}), nor is {part.source} in {replace.from_table} here"
        )
    return await download(state, session, *found), found[1]
