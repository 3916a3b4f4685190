"""The columns of a system table: ClickHouse's names, order and types, and what stands where the model has nothing.

A table is declared as text, one `name type` a line, and its rows as dictionaries of what this model knows. A column
that a row leaves out is about something that the model does not have, and gets its type's neutral value: 0, the
empty text, 1970, an empty array or map, NULL if it is Nullable.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from replica.errors import LogicalError

Row = Mapping[str, Any]

NO_UUID = "00000000-0000-0000-0000-000000000000"

_EPOCH = datetime.date(1970, 1, 1)
_GENERIC = re.compile(r"(\w+)\((.*)\)")
_SIMPLE: dict[str, tuple[pa.DataType, Any]] = {
    "UInt8": (pa.uint8(), 0),
    "UInt16": (pa.uint16(), 0),
    "UInt32": (pa.uint32(), 0),
    "UInt64": (pa.uint64(), 0),
    "Int32": (pa.int32(), 0),
    "Int64": (pa.int64(), 0),
    "Float64": (pa.float64(), 0.0),
    "String": (pa.string(), ""),
    "UUID": (pa.string(), NO_UUID),
    "IPv6": (pa.string(), "::"),
    "Date": (pa.date32(), _EPOCH),
    "DateTime": (pa.timestamp("s", "UTC"), 0),
    "DateTime64(6)": (pa.timestamp("us", "UTC"), 0),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a system table; `type` is ClickHouse's."""

    name: str
    type: str
    arrow: pa.DataType
    neutral: Any


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of one system table, in order."""

    columns: tuple[Column, ...]

    @classmethod
    def parse(cls, text: str) -> Columns:
        """Raises KeyError for a type that no system table has yet."""
        pairs = [line.strip().split(" ", 1) for line in text.strip().splitlines()]
        return cls(tuple(Column(name, type, *_arrow_and_neutral(type)) for name, type in pairs))

    def table(self, rows: Iterable[Row]) -> pa.Table:
        """The rows, whole. Raises LogicalError for a value of a column that the table does not have."""
        rows = list(rows)
        known = {column.name for column in self.columns}
        for row in rows:
            if not row.keys() <= known:
                raise LogicalError(f"no column of this system table: {', '.join(sorted(row.keys() - known))}")
        arrays = [
            pa.array([row.get(column.name, column.neutral) for row in rows], column.arrow) for column in self.columns
        ]
        return pa.table(arrays, schema=pa.schema([(column.name, column.arrow) for column in self.columns]))


def _arrow_and_neutral(type: str) -> tuple[pa.DataType, Any]:
    if type in _SIMPLE:
        return _SIMPLE[type]
    generic = _GENERIC.fullmatch(type)
    if generic is None:
        raise KeyError(type)
    outer, inner = generic.groups()
    match outer:
        case "Nullable":
            return _arrow_and_neutral(inner)[0], None
        case "LowCardinality":
            return _arrow_and_neutral(inner)
        case "Enum8" | "Enum16":
            return pa.string(), inner.split(",")[0].strip(" '")
        case "Array":
            return pa.list_(_arrow_and_neutral(inner)[0]), []
        case "Map":
            key, value = inner.rsplit(", ", 1)
            return pa.map_(_arrow_and_neutral(key)[0], _arrow_and_neutral(value)[0]), []
        case "Tuple":
            elements = [_arrow_and_neutral(each) for each in inner.split(", ")]
            names = [str(number) for number in range(1, len(elements) + 1)]
            arrow = pa.struct([(name, arrow) for name, (arrow, _) in zip(names, elements, strict=True)])
            return arrow, {name: neutral for name, (_, neutral) in zip(names, elements, strict=True)}
    raise KeyError(type)
