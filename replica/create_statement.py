"""The CREATE TABLE statement that makes a table again, as ClickHouse prints it (ASTCreateQuery.cpp).

Types, defaults and keys come in the canonical words of the table's structure. Macros are not filled in, and the UUID
is left out: each CREATE has its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from replica.commands import CreateTable, Engine
from replica.expression import Key
from replica.quoting import backquote, backquote_if_needed, string_literal
from replica.schema import Column
from replica.table_structure import TableStructure


def create_statement(definition: CreateTable, structure: TableStructure) -> str:
    """On lines of its own for each column and clause: what SHOW CREATE TABLE tells."""
    columns = ",\n".join(f"    {_column(each)}" for each in structure.schema.columns)
    return "\n".join(
        [_head(definition), f"(\n{columns}\n)", f"ENGINE = {_engine(definition)}", *_clauses(definition, structure)]
    )


def create_table_query(definition: CreateTable, structure: TableStructure) -> str:
    """The same on one line: the column of system.tables."""
    columns = ", ".join(map(_column, structure.schema.columns))
    return f"{_head(definition)} ({columns}) ENGINE = {engine_full(definition, structure)}"


def engine_full(definition: CreateTable, structure: TableStructure) -> str:
    """The engine with what follows it: the column of system.tables."""
    return " ".join([_engine(definition), *_clauses(definition, structure)])


def _head(definition: CreateTable) -> str:
    return f"CREATE TABLE {backquote_if_needed(definition.database)}.{backquote_if_needed(definition.table)}"


def _column(column: Column) -> str:
    default = "" if column.default is None else f" DEFAULT {column.default}"
    return f"{backquote(column.name)} {column.type.text}{default}"


def _engine(definition: CreateTable) -> str:
    if definition.engine is Engine.MERGE_TREE:
        return str(definition.engine)
    arguments = (definition.zookeeper_path, definition.replica_name)
    return f"{definition.engine}({', '.join(map(string_literal, arguments))})"


def _clauses(definition: CreateTable, structure: TableStructure) -> Iterator[str]:
    if structure.partition_key.key:
        yield f"PARTITION BY {_key(structure.partition_key.key)}"
    if definition.primary_key:
        yield f"PRIMARY KEY {_key(structure.primary_key)}"
    yield f"ORDER BY {_key(structure.sorting_key)}"
    settings = {**definition.settings}
    settings.setdefault("index_granularity", str(structure.settings.index_granularity))
    yield f"SETTINGS {', '.join(f'{name} = {_value(text)}' for name, text in settings.items())}"


def _key(key: Key) -> str:
    match key.expressions:
        case ():
            return "tuple()"
        case (one,):
            return one.text
        case _:
            return f"({key.text})"


def _value(text: str) -> str:
    return text if text.isdigit() else string_literal(text)
