"""Functions of dates and times, each in the time zone of its argument's type."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.errors import CannotParseDate, IllegalTypeOfArgument
from replica.expression.vector import Vector
from replica.schema.types import DataType, Kind, integer_type, parse_type
from replica.schema.types.moments import DateTime64
from replica.schema.zones import offsets_at_instants, offsets_at_local_times

_MOMENTS = (Kind.DATE, Kind.DATE32, Kind.DATETIME, Kind.DATETIME64)
_DATE = parse_type("Date")
_SECONDS_A_DAY = 86_400
_LAST_DAY = (2**32 - 1) // _SECONDS_A_DAY


def type_of_yyyymm(argument: DataType) -> DataType:
    """Of toYYYYMM: UInt32."""
    if argument.kind not in _MOMENTS:
        raise IllegalTypeOfArgument(
            f"Illegal type {argument} of argument of function toYYYYMM. Should be Date or DateTime."
        )
    return integer_type(4, signed=False)


def type_of_date(argument: DataType) -> DataType:
    """Of toDate: Date."""
    if argument.kind not in (*_MOMENTS, Kind.STRING):
        raise IllegalTypeOfArgument(
            f"Illegal type {argument} of argument of function toDate. In the model: Date, DateTime or String."
        )
    return _DATE


def evaluate_yyyymm(arguments: tuple[Vector, ...], result: DataType) -> Vector:
    """Year times 100, plus month."""
    (argument,) = arguments
    days = _days(argument)
    months = days.astype("M8[D]").astype("M8[M]").astype(np.int64)
    years, month_of_year = np.divmod(months, 12)
    return Vector(result, ((1970 + years) * 100 + month_of_year + 1).astype(np.uint32), argument.nulls)


def evaluate_date(arguments: tuple[Vector, ...], result: DataType) -> Vector:
    """The day on which the moment falls; of a String, the day that it spells."""
    (argument,) = arguments
    days = _spelled_days(argument.values) if argument.type.kind is Kind.STRING else _days(argument)
    return Vector(result, days.astype(np.uint16), argument.nulls)


def midnights(days: np.ndarray, zone: str) -> np.ndarray:
    """The seconds since 1970 at which days begin in a time zone; days that no DateTime reaches count as the last."""
    local = np.minimum(days.astype(np.int64), _LAST_DAY) * _SECONDS_A_DAY
    return np.asarray(local - offsets_at_local_times(local, zone))


def _days(moments: Vector) -> np.ndarray:
    """Days since 1970."""
    if moments.type.kind in (Kind.DATE, Kind.DATE32):
        return np.asarray(moments.values)
    instants = moments.values.astype(np.int64)
    if isinstance(moments.type, DateTime64):
        instants = instants // 10**moments.type.scale
    return np.asarray((instants + offsets_at_instants(instants, moments.type.zone)) // _SECONDS_A_DAY)


def _spelled_days(strings: pa.Array | pa.Scalar) -> np.ndarray:
    """The days that texts spell, moved into the range of Date as ClickHouse does."""
    try:
        dates = pc.cast(pc.cast(strings, pa.large_string()), pa.date32())
    except pa.ArrowInvalid as problem:
        raise CannotParseDate(f"Cannot parse date: expected YYYY-MM-DD. {problem}") from None
    if isinstance(dates, pa.Scalar):
        days = np.asarray(dates.value)
    else:
        days = dates.view(pa.int32()).to_numpy(zero_copy_only=True)
    return np.asarray(days.clip(0, 2**16 - 1))
