"""Compares the parts on the disk with the registered ones when a server starts.

ClickHouse: StorageReplicatedMergeTree.cpp, `checkParts`. What is on the disk but not registered goes to
`detached/`: never deleted, for it may be all that is left of an insert. Too much of it means that this may be the
wrong disk or the wrong znodes, and nothing is touched. What is registered but not on the disk is fetched again, but
only once the replica is active: until then another server may live under its name. What an entry in the queue
drops is left to it: a crash may have come between its steps.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable

from coordinator.api import NoNode
from replica.entry_znode import read_entry
from replica.environment import Disk
from replica.errors import TooManyUnexpectedDataParts
from replica.operations.fetch_again import fetch_again
from replica.part_name import PartName
from replica.part_set import PartSet
from replica.session import ServerSession
from replica.storage.part_store import PartState, StoredPart
from replica.table_state import TableState

FORCE_FILE = "flags/force_restore_data"

log = logging.getLogger(__name__)


async def check_up_parts(state: TableState, session: ServerSession, *, forced: bool = False) -> None:
    """Once at a server's start, before the table becomes active: detach what is not registered.

    Raises TooManyUnexpectedDataParts, and does nothing, when that is more than `replicated_max_ratio_of_wrong_parts`
    of all rows, unless it is `forced` or the replica's znode `flags/force_restore_data` is there, which goes then.
    Raises CoordinationError and OSError: try again.
    """
    registered = await _registered(state, session)
    dropped = await _dropped_by_queue(state, session)
    unexpected = [part for part in _unexpected(state, registered) if not any(r.contains(part.name) for r in dropped)]
    flag = state.znodes.force_restore_data
    is_flagged = await session.exists(flag) is not None
    if not (forced or is_flagged):
        _check_sanity(state, registered, unexpected)
    for part in unexpected:
        log.warning("%s: part %s is on the disk but not registered, detaching it", state.full_name, part.name)
        await state.store.detach(part, "ignored")
    if is_flagged:
        await session.delete(flag)


async def take_force_flag(disk: Disk) -> bool:
    """Whether an operator forces every table of this start, by an empty file; it goes, and the next start is sane."""
    if not await disk.exists(FORCE_FILE):
        return False
    log.warning("skipping the limits on wrong parts (flag %s)", FORCE_FILE)
    await disk.remove(FORCE_FILE)
    return True


async def fetch_missing_parts(state: TableState, session: ServerSession) -> None:
    """Under each new session, with the queue loaded and nothing running yet: fetch again what is registered only.

    Of those only the ones that no other covers, for the others would be replaced at once. Raises CoordinationError
    and OSError.
    """
    registered = await _registered(state, session)
    missing = [
        name
        for name in registered
        if state.store.active_containing(name) is None and state.store.pre_active(name) is None
    ]
    for name in PartSet(missing):
        await fetch_again(state, session, name, None)
    for name in registered:
        if state.store.active_containing(name) is not None and state.store.get(name) is None:
            # A covering part has replaced it: nobody misses it, but what is registered is to be on the disk.
            with contextlib.suppress(NoNode):
                await session.delete(state.znodes.part(str(name)))


async def _registered(state: TableState, session: ServerSession) -> list[PartName]:
    return [PartName.parse(name) for name in await session.children(state.znodes.parts)]


async def _dropped_by_queue(state: TableState, session: ServerSession) -> list[PartName]:
    """What the entries in this replica's queue drop."""
    znodes = state.znodes
    paths = [znodes.queue_entry(name) for name in await session.children(znodes.queue)]
    answers = zip(paths, await session.get_many(paths), strict=True)
    entries = [read_entry(path, *found, state.structure.settings) for path, found in answers if found is not None]
    return [entry.drop_range for entry in entries if entry.drop_range is not None]


def _unexpected(state: TableState, registered: Collection[PartName]) -> list[StoredPart]:
    """The parts on the disk that are not registered, but not those that a registered one has replaced."""

    def is_replaced(part: StoredPart) -> bool:
        covering = state.store.active_containing(part.name)
        return covering is not None and covering.name in registered

    return [part for part in state.store.parts() if part.name not in registered and not is_replaced(part)]


def _check_sanity(state: TableState, registered: list[PartName], unexpected: Iterable[StoredPart]) -> None:
    """Raises TooManyUnexpectedDataParts when detaching these parts would take too much out of the table."""
    active = state.store.active_parts()
    here = [name for name in registered if state.store.get(name) is not None]
    suspicious = [part for part in unexpected if part.state is PartState.ACTIVE and not _is_made_of(part.name, here)]
    rows, all_rows = sum(part.rows for part in suspicious), sum(part.rows for part in active)
    ratio = state.structure.settings.replicated_max_ratio_of_wrong_parts
    if rows <= ratio * all_rows:
        return
    missing = [name for name in registered if state.store.active_containing(name) is None]
    raise TooManyUnexpectedDataParts(
        f"The local set of parts of table {state.full_name} doesn't look like the set of parts in ZooKeeper: "
        f"{rows} rows of {all_rows} total rows in filesystem are suspicious. There are {len(suspicious)} unexpected "
        f"parts with {rows} rows, {len(missing)} missing parts. More than replicated_max_ratio_of_wrong_parts = "
        f"{ratio:g}: this may be the disk or the name of another replica. If it is not, and those parts may go to "
        f"detached/, create the znode {state.znodes.force_restore_data}, or an empty file {FORCE_FILE} in the "
        f"server's folder and restart it"
    )


def _is_made_of(name: PartName, parts: Iterable[PartName]) -> bool:
    """Whether every block of the part is in one of these smaller parts (`areAllBlockNumbersCovered`)."""
    smaller = PartSet(part for part in parts if name.contains(part))
    return sum(part.blocks_count for part in smaller) == name.blocks_count
