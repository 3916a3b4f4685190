"""One inserted block: checked, hashed once, split by partition, written, and committed piece by piece.

ClickHouse: ReplicatedMergeTreeSink.cpp, `consume`. A block is not atomic over its partitions: pieces are
committed one after another, and the first that fails ends the block. Deduplication makes the retry safe.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import pyarrow as pa

from replica.commands import BlockOutcome, InsertOptions, InsertStatus, PartOutcome
from replica.dedup.block_id import block_id, insert_extension
from replica.environment import PartCodec
from replica.errors import InsertWasDeduplicated, TooManyParts, UnknownStatusOfInsert
from replica.expression import complete, sort_block
from replica.insert.commit import PartCommit, Piece
from replica.part_log import PartEventType
from replica.schema import conform
from replica.storage.file_names import INSERT_PREFIX
from replica.storage.part_files import build_part
from replica.storage.part_store import TemporaryPart
from replica.table_state import TableState
from replica.table_structure import TableStructure


async def insert_block(
    state: TableState, options: InsertOptions, source_number: int, block: pa.Table
) -> BlockOutcome:
    """Insert the block, the `source_number`-th (from 0) of its INSERT.

    Before anything is written, raises TooManyParts and the ClickHouseError of a block that does not fit the table.
    What happens later is told in the outcome, piece by piece.
    """
    if source_number == 0:
        _refuse_too_many_parts(state)
    environment = state.environment
    started = state.now()
    job = partial(prepare_pieces, state.structure, environment.codec, options, source_number, block)
    pieces = await environment.workers.run("prepare insert", job)
    try:
        written = await _write(state, pieces)
    except OSError as problem:
        error = f"the block could not be written: {problem}"
        return BlockOutcome(source_number, block.num_rows, tuple(_not_stored(piece, error) for piece in pieces))
    outcomes: list[PartOutcome] = []
    for piece, temporary in written:
        if outcomes and outcomes[-1].status in (InsertStatus.NOT_STORED, InsertStatus.UNKNOWN):
            await state.store.discard(temporary)
            outcomes.append(_not_stored(piece, "not tried, because an earlier partition of the same block failed"))
        else:
            commit = PartCommit(state, piece, temporary)
            outcomes.append(await commit.run())
            tell_part_log(state, piece, outcomes[-1], commit.error_code, started)
    return BlockOutcome(source_number, block.num_rows, tuple(outcomes))


def _refuse_too_many_parts(state: TableState) -> None:
    """An INSERT does not begin while a partition has `parts_to_throw_insert` parts; one that has begun goes on."""
    limit = state.structure.settings.parts_to_throw_insert
    counts = Counter(part.name.partition_id for part in state.store.active_parts())
    for partition_id, count in counts.most_common(1):
        if limit and count >= limit:
            raise TooManyParts(
                f"Too many parts ({count} in partition {partition_id}) in table {state.full_name}: merges are slower "
                f"than inserts. Insert larger blocks, wait, or raise parts_to_throw_insert ({limit})"
            )


def prepare_pieces(
    structure: TableStructure, codec: PartCodec, options: InsertOptions, source_number: int, block: pa.Table
) -> list[Piece]:
    """The parts that the block makes, one a partition, without names. A pure job for the workers."""
    listed = conform(block, structure.schema)
    if listed.num_rows == 0:
        return []
    extension = _extension(structure, options, source_number, listed)
    complete_block = complete(listed, structure.schema)
    return [
        Piece(
            partition_id,
            build_part(sort_block(rows, structure.sorting_key), structure.schema, codec),
            () if extension is None else (block_id(partition_id, extension),),
        )
        for partition_id, rows in structure.partition_key.split(complete_block)
    ]


def _extension(structure: TableStructure, options: InsertOptions, source_number: int, listed: pa.Table) -> str | None:
    """What identifies the block to deduplication, None when deduplication is off."""
    if not options.insert_deduplicate or structure.settings.replicated_deduplication_window == 0:
        return None
    return insert_extension(listed, structure.schema, source_number, options.insert_deduplication_token)


async def _write(state: TableState, pieces: list[Piece]) -> list[tuple[Piece, TemporaryPart]]:
    """All pieces or none: raises OSError with nothing left on the disk."""
    written: list[tuple[Piece, TemporaryPart]] = []
    try:
        for piece in pieces:
            written.append((piece, await state.store.write_temporary(INSERT_PREFIX, piece.image)))
    except OSError:
        for _, temporary in written:
            await state.store.discard(temporary)
        raise
    return written


def _not_stored(piece: Piece, error: str) -> PartOutcome:
    return PartOutcome(
        partition_id=piece.partition_id, status=InsertStatus.NOT_STORED, rows=piece.image.rows, error=error
    )


def tell_part_log(state: TableState, piece: Piece, outcome: PartOutcome, error_code: int, started: float) -> None:
    """Tell the part log how the piece ended."""
    error, exception = {
        InsertStatus.STORED: (0, ""),
        InsertStatus.DUPLICATE: (InsertWasDeduplicated.code, f"Its rows are in part {outcome.part_name} already"),
        InsertStatus.NOT_STORED: (error_code, outcome.error),
        InsertStatus.UNKNOWN: (UnknownStatusOfInsert.code, outcome.error),
    }[outcome.status]
    state.part_log.add(
        PartEventType.NEW_PART,
        outcome.part_name,
        piece.partition_id,
        started=started,
        rows=piece.image.rows,
        size_in_bytes=piece.image.size,
        deduplication_block_ids=piece.block_ids,
        error=error,
        exception=exception,
    )
