"""The check that an incoming block fits a table: every value arrives as the table's own Arrow type, unchanged in
meaning, or the block is refused whole with the row, the column and the value that do not fit."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from replica.errors import (
    CannotInsertNullInOrdinaryColumn,
    CannotParseText,
    ClickHouseError,
    TypeMismatch,
    ValueIsOutOfRangeOfDataType,
)
from replica.schema.memory import plain
from replica.schema.table import Column, TableSchema, refuse_duplicates
from replica.schema.types import DataType, Kind
from replica.schema.zones import offsets_at_local_times

_LAST_DATE = 2**16 - 1
_LAST_SECOND = 2**32 - 1
_RANGES = {
    Kind.DATE: "from 1970-01-01 to 2149-06-06",
    Kind.DATETIME: "from 1970-01-01 00:00:00 to 2106-02-07 06:28:15 UTC",
}
_WHOLE_NUMBER = re.compile(r"\s*[+-]?\d+\s*")
_PLUS = r"^\+(\d)"
_ENDS_WITH_ZONE = r":\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"


def conform(block: pa.Table, schema: TableSchema, *, first_row: int = 1) -> pa.Table:
    """The block's columns, in the block's order, cast to the table's Arrow types.

    Any Arrow representation of the same values is welcome: dictionary- or run-end-encoded, of another width or
    time unit, a float that is whole, text that spells the value. Timestamps without a zone are UTC, text without
    one is in the column's zone. Whole-number columns of Date and DateTime count days and seconds.

    Raises NoSuchColumnInTable, DuplicateColumn, TypeMismatch (such values never fit the column), and for one value
    CannotInsertNullInOrdinaryColumn, ValueIsOutOfRangeOfDataType or CannotParseText; their messages call the
    block's first row `first_row`.
    """
    refuse_duplicates(block.column_names)
    columns = [schema.column(name) for name in block.column_names]
    arrays = [_conform_column(block.column(index), column, first_row) for index, column in enumerate(columns)]
    fields = [pa.field(column.name, column.type.arrow, column.type.nullable) for column in columns]
    return pa.table(arrays, schema=pa.schema(fields))


def _conform_column(values: pa.ChunkedArray, column: Column, first_row: int) -> pa.ChunkedArray:
    values = plain(values)
    _refuse_nulls(values, column, first_row)
    if values.type == column.type.arrow and column.type.kind not in (Kind.DATE, Kind.DATETIME):
        return values
    convert = _conversion(values.type, column)
    try:
        return convert(values)
    except (pa.ArrowInvalid, OverflowError):
        raise _misfit(values, column, convert, first_row) from None
    except pa.ArrowNotImplementedError:
        raise _never_fits(values.type, column) from None


def _refuse_nulls(values: pa.ChunkedArray, column: Column, first_row: int) -> None:
    if column.type.nullable or values.null_count == 0:
        return
    row = first_row + pc.index(pc.is_null(values), True).as_py()
    raise CannotInsertNullInOrdinaryColumn(
        f"Row {row}: NULL in column {column.name!r}, which is {column.type} and not Nullable."
    )


Conversion = Callable[[pa.ChunkedArray], pa.ChunkedArray]


def _conversion(source: pa.DataType, column: Column) -> Conversion:
    """How values of an Arrow type become the column's. It raises ArrowInvalid when one of them does not fit."""
    target = column.type
    if pa.types.is_null(source):
        return lambda values: pc.cast(values, target.arrow)
    converter = {
        Kind.UNSIGNED: _to_integer,
        Kind.SIGNED: _to_integer,
        Kind.FLOAT: _to_float,
        Kind.BOOL: _to_bool,
        Kind.DATE: _to_date,
        Kind.DATETIME: _to_datetime,
        Kind.STRING: _to_string,
    }[target.kind](source, target)
    if converter is None:
        raise _never_fits(source, column)
    return converter


def _to_integer(source: pa.DataType, target: DataType) -> Conversion | None:
    if _is_number(source) or pa.types.is_boolean(source) or _is_text(source):
        return lambda values: pc.cast(_number_of(values), target.arrow)
    return None


def _to_float(source: pa.DataType, target: DataType) -> Conversion | None:
    # Rounded to the nearest float, as ClickHouse does with every number that it reads.
    if _is_number(source) or _is_text(source):
        return lambda values: pc.cast(_number_of(values), target.arrow, safe=False)
    return None


def _to_bool(source: pa.DataType, target: DataType) -> Conversion | None:
    if pa.types.is_boolean(source) or _is_text(source):
        return lambda values: pc.cast(_text_of(values), target.arrow)
    if pa.types.is_integer(source):
        return lambda values: pc.cast(_within(values, 0, 1), target.arrow)
    return None


def _to_date(source: pa.DataType, target: DataType) -> Conversion | None:
    if pa.types.is_date(source) or pa.types.is_timestamp(source) or _is_text(source):

        def from_days(values: pa.ChunkedArray) -> pa.ChunkedArray:
            days = pc.cast(_text_of(values), target.arrow)
            if pa.types.is_timestamp(source) and not pc.all(pc.equal(pc.cast(days, source), values)).as_py():
                raise pa.ArrowInvalid("a time of day in a Date")
            _within(pc.cast(days, pa.int32()), 0, _LAST_DATE)
            return days

        return from_days
    if pa.types.is_integer(source):
        return lambda values: pc.cast(pc.cast(_within(values, 0, _LAST_DATE), pa.int32()), target.arrow)
    return None


def _to_datetime(source: pa.DataType, target: DataType) -> Conversion | None:
    def within(instants: pa.ChunkedArray) -> pa.ChunkedArray:
        _within(pc.cast(instants, pa.int64()), 0, _LAST_SECOND)
        return instants

    if _is_text(source):
        return lambda values: within(_spelled_instants(_text_of(values), target))
    if pa.types.is_timestamp(source) or pa.types.is_date(source):
        return lambda values: within(pc.cast(values, target.arrow))
    if pa.types.is_integer(source):
        return lambda values: pc.cast(pc.cast(_within(values, 0, _LAST_SECOND), pa.int64()), target.arrow)
    return None


def _spelled_instants(texts: pa.ChunkedArray, target: DataType) -> pa.ChunkedArray:
    """Texts with a zone of their own are in that, all others in the column's."""
    has_zone = pc.match_substring_regex(texts, _ENDS_WITH_ZONE)
    nothing = pa.scalar(None, texts.type)
    zoned = pc.cast(pc.if_else(has_zone, texts, nothing), target.arrow)
    local = pc.cast(pc.if_else(has_zone, nothing, texts), pa.timestamp("s"))
    seconds = pc.cast(local, pa.int64())
    offsets = offsets_at_local_times(pc.fill_null(seconds, 0).to_numpy(), target.zone)
    return pc.coalesce(zoned, pc.cast(pc.subtract(seconds, pa.array(offsets)), target.arrow))


def _to_string(source: pa.DataType, target: DataType) -> Conversion | None:
    if _is_text(source):
        return lambda values: pc.cast(values, target.arrow)
    return None


def _is_number(source: pa.DataType) -> bool:
    return bool(pa.types.is_integer(source) or pa.types.is_floating(source) or pa.types.is_decimal(source))


def _is_text(source: pa.DataType) -> bool:
    is_string = pa.types.is_string(source) or pa.types.is_large_string(source) or pa.types.is_string_view(source)
    is_bytes = pa.types.is_binary(source) or pa.types.is_large_binary(source) or pa.types.is_binary_view(source)
    return bool(is_string or is_bytes or pa.types.is_fixed_size_binary(source))


def _text_of(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text as the type that Arrow parses numbers and times from; anything else as it is."""
    return pc.cast(values, pa.large_string()) if _is_text(values.type) else values


def _number_of(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same without a leading plus, which Arrow does not read."""
    texts = _text_of(values)
    if not _is_text(texts.type) or not pc.any(pc.starts_with(texts, "+")).as_py():
        return texts
    return pc.replace_substring_regex(texts, _PLUS, r"\1")


def _within(values: pa.ChunkedArray, low: int, high: int) -> pa.ChunkedArray:
    """The values, all of them from `low` to `high`."""
    extremes = pc.min_max(values).as_py()
    if extremes["min"] is not None and not low <= extremes["min"] <= extremes["max"] <= high:
        raise pa.ArrowInvalid(f"not between {low} and {high}")
    return values


def _never_fits(source: pa.DataType, column: Column) -> TypeMismatch:
    return TypeMismatch(
        f"Column {column.name!r} is {column.type}, and values of Arrow type {source} do not fit it: cast them first."
    )


def _misfit(values: pa.ChunkedArray, column: Column, convert: Conversion, first_row: int) -> ClickHouseError:
    """The error that names the first value that `convert` refuses."""
    first, last = 0, len(values)
    while last - first > 1:
        middle = (first + last) // 2
        if _succeeds(convert, values.slice(first, middle - first)):
            first = middle
        else:
            last = middle
    found = f"Row {first_row + first}: {_shown(values[first])} in column {column.name!r}"
    is_text = _is_text(values.type)
    if is_text and not _spells_another(values[first], column.type):
        return CannotParseText(f"{found} does not spell {column.type.with_article}.")
    if is_text and column.type.kind in _RANGES:
        return ValueIsOutOfRangeOfDataType(f"{found} is out of range of {column.type}: {_RANGES[column.type.kind]}.")
    return ValueIsOutOfRangeOfDataType(f"{found} does not fit {column.type}.")


def _succeeds(convert: Conversion, values: pa.ChunkedArray) -> bool:
    try:
        convert(values)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


def _spells_another(text: pa.Scalar, target: DataType) -> bool:
    """Whether the text spells a whole number, a day or a time at all, though none that the type has."""
    try:
        spelled = pc.cast(text, pa.large_string())
        if target.is_integer:
            return _WHOLE_NUMBER.fullmatch(spelled.as_py()) is not None
        if target.kind in _RANGES:
            pc.cast(spelled, _wide(spelled, target))
            return True
    except pa.ArrowInvalid:
        return False
    return False


def _wide(spelled: pa.Scalar, target: DataType) -> pa.DataType:
    """The Arrow type that has many more days or times than the column's."""
    if target.kind is Kind.DATE:
        return pa.date32()
    return pa.timestamp("s", "UTC" if pc.match_substring_regex(spelled, _ENDS_WITH_ZONE).as_py() else None)


def _shown(value: pa.Scalar) -> str:
    if pa.types.is_timestamp(value.type):
        return str(pc.cast(value, pa.string()).as_py())
    shown = value.as_py()
    if isinstance(shown, bytes):
        shown = shown.decode("utf-8", "replace")
    return repr(shown) if isinstance(shown, str) else str(shown)
