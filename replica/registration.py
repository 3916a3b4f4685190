"""How a table comes into the coordination service: made by its first replica, joined by the others.

ClickHouse: StorageReplicatedMergeTree.cpp, `createTableIfNotExists`, `createReplica`,
`createNewZooKeeperNodes`. Everything here may be repeated after a lost reply: a replica that finds its own
untouched znodes adopts them.
"""

from __future__ import annotations

import asyncio
import contextlib

from coordinator.api import BadVersion, MultiFailed, NodeExists, NoNode
from replica.errors import AllReplicasLost, ReplicaAlreadyExists
from replica.session import ServerSession, ensure_path
from replica.table_structure import TableStructure
from replica.unregistration import remove_left_overs
from replica.znodes import (
    ReplicaContents,
    ReplicaZnodes,
    later_additions,
    leaders,
    replica_creation,
    table_creation,
)

_TRIES = 1000
_SECONDS_BETWEEN_LOOKS = 0.1


async def create_or_join(
    session: ServerSession, znodes: ReplicaZnodes, structure: TableStructure, creator_info: str
) -> None:
    """Make the table with this replica as its first, or join it as one more.

    Raises IncompatibleColumns or MetadataMismatch when the path belongs to another kind of table,
    ReplicaAlreadyExists when another server holds this replica's name, and CoordinationError.
    """
    table = znodes.table
    await ensure_path(session, table.root.rsplit("/", 1)[0])
    for _ in range(_TRIES):
        if await session.exists(table.replicas) is not None:
            await _join(session, znodes, structure, creator_info)
            return
        if await session.exists(table.dropped) is not None:
            await remove_left_overs(session, table)
            if await session.exists(table.dropped) is not None:
                await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)  # another server is removing it
            continue
        contents = _contents(structure, metadata_version=0, is_lost=False, creator_info=creator_info)
        try:
            await session.multi_checked(table_creation(table, znodes, contents))
            return
        except MultiFailed as failure:
            if not isinstance(failure.error, NodeExists):
                raise failure.error from failure
    raise ReplicaAlreadyExists(
        f"Something at {table.root} keeps this table from being made: look with `chsim znodes`"
    )


async def _join(session: ServerSession, znodes: ReplicaZnodes, structure: TableStructure, creator_info: str) -> None:
    table = znodes.table
    metadata, metadata_stat = await session.get(table.metadata)
    columns, _ = await session.get(table.columns)
    structure.check_same(metadata.decode(), columns.decode(), table.root)
    while True:
        try:
            _, replicas_stat = await session.get(table.replicas)
        except NoNode as problem:
            raise AllReplicasLost(f"Table {table.root} was dropped while this replica was joining it") from problem
        contents = _contents(
            structure,
            metadata_version=metadata_stat.version,
            is_lost=replicas_stat.num_children > 0,
            creator_info=creator_info,
        )
        if await session.exists(znodes.root) is not None:
            await _adopt(session, znodes, contents)
            return
        try:
            await session.multi_checked(replica_creation(table, znodes, contents, replicas_stat.version))
            return
        except MultiFailed as failure:
            if not isinstance(failure.error, BadVersion | NodeExists):
                raise failure.error from failure


async def _adopt(session: ServerSession, znodes: ReplicaZnodes, contents: ReplicaContents) -> None:
    """Take the replica's znodes as made by an earlier try of this very server, if nobody has used them."""
    expected = contents.by_znode()
    found = await session.get_many([f"{znodes.root}/{name}" for name, _ in expected])
    for (name, value), answer in zip(expected, found, strict=True):
        if answer is None or answer[1].num_children or not _is_pristine(name, answer[0].decode(), value):
            raise ReplicaAlreadyExists(
                f"Replica {znodes.root} exists already (its {name} is in use): choose another name"
            )


def _is_pristine(name: str, found: str, expected: str) -> bool:
    if name == "is_lost":
        return found in ("0", "1")
    if name == "creator_info":
        return found.rpartition("|")[2] == expected.rpartition("|")[2]  # each try drew a table uuid of its own
    return found == expected


def _contents(
    structure: TableStructure, *, metadata_version: int, is_lost: bool, creator_info: str
) -> ReplicaContents:
    return ReplicaContents(
        metadata=structure.metadata_text,
        columns=structure.columns_text,
        metadata_version=metadata_version,
        is_lost=is_lost,
        creator_info=creator_info,
    )


async def add_later_znodes(session: ServerSession, znodes: ReplicaZnodes, table_uuid: str) -> None:
    """Make the znodes of newer releases that the table lacks; at creation and at every start."""
    for path, value in [*later_additions(znodes.table), (znodes.table.table_shared_id, table_uuid)]:
        with contextlib.suppress(NodeExists):
            await session.create(path, value.encode())
    try:
        await session.multi(leaders(znodes.table))
    except MultiFailed as failure:
        if not isinstance(failure.error, NodeExists):
            raise failure.error from failure
