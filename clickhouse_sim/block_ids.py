"""The deduplication ids that an inserted block has, found without inserting it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from replica.dedup.block_id import block_id, insert_extension
from replica.dedup.tokens import ViewStep
from replica.expression import complete
from replica.schema import conform
from replica.table_structure import TableStructure


@dataclass(frozen=True, slots=True)
class BlockId:
    """The id of the rows of one block in one partition."""

    partition_id: str
    block_id: str
    rows: int


def ids_of_block(
    structure: TableStructure,
    block: pa.Table,
    source_number: int,
    token: str = "",
    source_id: str = "empty",
    views: Sequence[ViewStep] = (),
) -> list[BlockId]:
    """One id for each partition that the block touches, in the order in which they first appear.

    The block has the columns that the INSERT lists; it is the `source_number`-th, from 0, of that INSERT. Raises
    what `conform`, DEFAULT and PARTITION BY raise.
    """
    listed = conform(block, structure.schema)
    text = insert_extension(listed, structure.schema, source_number, token, source_id, views)
    pieces = structure.partition_key.split(complete(listed, structure.schema))
    return [BlockId(partition, block_id(partition, text), rows.num_rows) for partition, rows in pieces]
