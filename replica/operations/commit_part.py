"""Make a part count that was fetched or made from other parts: publish, compare, register, activate.

ClickHouse: StorageReplicatedMergeTree.cpp, `checkPartChecksumsAndCommit`. The first replica that registers a
part defines what it holds; every later one must bring equal content.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coordinator.api import CoordinationError, Create, Delete, MultiFailed, NodeExists, NoNode, Operation, SessionLost
from replica.environment import shuffled
from replica.errors import ClickHouseError
from replica.part_name import PartName
from replica.session import ServerSession
from replica.storage.checksums import PartHeader, compare
from replica.storage.part_store import StoredPart, TemporaryPart
from replica.table_state import TableState
from replica.to_the_end import to_the_end


async def commit_part(state: TableState, session: ServerSession, temporary: TemporaryPart, name: PartName) -> None:
    """Register the part under this replica and let it count.

    Raises ChecksumDoesntMatch when a replica has registered other content under that name, and CoordinationError;
    the part has then left the disk again, unless the session was lost: then the next one settles it. A cancellation
    waits until that is so.
    """
    await commit_parts(state, session, [(temporary, name)])


async def commit_parts(
    state: TableState,
    session: ServerSession,
    parts: Sequence[tuple[TemporaryPart, PartName]],
    instead_of: PartName | None = None,
) -> None:
    """Register several parts in one multi and let them count from one moment on, as `commit_part`.

    `instead_of` is a range: what it contains counts no more from that moment on.
    """
    await to_the_end(_commit(state, session, parts, instead_of))


async def _commit(
    state: TableState,
    session: ServerSession,
    parts: Sequence[tuple[TemporaryPart, PartName]],
    instead_of: PartName | None,
) -> None:
    published = await publish_all(state, parts)
    try:
        await _register(state, session, [(part.name, part.header) for part in published])
    except SessionLost:
        for part in published:
            state.uncertain_parts.add(part.name, only_copy=False)
        raise
    except (ClickHouseError, CoordinationError):
        await withdraw_all(state, parts)
        raise
    activate_all(state, published, instead_of)


async def publish_all(state: TableState, parts: Sequence[tuple[TemporaryPart, PartName]]) -> list[StoredPart]:
    """Give the parts their names, pre-active. When one cannot have it, none remains on the disk."""
    published: list[StoredPart] = []
    try:
        for temporary, name in parts:
            published.append(await state.store.publish(temporary, name, state.now()))
    except (ClickHouseError, OSError):
        await withdraw_all(state, parts[: len(published)])
        for temporary, _ in parts[len(published) :]:
            await state.store.discard(temporary)
        raise
    return published


async def withdraw_all(state: TableState, parts: Sequence[tuple[TemporaryPart, PartName]]) -> None:
    """Remove parts that were published and will not be committed."""
    for temporary, name in parts:
        part = state.store.pre_active(name)
        assert part is not None
        await state.store.discard(await state.store.withdraw(part, temporary.image))


def activate_all(state: TableState, parts: Iterable[StoredPart], instead_of: PartName | None) -> None:
    """Let the parts count, and what the range contains count no more, at once."""
    for part in parts:
        state.activate(part)
    if instead_of is not None:
        state.store.drop(instead_of)


async def _register(state: TableState, session: ServerSession, parts: Sequence[tuple[PartName, PartHeader]]) -> None:
    while True:
        operations = [each for name, header in parts for each in await _registration(state, session, name, header)]
        if not operations:
            return
        try:
            await session.multi_checked(operations)
            return
        except MultiFailed as failure:
            if not isinstance(failure.error, NodeExists):
                raise failure.error from failure
            # It was registered meanwhile, by another replica or by an earlier try whose answer was lost.


async def _registration(
    state: TableState, session: ServerSession, name: PartName, header: PartHeader
) -> list[Operation]:
    """The operations that register the part; none when an earlier try has already done it."""
    table = state.znodes.table
    replicas = shuffled(state.environment.chance, "compare part", await session.children(table.replicas))
    for replica in replicas:
        try:
            value, _ = await session.get(table.replica(replica).part(str(name)))
        except NoNode:
            continue
        compare(header, PartHeader.parse(value))
        if replica == state.znodes.name:
            return []
        return [Create(state.znodes.part(str(name)), header.to_bytes())]
    return [*nobody_has(state, replicas, name), Create(state.znodes.part(str(name)), header.to_bytes())]


def nobody_has(state: TableState, replicas: list[str], name: PartName) -> list[Operation]:
    """Operations that fail when some replica registers the part first: a create and a delete under each."""
    pairs: list[Operation] = []
    for replica in replicas:
        path = state.znodes.table.replica(replica).part(str(name))
        pairs += [Create(path), Delete(path)]
    return pairs
