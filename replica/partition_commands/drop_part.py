"""DROP and DETACH PART: one part, and only as long as nothing is being made of it.

ClickHouse: StorageReplicatedMergeTree.cpp, `dropPartImpl`.
"""

from __future__ import annotations

from coordinator.api import BadVersion, Check, Create, Delete, MultiFailed, NoNode, Operation, Set
from replica.commands import DropPart
from replica.errors import NoSuchDataPart, PartIsTemporarilyLocked
from replica.log_entry import EntryType, LogEntry
from replica.part_name import PartName
from replica.partition_commands.drop_partition import TRIES, too_many_tries
from replica.partition_commands.logged import Logged, check_alter_sync, wait_until_done
from replica.partition_commands.range_to_drop import ids_inside
from replica.storage.part_store import PartState
from replica.table_state import TableState


async def drop_part(state: TableState, command: DropPart) -> None:
    """Write the entry and wait for it.

    Raises BadDataPartName, NoSuchDataPart, PartIsTemporarilyLocked, CannotAssignAlter, what `wait_until_done` raises,
    and CoordinationError.
    """
    check_alter_sync(command.alter_sync)
    name = PartName.parse(command.part)
    for _ in range(TRIES):
        entry = await _write_entry(state, name, command.detach)
        if entry is not None:
            await wait_until_done(state, [entry], command.alter_sync)
            return
    raise too_many_tries(state)


async def _write_entry(state: TableState, name: PartName, detach: bool) -> Logged | None:
    """What is in the log now; None when the log, or an id, has changed meanwhile.

    The version of the log is that of the pull on which the decision rests: nobody has assigned a merge of the part
    since then.
    """
    session, table = state.writable_session(), state.znodes.table
    log_version = await state.puller().pull()
    _check_droppable(state, name)
    entry = LogEntry(
        type=EntryType.DROP_PART,
        create_time=int(state.now()),
        source_replica=state.znodes.name,
        new_part=name,
        is_detach=detach,
    )
    create = Create(f"{table.log}/log-", entry.to_text().encode(), sequential=True)
    forget: list[Operation] = [Delete(path) for path in await ids_inside(session, table, name)]
    try:
        results = await session.multi_checked([*forget, Check(table.log, log_version), create, Set(table.log, b"")])
    except MultiFailed as failure:
        if isinstance(failure.error, BadVersion | NoNode):
            return None
        raise failure.error from failure
    return Logged.made(entry, results[len(forget) + 1])


def _check_droppable(state: TableState, name: PartName) -> None:
    part = state.store.get(name)
    if part is None or part.state is not PartState.ACTIVE:
        raise NoSuchDataPart(f"Part {name} is not an active part of {state.full_name} here, so it cannot be dropped")
    covering = state.queue.virtual_parts.containing(name)
    if covering is None or covering.is_fake_drop_range:
        raise PartIsTemporarilyLocked(f"Part {name} is going to be dropped already")
    if covering != name:
        raise PartIsTemporarilyLocked(f"Part {name} has already been assigned a merge into {covering}")
    for queued in state.queue:
        replace = queued.entry.replace_range
        if replace is not None and any(not each.new.is_disjoint(name) for each in replace.parts):
            raise PartIsTemporarilyLocked(f"Part {name} comes from {queued.znode_name}, a REPLACE_RANGE not done yet")
