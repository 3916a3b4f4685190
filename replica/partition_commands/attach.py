"""ATTACH PARTITION and PART: parts from `detached/` come in under new block numbers, as inserts do.

ClickHouse: StorageReplicatedMergeTree.cpp, `attachPartition`; MergeTreeData.cpp, `tryLoadPartsToAttach`.
"""

from __future__ import annotations

from functools import partial

from replica.commands import AttachPartition, InsertStatus
from replica.dedup.block_id import attached_part_id
from replica.errors import (
    BadDataPartName,
    ClickHouseError,
    IncompatibleColumns,
    KeeperException,
    UnknownStatusOfInsert,
)
from replica.insert.commit import PartCommit
from replica.insert.piece import Piece
from replica.insert.sink import tell_part_log
from replica.part_name import PartName
from replica.part_set import PartSet
from replica.partition_commands.meant_partition import meant_partition
from replica.storage.part_files import COLUMNS_FILE, PartImage, part_columns_text, verified_part
from replica.storage.part_store import TemporaryPart
from replica.table_state import TableState


async def attach_partition(state: TableState, command: AttachPartition) -> None:
    """Attach one part after another, in order of their names; one whose content is known already stays detached.

    Raises BadDataPartName for a part that is not there, IncompatibleColumns, CorruptedData or ChecksumDoesntMatch
    for one that does not fit, and KeeperException or UnknownStatusOfInsert when one cannot be committed: what was
    attached before stays attached, what was not stays in `detached/`.
    """
    state.writable_session()
    for name in await _parts_to_attach(state, command):
        await _attach(state, name)


async def _parts_to_attach(state: TableState, command: AttachPartition) -> list[PartName]:
    if command.part:
        name = PartName.try_parse(command.part)
        if name is None:
            raise BadDataPartName(f"Unexpected part name: {command.part[:100]}")
        return [name]
    meant = meant_partition(state, command.partition, command.partition_id)
    found = [each.part for each in await state.store.detached.names() if each.part is not None and not each.reason]
    parts = [part for part in found if meant is None or part.partition_id == meant]
    widest = PartSet(parts)
    for part in parts:
        if part not in widest:
            await state.store.detached.set_aside(str(part), "inactive")
    return list(widest)


async def _attach(state: TableState, name: PartName) -> None:
    detached, environment, started = state.store.detached, state.environment, state.now()
    folder, files = await detached.begin_attaching(str(name))
    try:
        job = partial(verified_part, files, environment.codec)
        image = await environment.workers.run("verify part to attach", job)
        _check_columns(state, name, image)
    except (ClickHouseError, OSError):
        await detached.take_in(folder, str(name))
        raise
    known = attached_part_id(name.partition_id, image.header.hash_of_all_files) if _deduplicates(state) else ""
    piece = Piece.of_part(name.partition_id, image, known, detached_folder=str(name))
    commit = PartCommit(state, piece, TemporaryPart(folder, image))
    outcome = await state.requests.run_to_its_end(commit.run())
    tell_part_log(state, commit, outcome, started)
    if outcome.status is InsertStatus.UNKNOWN:
        raise UnknownStatusOfInsert(
            f"Part {name} may be attached as {outcome.part_name}, or is lost: {outcome.error}"
        )
    if outcome.status is InsertStatus.NOT_STORED:
        raise KeeperException(f"Part {name} is not attached and stays in detached/: {outcome.error}")


def _deduplicates(state: TableState) -> bool:
    return state.structure.settings.replicated_deduplication_window > 0


def _check_columns(state: TableState, name: PartName, image: PartImage) -> None:
    columns = dict(image.files.files)[COLUMNS_FILE].decode()
    if columns != part_columns_text(state.structure.schema):
        raise IncompatibleColumns(f"Part {name} has other columns than {state.full_name}: {columns!r}")
