"""JSON lines: one object a line, its keys the names of columns, as ClickHouse's JSONEachRow.

A key that is missing stands for the column's default, and so does null in a column that is not Nullable
(`input_format_null_as_default`). Numbers may be written as strings and strings as numbers; true and false are 1 and 0
in a column of numbers; a number in a DateTime column counts seconds since 1970. Refused, where ClickHouse has a
setting or takes what it can: unknown keys, keys given twice, numbers out of range, arrays and objects as values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa

from clickhouse_sim.formats.column_text import text_block
from replica.errors import CannotParseText, NoSuchColumnInTable
from replica.expression import complete
from replica.schema import Column, Kind, TableSchema

_TYPE_DEFAULTS = {
    Kind.UNSIGNED: b"0",
    Kind.SIGNED: b"0",
    Kind.FLOAT: b"0",
    Kind.BOOL: b"false",
    Kind.STRING: b"",
    Kind.DATE: b"1970-01-01",
    Kind.DATETIME: b"1970-01-01T00:00:00Z",
}
_LAST_SECOND = 2**32 - 1


class _Number(str):
    """A JSON number as it is spelled, so that no digit is lost on the way to its column."""


@dataclass(frozen=True, slots=True)
class _Object:
    pairs: list[tuple[str, Any]]


_DECODER = json.JSONDecoder(
    parse_int=_Number, parse_float=_Number, parse_constant=_Number, object_pairs_hook=_Object, strict=False
)

_Texts = dict[str, bytes | None]
"""A row: for each column that it gives a value, the text that spells it; None is NULL."""


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
    if not isinstance(found, _Object):
        raise CannotParseText(f"Row {number} is not a JSON object: {line[:50].decode(errors='replace').strip()}")
    texts: _Texts = {}
    seen: set[str] = set()
    for key, value in found.pairs:
        column = _column(key, number, schema)
        if key in seen:
            raise CannotParseText(f"Row {number} gives column {key!r} twice.")
        seen.add(key)
        if value is not None or column.type.nullable:
            texts[key] = _text(value, column, number)
    return texts


def _column(key: str, number: int, schema: TableSchema) -> Column:
    try:
        return schema.column(key)
    except NoSuchColumnInTable as error:
        raise NoSuchColumnInTable(f"Row {number}: {error.message}") from None


def _text(value: Any, column: Column, number: int) -> bytes | None:
    match value:
        case None:
            return None
        case bool():
            is_number = column.type.is_number
            return (b"1" if is_number else b"true") if value else (b"0" if is_number else b"false")
        case _Number() if column.type.kind is Kind.DATETIME:
            return _instant(value)
        case str():
            try:
                return value.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError:
                raise CannotParseText(
                    f"Row {number}: the text in column {column.name!r} has half of a surrogate pair."
                ) from None
    kind = "an array" if isinstance(value, list) else "an object"
    raise CannotParseText(
        f"Row {number}: {kind} in column {column.name!r} does not spell {column.type.with_article}."
    )


def _instant(seconds: str) -> bytes:
    """The time that so many seconds since 1970 are; a number that is none stays as it is, to be refused."""
    if not seconds.isdecimal() or int(seconds) > _LAST_SECOND:
        return seconds.encode()
    return f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%dT%H:%M:%SZ}".encode()


def _block(rows: list[_Texts], schema: TableSchema, first_row: int) -> pa.Table:
    columns = {
        column.name: pa.chunked_array([pa.array([_given(row, column) for row in rows], pa.large_binary())])
        for column in schema.columns
    }
    block = text_block(columns, schema, empty_is_null=False, first_row=first_row)
    with_default = [column.name for column in schema.columns if column.default is not None]
    return _with_defaults(block, [tuple(name for name in with_default if name not in row) for row in rows], schema)


def _given(row: _Texts, column: Column) -> bytes | None:
    """The row's text in a column, or the one of the type's default."""
    if column.name in row:
        return row[column.name]
    return None if column.type.nullable else _TYPE_DEFAULTS[column.type.kind]


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
