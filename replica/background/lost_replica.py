"""A lost or new replica takes over the parts and the queue of another one.

ClickHouse: StorageReplicatedMergeTree.cpp, `cloneReplicaIfNeeded`, `cloneReplica`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from coordinator.api import BadVersion, Check, Create, Delete, MultiFailed, NoNode, Operation, Set
from replica.entry_znode import read_entry
from replica.errors import AllReplicasLost, ReplicaStatusChanged
from replica.log_entry import PART_PRODUCING_TYPES, EntryType, LogEntry
from replica.log_puller import MAX_MULTI_OPS
from replica.part_name import PartName
from replica.part_set import PartSet
from replica.session import ServerSession
from replica.storage.part_store import PartState
from replica.table_state import TableState
from replica.znodes import ReplicaZnodes, sequence_number


@dataclass(frozen=True, slots=True)
class _Source:
    """The replica to clone, at one moment: its queue, and the version under which it was not lost."""

    znodes: ReplicaZnodes
    is_lost_version: int
    queue: list[tuple[str, LogEntry]]


async def clone_if_lost(state: TableState, session: ServerSession) -> None:
    """Nothing if `is_lost` is 0; else become a copy of the most advanced replica and set it to 0.

    Raises AllReplicasLost, ReplicaStatusChanged (begin again) and CoordinationError; the replica then stays lost.
    """
    znodes = state.znodes
    try:
        value, _ = await session.get(znodes.is_lost)
    except NoNode:
        await session.create(znodes.is_lost, b"0")
        return
    if value == b"0":
        return
    source = await _most_advanced(session, znodes)
    await _empty_queue(session, znodes)
    snapshot = await _take_over_pointer(state, session, source)
    await _take_over_parts(state, session, snapshot)
    await session.multi_checked([Set(znodes.is_lost, b"0")])


async def _most_advanced(session: ServerSession, znodes: ReplicaZnodes) -> ReplicaZnodes:
    """The replica, active or not, with the least still to do."""
    table = znodes.table
    log_names = await session.children(table.log)
    past_log = sequence_number(log_names[-1]) + 1 if log_names else 0
    best: ReplicaZnodes | None = None
    least = 0
    for name in await session.children(table.replicas):
        candidate = table.replica(name)
        if name == znodes.name:
            continue
        is_lost, pointer = await session.get_many([candidate.is_lost, candidate.log_pointer])
        if is_lost is None or is_lost[0] != b"0" or pointer is None:
            continue
        to_do = past_log - int(pointer[0] or b"0") + len(await session.children(candidate.queue))
        if best is None or to_do < least:
            best, least = candidate, to_do
    if best is None:
        raise AllReplicasLost(
            f"All replicas of {table.root} are lost: there is none to clone. Choose the one with the best "
            f"data and set its znode is_lost to 0, as {znodes.is_lost}: the others will become copies of it"
        )
    return best


async def _empty_queue(session: ServerSession, znodes: ReplicaZnodes) -> None:
    for name in await session.children(znodes.queue):
        await session.delete(znodes.queue_entry(name))


async def _take_over_pointer(state: TableState, session: ServerSession, source: ReplicaZnodes) -> _Source:
    """Set the log pointer to the source's, at a moment when its queue is known."""
    znodes = state.znodes
    while True:
        is_lost, is_lost_stat = await session.get(source.is_lost)
        if is_lost != b"0":
            raise ReplicaStatusChanged(f"Replica {source.root} became lost while it was being cloned")
        pointer, pointer_stat = await session.get(source.log_pointer)
        names = await session.children(source.queue)
        operations: list[Operation] = [
            Set(znodes.log_pointer, pointer),
            Check(source.is_lost, is_lost_stat.version),
            Check(source.log_pointer, pointer_stat.version),
        ]
        try:
            await session.multi_checked(operations)
        except MultiFailed as failure:
            if isinstance(failure.error, BadVersion):
                continue
            raise failure.error from failure
        queue = []
        for name, answer in zip(names, await session.get_many([source.queue_entry(n) for n in names]), strict=True):
            if answer is not None:
                queue.append((name, read_entry(source.queue_entry(name), *answer, state.structure.settings)))
        return _Source(source, is_lost_stat.version, queue)


async def _take_over_parts(state: TableState, session: ServerSession, source: _Source) -> None:
    znodes = state.znodes
    drop_ranges = [
        e.drop_range for _, e in source.queue if e.drop_range is not None and e.drop_range.is_fake_drop_range
    ]
    wanted = PartSet()
    for name in await session.children(source.znodes.parts):
        wanted.add(PartName.parse(name))
    for entry in _fetches(source.queue):
        if entry.new_part is not None and not _covered(entry.new_part, drop_ranges):
            wanted.add(entry.new_part)
    await _check_not_lost(session, source)
    await _leave_unknown_parts(state, session, {*wanted, *_results(source.queue)})
    entries = [await _fetch_entry(session, source, part) for part in wanted if not _covered(part, drop_ranges)]
    for _, entry in source.queue:
        result = entry.new_part
        is_settled = result is not None and (
            _covered(result, drop_ranges)
            or (entry.type in PART_PRODUCING_TYPES and wanted.containing(result) is not None)
        )
        if entry.type is not EntryType.GET_PART and not is_settled:
            entries.append(entry)
    await _in_batches(
        session,
        [Create(f"{znodes.queue}/queue-", entry.to_text().encode(), sequential=True) for entry in entries],
    )


async def _leave_unknown_parts(state: TableState, session: ServerSession, known: Collection[PartName]) -> None:
    """Unregister and detach the parts that the source neither has nor will make: they may have been dropped."""
    unknown = [name for name in await session.children(state.znodes.parts) if PartName.parse(name) not in known]
    await _in_batches(session, [Delete(state.znodes.part(name)) for name in unknown])
    for part in state.store.parts():
        if part.name in known or part.state is PartState.PRE_ACTIVE:
            continue
        if state.structure.settings.detach_old_local_parts_when_cloning_replica:
            await state.store.detach(part, "clone")
        else:
            await state.store.delete(part)


async def _in_batches(session: ServerSession, operations: Sequence[Operation]) -> None:
    for start in range(0, len(operations), MAX_MULTI_OPS):
        try:
            await session.multi_checked(operations[start : start + MAX_MULTI_OPS])
        except MultiFailed as failure:
            raise failure.error from failure


def _results(queue: Iterable[tuple[str, LogEntry]]) -> list[PartName]:
    """What the entries other than fetches will make: such a part here is the same one, made earlier."""
    others = [entry for _, entry in queue if entry.type is not EntryType.GET_PART]
    return [part for entry in others for part in entry.virtual_parts]


def _fetches(queue: Iterable[tuple[str, LogEntry]]) -> list[LogEntry]:
    return [entry for _, entry in queue if entry.type is EntryType.GET_PART]


def _covered(part: PartName, ranges: Iterable[PartName]) -> bool:
    return any(each.contains(part) and each != part for each in ranges)


async def _check_not_lost(session: ServerSession, source: _Source) -> None:
    try:
        await session.multi([Check(source.znodes.is_lost, source.is_lost_version)])
    except MultiFailed as failure:
        raise ReplicaStatusChanged(f"Replica {source.znodes.root} changed while it was being cloned") from failure


async def _fetch_entry(session: ServerSession, source: _Source, part: PartName) -> LogEntry:
    stat = await session.exists(source.znodes.part(str(part)))
    created = 0 if stat is None else stat.ctime // 1000
    return LogEntry(type=EntryType.GET_PART, create_time=created, new_part=part)
