"""Numbers: integers of 8 to 256 bits, floats, decimals, and Bool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_DOWN, Context, Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.schema.types.conversions import (
    WHOLE_NUMBER,
    OutOfRange,
    each,
    exact_number,
    is_number,
    is_text,
    number_of,
    text_of,
    whole_number,
    within,
)
from replica.schema.types.data_type import (
    Conversion,
    DataType,
    Kind,
    fixed_bytes,
    null_map,
    rows_of_width,
    unpacked_bits,
)

_HEXADECIMAL = r"^\s*[+-]?0[xX]"


@dataclass(frozen=True)
class FixedWidth(DataType):
    """A type whose values all have `width` bytes."""

    def contents(self, values: pa.Array) -> Iterator[np.ndarray]:
        yield self.stored(values)

    def own_rows(self, values: pa.Array) -> pa.Array:
        stored = self.stored(values)
        return rows_of_width(np.ascontiguousarray(stored, stored.dtype.newbyteorder("<")), self.width)

    def stored(self, values: pa.Array) -> np.ndarray:
        """The values in memory, one after another; none is NULL. Shares the array's buffer where it can."""
        return fixed_bytes(values, self.width)


@dataclass(frozen=True)
class Numeric(FixedWidth):
    """A type whose values in memory numpy has a type for, as wide as Arrow's or narrower."""

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        letter = {Kind.FLOAT: "f", Kind.UNSIGNED: "u", Kind.BOOL: "u", Kind.DATE: "u", Kind.DATETIME: "u"}
        letter |= {Kind.IPV4: "u"}
        return np.dtype(f"<{letter.get(self.kind, 'i')}{self.width}")

    def stream(self, values: pa.Array) -> Iterator[np.ndarray]:
        if not values.null_count:
            yield self.stored(values)
            if self.nullable:
                yield np.zeros(len(values), np.uint8)
            return
        nulls = null_map(values)
        yield np.ma.array(self.stored(values), mask=nulls.view(bool), fill_value=0)
        yield nulls

    def stored(self, values: pa.Array) -> np.ndarray:
        """Whatever lies under a NULL is there too; numbers that Arrow holds wider have gaps between them."""
        step = max(1, self.arrow.bit_width // 8 // self.width)
        return fixed_bytes(values, step * self.width).view(self.dtype)[::step]

    def from_stored(self, values: np.ndarray, nulls: np.ndarray | None) -> pa.Array:
        """The Arrow array of values in memory; NULL where `nulls` is set."""
        mask = None if nulls is None else nulls.astype(bool)
        return pa.array(values.astype(self.dtype, copy=False), mask=mask)


@dataclass(frozen=True)
class Integer(Numeric):
    """(U)Int8 to (U)Int64."""

    bits: int
    signed: bool

    @property
    def base(self) -> str:
        return f"{'' if self.signed else 'U'}Int{self.bits}"

    @property
    def kind(self) -> Kind:
        return Kind.SIGNED if self.signed else Kind.UNSIGNED

    @property
    def arrow(self) -> pa.DataType:
        return getattr(pa, self.base.lower())()

    @property
    def width(self) -> int:
        return self.bits // 8

    def conversion(self, source: pa.DataType) -> Conversion | None:
        if is_number(source) or pa.types.is_boolean(source):
            return lambda values: pc.cast(values, self.arrow)
        if is_text(source):
            return lambda values: pc.cast(_decimal_digits(values), self.arrow)
        return None

    def spells_another(self, text: str) -> bool:
        return WHOLE_NUMBER.fullmatch(text) is not None


def _decimal_digits(texts: pa.Array) -> pa.Array:
    """Arrow would read 0x10 as a number, and 0xFF as -1; ClickHouse reads no such text."""
    if pc.any(pc.match_substring_regex(text_of(texts), _HEXADECIMAL)).as_py():
        raise ValueError("hexadecimal")
    return number_of(texts)


@dataclass(frozen=True)
class WideInteger(FixedWidth):
    """(U)Int128 and (U)Int256: in Arrow their bytes, as in memory."""

    bits: int
    signed: bool

    @property
    def base(self) -> str:
        return f"{'' if self.signed else 'U'}Int{self.bits}"

    @property
    def kind(self) -> Kind:
        return Kind.WIDE

    @property
    def arrow(self) -> pa.DataType:
        return pa.binary(self.width)

    @property
    def width(self) -> int:
        return self.bits // 8

    @property
    def zero(self) -> bytes:
        return bytes(self.width)

    def number(self, value: bytes) -> int:
        """The number that so many bytes are."""
        return int.from_bytes(value, "little", signed=self.signed)

    def conversion(self, source: pa.DataType) -> Conversion | None:
        if is_number(source) or pa.types.is_boolean(source) or is_text(source):
            return each(self._bytes, self.arrow)
        return None

    def _bytes(self, value: Any) -> bytes:
        return whole_number(value).to_bytes(self.width, "little", signed=self.signed)

    def spells_another(self, text: str) -> bool:
        return WHOLE_NUMBER.fullmatch(text) is not None

    def readable(self, values: pa.Array) -> pa.Array:
        """128 bits as DuckDB's own integers; it has none of 256, which are text."""
        if self.bits == 128:
            return pa.opaque(self.arrow, "hugeint" if self.signed else "uhugeint", "DuckDB").wrap_array(values)
        texts = (None if value is None else str(self.number(value)) for value in values.to_pylist())
        return pa.array(texts, pa.large_string())


@dataclass(frozen=True)
class Float(Numeric):
    """Float32 and Float64."""

    bits: int

    @property
    def base(self) -> str:
        return f"Float{self.bits}"

    @property
    def kind(self) -> Kind:
        return Kind.FLOAT

    @property
    def arrow(self) -> pa.DataType:
        return pa.float32() if self.bits == 32 else pa.float64()

    @property
    def width(self) -> int:
        return self.bits // 8

    @property
    def zero(self) -> float:
        return 0.0

    def conversion(self, source: pa.DataType) -> Conversion | None:
        # Rounded to the nearest float, as ClickHouse does with every number that it reads.
        if is_number(source) or is_text(source):
            return lambda values: pc.cast(number_of(values), self.arrow, safe=False)
        return None


@dataclass(frozen=True)
class BFloat16(FixedWidth):
    """The upper half of a Float32, which carries it in Arrow."""

    @property
    def base(self) -> str:
        return "BFloat16"

    @property
    def kind(self) -> Kind:
        return Kind.BFLOAT

    @property
    def arrow(self) -> pa.DataType:
        return pa.float32()

    @property
    def arrow_is_exact(self) -> bool:
        return False

    @property
    def width(self) -> int:
        return 2

    @property
    def zero(self) -> float:
        return 0.0

    def stored(self, values: pa.Array) -> np.ndarray:
        return fixed_bytes(values, 4).view("<u2")[1::2]

    def conversion(self, source: pa.DataType) -> Conversion | None:
        if not is_number(source) and not is_text(source):
            return None

        def without_lower_half(values: pa.Array) -> pa.Array:
            floats = pc.cast(number_of(values), pa.float32(), safe=False)
            bits = pc.fill_null(floats, 0.0).to_numpy().view(np.uint32) & np.uint32(0xFFFF0000)
            return pa.array(bits.view(np.float32), mask=np.asarray(pc.is_null(floats)))

        return without_lower_half


@dataclass(frozen=True)
class Bool(Numeric):
    @property
    def base(self) -> str:
        return "Bool"

    @property
    def kind(self) -> Kind:
        return Kind.BOOL

    @property
    def arrow(self) -> pa.DataType:
        return pa.bool_()

    @property
    def width(self) -> int:
        return 1

    @property
    def zero(self) -> bool:
        return False

    @property
    def default_text(self) -> bytes:
        return b"false"

    def stream(self, values: pa.Array) -> Iterator[np.ndarray]:
        return DataType.stream(self, values)

    def stored(self, values: pa.Array) -> np.ndarray:
        if len(values) == 0:
            return np.zeros(0, np.uint8)
        return unpacked_bits(values.buffers()[1], values.offset, len(values))

    def from_stored(self, values: np.ndarray, nulls: np.ndarray | None) -> pa.Array:
        return pa.array(values.astype(bool), mask=None if nulls is None else nulls.astype(bool))

    def conversion(self, source: pa.DataType) -> Conversion | None:
        if pa.types.is_boolean(source) or is_text(source):
            return lambda values: pc.cast(text_of(values), self.arrow)
        if pa.types.is_integer(source):
            return lambda values: pc.cast(within(values, 0, 1), self.arrow)
        return None


@dataclass(frozen=True)
class DecimalType(FixedWidth):
    """Decimal(precision, scale), which Decimal32(scale) to Decimal256(scale) are as well."""

    precision: int
    scale: int

    @property
    def base(self) -> str:
        return f"Decimal({self.precision}, {self.scale})"

    @property
    def kind(self) -> Kind:
        return Kind.DECIMAL

    @property
    def arrow(self) -> pa.DataType:
        wide = self.precision > 38
        return pa.decimal256(self.precision, self.scale) if wide else pa.decimal128(self.precision, self.scale)

    @property
    def width(self) -> int:
        return next(width for width, digits in ((4, 9), (8, 18), (16, 38), (32, 76)) if self.precision <= digits)

    @property
    def zero(self) -> Decimal:
        return Decimal(0)

    def stored(self, values: pa.Array) -> np.ndarray:
        """Arrow has 16 or 32 bytes a value; little endian, so that the first ones are the number in fewer."""
        arrow_width = self.arrow.bit_width // 8
        content = fixed_bytes(values, arrow_width)
        return content if self.width == arrow_width else content.view(f"<i{self.width}")[:: arrow_width // self.width]

    def conversion(self, source: pa.DataType) -> Conversion | None:
        if pa.types.is_decimal(source):
            return lambda values: pc.cast(values, self.arrow)
        if pa.types.is_integer(source):
            # Arrow wants room for the largest integer that there might be.
            roomy = pa.decimal256(76, min(self.scale, 76 - 20))
            return lambda values: pc.cast(pc.cast(values, roomy), self.arrow)
        if pa.types.is_floating(source):
            return each(lambda value: self._number(repr(value)), self.arrow)
        if is_text(source):
            return each(self._number, self.arrow)
        return None

    def _number(self, text: str) -> Decimal:
        """The number that a text spells, cut off after the last digit of the scale."""
        number = exact_number(text)
        if not number.is_finite():
            raise ValueError(f"{text!r} is not finite")
        if number.adjusted() >= self.precision - self.scale and number:
            raise OutOfRange(f"{text!r} has more than {self.precision} digits")
        return number.quantize(Decimal(1).scaleb(-self.scale), ROUND_DOWN, Context(prec=self.precision + 1))

    def spells_another(self, text: str) -> bool:
        try:
            return exact_number(text).is_finite()
        except ValueError:
            return False

    def readable(self, values: pa.Array) -> pa.Array:
        """DuckDB has up to 38 digits; more are text."""
        if self.precision <= 38:
            return values
        texts = (None if value is None else f"{value.normalize():f}" for value in values.to_pylist())
        return pa.array(texts, pa.large_string())
