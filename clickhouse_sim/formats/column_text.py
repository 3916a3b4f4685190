"""Columns of text to columns of a table's types.

Text that stands for no value: `\\N` in every column; in a Nullable column that is not a String also the empty
text, unless that is ruled out. Times may be written `2013-01-01 10:00:00` (in the column's time zone) or
`2013-01-01T10:00:00Z` (UTC).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from replica.errors import CannotParseText
from replica.schema import Column, Kind, TableSchema, conform

_UTC_TIME = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\dZ$"
_HEXADECIMAL = r"^\s*-?0[xX]"


def text_block(
    columns: Mapping[str, pa.ChunkedArray],
    schema: TableSchema,
    *,
    null_texts: Sequence[str] = (),
    empty_is_null: bool = True,
    first_row: int = 1,
) -> pa.Table:
    """The block that columns of `large_binary` text spell.

    `null_texts` mean NULL in Nullable columns. Raises NoSuchColumnInTable and, for a value that does not fit, the
    errors of `conform`: they name column and row, the block's first row being number `first_row`.
    """
    nulls = [text.encode() for text in null_texts]
    texts = {
        name: _prepared(values, schema.column(name), nulls, empty_is_null, first_row)
        for name, values in columns.items()
    }
    return conform(pa.table(texts), schema, first_row=first_row)


def _prepared(
    values: pa.ChunkedArray, column: Column, nulls: list[bytes], empty_is_null: bool, first_row: int
) -> pa.ChunkedArray:
    """The texts with NULLs in their places, and spelled so that `conform` reads them."""
    if column.type.nullable:
        if empty_is_null and column.type.kind is not Kind.STRING:
            nulls = [*nulls, b""]
        if nulls:
            is_null = pc.is_in(values, pa.array(nulls, pa.large_binary()))
            values = pc.if_else(is_null, pa.scalar(None, pa.large_binary()), values)
    if column.type.kind is Kind.DATETIME:
        return _in_zone(values, column.type.zone)
    if column.type.is_integer:
        _refuse_hexadecimal(values, column, first_row)
    return values


def _refuse_hexadecimal(values: pa.ChunkedArray, column: Column, first_row: int) -> None:
    """Arrow would read 0x10 as a number, and 0xFF as -1; ClickHouse reads no such text."""
    found = pc.index(pc.fill_null(pc.match_substring_regex(values, _HEXADECIMAL), False), True).as_py()
    if found >= 0:
        raise CannotParseText(
            f"Row {first_row + found}: {values[found].as_py().decode()!r} in column {column.name!r}"
            f" does not spell {column.type.with_article}."
        )


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
