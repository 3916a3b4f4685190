"""What the conversions of several types share: which Arrow types are text or numbers, and how they are read."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from replica.schema.types.data_type import Conversion

WHOLE_NUMBER = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
ENDS_WITH_ZONE = r":\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"

_PLUS = r"^\+(\d)"


class OutOfRange(ValueError):
    """A value that is spelled as it should be, but that the type does not have."""


def plain(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The same values without a dictionary, run-end encoding or extension type around them."""
    if isinstance(values.type, pa.BaseExtensionType):
        return plain(pc.cast(values, values.type.storage_type))
    if pa.types.is_dictionary(values.type):
        return plain(pc.cast(values, values.type.value_type))
    if pa.types.is_run_end_encoded(values.type):
        if isinstance(values, pa.ChunkedArray):
            decoded = [pc.run_end_decode(chunk) for chunk in values.chunks]
            return plain(pa.chunked_array(decoded, values.type.value_type))
        return plain(pc.run_end_decode(values))
    return values


def is_text(source: pa.DataType) -> bool:
    is_string = pa.types.is_string(source) or pa.types.is_large_string(source) or pa.types.is_string_view(source)
    is_bytes = pa.types.is_binary(source) or pa.types.is_large_binary(source) or pa.types.is_binary_view(source)
    return bool(is_string or is_bytes or pa.types.is_fixed_size_binary(source))


def is_fixed_binary(source: pa.DataType, width: int) -> bool:
    return bool(pa.types.is_fixed_size_binary(source) and source.byte_width == width)


def is_number(source: pa.DataType) -> bool:
    return bool(pa.types.is_integer(source) or pa.types.is_floating(source) or pa.types.is_decimal(source))


def text_of(values: pa.Array) -> pa.Array:
    """Text as the type that Arrow parses numbers and times from; anything else as it is."""
    return pc.cast(values, pa.large_string()) if is_text(values.type) else values


def number_of(values: pa.Array) -> pa.Array:
    """The same without a leading plus, which Arrow does not read."""
    texts = text_of(values)
    if not is_text(texts.type) or not pc.any(pc.starts_with(texts, "+")).as_py():
        return texts
    return pc.replace_substring_regex(texts, _PLUS, r"\1")


def within(values: pa.Array, low: int, high: int) -> pa.Array:
    """The values, all of them from `low` to `high`."""
    extremes = pc.min_max(values).as_py()
    if extremes["min"] is not None and not low <= extremes["min"] <= extremes["max"] <= high:
        raise OutOfRange(f"not between {low} and {high}")
    return values


def each(convert: Callable[[Any], Any], arrow: pa.DataType) -> Conversion:
    """The conversion of one Python value after another, for types that Arrow cannot convert to; text is `str`."""

    def conversion(values: pa.Array) -> pa.Array:
        given = text_of(values).to_pylist()
        return pa.array([None if value is None else convert(value) for value in given], arrow)

    return conversion


def exact_number(value: Any) -> Decimal:
    """The number that an integer, float, decimal or text is. Raises ValueError."""
    try:
        return Decimal(value.strip()) if isinstance(value, str) else Decimal(value)
    except InvalidOperation:
        raise ValueError(f"{value!r} is no number") from None


def whole_number(value: Any) -> int:
    """The whole number that a value is, or that a text spells. Raises ValueError."""
    if isinstance(value, str):
        if not WHOLE_NUMBER.fullmatch(value):
            raise ValueError(f"{value!r} is no whole number")
        return int(value)
    number = exact_number(value)
    if not number.is_finite() or number != number.to_integral_value():
        raise OutOfRange(f"{value} is not whole")
    return int(number)
