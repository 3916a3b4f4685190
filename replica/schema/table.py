"""The columns of a table, and their text in the `columns` znode (`ColumnsDescription.cpp`, format version 1)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from replica.commands import ColumnDefinition
from replica.errors import (
    CannotParseText,
    DuplicateColumn,
    EmptyListOfColumnsPassed,
    NoSuchColumnInTable,
    NotImplementedInModel,
    UnknownFormatVersion,
)
from replica.quoting import backquote, did_you_mean, escape, unescape
from replica.schema.types import DataType, Kind, nested_columns, parse_type

_VERSION_LINE = "columns format version: 1"
_COUNT_LINE = re.compile(r"(\d+) columns:")
_COLUMN_LINE = re.compile(r"`((?:[^`\\]|\\.)*)` ([^\t]+)(?:\t(.*))?", re.DOTALL)
_DEFAULT_CLAUSE = re.compile(r"DEFAULT\t([^\t]+)")


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `default` is the ClickHouse text of its DEFAULT expression, None when it has none."""

    name: str
    type: DataType
    default: str | None = None

    def to_text(self) -> str:
        """Its line in the `columns` znode, without the newline."""
        line = f"{backquote(self.name)} {escape(self.type.text)}"
        return line if self.default is None else f"{line}\tDEFAULT\t{escape(self.default)}"

    @classmethod
    def parse(cls, line: str) -> Column:
        """The column of such a line."""
        match = _COLUMN_LINE.fullmatch(line)
        if match is None:
            raise CannotParseText(f"not a line of a table's columns: {line!r}")
        name, type_text, clauses = match.groups()
        default = None
        if clauses is not None:
            clause = _DEFAULT_CLAUSE.fullmatch(clauses)
            if clause is None:
                raise NotImplementedInModel(
                    f"column {unescape(name)!r} has {unescape(clauses)!r}; of such clauses the model has DEFAULT only"
                )
            default = unescape(clause.group(1))
        return cls(unescape(name), parse_type(unescape(type_text)), default)


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table, in order, each name once.

    Raises EmptyListOfColumnsPassed and DuplicateColumn.
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not self.columns:
            raise EmptyListOfColumnsPassed("A table needs at least one column.")
        refuse_duplicates(self.names)

    @classmethod
    def from_definitions(cls, definitions: Iterable[ColumnDefinition]) -> TableSchema:
        """The schema that DDL asks for, a column of a Nested type as the arrays that it stands for.

        Raises what `parse_type` raises, and NotImplementedInModel for a Nested with a DEFAULT.
        """
        return cls(tuple(column for each in definitions for column in _columns_of(each)))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of a complete block."""
        return pa.schema([pa.field(each.name, each.type.arrow, each.type.nullable) for each in self.columns])

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    @cached_property
    def nested_siblings(self) -> tuple[tuple[str, ...], ...]:
        """The names of arrays that make up one Nested each: `n.a` and `n.b`."""
        siblings: dict[str, list[str]] = {}
        for column in self.columns:
            parent, dot, _ = column.name.partition(".")
            if dot and column.type.kind is Kind.ARRAY:
                siblings.setdefault(parent, []).append(column.name)
        return tuple(tuple(names) for names in siblings.values())

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def column(self, name: str) -> Column:
        """The column of that name; NoSuchColumnInTable when there is none."""
        try:
            return self._by_name[name]
        except KeyError:
            raise NoSuchColumnInTable(
                f"There is no column {name!r} in the table.{did_you_mean(name, self.names)}"
                f" It has {', '.join(self.names)}."
            ) from None

    def to_text(self) -> str:
        """The content of the `columns` znode."""
        lines = (_VERSION_LINE, f"{len(self.columns)} columns:", *(column.to_text() for column in self.columns))
        return "".join(f"{line}\n" for line in lines)

    @classmethod
    def parse(cls, text: str) -> TableSchema:
        """The schema of such a text.

        Raises UnknownFormatVersion, CannotParseText, NotImplementedInModel for a clause other than DEFAULT, and
        what `parse_type` raises.
        """
        version, *rest = text.split("\n")
        if version != _VERSION_LINE:
            raise UnknownFormatVersion(f"a table's columns begin with {_VERSION_LINE!r}, not {version!r}")
        count = _COUNT_LINE.fullmatch(rest[0]) if rest else None
        if count is None or rest[-1] != "" or int(count.group(1)) != len(rest) - 2:
            raise CannotParseText(f"the count of columns does not agree with the lines of {text!r}")
        return cls(tuple(Column.parse(line) for line in rest[1:-1]))


def _columns_of(definition: ColumnDefinition) -> list[Column]:
    nested = nested_columns(definition.type)
    if nested is None:
        return [Column(definition.name, parse_type(definition.type), definition.default)]
    if definition.default is not None:
        raise NotImplementedInModel(f"The model has no DEFAULT of a Nested: column {definition.name!r}.")
    return [Column(f"{definition.name}.{name}", data_type) for name, data_type in nested]


def refuse_duplicates(names: Iterable[str]) -> None:
    """Raises DuplicateColumn for the first name that comes a second time."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DuplicateColumn(f"The column {name!r} is given twice.")
        seen.add(name)
