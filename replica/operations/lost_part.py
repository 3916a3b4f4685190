"""A part that no replica has, nor will ever have: an empty one of its name takes its place, and the loss is counted.

Without it the queue would wait for the part for ever, and with the queue every merge over it. ClickHouse:
StorageReplicatedMergeTree.cpp, `createEmptyPartInsteadOfLost`, which leaves the deduplication ids; here they go, so
that who still has the rows can insert them again.
"""

from __future__ import annotations

import logging

from coordinator.api import (
    BadVersion,
    Check,
    CoordinationError,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    Operation,
    SessionLost,
    Set,
)
from replica.errors import ClickHouseError, NoReplicaHasPart
from replica.operations.commit_part import nobody_has
from replica.part_log import PartEventType
from replica.part_name import PartName
from replica.session import ServerSession
from replica.storage.checksums import PartHeader
from replica.storage.file_names import EMPTY_PREFIX
from replica.storage.part_files import build_part
from replica.storage.part_store import StoredPart, TemporaryPart
from replica.sync import Puller
from replica.table_state import TableState
from replica.to_the_end import to_the_end
from replica.znodes import TableZnodes

log = logging.getLogger(__name__)


async def replace_by_empty_part(state: TableState, session: ServerSession, puller: Puller, name: PartName) -> bool:
    """Register an empty part in place of one that is lost for ever; False if it turns out not to be needed.

    The caller has looked for the part at every replica. In one multi: no replica registers it meanwhile, nothing is
    dropped or merged meanwhile, no replica joins, the loss is counted, and the deduplication ids whose rows were in
    the part go. Raises Aborted while the log may not be copied, CoordinationError and OSError.
    """
    schema = state.structure.schema
    image = build_part(schema.arrow_schema.empty_table(), schema, state.environment.codec)
    temporary = await state.store.write_temporary(EMPTY_PREFIX, image)
    return await to_the_end(_commit(state, session, puller, temporary, name))


async def _commit(
    state: TableState, session: ServerSession, puller: Puller, temporary: TemporaryPart, name: PartName
) -> bool:
    try:
        part = await state.store.publish(temporary, name, state.now())
    except (ClickHouseError, OSError):
        await state.store.discard(temporary)
        raise
    try:
        replaced = await _register(state, session, puller, name, temporary.image.header)
    except SessionLost:
        state.uncertain_parts.add(name, only_copy=False)
        raise
    except (ClickHouseError, CoordinationError):
        await _withdraw(state, part, temporary)
        raise
    if not replaced:
        await _withdraw(state, part, temporary)
        return False
    state.activate(part)
    _tell(state, part)
    return True


async def _withdraw(state: TableState, part: StoredPart, temporary: TemporaryPart) -> None:
    await state.store.discard(await state.store.withdraw(part, temporary.image))


async def _register(
    state: TableState, session: ServerSession, puller: Puller, name: PartName, header: PartHeader
) -> bool:
    table = state.znodes.table
    while True:
        log_version = await puller.pull()
        if not _is_needed(state, name):
            return False
        _, replicas_stat = await session.get(table.replicas)
        count, count_stat = await session.get(table.lost_part_count)
        operations: list[Operation] = [
            *nobody_has(state, await _replicas(session, table), name),
            Create(state.znodes.part(str(name)), header.to_bytes()),
            Check(table.log, log_version),
            Check(table.replicas, replicas_stat.version),
            Set(table.lost_part_count, str(int(count or b"0") + 1).encode(), count_stat.version),
            *(Delete(path) for path in await _ids_inside(state, session, name)),
        ]
        try:
            await session.multi_checked(operations)
            return True
        except MultiFailed as failure:
            if isinstance(failure.error, NodeExists):
                return False  # somebody has it now
            if not isinstance(failure.error, BadVersion):
                raise failure.error from failure


async def _replicas(session: ServerSession, table: TableZnodes) -> list[str]:
    """Those that can have parts: one whose drop was interrupted cannot."""
    names = await session.children(table.replicas)
    found = await session.get_many([table.replica(name).parts for name in names])
    return [name for name, answer in zip(names, found, strict=True) if answer is not None]


def _is_needed(state: TableState, name: PartName) -> bool:
    """Whether the queue leads to the part or one that covers it, and not to its being dropped."""
    return state.queue.virtual_parts.containing(name) is not None and state.queue.is_going_to_be_dropped(name) is None


async def _ids_inside(state: TableState, session: ServerSession, name: PartName) -> list[str]:
    """The znodes of the deduplication ids whose blocks went into the part, or into one that it covers."""
    table = state.znodes.table
    inside: list[str] = []
    for folder in (table.deduplication_hashes, table.blocks):
        paths = [f"{folder}/{block_id}" for block_id in await session.children(folder)]
        for path, answer in zip(paths, await session.get_many(paths), strict=True):
            block = None if answer is None else PartName.try_parse(answer[0].decode("utf-8", "replace"))
            if block is not None and name.contains(block):
                inside.append(path)
    return inside


def _tell(state: TableState, part: StoredPart) -> None:
    loss = NoReplicaHasPart(
        f"Part {part.name} is lost for ever: no replica has it, and none will make it. An empty part takes its place"
    )
    log.error("%s: %s", state.full_name, loss)
    state.part_log.add(
        PartEventType.NEW_PART,
        str(part.name),
        part.name.partition_id,
        size_in_bytes=part.bytes_on_disk,
        error=loss.code,
        exception=loss.message,
    )
