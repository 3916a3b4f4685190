"""ClickHouse's data types: their text, their width in ClickHouse's memory, and the Arrow type that carries them.

A String is bytes, whatever they spell, so it travels as `large_binary`: arbitrary bytes survive, Parquet keeps
the type, DuckDB reads it as BLOB, no chunk is bounded by 2 GiB, and its 64-bit offsets are the ones that the
block hash wants. `readable` turns such columns into text for people and for SELECT.
"""

from __future__ import annotations

import re
import zoneinfo
from dataclasses import dataclass, replace
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from replica.errors import BadArguments, IllegalTypeOfArgument, UnknownType
from replica.quoting import STAND_IN, did_you_mean, string_literal, unescape


class Kind(Enum):
    """What sort of values a type has; with `width`, all that arithmetic and hashing need to know."""

    UNSIGNED = "unsigned integer"
    SIGNED = "signed integer"
    FLOAT = "float"
    BOOL = "bool"
    DATE = "date"
    DATETIME = "date and time"
    STRING = "string"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class DataType:
    """One ClickHouse type.

    `base` is its text without Nullable, `width` the bytes of one value in ClickHouse's memory (0 when values
    differ in length), `arrow` the type of its columns in a block, `zone` the time zone of a DateTime.
    """

    base: str
    kind: Kind
    width: int
    arrow: pa.DataType
    nullable: bool = False
    zone: str = "UTC"

    @property
    def text(self) -> str:
        """The type as ClickHouse writes it: `UInt64`, `Nullable(DateTime('UTC'))`."""
        return f"Nullable({self.base})" if self.nullable else self.base

    @property
    def with_article(self) -> str:
        """For sentences: `an Int32`, `a UInt8`, `a Nullable(Date)`."""
        return f"{'an' if self.text.startswith('I') else 'a'} {self.text}"

    @property
    def default(self) -> pa.Scalar:
        """The value of a column that was left out: NULL if it may be, else zero or empty."""
        if self.nullable:
            return pa.scalar(None, self.arrow)
        if self.kind is Kind.STRING:
            return pa.scalar(b"", self.arrow)
        return pa.scalar(False if self.kind is Kind.BOOL else 0, self.arrow)

    @property
    def is_integer(self) -> bool:
        return self.kind in (Kind.UNSIGNED, Kind.SIGNED)

    @property
    def is_number(self) -> bool:
        return self.is_integer or self.kind is Kind.FLOAT

    def with_nullable(self, nullable: bool) -> DataType:
        """The same type, accepting NULL or not."""
        return replace(self, nullable=nullable)

    def __str__(self) -> str:
        return self.text


_SECONDS = pa.timestamp("s", "UTC")

_FAMILIES = {
    kind.base: kind
    for kind in (
        *(
            DataType(f"UInt{8 * width}", Kind.UNSIGNED, width, getattr(pa, f"uint{8 * width}")())
            for width in (1, 2, 4, 8)
        ),
        *(
            DataType(f"Int{8 * width}", Kind.SIGNED, width, getattr(pa, f"int{8 * width}")())
            for width in (1, 2, 4, 8)
        ),
        DataType("Float32", Kind.FLOAT, 4, pa.float32()),
        DataType("Float64", Kind.FLOAT, 8, pa.float64()),
        DataType("Bool", Kind.BOOL, 1, pa.bool_()),
        DataType("Date", Kind.DATE, 2, pa.date32()),
        DataType("DateTime", Kind.DATETIME, 4, _SECONDS),
        DataType("String", Kind.STRING, 0, pa.large_binary()),
    )
}

NULL_TYPE = DataType("Nothing", Kind.NOTHING, 1, pa.null(), nullable=True)
"""The type of a NULL that stands alone. No column has it."""

SUPPORTED = (*_FAMILIES, "Nullable")

# Names that ClickHouse takes in any case (`system.data_type_families`): those that common SQL uses.
_ALIASES = {
    "BOOL": "Bool",
    "BOOLEAN": "Bool",
    "DATE": "Date",
    "DATETIME": "DateTime",
    "TIMESTAMP": "DateTime",
    "TINYINT": "Int8",
    "SMALLINT": "Int16",
    "INT": "Int32",
    "INTEGER": "Int32",
    "BIGINT": "Int64",
    "TINYINT UNSIGNED": "UInt8",
    "SMALLINT UNSIGNED": "UInt16",
    "INT UNSIGNED": "UInt32",
    "INTEGER UNSIGNED": "UInt32",
    "BIGINT UNSIGNED": "UInt64",
    "FLOAT": "Float32",
    "REAL": "Float32",
    "DOUBLE": "Float64",
    "DOUBLE PRECISION": "Float64",
    "CHAR": "String",
    "VARCHAR": "String",
    "TEXT": "String",
    "BLOB": "String",
}

_TYPE = re.compile(r"\s*(\w+(?:\s+\w+)*)\s*(?:\(\s*(.*?)\s*\))?\s*", re.DOTALL)
_ZONE = re.compile(r"'((?:[^'\\]|\\.)*)'")


def integer_type(width: int, signed: bool) -> DataType:
    """The integer of that many bytes."""
    return _FAMILIES[f"{'' if signed else 'U'}Int{8 * width}"]


def parse_type(text: str) -> DataType:
    """The type that a ClickHouse text names.

    Raises UnknownType for one that the model does not have (the message lists those it has), BadArguments for a
    time zone that does not exist, IllegalTypeOfArgument for a Nullable of a Nullable or a wrong argument.
    """
    match = _TYPE.fullmatch(text)
    if match is None:
        raise UnknownType(f"{text!r} is not a type. The model has {', '.join(SUPPORTED)}.")
    name, argument = match.groups()
    if name == "Nullable":
        return _nullable(text, argument)
    family = _FAMILIES.get(_ALIASES.get(" ".join(name.upper().split()), name))
    if family is None:
        raise UnknownType(
            f"The model has no data type {name}.{did_you_mean(name, SUPPORTED)} It has {', '.join(SUPPORTED)}."
        )
    if not argument:
        return family
    if family.kind is not Kind.DATETIME:
        raise IllegalTypeOfArgument(f"The type {family.base} takes no arguments, but got ({argument}).")
    return _datetime_in_zone(family, argument)


def _nullable(text: str, argument: str | None) -> DataType:
    if not argument:
        raise IllegalTypeOfArgument(
            f"Nullable takes one type, as in Nullable(String), but {text.strip()!r} has none."
        )
    nested = parse_type(argument)
    if nested.nullable:
        raise IllegalTypeOfArgument(f"Nested type {nested} cannot be inside Nullable type.")
    return nested.with_nullable(True)


def _datetime_in_zone(family: DataType, argument: str) -> DataType:
    match = _ZONE.fullmatch(argument)
    if match is None:
        raise IllegalTypeOfArgument(
            f"DateTime takes a time zone in single quotes, as in DateTime('UTC'), not ({argument})."
            " DateTime64 is not in the model."
        )
    zone = unescape(match.group(1))
    if zone != "UTC":
        try:
            zoneinfo.ZoneInfo(zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as problem:
            raise BadArguments(f"Cannot load time zone {zone}") from problem
    return replace(family, base=f"{family.base}({string_literal(zone)})", zone=zone)


_STAND_INS = {0xDC00 + byte: STAND_IN + byte for byte in range(0x80, 0x100)}


def readable(block: pa.Table) -> pa.Table:
    """The block with its String columns as Arrow text, in which `STAND_IN` + b stands for a byte b that is no UTF-8.

    So different bytes stay different texts, and what is printed in the end can be the bytes again.
    """
    for index, field in enumerate(block.schema):
        if pa.types.is_large_binary(field.type):
            block = block.set_column(index, field.with_type(pa.large_string()), _as_text(block.column(index)))
    return block


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return pc.cast(column, pa.large_string())
    except pa.ArrowInvalid:
        texts = (None if value is None else _with_stand_ins(value) for value in column.to_pylist())
        return pa.chunked_array([pa.array(texts, pa.large_string())])


def _with_stand_ins(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape").translate(_STAND_INS)
