"""String, FixedString, and the types that are written as text and kept as a few bytes: enums, UUIDs, addresses.

A String is bytes, whatever they spell, so it travels as `large_binary`: arbitrary bytes survive, Parquet keeps
the type, DuckDB reads it as BLOB, no chunk is bounded by 2 GiB, and its 64-bit offsets are the ones that the
block hash wants.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.quoting import STAND_IN, string_literal
from replica.schema.types.conversions import OutOfRange, each, is_text, text_of, within
from replica.schema.types.data_type import Conversion, DataType, Kind, fixed_bytes, with_length_before
from replica.schema.types.numbers import FixedWidth, Numeric

_UUID = re.compile(r"\s*[0-9A-Fa-f]{8}(-?)[0-9A-Fa-f]{4}\1[0-9A-Fa-f]{4}\1[0-9A-Fa-f]{4}\1[0-9A-Fa-f]{12}\s*")


@dataclass(frozen=True)
class String(DataType):
    @property
    def base(self) -> str:
        return "String"

    @property
    def kind(self) -> Kind:
        return Kind.STRING

    @property
    def arrow(self) -> pa.DataType:
        return pa.large_binary()

    @property
    def zero(self) -> bytes:
        return b""

    @property
    def default_text(self) -> bytes:
        return b""

    def contents(self, values: pa.Array) -> Iterator[np.ndarray]:
        """The characters of all rows, then for each row the offset of its end, u64."""
        if len(values) == 0:
            return
        _, offset_buffer, characters = values.buffers()
        offsets = np.frombuffer(offset_buffer, "<i8", len(values) + 1, values.offset * 8)
        first, length = int(offsets[0]), int(offsets[-1] - offsets[0])
        if length:
            yield np.frombuffer(characters, np.uint8, length, first)
        yield offsets[1:] - first if first else offsets[1:]

    def own_rows(self, values: pa.Array) -> pa.Array:
        ended = pc.binary_join_element_wise(values, pa.scalar(b"\0", self.arrow), pa.scalar(b"", self.arrow))
        return with_length_before(ended)

    def conversion(self, source: pa.DataType) -> Conversion | None:
        if is_text(source):
            return lambda values: pc.cast(values, self.arrow)
        return None

    def readable(self, values: pa.Array) -> pa.Array:
        return as_text(values)


@dataclass(frozen=True)
class FixedString(FixedWidth):
    """`length` bytes, filled up with zeros."""

    length: int

    @property
    def base(self) -> str:
        return f"FixedString({self.length})"

    @property
    def kind(self) -> Kind:
        return Kind.FIXED_STRING

    @property
    def arrow(self) -> pa.DataType:
        return pa.binary(self.length)

    @property
    def width(self) -> int:
        return self.length

    @property
    def zero(self) -> bytes:
        return bytes(self.length)

    @property
    def default_text(self) -> bytes:
        return b""

    def conversion(self, source: pa.DataType) -> Conversion | None:
        if not is_text(source):
            return None

        def padded(values: pa.Array) -> pa.Array:
            texts = pc.cast(values, pa.large_binary()).to_pylist()
            return pa.array([None if text is None else self._padded(text) for text in texts], self.arrow)

        return padded

    def _padded(self, text: bytes) -> bytes:
        if len(text) > self.length:
            raise OutOfRange(f"{len(text)} bytes")
        return text.ljust(self.length, b"\0")

    def spells_another(self, text: str) -> bool:
        return True

    def readable(self, values: pa.Array) -> pa.Array:
        return as_text(pc.cast(values, pa.large_binary()))


@dataclass(frozen=True)
class EnumType(Numeric):
    """Enum8 or Enum16: names and their numbers, in the order of the numbers."""

    bits: int
    members: tuple[tuple[str, int], ...]

    @property
    def base(self) -> str:
        members = ", ".join(f"{string_literal(name)} = {number}" for name, number in self.members)
        return f"Enum{self.bits}({members})"

    @property
    def kind(self) -> Kind:
        return Kind.ENUM

    @property
    def arrow(self) -> pa.DataType:
        return pa.int8() if self.bits == 8 else pa.int16()

    @property
    def arrow_is_exact(self) -> bool:
        return False

    @property
    def width(self) -> int:
        return self.bits // 8

    @property
    def own_default(self) -> int:
        return self.members[0][1]

    @property
    def default_text(self) -> bytes:
        return self.members[0][0].encode()

    @cached_property
    def _names(self) -> dict[int, str]:
        return {number: name for name, number in self.members}

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return dict(self.members)

    def conversion(self, source: pa.DataType) -> Conversion | None:
        if is_text(source):
            return self._from_names
        if pa.types.is_integer(source):
            return self._from_numbers
        return None

    def _from_names(self, values: pa.Array) -> pa.Array:
        names = pa.array([name for name, _ in self.members], pa.large_string())
        places = pc.index_in(text_of(values), names)
        if places.null_count > values.null_count:
            return each(self._number, self.arrow)(values)
        return pc.take(pa.array([number for _, number in self.members], self.arrow), places)

    def _from_numbers(self, values: pa.Array) -> pa.Array:
        numbers = pc.cast(values, self.arrow)
        known = pc.is_in(numbers, pa.array([number for _, number in self.members], self.arrow))
        if pc.any(pc.and_not(pc.is_valid(numbers), known)).as_py():
            raise OutOfRange("no element of the enum")
        return numbers

    def _number(self, value: Any) -> int:
        """Of a name, or of a number that is one's (also as text, where it is no name itself)."""
        if isinstance(value, str) and value in self._numbers:
            return self._numbers[value]
        number = int(value)
        if number not in self._names:
            raise OutOfRange(f"{value!r} is no element of the enum")
        return number

    def spells_another(self, text: str) -> bool:
        return False

    def readable(self, values: pa.Array) -> pa.Array:
        return pa.array([self._names.get(value) for value in values.to_pylist()], pa.large_string())


@dataclass(frozen=True)
class UuidType(FixedWidth):
    """In Arrow the bytes in the order in which they are written."""

    @property
    def base(self) -> str:
        return "UUID"

    @property
    def kind(self) -> Kind:
        return Kind.UUID

    @property
    def arrow(self) -> pa.DataType:
        return pa.binary(16)

    @property
    def width(self) -> int:
        return 16

    @property
    def zero(self) -> bytes:
        return bytes(16)

    @property
    def default_text(self) -> bytes:
        return b"00000000-0000-0000-0000-000000000000"

    def stored(self, values: pa.Array) -> np.ndarray:
        """Two little-endian numbers of 64 bits, the upper one first."""
        return fixed_bytes(values, 16).view(">u8")

    def conversion(self, source: pa.DataType) -> Conversion | None:
        return each(_uuid_bytes, self.arrow) if is_text(source) else None

    def readable(self, values: pa.Array) -> pa.Array:
        return pa.uuid().wrap_array(values)


def _uuid_bytes(text: str) -> bytes:
    if not _UUID.fullmatch(text):
        raise ValueError(f"{text!r} is no UUID")
    return bytes.fromhex(text.replace("-", ""))


@dataclass(frozen=True)
class IPv4(Numeric):
    @property
    def base(self) -> str:
        return "IPv4"

    @property
    def kind(self) -> Kind:
        return Kind.IPV4

    @property
    def arrow(self) -> pa.DataType:
        return pa.uint32()

    @property
    def width(self) -> int:
        return 4

    @property
    def default_text(self) -> bytes:
        return b"0.0.0.0"

    def conversion(self, source: pa.DataType) -> Conversion | None:
        if is_text(source):
            return each(lambda text: int(ipaddress.IPv4Address(text.strip())), self.arrow)
        if pa.types.is_integer(source):
            return lambda values: pc.cast(within(values, 0, 2**32 - 1), self.arrow)
        return None

    def readable(self, values: pa.Array) -> pa.Array:
        texts = (None if value is None else str(ipaddress.IPv4Address(value)) for value in values.to_pylist())
        return pa.array(texts, pa.string())


@dataclass(frozen=True)
class IPv6(FixedWidth):
    """16 bytes in network order; an IPv4 address is its mapped one."""

    @property
    def base(self) -> str:
        return "IPv6"

    @property
    def kind(self) -> Kind:
        return Kind.IPV6

    @property
    def arrow(self) -> pa.DataType:
        return pa.binary(16)

    @property
    def width(self) -> int:
        return 16

    @property
    def zero(self) -> bytes:
        return bytes(16)

    @property
    def default_text(self) -> bytes:
        return b"::"

    def conversion(self, source: pa.DataType) -> Conversion | None:
        return each(_ipv6_bytes, self.arrow) if is_text(source) else None

    def readable(self, values: pa.Array) -> pa.Array:
        texts = (None if value is None else _ipv6_text(value) for value in values.to_pylist())
        return pa.array(texts, pa.string())


def _ipv6_bytes(text: str) -> bytes:
    address = ipaddress.ip_address(text.strip())
    if isinstance(address, ipaddress.IPv4Address):
        return bytes(10) + b"\xff\xff" + address.packed
    return address.packed


def _ipv6_text(packed: bytes) -> str:
    address = ipaddress.IPv6Address(packed)
    return f"::ffff:{address.ipv4_mapped}" if address.ipv4_mapped else str(address)


_STAND_INS = {0xDC00 + byte: STAND_IN + byte for byte in range(0x80, 0x100)}


def as_text(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Bytes as Arrow text, in which `STAND_IN` + b stands for a byte b that is no UTF-8.

    So different bytes stay different texts, and what is printed in the end can be the bytes again.
    """
    try:
        return pc.cast(values, pa.large_string())
    except pa.ArrowInvalid:
        texts = (None if value is None else _with_stand_ins(value) for value in values.to_pylist())
        return pa.array(texts, pa.large_string())


def _with_stand_ins(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape").translate(_STAND_INS)
