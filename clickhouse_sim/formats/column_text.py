"""Columns of text to columns of a table's types.

Text that stands for no value: `\\N` in every column; in a Nullable column that is not a String also the empty
text, unless that is ruled out. Times may be written `2013-01-01 10:00:00` (in the column's time zone) or
`2013-01-01T10:00:00Z` (UTC).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from replica.schema import Column, Kind, TableSchema, conform

_UTC_TIME = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\dZ$"


def text_block(
    columns: Mapping[str, pa.ChunkedArray],
    schema: TableSchema,
    *,
    null_texts: Sequence[str] = (),
    empty_is_null: bool = True,
    first_row: int = 1,
) -> pa.Table:
    """The block that columns of text spell, each in the `text_shape` of its type.

    `null_texts` mean NULL in Nullable columns. Raises NoSuchColumnInTable and, for a value that does not fit, the
    errors of `conform`: they name column and row, the block's first row being number `first_row`.
    """
    nulls = [text.encode() for text in null_texts]
    texts = {name: _prepared(values, schema.column(name), nulls, empty_is_null) for name, values in columns.items()}
    return conform(pa.table(texts), schema, first_row=first_row)


def _prepared(values: pa.ChunkedArray, column: Column, nulls: list[bytes], empty_is_null: bool) -> pa.ChunkedArray:
    """The texts with NULLs in their places, and spelled so that `conform` reads them."""
    if column.type.nullable and pa.types.is_large_binary(values.type):
        if empty_is_null and column.type.kind not in (Kind.STRING, Kind.FIXED_STRING):
            nulls = [*nulls, b""]
        if nulls:
            is_null = pc.is_in(values, pa.array(nulls, pa.large_binary()))
            values = pc.if_else(is_null, pa.scalar(None, pa.large_binary()), values)
    if column.type.kind is Kind.DATETIME:
        return _in_zone(values, column.type.zone)
    return values


def _in_zone(values: pa.ChunkedArray, zone: str) -> pa.ChunkedArray:
    """Times that end in Z, rewritten as the time of day in the column's zone; all others as they are."""
    is_utc = pc.fill_null(pc.match_substring_regex(values, _UTC_TIME), False)
    if not pc.any(is_utc).as_py():
        return values
    local = pc.binary_slice(values, 0, 19)
    if zone != "UTC":
        instants = pc.strptime(local.cast(pa.string()), "%Y-%m-%dT%H:%M:%S", "s", error_is_null=True)
        local = pc.strftime(pc.assume_timezone(instants, "UTC").cast(pa.timestamp("s", zone)), "%Y-%m-%d %H:%M:%S")
        local = local.cast(pa.large_binary())
    return pc.if_else(is_utc, local, values)
