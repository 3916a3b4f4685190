"""A part that is registered but broken or gone: give it up here, and fetch it from another replica.

ClickHouse: StorageReplicatedMergeTree.cpp, `removePartAndEnqueueFetch`.
"""

from __future__ import annotations

import logging

from coordinator.api import BadVersion, Check, Create, Delete, MultiFailed, NoNode, Operation, Set
from replica.log_entry import EntryType, LogEntry
from replica.part_name import PartName
from replica.queue import QueuedEntry
from replica.session import ServerSession
from replica.storage.part_store import PartState
from replica.sync import Puller
from replica.table_state import TableState

log = logging.getLogger(__name__)


async def fetch_again(state: TableState, session: ServerSession, name: PartName, puller: Puller | None) -> None:
    """What is left of the part goes to `detached/`; its znode goes, and a fetch of it comes into the queue, at once.

    So do the parts that it covers. Whatever entries would make those, or the part itself, are needless then. Nothing
    happens if a covering part is here meanwhile, or the part is to be dropped, or is not registered any more.
    `puller` copies the log first, so that a drop is not missed; None while nothing runs yet, at a start. Raises
    Aborted while the log may not be copied, CoordinationError and OSError.
    """
    while True:
        log_version = None if puller is None else await puller.pull()
        needless = await _wait_for_running(state, name)
        if _is_settled(state, name):
            return
        await _put_away(state, name)
        registered = await _registered_inside(state, session, name)
        if name not in registered:
            return
        stat = await session.exists(state.znodes.part(str(name)))
        entry = LogEntry(EntryType.GET_PART, 0 if stat is None else stat.ctime // 1000, new_part=name)
        operations = [
            Create(f"{state.znodes.queue}/queue-", entry.to_text().encode(), sequential=True),
            await _noticed_by_clones(state, session),
            *(Delete(state.znodes.part(str(each))) for each in registered),
            *(Delete(path) for path in await _existing(session, state, needless)),
        ]
        if log_version is not None:
            operations.append(Check(state.znodes.table.log, log_version))
        try:
            results = await session.multi_checked(operations)
        except MultiFailed as failure:
            if isinstance(failure.error, BadVersion | NoNode):
                continue  # the log moved on, or an entry was done, or a part cleaned away
            raise failure.error from failure
        _take_into_queue(state, needless, str(results[0]), entry)
        log.warning("%s: part %s is broken or missing here, fetching it again", state.full_name, name)
        return


async def _wait_for_running(state: TableState, name: PartName) -> list[QueuedEntry]:
    """The entries that make the part or what it covers, once none of them is being executed."""
    await state.wait_for_progress(
        lambda: not any(each.currently_executing for each in state.queue.entries_inside(name))
    )
    return state.queue.entries_inside(name)


def _is_settled(state: TableState, name: PartName) -> bool:
    """Whether there is no need, or no right, to fetch it: it is here, not decided yet, or to be dropped."""
    return (
        state.store.active_containing(name) is not None
        or state.store.pre_active(name) is not None
        or state.queue.is_going_to_be_dropped(name) is not None
    )


async def _put_away(state: TableState, name: PartName) -> None:
    for part in state.store.parts():
        if name.contains(part.name) and part.state is not PartState.PRE_ACTIVE:
            await state.store.detach(part, "broken" if part.name == name else "covered-by-broken")


async def _registered_inside(state: TableState, session: ServerSession, name: PartName) -> list[PartName]:
    names = map(PartName.try_parse, await session.children(state.znodes.parts))
    return [each for each in names if each is not None and name.contains(each)]


async def _existing(session: ServerSession, state: TableState, entries: list[QueuedEntry]) -> list[str]:
    """The znodes of the entries; an operator may have removed some."""
    paths = [state.znodes.queue_entry(each.znode_name) for each in entries]
    found = await session.get_many(paths)
    return [path for path, answer in zip(paths, found, strict=True) if answer is not None]


async def _noticed_by_clones(state: TableState, session: ServerSession) -> Operation:
    """What tells a replica that is cloning this one that its parts have changed: one more version of `is_lost`."""
    value, stat = await session.get(state.znodes.is_lost)
    return Set(state.znodes.is_lost, value, stat.version)


def _take_into_queue(state: TableState, needless: list[QueuedEntry], znode_path: str, entry: LogEntry) -> None:
    for queued in needless:
        if queued.znode_name in state.queue:
            state.queue.remove(queued, successful=False)
    state.queue.insert(znode_path.rpartition("/")[2], entry)
    state.queue_changed.set()
