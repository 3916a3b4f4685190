"""Days and times. In Arrow they are dates and timestamps of UTC, whatever the zone of the column."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.quoting import string_literal
from replica.schema.types.conversions import (
    ENDS_WITH_ZONE,
    OutOfRange,
    each,
    exact_number,
    is_text,
    text_of,
    whole_number,
    within,
)
from replica.schema.types.data_type import Conversion, Kind
from replica.schema.types.numbers import Numeric
from replica.schema.zones import offsets_at_local_times

_LAST_DATE = 2**16 - 1
_LAST_SECOND = 2**32 - 1
_UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_FRACTION_OR_SECONDS = r"^-?\d{5,}(\.\d*)?$"
_FRACTION = r"(:\d\d)\.(\d*)"
_TIME = re.compile(r"(-?)(\d{1,3}):(\d\d):(\d\d)(?:\.(\d*))?", re.ASCII)
_LAST_TIME = 999 * 3600 + 59 * 60 + 59


@dataclass(frozen=True)
class Date(Numeric):
    """Days since 1970 in 16 bits."""

    @property
    def base(self) -> str:
        return "Date"

    @property
    def kind(self) -> Kind:
        return Kind.DATE

    @property
    def arrow(self) -> pa.DataType:
        return pa.date32()

    @property
    def arrow_is_exact(self) -> bool:
        return False

    @property
    def width(self) -> int:
        return 2

    @property
    def default_text(self) -> bytes:
        return b"1970-01-01"

    @property
    def range_text(self) -> str:
        return "from 1970-01-01 to 2149-06-06"

    def from_stored(self, values: np.ndarray, nulls: np.ndarray | None) -> pa.Array:
        mask = None if nulls is None else nulls.astype(bool)
        return pa.array(values.astype(np.int32), mask=mask).view(self.arrow)

    def conversion(self, source: pa.DataType) -> Conversion | None:
        if pa.types.is_date(source) or pa.types.is_timestamp(source) or is_text(source):
            return lambda values: self._checked(_days(values))
        if pa.types.is_integer(source):
            return lambda values: self._checked(pc.cast(pc.cast(values, pa.int32()), self.arrow))
        return None

    def _checked(self, days: pa.Array) -> pa.Array:
        within(pc.cast(days, pa.int32()), 0, _LAST_DATE)
        return days

    def spells_another(self, text: str) -> bool:
        return _can_be_cast(text, self.arrow)


@dataclass(frozen=True)
class Date32(Date):
    """Days since 1970 in 32 bits, signed."""

    @property
    def base(self) -> str:
        return "Date32"

    @property
    def kind(self) -> Kind:
        return Kind.DATE32

    @property
    def width(self) -> int:
        return 4

    @property
    def range_text(self) -> str:
        return ""

    def _checked(self, days: pa.Array) -> pa.Array:
        return days


def _days(values: pa.Array) -> pa.Array:
    days = pc.cast(text_of(values), pa.date32())
    if pa.types.is_timestamp(values.type) and pc.any(pc.not_equal(pc.cast(days, values.type), values)).as_py():
        raise OutOfRange("a time of day in a Date")
    return days


@dataclass(frozen=True)
class DateTime(Numeric):
    """Seconds since 1970 in 32 bits; `zone_name` is None where the type names none."""

    zone_name: str | None = None

    @property
    def base(self) -> str:
        return "DateTime" if self.zone_name is None else f"DateTime({string_literal(self.zone_name)})"

    @property
    def kind(self) -> Kind:
        return Kind.DATETIME

    @property
    def arrow(self) -> pa.DataType:
        return pa.timestamp("s", "UTC")

    @property
    def arrow_is_exact(self) -> bool:
        return False

    @property
    def width(self) -> int:
        return 4

    @property
    def zone(self) -> str:
        return self.zone_name or "UTC"

    @property
    def default_text(self) -> bytes:
        return b"1970-01-01T00:00:00Z"

    @property
    def range_text(self) -> str:
        return "from 1970-01-01 00:00:00 to 2106-02-07 06:28:15 UTC"

    def from_stored(self, values: np.ndarray, nulls: np.ndarray | None) -> pa.Array:
        mask = None if nulls is None else nulls.astype(bool)
        return pa.array(values.astype(np.int64), mask=mask).view(self.arrow)

    def conversion(self, source: pa.DataType) -> Conversion | None:
        if is_text(source):
            return lambda values: self._checked(_spelled_instants(text_of(values), self.arrow, self.zone))
        if pa.types.is_timestamp(source) or pa.types.is_date(source):
            return lambda values: self._checked(pc.cast(values, self.arrow))
        if pa.types.is_integer(source):
            return lambda values: self._checked(pc.cast(pc.cast(values, pa.int64()), self.arrow))
        return None

    def _checked(self, instants: pa.Array) -> pa.Array:
        within(pc.cast(instants, pa.int64()), 0, _LAST_SECOND)
        return instants

    def spells_another(self, text: str) -> bool:
        has_zone = pc.match_substring_regex(pa.scalar(text), ENDS_WITH_ZONE).as_py()
        return _can_be_cast(text, pa.timestamp("s", "UTC" if has_zone else None))

    def readable(self, values: pa.Array) -> pa.Array:
        """The time of day in the zone."""
        return pc.local_timestamp(values.cast(pa.timestamp(self.arrow.unit, self.zone)))


@dataclass(frozen=True)
class DateTime64(DateTime):
    """Ticks of 10 to the -`scale` seconds since 1970, signed. Arrow has fewer units, and holds the next finer one."""

    scale: int = 3

    @property
    def base(self) -> str:
        zone = "" if self.zone_name is None else f", {string_literal(self.zone_name)}"
        return f"DateTime64({self.scale}{zone})"

    @property
    def kind(self) -> Kind:
        return Kind.DATETIME64

    @property
    def unit(self) -> str:
        return next(unit for unit, digits in _UNITS.items() if self.scale <= digits)

    @property
    def arrow(self) -> pa.DataType:
        return pa.timestamp(self.unit, "UTC")

    @property
    def width(self) -> int:
        return 8

    @property
    def range_text(self) -> str:
        return "from 1677-09-22 to 2262-04-11" if self.unit == "ns" else ""

    @property
    def _units_in_a_tick(self) -> int:
        return int(10 ** (_UNITS[self.unit] - self.scale))

    def stored(self, values: pa.Array) -> np.ndarray:
        units = super().stored(values)
        return units if self._units_in_a_tick == 1 else units // self._units_in_a_tick

    def from_stored(self, values: np.ndarray, nulls: np.ndarray | None) -> pa.Array:
        return super().from_stored(values.astype(np.int64) * self._units_in_a_tick, nulls)

    def conversion(self, source: pa.DataType) -> Conversion | None:
        if is_text(source):
            return self._from_text
        if pa.types.is_decimal(source) or pa.types.is_floating(source):
            return each(self._units_of_seconds, pa.int64())
        return super().conversion(source)

    def _from_text(self, values: pa.Array) -> pa.Array:
        """Digits beyond the scale are cut off. A number alone counts seconds since 1970."""
        texts = text_of(values)
        is_number = pc.match_substring_regex(texts, _FRACTION_OR_SECONDS)
        nothing = pa.scalar(None, texts.type)
        moments = pc.if_else(is_number, nothing, texts)
        seconds = _spelled_instants(
            pc.replace_substring_regex(moments, _FRACTION, r"\1"), pa.timestamp("s", "UTC"), self.zone
        )
        fractions = pc.struct_field(pc.extract_regex(moments, r":\d\d\.(?P<digits>\d*)"), "digits")
        digits = pc.utf8_slice_codeunits(pc.utf8_rpad(pc.fill_null(fractions, ""), 9, "0"), 0, self.scale)
        ticks = pc.cast(pc.if_else(pc.equal(digits, ""), "0", digits), pa.int64())
        whole = pc.multiply_checked(pc.cast(seconds, pa.int64()), 10 ** _UNITS[self.unit])
        units = pc.add_checked(whole, pc.multiply(ticks, self._units_in_a_tick))
        counted = each(self._units_of_seconds, pa.int64())(pc.if_else(is_number, texts, nothing))
        return pc.cast(pc.coalesce(units, counted), self.arrow)

    def _units_of_seconds(self, value: Any) -> int:
        number = exact_number(repr(value) if isinstance(value, float) else value)
        ticks = number.scaleb(self.scale, Context(prec=60)).to_integral_value(ROUND_FLOOR)
        return int(ticks) * self._units_in_a_tick

    def _checked(self, instants: pa.Array) -> pa.Array:
        units = pc.cast(instants, pa.int64())
        if self._units_in_a_tick > 1:
            numbers = pc.fill_null(units, 0).to_numpy()
            if np.any(numbers % self._units_in_a_tick):
                raise OutOfRange("finer than a tick")
        return instants

    def readable(self, values: pa.Array) -> pa.Array:
        """The time of day in the zone; nanoseconds, for which Python has no type, as text."""
        local = super().readable(values)
        return pc.cast(local, pa.large_string()) if self.unit == "ns" else local


def _spelled_instants(texts: pa.Array, target: pa.DataType, zone: str) -> pa.Array:
    """Texts with a zone of their own are in that, all others in the column's."""
    has_zone = pc.match_substring_regex(texts, ENDS_WITH_ZONE)
    nothing = pa.scalar(None, texts.type)
    zoned = pc.cast(pc.if_else(has_zone, texts, nothing), target)
    local = pc.cast(pc.if_else(has_zone, nothing, texts), pa.timestamp("s"))
    seconds = pc.cast(local, pa.int64())
    offsets = offsets_at_local_times(pc.fill_null(seconds, 0).to_numpy(), zone)
    return pc.coalesce(zoned, pc.cast(pc.subtract(seconds, pa.array(offsets)), target))


def _can_be_cast(text: str, target: pa.DataType) -> bool:
    try:
        pc.cast(pa.scalar(text), target)
    except pa.ArrowInvalid:
        return False
    return True


@dataclass(frozen=True)
class Time(Numeric):
    """Ticks of 10 to the -`scale` seconds, signed, up to 999:59:59: Time where the scale is None, else Time64."""

    scale: int | None = None

    @property
    def base(self) -> str:
        return "Time" if self.scale is None else f"Time64({self.scale})"

    @property
    def kind(self) -> Kind:
        return Kind.TIME

    @property
    def arrow(self) -> pa.DataType:
        return pa.int32() if self.scale is None else pa.int64()

    @property
    def width(self) -> int:
        return 4 if self.scale is None else 8

    @property
    def default_text(self) -> bytes:
        return b"00:00:00"

    @property
    def range_text(self) -> str:
        return "from -999:59:59 to 999:59:59"

    def conversion(self, source: pa.DataType) -> Conversion | None:
        if is_text(source):
            return each(self._ticks, self.arrow)
        if pa.types.is_integer(source):
            return lambda values: pc.cast(values, self.arrow)
        if pa.types.is_time(source):
            return each(lambda value: self._ticks(value.isoformat()), self.arrow)
        return None

    def _ticks(self, text: str) -> int:
        """What `[-]hh:mm:ss[.fraction]` or a number of seconds says."""
        match = _TIME.fullmatch(text.strip())
        if match is None:
            return self._in_range(whole_number(text)) * self._ticks_in_a_second
        sign, hours, minutes, seconds, fraction = match.groups()
        digits = (fraction or "").ljust(self.scale or 0, "0")[: self.scale or 0]
        whole = self._in_range(int(hours) * 3600 + int(minutes) * 60 + int(seconds))
        ticks = whole * self._ticks_in_a_second + int(digits or "0")
        return -ticks if sign else ticks

    @property
    def _ticks_in_a_second(self) -> int:
        return int(10 ** (self.scale or 0))

    def _in_range(self, seconds: int) -> int:
        if abs(seconds) > _LAST_TIME:
            raise OutOfRange(f"{seconds} seconds")
        return seconds

    def readable(self, values: pa.Array) -> pa.Array:
        return pa.array([None if value is None else self._text(value) for value in values.to_pylist()], pa.string())

    def _text(self, ticks: int) -> str:
        seconds, fraction = divmod(abs(ticks), self._ticks_in_a_second)
        minutes, second = divmod(seconds, 60)
        text = f"{'-' if ticks < 0 else ''}{minutes // 60:02}:{minutes % 60:02}:{second:02}"
        return f"{text}.{fraction:0{self.scale}}" if self.scale else text
