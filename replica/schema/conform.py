"""The check that an incoming block fits a table: every value arrives as the table's own Arrow type, unchanged in
meaning, or the block is refused whole with the row, the column and the value that do not fit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.errors import (
    CannotInsertNullInOrdinaryColumn,
    CannotParseText,
    ClickHouseError,
    SizesOfArraysDontMatch,
    TypeMismatch,
    UnknownElementOfEnum,
    ValueIsOutOfRangeOfDataType,
)
from replica.schema.table import Column, TableSchema, refuse_duplicates
from replica.schema.types.containers import converted, lengths
from replica.schema.types.conversions import is_text, plain
from replica.schema.types.data_type import Kind


def conform(block: pa.Table, schema: TableSchema, *, first_row: int = 1) -> pa.Table:
    """The block's columns, in the block's order, cast to the table's Arrow types.

    Any Arrow representation of the same values is welcome: dictionary- or run-end-encoded, of another width or
    time unit, a float that is whole, text that spells the value. Timestamps without a zone are UTC, text without
    one is in the column's zone. Whole-number columns of Date and DateTime count days and seconds.

    Raises NoSuchColumnInTable, DuplicateColumn, TypeMismatch (such values never fit the column), for one value
    CannotInsertNullInOrdinaryColumn, ValueIsOutOfRangeOfDataType, UnknownElementOfEnum or CannotParseText, and for
    a row of a Nested whose arrays differ in length SizesOfArraysDontMatch; their messages call the block's first
    row `first_row`.
    """
    refuse_duplicates(block.column_names)
    columns = [schema.column(name) for name in block.column_names]
    arrays = [_conform_column(block.column(index), column, first_row) for index, column in enumerate(columns)]
    fields = [pa.field(column.name, column.type.arrow, column.type.nullable) for column in columns]
    conformed = pa.table(arrays, schema=pa.schema(fields))
    for names in schema.nested_siblings:
        _require_equal_lengths(conformed, [name for name in names if name in block.column_names], first_row)
    return conformed


def _conform_column(values: pa.ChunkedArray, column: Column, first_row: int) -> pa.ChunkedArray:
    values = plain(values)
    _refuse_nulls(values, column, first_row)
    try:
        chunks = [converted(chunk, column.type) for chunk in values.chunks]
    except (ValueError, OverflowError):
        raise _misfit(values, column, first_row) from None
    except (pa.ArrowNotImplementedError, TypeMismatch):
        raise _never_fits(values.type, column) from None
    return pa.chunked_array(chunks, column.type.arrow)


def _refuse_nulls(values: pa.ChunkedArray, column: Column, first_row: int) -> None:
    if column.type.nullable or values.null_count == 0:
        return
    row = first_row + pc.index(pc.is_null(values), True).as_py()
    raise CannotInsertNullInOrdinaryColumn(
        f"Row {row}: NULL in column {column.name!r}, which is {column.type} and not Nullable."
    )


def _require_equal_lengths(block: pa.Table, names: list[str], first_row: int) -> None:
    """The arrays of one Nested are as long as each other in every row."""
    if len(names) < 2:
        return
    expected, *others = (_lengths(block[name]) for name in names)
    for name, found in zip(names[1:], others, strict=True):
        if len(wrong := np.flatnonzero(expected != found)):
            row = int(wrong[0])
            raise SizesOfArraysDontMatch(
                f"Row {first_row + row}: {names[0]!r} has {int(expected[row])} elements and {name!r} has"
                f" {int(found[row])}; in one Nested they must be equally many."
            )


def _lengths(column: pa.ChunkedArray) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *(lengths(chunk) for chunk in column.chunks)])


def _never_fits(source: pa.DataType, column: Column) -> TypeMismatch:
    return TypeMismatch(
        f"Column {column.name!r} is {column.type}, and values of Arrow type {source} do not fit it: cast them first."
    )


def _misfit(values: pa.ChunkedArray, column: Column, first_row: int) -> ClickHouseError:
    """The error that names the first value that does not convert."""
    first, last = 0, len(values)
    while last - first > 1:
        middle = (first + last) // 2
        if _fits(values.slice(first, middle - first), column):
            first = middle
        else:
            last = middle
    found = f"Row {first_row + first}: {_shown(values[first])} in column {column.name!r}"
    if column.type.kind is Kind.ENUM:
        return UnknownElementOfEnum(f"{found} is no element of {column.type}.")
    spelled = is_text(values.type)
    if spelled and not _spells_another(values[first], column):
        return CannotParseText(f"{found} does not spell {column.type.with_article}.")
    if spelled and column.type.range_text:
        return ValueIsOutOfRangeOfDataType(f"{found} is out of range of {column.type}: {column.type.range_text}.")
    return ValueIsOutOfRangeOfDataType(f"{found} does not fit {column.type}.")


def _fits(values: pa.ChunkedArray, column: Column) -> bool:
    try:
        for chunk in values.chunks:
            converted(chunk, column.type)
    except (ValueError, OverflowError):
        return False
    return True


def _spells_another(text: pa.Scalar, column: Column) -> bool:
    """Whether the text spells a value of a wider type, such as a whole number, though none that the column has."""
    try:
        spelled: str = pc.cast(text, pa.large_string()).as_py()
    except pa.ArrowInvalid:
        return False
    return column.type.spells_another(spelled)


def _shown(value: pa.Scalar) -> str:
    if pa.types.is_timestamp(value.type):
        return str(pc.cast(value, pa.string()).as_py())
    shown = value.as_py()
    if isinstance(shown, bytes):
        shown = shown.decode("utf-8", "replace")
    return repr(shown) if isinstance(shown, str) else str(shown)
