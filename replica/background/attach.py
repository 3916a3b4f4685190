"""Compares the parts on the disk with the registered ones when a server starts.

ClickHouse: StorageReplicatedMergeTree.cpp, `checkParts`. What is registered but missing is fetched again; what is
on the disk but not registered goes to `detached/`: never deleted, for it may be all that is left of an insert.
"""

from __future__ import annotations

import contextlib
import logging

from coordinator.api import Create, Delete, MultiFailed, NoNode
from replica.log_entry import EntryType, LogEntry
from replica.part_name import PartName
from replica.session import ServerSession
from replica.table_state import TableState

log = logging.getLogger(__name__)


async def check_up_parts(state: TableState, session: ServerSession) -> None:
    """Once at a server's start, before the table becomes active. Raises CoordinationError: try again."""
    registered = [PartName.parse(name) for name in await session.children(state.znodes.parts)]
    for name in registered:
        if state.store.active_containing(name) is None:
            await _fetch_again(state, session, name)
        elif state.store.get(name) is None:
            await _unregister(state, session, name)
    known = set(registered)
    for part in state.store.parts():
        covering = state.store.active_containing(part.name)
        if part.name not in known and (covering is None or covering.name not in known):
            log.warning("%s: part %s is on the disk but not registered, detaching it", state.full_name, part.name)
            await state.store.detach(part, "ignored")


async def _unregister(state: TableState, session: ServerSession, name: PartName) -> None:
    """Take away the znode of a part that a covering one has replaced, and that is not on the disk any more."""
    with contextlib.suppress(NoNode):
        await session.delete(state.znodes.part(str(name)))


async def _fetch_again(state: TableState, session: ServerSession, name: PartName) -> None:
    znodes = state.znodes
    path = znodes.part(str(name))
    stat = await session.exists(path)
    created = 0 if stat is None else stat.ctime // 1000
    entry = LogEntry(type=EntryType.GET_PART, create_time=created, new_part=name)
    log.warning("%s: part %s is registered but not on the disk, fetching it again", state.full_name, name)
    try:
        await session.multi_checked(
            [Delete(path), Create(f"{znodes.queue}/queue-", entry.to_text().encode(), sequential=True)]
        )
    except MultiFailed as failure:
        raise failure.error from failure
