"""JSON lines: one object a line, its keys the names of columns, as ClickHouse's JSONEachRow.

A key that is missing stands for the column's default, and so does null in a column that is not Nullable
(`input_format_null_as_default`). Numbers may be written as strings and strings as numbers; true and false are 1 and 0
in a column of numbers; a number in a DateTime column counts seconds since 1970. Arrays, tuples and maps are arrays
and objects (`json_values`). Refused, where ClickHouse has a setting or takes what it can: unknown keys, keys given
twice, numbers out of range.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa

from clickhouse_sim.formats.column_text import text_block
from clickhouse_sim.formats.json_values import JsonNumber, JsonObject, spelling
from replica.errors import CannotParseText, NoSuchColumnInTable
from replica.expression import complete
from replica.schema import Column, TableSchema

_DECODER = json.JSONDecoder(
    parse_int=JsonNumber,
    parse_float=JsonNumber,
    parse_constant=JsonNumber,
    object_pairs_hook=JsonObject,
    strict=False,
)

_Texts = dict[str, Any]
"""A row: for each column that it gives a value, what spells it, in its type's `text_shape`; None is NULL."""


def read_jsonl(source: BinaryIO, schema: TableSchema, block_rows: int) -> Iterator[pa.Table]:
    """The rows in typed blocks of `block_rows`, each with all columns of the table. Empty lines are no rows.

    Raises CannotParseText, NoSuchColumnInTable, and for a value that does not fit the errors of `conform`; all name
    the row, from 1, and the column. Blocks before the one at fault have been yielded by then.
    """
    lines = (line for line in source if not line.isspace())
    rows = (_texts(line, number, schema) for number, line in enumerate(lines, start=1))
    first_row = 1
    while block := list(islice(rows, block_rows)):
        yield _block(block, schema, first_row)
        first_row += len(block)


def _texts(line: bytes, number: int, schema: TableSchema) -> _Texts:
    try:
        found = _DECODER.decode(line.decode("utf-8", "surrogateescape").strip())
    except (json.JSONDecodeError, RecursionError) as problem:
        raise CannotParseText(f"Row {number} is not a JSON object on one line: {problem}") from None
    if not isinstance(found, JsonObject):
        raise CannotParseText(f"Row {number} is not a JSON object: {line[:50].decode(errors='replace').strip()}")
    texts: _Texts = {}
    seen: set[str] = set()
    for key, value in found.pairs:
        column = _column(key, number, schema)
        if key in seen:
            raise CannotParseText(f"Row {number} gives column {key!r} twice.")
        seen.add(key)
        if value is not None or column.type.nullable:
            texts[key] = _spelling(value, column, number)
    return texts


def _column(key: str, number: int, schema: TableSchema) -> Column:
    try:
        return schema.column(key)
    except NoSuchColumnInTable as error:
        raise NoSuchColumnInTable(f"Row {number}: {error.message}") from None


def _spelling(value: Any, column: Column, number: int) -> Any:
    try:
        return spelling(value, column.type)
    except ValueError as problem:
        raise CannotParseText(f"Row {number}: {problem} in column {column.name!r}, which is {column.type}.") from None


def _block(rows: list[_Texts], schema: TableSchema, first_row: int) -> pa.Table:
    columns = {
        column.name: pa.chunked_array([pa.array([_given(row, column) for row in rows], column.type.text_shape)])
        for column in schema.columns
    }
    block = text_block(columns, schema, empty_is_null=False, first_row=first_row)
    with_default = [column.name for column in schema.columns if column.default is not None]
    return _with_defaults(block, [tuple(name for name in with_default if name not in row) for row in rows], schema)


def _given(row: _Texts, column: Column) -> Any:
    """What spells the row's value in a column, or the type's default."""
    if column.name in row:
        return row[column.name]
    return None if column.type.nullable else column.type.default_text


def _with_defaults(block: pa.Table, missing: list[tuple[str, ...]], schema: TableSchema) -> pa.Table:
    """The block with DEFAULT expressions computed where a row misses their columns: for all rows that miss the same
    ones together, since a DEFAULT may read another column that is missing itself."""
    places: dict[tuple[str, ...], list[int]] = {}
    for place, names in enumerate(missing):
        places.setdefault(names, []).append(place)
    if list(places) == [()]:
        return block
    completed = [complete(block.take(rows).drop_columns(list(names)), schema) for names, rows in places.items()]
    order = [place for rows in places.values() for place in rows]
    return pa.concat_tables(completed).take(sorted(range(len(order)), key=order.__getitem__))
