"""INSERT … SELECT: the rows of a query as blocks for a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from clickhouse_sim.formats.blocks import MAX_INSERT_BLOCK_SIZE, cut
from replica.errors import NumberOfColumnsDoesntMatch
from replica.quoting import STAND_IN
from replica.schema import TableSchema, conform

_BYTES = {STAND_IN + byte: 0xDC00 + byte for byte in range(0x80, 0x100)}


def selected_blocks(rows: pa.Table, columns: Sequence[str], schema: TableSchema) -> Iterator[pa.Table]:
    """The rows in blocks of the table's types; the n-th column of the query goes into the n-th listed one.

    Raises NumberOfColumnsDoesntMatch, NoSuchColumnInTable, and the errors of `conform` for a value that does not fit.
    """
    names = list(columns or schema.names)
    if rows.num_columns != len(names):
        raise NumberOfColumnsDoesntMatch(
            f"The SELECT has {rows.num_columns} columns, and {len(names)} are to be filled ({', '.join(names)})."
        )
    stored = pa.table([as_inserted(column) for column in rows.columns], names=names)
    return cut(conform(stored, schema).to_batches(), MAX_INSERT_BLOCK_SIZE)


def as_inserted(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Undo what made the values fit for a query: times of day become text, texts bytes."""
    if pa.types.is_timestamp(values.type) and values.type.tz is None:
        return pc.cast(values, pa.string())
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    if not is_text or pc.all(pc.string_is_ascii(values)).as_py() is not False:
        return values
    texts = values.to_pylist()
    return pa.chunked_array(
        [pa.array([None if text is None else _bytes_of(text) for text in texts], pa.large_binary())]
    )


def _bytes_of(text: str) -> bytes:
    return text.translate(_BYTES).encode("utf-8", "surrogateescape")
