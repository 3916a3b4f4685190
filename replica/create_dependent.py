"""The CREATE statements of materialized views and aliases, as ClickHouse prints them (ASTCreateQuery.cpp).

The SELECT of a view stays on the line that it was written on.
"""

from __future__ import annotations

from collections.abc import Sequence

from replica.commands import ColumnDefinition, CreateAlias, CreateView, Dependent
from replica.quoting import backquote, backquote_if_needed, string_literal


def create_dependent_statement(definition: Dependent, columns: Sequence[ColumnDefinition]) -> str:
    """On lines of its own for each column and clause; an alias whose target is missing has no columns."""
    listed = ["(\n" + ",\n".join(f"    {_column(each)}" for each in columns) + "\n)"] if columns else []
    return "\n".join([_head(definition), *listed, _tail(definition)])


def create_dependent_query(definition: Dependent, columns: Sequence[ColumnDefinition]) -> str:
    """The same on one line: the column of system.tables."""
    listed = [f"({', '.join(map(_column, columns))})"] if columns else []
    return " ".join([_head(definition), *listed, _tail(definition)])


def engine_of(definition: Dependent) -> str:
    """The name of its engine."""
    return "MaterializedView" if isinstance(definition, CreateView) else "Alias"


def alias_engine(definition: CreateAlias) -> str:
    """The engine with its arguments."""
    return f"Alias({', '.join(map(string_literal, definition.arguments))})"


def _head(definition: Dependent) -> str:
    name = _name(definition.database, definition.table)
    if isinstance(definition, CreateView):
        return f"CREATE MATERIALIZED VIEW {name} TO {_name(definition.target_database, definition.target_table)}"
    return f"CREATE TABLE {name}"


def _tail(definition: Dependent) -> str:
    if isinstance(definition, CreateView):
        return f"AS {definition.select}"
    return f"ENGINE = {alias_engine(definition)}"


def _name(database: str, table: str) -> str:
    return f"{backquote_if_needed(database)}.{backquote_if_needed(table)}"


def _column(column: ColumnDefinition) -> str:
    default = "" if column.default is None else f" DEFAULT {column.default}"
    return f"{backquote(column.name)} {column.type}{default}"
