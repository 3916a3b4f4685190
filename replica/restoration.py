"""SYSTEM RESTORE REPLICA: what to do when the znodes of a table are gone and its parts are still here.

ClickHouse: StorageReplicatedMergeTree.cpp, `restoreMetadataInZooKeeper`. All parts go to `detached/`, because block
numbers begin anew. The znodes are made from the local definition; the replica that makes those of the table attaches
its parts again, each under a new number, and the others join and fetch.

What is to be attached lies in `detached/restoring_<part>` until it is, so an interruption loses nothing: the next
activation goes on. A deduplication id for each part lets it be attached once only.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from functools import partial

from coordinator.api import CoordinationError
from replica.commands import InsertStatus
from replica.errors import BadArguments, ClickHouseError, KeeperException, TableIsReadOnly
from replica.insert.commit import PartCommit
from replica.insert.piece import Piece
from replica.part_name import PartName
from replica.session import ServerSession
from replica.storage.file_names import DETACHED, INSERT_PREFIX, table_folder
from replica.storage.part_files import load_part, verified_part
from replica.storage.part_store import PartState
from replica.table_state import TableState
from replica.znodes import ReplicaZnodes

log = logging.getLogger(__name__)

_RESTORING = "restoring"
_PREFIX = f"{_RESTORING}_"
_RETRY_SECONDS = 1.0


async def check_registered(session: ServerSession, znodes: ReplicaZnodes, full_name: str) -> None:
    """Raises TableIsReadOnly, with what helps, when the znodes of this replica are not there. One round trip."""
    if await session.exists(znodes.root) is None:
        table = await session.exists(znodes.table.root)
        gone = f"the znodes of replica {znodes.name}" if table is not None else "the znodes of the table"
        raise TableIsReadOnly(
            f"{gone} are gone from {znodes.table.root}: SYSTEM RESTORE REPLICA {full_name} makes them again"
        )


async def check_restorable(state: TableState) -> None:
    """Raises BadArguments when there is nothing to restore, KeeperException when nobody can tell."""
    session = state.server.sessions.current
    if session is None:
        reason = state.server.sessions.last_error or "this server has no session now"
        raise KeeperException(f"{state.full_name} cannot be restored: {reason}")
    if not state.is_readonly:
        raise BadArguments(f"Replica must be readonly to be restored, and {state.znodes.root} is active")
    try:
        present = await session.exists(state.znodes.root) is not None
    except CoordinationError as problem:
        raise KeeperException(f"{state.full_name} cannot be restored: {problem}") from problem
    if present:
        raise BadArguments(
            f"Replica path {state.znodes.root} is present, there is nothing to restore. If it is garbage, remove it "
            "with SYSTEM DROP REPLICA on another replica first"
        )


async def put_parts_aside(state: TableState) -> None:
    """Detach every part; those that count are to be attached again. Raises OSError, and may be repeated.

    Those that count go last, for what only they covered would count then. After a loss of power, too: nor may an old
    part lie there where a new one was registered, since names are given again.
    """
    store, folder = state.store, table_folder(state.database, state.name)
    for part in store.parts():
        if part.state is not PartState.ACTIVE:
            await store.detach(part, "ignored")
    await state.environment.disk.fsync_folder(folder)
    for part in store.active_parts():
        await store.detach(part, _RESTORING)
    await state.environment.disk.fsync_folder(folder)


async def attach_restored_parts(state: TableState, session: ServerSession) -> None:
    """Attach what was put aside, until nothing is left of it; nothing to do but after a RESTORE REPLICA.

    Of a replica that has joined a table it stays detached: the parts come from the others.
    """
    while session.alive:
        try:
            if left := await _put_aside(state):
                attaching = await _made_the_table(session, state.znodes)
                for name in left:
                    await (_attach(state, name) if attaching else _leave_detached(state, name))
                    await state.environment.disk.fsync_folder(_detached(state))
            state.restored.set()
            return
        except (ClickHouseError, CoordinationError, OSError) as problem:
            log.warning("%s: not all parts are attached again: %s", state.full_name, problem)
            await asyncio.sleep(_RETRY_SECONDS)


async def _made_the_table(session: ServerSession, znodes: ReplicaZnodes) -> bool:
    """Whether one transaction made the table and this replica, that is whether it is the first one."""
    table, replica = await session.get(znodes.table.root), await session.get(znodes.root)
    return table[1].czxid == replica[1].czxid


async def _put_aside(state: TableState) -> list[PartName]:
    disk, folder = state.environment.disk, _detached(state)
    entries = await disk.list(folder) if await disk.exists(folder) else []
    found = (PartName.try_parse(each.removeprefix(_PREFIX)) for each in entries if each.startswith(_PREFIX))
    return sorted(name for name in found if name is not None)


async def _attach(state: TableState, name: PartName) -> None:
    """Commit a copy of the part as an insert does, then remove it from where it was put aside."""
    environment, path = state.environment, f"{_detached(state)}/{_PREFIX}{name}"
    try:
        job = partial(verified_part, await load_part(environment.disk, path), environment.codec)
        image = await environment.workers.run("verify restored part", job)
    except ClickHouseError as problem:
        log.error("%s: part %s is broken and stays detached: %s", state.full_name, name, problem)
        await _rename(state, name, f"broken_{name}")
        return
    piece = Piece.of_part(name.partition_id, image, f"{name.partition_id}_restored_{name}")
    temporary = await state.store.write_temporary(INSERT_PREFIX, image)
    outcome = await PartCommit(state, piece, temporary).run()
    if outcome.status not in (InsertStatus.STORED, InsertStatus.DUPLICATE):
        raise KeeperException(f"part {name} is not attached yet: {outcome.error}")
    await environment.disk.remove(path)


async def _leave_detached(state: TableState, name: PartName) -> None:
    """As any other detached part, under its plain name."""
    await _rename(state, name, str(name))


async def _rename(state: TableState, name: PartName, wished: str) -> None:
    disk, folder = state.environment.disk, _detached(state)
    taken = await disk.list(folder)
    tries = (wished if number == 0 else f"{wished}_try{number}" for number in itertools.count())
    await disk.rename(f"{folder}/{_PREFIX}{name}", f"{folder}/{next(each for each in tries if each not in taken)}")


def _detached(state: TableState) -> str:
    return f"{table_folder(state.database, state.name)}/{DETACHED}"
