"""Make a part count that was fetched or made from other parts: publish, compare, register, activate.

ClickHouse: StorageReplicatedMergeTree.cpp, `checkPartChecksumsAndCommit`. The first replica that registers a
part defines what it holds; every later one must bring equal content.
"""

from __future__ import annotations

from coordinator.api import CoordinationError, Create, Delete, MultiFailed, NodeExists, NoNode, Operation, SessionLost
from replica.environment import shuffled
from replica.errors import ClickHouseError
from replica.part_name import PartName
from replica.session import ServerSession
from replica.storage.checksums import PartHeader, compare
from replica.storage.part_store import TemporaryPart
from replica.table_state import TableState
from replica.to_the_end import to_the_end


async def commit_part(state: TableState, session: ServerSession, temporary: TemporaryPart, name: PartName) -> None:
    """Register the part under this replica and let it count.

    Raises ChecksumDoesntMatch when a replica has registered other content under that name, and CoordinationError;
    the part has then left the disk again, unless the session was lost: then the next one settles it. A cancellation
    waits until that is so.
    """
    await to_the_end(_commit(state, session, temporary, name))


async def _commit(state: TableState, session: ServerSession, temporary: TemporaryPart, name: PartName) -> None:
    try:
        part = await state.store.publish(temporary, name, state.now())
    except (ClickHouseError, OSError):
        await state.store.discard(temporary)
        raise
    try:
        await _register(state, session, name, temporary.image.header)
    except SessionLost:
        state.uncertain_parts.add(name, only_copy=False)
        raise
    except (ClickHouseError, CoordinationError):
        await state.store.discard(await state.store.withdraw(part, temporary.image))
        raise
    state.activate(part)


async def _register(state: TableState, session: ServerSession, name: PartName, header: PartHeader) -> None:
    while True:
        operations = await _registration(state, session, name, header)
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
