"""Parquet files, whatever Arrow types they hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet

from clickhouse_sim.formats.blocks import cut, seekable
from replica.errors import CannotParseText
from replica.schema import TableSchema, conform

_BATCH_ROWS = 65_536


def read_parquet(source: BinaryIO, schema: TableSchema, block_rows: int) -> Iterator[pa.Table]:
    """The file's rows in blocks of `block_rows`, conformed to the table's types.

    Raises NoSuchColumnInTable, CannotParseText for a broken file, and the errors of `conform` for values that do
    not fit; blocks before the one at fault have been yielded by then.
    """
    first_row = 1
    for block in cut(_batches(source, schema), block_rows):
        yield conform(block, schema, first_row=first_row)
        first_row += block.num_rows


def _batches(source: BinaryIO, schema: TableSchema) -> Iterator[pa.RecordBatch]:
    try:
        with pyarrow.parquet.ParquetFile(seekable(source)) as file:
            for name in file.schema_arrow.names:
                schema.column(name)
            yield from file.iter_batches(batch_size=_BATCH_ROWS)
    except (pa.ArrowInvalid, OSError) as problem:
        raise CannotParseText(f"not a Parquet file, or a broken one: {str(problem).splitlines()[0]}") from None
