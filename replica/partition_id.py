"""The id of a partition, made from the values of its key (`MergeTreePartition::getID`)."""

from __future__ import annotations

import datetime
import re
import struct
from collections.abc import Sequence

import pyarrow as pa

from replica.dedup.siphash import siphash128
from replica.errors import BadArguments, NotImplementedInModel
from replica.schema.memory import stored_values
from replica.schema.types import DataType, Kind
from replica.schema.types.containers import pairs_of

UNPARTITIONED = "all"

_ID = re.compile(r"[0-9A-Za-z-]+", re.ASCII)
_EPOCH = datetime.date(1970, 1, 1)

# The kinds whose values stand in an id as they are; all others are hashed.
_NUMBERS = (
    *(Kind.UNSIGNED, Kind.SIGNED, Kind.BOOL, Kind.DATE, Kind.DATE32, Kind.DATETIME, Kind.ENUM, Kind.IPV4, Kind.TIME),
)

# The tags under which values enter a hashed id (`FieldVisitorHash`).
_NULL, _UNSIGNED, _SIGNED, _FLOAT = b"\x00", b"\x01", b"\x02", b"\x03"
_STRING, _ARRAY, _TUPLE, _MAP, _IPV4 = b"\x10", b"\x11", b"\x12", b"\x1a", b"\x1e"
_IN_64_BITS_SIGNED = (Kind.SIGNED, Kind.DATE32, Kind.ENUM, Kind.TIME)
_IN_64_BITS_UNSIGNED = (Kind.UNSIGNED, Kind.BOOL, Kind.DATE, Kind.DATETIME)
_WIDE = {"UInt128": b"\x04", "Int128": b"\x05", "UInt256": b"\x18", "Int256": b"\x19", "UUID": b"\x04"}
_DECIMALS = {4: b"\x13", 8: b"\x14", 16: b"\x15", 32: b"\x17"}


def check_partition_id(text: str) -> str:
    """The text, if it can be a partition id at all; BadArguments if not. Ids from outside become names of files."""
    if not _ID.fullmatch(text):
        raise BadArguments(f"{text!r} is not a partition id: those have only digits, ASCII letters and hyphens.")
    return text


def partition_id(values: Sequence[tuple[DataType, pa.Array]]) -> str:
    """The id of the partition with these key values, each an array of one row in its type's Arrow type.

    Raises NotImplementedInModel for a type that no partition key has.
    """
    if not values:
        return UNPARTITIONED
    texts = [_text(data_type, value) for data_type, value in values]
    if None not in texts:
        return "-".join(text for text in texts if text is not None)
    first, second = siphash128(b"".join(_tagged(data_type, value) for data_type, value in values))
    return struct.pack("<QQ", first, second).hex()


def _text(data_type: DataType, value: pa.Array) -> str | None:
    """What stands for the value in an id made of whole numbers; None when there can be no such id."""
    if value.null_count or data_type.kind not in _NUMBERS or _is_decimal_time(data_type):
        return None
    number = int(stored_values(value, data_type)[0])
    if data_type.kind is Kind.DATE:
        return f"{_EPOCH + datetime.timedelta(days=number):%Y%m%d}"
    return str(number)


def _is_decimal_time(data_type: DataType) -> bool:
    """Time64 counts as a decimal."""
    return data_type.kind is Kind.TIME and data_type.width == 8


def _tagged(data_type: DataType, value: pa.Array) -> bytes:
    data_type = data_type.value_type
    kind = data_type.kind
    if value.null_count:
        return _NULL
    if kind in (Kind.DATETIME64, Kind.DECIMAL) or _is_decimal_time(data_type):
        return _DECIMALS[data_type.width] + _memory(data_type, value)
    if kind in _IN_64_BITS_SIGNED:
        return _SIGNED + struct.pack("<q", stored_values(value, data_type)[0])
    if kind in _IN_64_BITS_UNSIGNED:
        return _UNSIGNED + struct.pack("<Q", stored_values(value, data_type)[0])
    if kind is Kind.BFLOAT:
        return _FLOAT + struct.pack("<d", value[0].as_py())
    if kind is Kind.FLOAT:
        return _FLOAT + struct.pack("<d", stored_values(value, data_type)[0])
    if kind is Kind.IPV4:
        return _IPV4 + _memory(data_type, value)
    if data_type.base in _WIDE:
        return _WIDE[data_type.base] + _memory(data_type, value)
    if kind in (Kind.STRING, Kind.FIXED_STRING, Kind.IPV6):
        content: bytes = value[0].as_py()
        return _STRING + struct.pack("<Q", len(content)) + content
    if kind is Kind.ARRAY:
        (element,) = data_type.nested
        return _ARRAY + _all_tagged([(element, each) for each in _single(value.flatten())])
    if kind is Kind.TUPLE:
        return _TUPLE + _all_tagged(list(zip(data_type.nested, value.flatten(), strict=True)))
    if kind is Kind.MAP:
        keys, items = (_single(column) for column in pairs_of(value))
        pairs = zip(keys, items, strict=True)
        return (
            _MAP
            + struct.pack("<Q", len(keys))
            + b"".join(_TUPLE + _all_tagged(list(zip(data_type.nested, pair, strict=True))) for pair in pairs)
        )
    raise NotImplementedInModel(f"The model has no partitions by {data_type}.")


def _all_tagged(values: list[tuple[DataType, pa.Array]]) -> bytes:
    return struct.pack("<Q", len(values)) + b"".join(_tagged(*each) for each in values)


def _memory(data_type: DataType, value: pa.Array) -> bytes:
    content: bytes = data_type.own_rows(value)[0].as_py()
    return content


def _single(values: pa.Array) -> list[pa.Array]:
    return [values.slice(row, 1) for row in range(len(values))]
