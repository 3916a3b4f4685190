"""How a replica leaves the coordination service, and with the last one the table.

ClickHouse: StorageReplicatedMergeTree.cpp, `dropReplica`, `removeTableNodesFromZooKeeper`. Everything here may be
repeated after a crash or a lost reply, under a later session too: no request outlives its session.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Sequence

from coordinator.api import (
    CoordinationError,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
)
from replica.errors import BadArguments, TableWasNotDropped
from replica.log_puller import MAX_MULTI_OPS
from replica.session import ServerSession
from replica.table_state import TableState
from replica.znodes import ReplicaZnodes, TableZnodes

log = logging.getLogger(__name__)


async def unregister_replica(session: ServerSession, znodes: ReplicaZnodes) -> None:
    """Remove the replica's znodes, and the table's when no replica is left. Raises CoordinationError: repeat it."""
    if await session.exists(znodes.root) is not None:
        with contextlib.suppress(NoNode):
            await _checked(session, [Set(znodes.is_lost, b"1")])
        # Without `host` the replica counts as dropped: it makes no partitions any more.
        await _delete(session, znodes.host)
        for path in (f"{znodes.root}/flags", znodes.queue, znodes.parts):
            await _remove_children(session, path)
        await _delete_at_once(session, [f"{znodes.root}/{name}" for name in _REPLICA_NAMES])
        await _remove_tree(session, znodes.root)
    await _remove_table_without_replicas(session, znodes.table)


async def drop_other_replica(state: TableState, name: str) -> None:
    """SYSTEM DROP REPLICA: remove the znodes of another replica, one that is not active.

    Between the look at `is_active` and the removal it may become active; ClickHouse does not rule that out either.
    Raises BadArguments for a name that is this replica's or nobody's, TableWasNotDropped, TableIsReadOnly and
    CoordinationError.
    """
    session, table = state.writable_session(), state.znodes.table
    if name == state.znodes.name:
        raise BadArguments(f"{name} is the replica that is asked: it goes with DROP TABLE {state.full_name}")
    names = await session.children(table.replicas)
    if name not in names:
        raise BadArguments(f"{table.root} has no replica {name!r}, but {', '.join(names)}")
    replica = table.replica(name)
    if await session.exists(replica.is_active) is not None:
        raise TableWasNotDropped(
            f"Replica {name} of {state.full_name} is active and stays: drop the table on its own server instead. "
            "If that has died, its session ends within the session timeout"
        )
    await unregister_replica(session, replica)


async def remove_left_overs(session: ServerSession, table: TableZnodes) -> None:
    """Go on where somebody who removed the table was interrupted; nothing when another one is at it.

    Raises CoordinationError.
    """
    try:
        await session.create(table.dropped_lock, ephemeral=True)
    except (NoNode, NodeExists):
        return
    await _remove_table(session, table)


_REPLICA_NAMES = (
    *("flags", "queue", "parts", "columns", "is_lost", "log_pointer", "max_processed_insert_time"),
    *("min_unprocessed_insert_time", "metadata", "metadata_version", "mutation_pointer"),
)
_FLAT_NAMES = (
    *("block_numbers", "blocks", "async_blocks", "deduplication_hashes", "leader_election", "log", "mutations"),
    "pinned_part_uuids",
)
_PLAIN_NAMES = ("alter_partition_version", "columns", "metadata", "table_shared_id")


async def _remove_table_without_replicas(session: ServerSession, table: TableZnodes) -> None:
    stat = await session.exists(table.replicas)
    if stat is None or stat.num_children:
        return
    operations: list[Operation] = [
        Delete(table.replicas),
        Create(table.dropped),
        Create(table.dropped_lock, ephemeral=True),
    ]
    try:
        await session.multi_checked(operations)
    except MultiFailed as failure:
        if isinstance(failure.error, NotEmpty | NoNode | NodeExists):
            return  # a new replica has joined meanwhile, or another one removes the table
        raise failure.error from failure
    await _remove_table(session, table)


async def _remove_table(session: ServerSession, table: TableZnodes) -> None:
    """Remove everything; `dropped` goes last, together with the table, so that the rest can be found again."""
    for name in _FLAT_NAMES:
        await _remove_children(session, f"{table.root}/{name}")
    await _delete_at_once(session, [f"{table.root}/{name}" for name in (*_FLAT_NAMES, *_PLAIN_NAMES)])
    for name in await session.children(table.root):
        if f"{table.root}/{name}" != table.dropped:
            await _remove_tree(session, f"{table.root}/{name}")
    await _checked(session, [Delete(table.dropped_lock), Delete(table.dropped), Delete(table.root)])


async def _remove_children(session: ServerSession, path: str) -> None:
    """The children that have none themselves."""
    try:
        names = await session.children(path)
    except NoNode:
        return
    paths = [f"{path}/{name}" for name in names]
    for start in range(0, len(paths), MAX_MULTI_OPS):
        await _delete_at_once(session, paths[start : start + MAX_MULTI_OPS])


async def _delete_at_once(session: ServerSession, paths: Sequence[str]) -> None:
    """In one multi, or what can be deleted of them one by one: the rest falls to `_remove_tree`."""
    try:
        await session.multi_checked(_deletes(paths))
    except MultiFailed as failure:
        log.info("%s cannot be removed together: %s", ", ".join(paths[:3]), failure)
        for path in paths:
            with contextlib.suppress(NotEmpty):
                await _delete(session, path)


async def _remove_tree(session: ServerSession, path: str) -> None:
    try:
        names = await session.children(path)
    except NoNode:
        return
    for name in names:
        await _remove_tree(session, f"{path}/{name}")
    await _delete(session, path)


async def _delete(session: ServerSession, path: str) -> None:
    with contextlib.suppress(NoNode):
        await _checked(session, _deletes([path]))


def _deletes(paths: Iterable[str]) -> list[Operation]:
    return [Delete(path) for path in paths]


async def _checked(session: ServerSession, operations: Sequence[Operation]) -> None:
    """A checked multi that raises the error of its operation."""
    try:
        await session.multi_checked(operations)
    except MultiFailed as failure:
        error: CoordinationError = failure.error
        raise error from failure
