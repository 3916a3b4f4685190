"""ATTACH_PART: take the part from this replica's own `detached/` if it lies there, else download it.

ClickHouse: StorageReplicatedMergeTree.cpp, `attachPartHelperFoundValidPart`.
"""

from __future__ import annotations

import logging
from functools import partial

from replica.errors import ClickHouseError
from replica.log_entry import LogEntry
from replica.operations.commit_part import commit_part
from replica.operations.get_part import get_part
from replica.queue import QueuedEntry
from replica.session import ServerSession
from replica.storage.part_files import part_header, verified_part
from replica.storage.part_store import TemporaryPart
from replica.table_state import TableState

log = logging.getLogger(__name__)


async def attach_part(state: TableState, session: ServerSession, queued: QueuedEntry) -> None:
    """Take or fetch what the entry wants. Raises what fetching and committing raise."""
    found = await _in_detached(state, queued.entry)
    temporary = None if found is None else await _taken(state, found)
    if temporary is None:
        await get_part(state, session, queued)
        return
    assert queued.entry.new_part is not None
    await commit_part(state, session, temporary, queued.entry.new_part)


async def _in_detached(state: TableState, entry: LogEntry) -> str | None:
    """The folder of the first part of the entry's partition and content that was detached on purpose."""
    assert entry.new_part is not None
    detached = state.store.detached
    for each in await detached.names():
        if each.part is None or each.reason or each.part.partition_id != entry.new_part.partition_id:
            continue
        try:
            if part_header(await detached.files(each.folder)).total == entry.part_checksum:
                return each.folder
        except ClickHouseError as problem:
            log.warning("%s: %s in detached/ is no part: %s", state.full_name, each.folder, problem)
    return None


async def _taken(state: TableState, folder: str) -> TemporaryPart | None:
    """The part, which lies in `detached/` no more to others; None, and it stays, when it has rotted."""
    path, files = await state.store.detached.begin_attaching(folder)
    try:
        job = partial(verified_part, files, state.environment.codec)
        return TemporaryPart(path, await state.environment.workers.run("verify part to attach", job))
    except ClickHouseError as problem:
        log.warning("%s: %s in detached/ is broken: %s", state.full_name, folder, problem)
        await state.store.detached.take_in(path, f"broken_{folder}")
        return None
