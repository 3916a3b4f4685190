"""One inserted block: checked, split by partition, hashed once, written, and committed piece by piece.

ClickHouse: ReplicatedMergeTreeSink.cpp and MergeTreeSink.cpp, `consume`. A block is not atomic over its partitions:
pieces are committed one after another, and the first that fails ends the block. Deduplication makes the retry safe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from replica.commands import BlockOutcome, InsertOptions, InsertStatus, PartOutcome, ViewOutcome
from replica.dedup.info import DeduplicationInfo
from replica.dedup.tokens import SourceToken
from replica.environment import PartCodec
from replica.errors import ClickHouseError, InsertWasDeduplicated, TooManyParts, UnknownStatusOfInsert
from replica.insert.dependents import DIRECT, Dependent, Route
from replica.insert.piece import Piece, Recipe, pieces_of
from replica.insert.piece_commit import PieceCommit
from replica.part_log import PartEventType
from replica.profile_events import ProfileEvent
from replica.schema import conform
from replica.storage.file_names import INSERT_PREFIX
from replica.storage.part_store import TemporaryPart
from replica.stored_table import StoredTable
from replica.table_structure import TableStructure


@dataclass(frozen=True, slots=True)
class PreparedBlock:
    """A block as parts without names; `computations` is how often data were hashed for that."""

    info: DeduplicationInfo
    pieces: tuple[Piece, ...]
    computations: int


async def insert_block(
    table: StoredTable,
    options: InsertOptions,
    source_number: int,
    block: pa.Table,
    route: Route = DIRECT,
) -> BlockOutcome:
    """Insert the block, the `source_number`-th (from 0) of its INSERT, and what views make of it.

    Before anything is written, raises TooManyParts, DeduplicationIsNotPossible and the ClickHouseError of a block
    that does not fit the table. What happens later is told in the outcome, piece by piece.
    """
    token = SourceToken(block.num_rows, options.insert_deduplication_token, source_number)
    return await insert_tokens(table, options, [token], block, route)


async def insert_tokens(
    table: StoredTable,
    options: InsertOptions,
    tokens: Sequence[SourceToken],
    block: pa.Table,
    route: Route = DIRECT,
    *,
    is_async: bool = False,
) -> BlockOutcome:
    """Insert a block that several inserts have put together, each with its token, in the order of their rows.

    Raises as `insert_block`.
    """
    tokens = [replace(token, source_id=route.source_id) for token in tokens]
    source_number = max(token.source_number for token in tokens)
    if source_number == 0:
        for each in (table, *(dependent.state for dependent in route.dependents)):
            _refuse_too_many_parts(each)
    started = table.now()
    deduplication = table.deduplication(options, is_async=is_async)
    environment = table.environment
    job = partial(
        prepare_block, table.structure, environment.codec, tokens, block, deduplication.enabled, is_async=is_async
    )
    prepared = await environment.workers.run("prepare insert", job)
    if prepared.computations:
        table.server.events.add(ProfileEvent.DUPLICATION_DATA_HASH_COMPUTATIONS, prepared.computations)
    storing = _store(table, prepared.pieces, started)
    parts = await table.requests.run_to_its_end(storing)
    outcome = BlockOutcome(source_number, block.num_rows, parts, str(deduplication), prepared.computations)
    if not (route.dependents and block.num_rows):
        return outcome
    return await push_to_views(outcome, route.dependents, prepared.info, options)


def _refuse_too_many_parts(table: StoredTable) -> None:
    """An INSERT does not begin while a partition has `parts_to_throw_insert` parts; one that has begun goes on."""
    limit = table.structure.settings.parts_to_throw_insert
    counts = Counter(part.name.partition_id for part in table.store.active_parts())
    for partition_id, count in counts.most_common(1):
        if limit and count >= limit:
            raise TooManyParts(
                f"Too many parts ({count} in partition {partition_id}) in table {table.full_name}: merges are slower "
                f"than inserts. Insert larger blocks, wait, or raise parts_to_throw_insert ({limit})"
            )


def prepare_block(
    structure: TableStructure,
    codec: PartCodec,
    tokens: Sequence[SourceToken],
    block: pa.Table,
    deduplicated: bool,
    *,
    is_async: bool = False,
) -> PreparedBlock:
    """The parts that the block makes, one a partition, without names. A pure job for the workers."""
    listed = conform(block, structure.schema)
    version = structure.settings.insert_deduplication_version
    info = DeduplicationInfo(listed, structure.schema, tokens, version, is_async=is_async)
    recipe = Recipe.of_table(structure, codec)
    pieces = pieces_of(recipe, info, deduplicated=deduplicated) if listed.num_rows else []
    return PreparedBlock(info, tuple(pieces), info.computations)


# --- the tables behind views ---------------------------------------------------------------------------------


async def push_to_views(
    outcome: BlockOutcome, dependents: Sequence[Dependent], source: DeduplicationInfo, options: InsertOptions
) -> BlockOutcome:
    """The outcome of an inserted block, with what becomes of it behind the views.

    Every target decides by its own ids, whether the block was a duplicate before it or not: so a retry completes what
    a failure has left out. A block that is not known to be in its own table goes no further; a view that fails does
    not hinder the others.
    """
    views: list[ViewOutcome] = []
    computations = outcome.data_hash_computations
    for dependent in dependents:
        if outcome.status in (InsertStatus.NOT_STORED, InsertStatus.UNKNOWN):
            error = "not tried, because the table before it does not have the rows for certain"
            views.append(ViewOutcome(dependent.views, dependent.state.full_name, error=error))
            continue
        info = dependent.info(source)
        views.append(await _push(dependent, info, options))
        computations += info.computations
    return replace(outcome, views=tuple(views), data_hash_computations=computations)


async def _push(dependent: Dependent, info: DeduplicationInfo, options: InsertOptions) -> ViewOutcome:
    table = dependent.state
    deduplication = table.deduplication(options, is_async=info.is_async).in_view(options)
    started = table.now()
    job = partial(dependent.pieces, info, table.environment.codec, deduplicated=deduplication.enabled)
    try:
        with table.requests.insert():
            pieces = await table.environment.workers.run("prepare insert", job)
            parts = await table.requests.run_to_its_end(_store(table, pieces, started))
    except ClickHouseError as problem:
        error = f"{problem.message} ({problem.name})"
        return ViewOutcome(dependent.views, table.full_name, (), str(deduplication), error)
    return ViewOutcome(dependent.views, table.full_name, parts, str(deduplication))


# --- storing ---------------------------------------------------------------------------------------------------


async def _store(table: StoredTable, pieces: Sequence[Piece], started: float) -> tuple[PartOutcome, ...]:
    """Write all pieces, then commit one after the other."""
    try:
        written = await _write(table, pieces)
    except OSError as problem:
        error = f"the block could not be written: {problem}"
        return tuple(_not_stored(piece, error) for piece in pieces)
    outcomes: list[PartOutcome] = []
    for piece, temporary in written:
        if outcomes and outcomes[-1].status in (InsertStatus.NOT_STORED, InsertStatus.UNKNOWN):
            await table.store.discard(temporary)
            outcomes.append(_not_stored(piece, "not tried, because an earlier partition of the same block failed"))
        else:
            commit = table.commit(piece, temporary)
            outcomes.append(await commit.run())
            tell_part_log(table, commit, outcomes[-1], started)
    return tuple(outcomes)


async def _write(table: StoredTable, pieces: Sequence[Piece]) -> list[tuple[Piece, TemporaryPart]]:
    """All pieces or none: raises OSError with nothing left on the disk."""
    written: list[tuple[Piece, TemporaryPart]] = []
    try:
        for piece in pieces:
            written.append((piece, await table.store.write_temporary(INSERT_PREFIX, piece.image)))
    except OSError:
        for _, temporary in written:
            await table.store.discard(temporary)
        raise
    return written


def _not_stored(piece: Piece, error: str) -> PartOutcome:
    return PartOutcome(partition_id=piece.partition_id, status=InsertStatus.NOT_STORED, rows=piece.rows, error=error)


def tell_part_log(table: StoredTable, commit: PieceCommit, outcome: PartOutcome, started: float) -> None:
    """Tell the part log how the piece ended."""
    piece = commit.piece
    error, exception = {
        InsertStatus.STORED: (0, ""),
        InsertStatus.DUPLICATE: (InsertWasDeduplicated.code, f"Its rows are in part {outcome.part_name} already"),
        InsertStatus.NOT_STORED: (commit.error_code, outcome.error),
        InsertStatus.UNKNOWN: (UnknownStatusOfInsert.code, outcome.error),
    }[outcome.status]
    table.part_log.add(
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
