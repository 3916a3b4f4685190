"""A range of blocks that is about to be dropped: nothing is being inserted into it, nothing is remembered of it.

ClickHouse: StorageReplicatedMergeTree.cpp, `getFakePartCoveringAllPartsInPartition`,
`clearLockedBlockNumbersInPartition`, `getClearBlocksInPartitionOps`.
"""

from __future__ import annotations

import asyncio

from coordinator.api import Delete, MultiFailed, NoNode, Operation, Watch
from replica.dedup.hashes import HashKind
from replica.errors import TimeoutExceeded
from replica.log_puller import MAX_MULTI_OPS
from replica.part_name import PartName
from replica.session import ServerSession
from replica.table_state import TableState
from replica.znodes import TableZnodes, sequence_number

_INSERT_OF_NEWER_RELEASES = b"operation: 1\n"


async def clear_range(state: TableState, session: ServerSession, drop_range: PartName) -> None:
    """Cancel the inserts that have a number in the range, then forget the ids of all parts in it.

    The order is the point: whoever has not committed yet cannot any more, so no id comes after the look at them.
    Raises TimeoutExceeded when something else holds a number for longer than `lock_acquire_timeout`, and
    CoordinationError.
    """
    await cancel_inserts(session, state.znodes.table, drop_range, state.server.settings.lock_acquire_timeout)
    while paths := await ids_inside(session, state.znodes.table, drop_range):
        for start in range(0, len(paths), MAX_MULTI_OPS):
            deletes: list[Operation] = [Delete(path) for path in paths[start : start + MAX_MULTI_OPS]]
            try:
                await session.multi_checked(deletes)
            except MultiFailed as failure:
                if not isinstance(failure.error, NoNode):
                    raise failure.error from failure
                break  # a cleaner was quicker: look again


async def cancel_inserts(
    session: ServerSession, table: TableZnodes, drop_range: PartName, patience_seconds: float
) -> None:
    """Remove the locks that inserts have on numbers in the range: their commits are refused then.

    Locks of partition commands stay, because those look whether they are alone; any other is waited for.
    """
    for name in await session.children(table.partition(drop_range.partition_id)):
        if not drop_range.min_block <= sequence_number(name) <= drop_range.max_block:
            continue
        path = f"{table.partition(drop_range.partition_id)}/{name}"
        try:
            value, _ = await session.get(path)
            if value in (table.insert_lock_value.encode(), _INSERT_OF_NEWER_RELEASES):
                await session.delete(path)
            elif value != table.other_lock_value.encode():
                await _wait_until_gone(session, path, patience_seconds)
        except NoNode:
            continue


async def _wait_until_gone(session: ServerSession, path: str, patience_seconds: float) -> None:
    try:
        async with asyncio.timeout(patience_seconds):
            while True:
                change = Watch()
                if await session.exists(path, change) is None:
                    return
                await change.wait()
    except TimeoutError:
        raise TimeoutExceeded(f"{path} is held by something that is no insert: try again later") from None


async def ids_inside(session: ServerSession, table: TableZnodes, drop_range: PartName) -> list[str]:
    """The znodes of the ids that point to a part whose blocks are all in the range, or to no part at all."""
    found = []
    for folder in map(table.deduplication_directory, HashKind):
        names = await session.children(folder)
        paths = [f"{folder}/{name}" for name in names if name.startswith(f"{drop_range.partition_id}_")]
        answers = await session.get_many(paths) if paths else []
        for path, answer in zip(paths, answers, strict=True):
            if answer is not None and _points_inside(answer[0], drop_range):
                found.append(path)
    return found


def _points_inside(value: bytes, drop_range: PartName) -> bool:
    part = PartName.try_parse(value.decode("utf-8", "replace"))
    return part is None or (
        part.partition_id == drop_range.partition_id
        and drop_range.min_block <= part.min_block
        and part.max_block <= drop_range.max_block
    )
