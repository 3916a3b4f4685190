"""Looks at parts that somebody missed or could not read, and sees to it that the queue need not wait for ever.

ClickHouse: ReplicatedMergeTreePartCheckThread.cpp, `checkPartAndFix`, `searchForMissingPartAndFetchIfPossible`. What
it finds ends in one of three ways: nothing is wrong (or somebody will bring the part), the part is fetched again
(`replica.operations.fetch_again`), or it is lost for ever (`replica.operations.lost_part`).
"""

from __future__ import annotations

import logging
from functools import partial

from coordinator.api import CoordinationError, NoNode, SessionLost
from replica.errors import ChecksumDoesntMatch, ClickHouseError, CorruptedData, LogicalError, NoSuchDataPart
from replica.log_entry import MERGE_TYPES
from replica.operations.fetch_again import fetch_again
from replica.operations.lost_part import replace_by_empty_part
from replica.part_name import PartName
from replica.queue import QueuedEntry
from replica.session import ServerSession
from replica.storage.checksums import PartHeader, compare
from replica.storage.part_files import verified_part
from replica.storage.part_store import PartState, StoredPart
from replica.sync import Puller
from replica.table_state import TableState

log = logging.getLogger(__name__)

ERROR_SECONDS = 5.0
YOUNG_PART_SECONDS = 300.0
_OUTDATED_SLACK_SECONDS = 30.0


async def check_parts(state: TableState, session: ServerSession, puller: Puller) -> None:
    """Check each part when its time has come, one after another, until the session is lost."""
    while True:
        name = state.parts_to_check.due(state.now())
        if name is None:
            await state.parts_to_check.wait(state.now())
            continue
        try:
            again_after = await check_part(state, session, puller, name)
        except SessionLost:
            return
        except LogicalError:
            raise
        except (ClickHouseError, CoordinationError, OSError) as problem:
            log.warning("%s: cannot check part %s: %s", state.full_name, name, problem)
            again_after = ERROR_SECONDS
        if again_after is None:
            state.parts_to_check.settle(name)
        else:
            state.parts_to_check.put_off(name, state.now() + again_after)


async def check_part(state: TableState, session: ServerSession, puller: Puller, name: PartName) -> float | None:
    """Check one part and do what is to be done; seconds until it is to be looked at again, None for never.

    Raises CoordinationError, OSError, and Aborted while the log may not be copied.
    """
    covering = state.store.active_containing(name)
    if covering is not None and covering.name != name:
        return None
    registered = await _registered(session, state.znodes.part(str(name)))
    part = state.store.get(name)
    if part is None:
        if registered is not None:
            await fetch_again(state, session, name, puller)
            return None
        await _search(state, session, puller, name)
        return None
    if part.state is PartState.PRE_ACTIVE:
        return YOUNG_PART_SECONDS  # its commit is not decided yet
    if part.state is PartState.OUTDATED:
        return state.structure.settings.old_parts_lifetime + _OUTDATED_SLACK_SECONDS
    if registered is None:
        return await _unexpected(state, part)
    await _verify(state, session, puller, part, registered)
    return None


async def _registered(session: ServerSession, path: str) -> PartHeader | None:
    try:
        value, _ = await session.get(path)
    except NoNode:
        return None
    return PartHeader.parse(value)


async def _unexpected(state: TableState, part: StoredPart) -> float | None:
    """A part that is here but not registered may still become so while it is young."""
    age = state.now() - part.modification_time
    if age < YOUNG_PART_SECONDS:
        return YOUNG_PART_SECONDS - age
    log.warning("%s: part %s is here but not registered, detaching it", state.full_name, part.name)
    await state.store.detach(part, "unexpected")
    return None


async def _verify(
    state: TableState, session: ServerSession, puller: Puller, part: StoredPart, registered: PartHeader
) -> None:
    """Read the part whole and compare it with its znode; a broken one goes to `detached/` and is fetched again."""
    environment = state.environment
    try:
        files = await state.store.files(part.name)
        job = partial(verified_part, files, environment.codec)
        compare((await environment.workers.run("check part", job)).header, registered)
        return
    except (CorruptedData, ChecksumDoesntMatch, NoSuchDataPart) as problem:
        if state.store.get(part.name) is not part or part.state is not PartState.ACTIVE:
            return  # it was replaced while it was read
        log.error("%s: part %s is broken: %s", state.full_name, part.name, problem)
    await state.store.detach(part, "broken")
    await fetch_again(state, session, part.name, puller)


# --- a part that is neither here nor registered here ---------------------------------------------------------


async def _search(state: TableState, session: ServerSession, puller: Puller, name: PartName) -> None:
    """Find out whether some replica, active or not, has the part or one that covers it, or pieces to make it of.

    ClickHouse hopes for a merge only when there are pieces at both ends of the part; here any piece is worth waiting
    for, since an empty part in its place would take its rows away.
    """
    has_piece = False
    for replica, parts in await _parts_of_replicas(state, session):
        if any(each.contains(name) for each in parts):
            log.info("%s: missing part %s is to be had from replica %s", state.full_name, name, replica)
            return
        has_piece = has_piece or any(name.contains(each) for each in parts)
    making = _entry_making(state, name)
    if making is not None:
        for source in making.entry.source_parts:
            if state.store.active_containing(source) is None:
                state.check_part(source)
        return
    if has_piece:
        log.info("%s: waiting until missing part %s is made of the parts that it covers", state.full_name, name)
        return
    if await replace_by_empty_part(state, session, puller, name):
        await state.note_progress()


async def _parts_of_replicas(state: TableState, session: ServerSession) -> list[tuple[str, list[PartName]]]:
    """What each replica has registered, this one last."""
    table, own = state.znodes.table, state.znodes.name
    replicas = sorted(await session.children(table.replicas), key=lambda name: (name == own, name))
    found = []
    for replica in replicas:
        try:
            names = await session.children(table.replica(replica).parts)
        except NoNode:
            continue  # it is being dropped
        found.append((replica, [part for part in map(PartName.try_parse, names) if part is not None]))
    return found


def _entry_making(state: TableState, name: PartName) -> QueuedEntry | None:
    """The merge or mutation in the queue whose result the part is."""
    return next(
        (each for each in state.queue if each.entry.type in MERGE_TYPES and each.entry.new_part == name), None
    )
