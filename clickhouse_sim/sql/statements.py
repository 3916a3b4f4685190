"""A text of SQL statements to what each of them asks."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import TypeVar

from clickhouse_sim.sql.alter import parse_alter
from clickhouse_sim.sql.alter_partition import parse_truncate
from clickhouse_sim.sql.create import parse_create
from clickhouse_sim.sql.drop import parse_drop
from clickhouse_sim.sql.inline_data import without_inline_data
from clickhouse_sim.sql.insert import InsertFormat, InsertStatement, parse_insert
from clickhouse_sim.sql.optimize import Optimization, parse_optimize
from clickhouse_sim.sql.select import Query, parse_select
from clickhouse_sim.sql.show import ExistsTable, ShowTables, parse_exists, parse_show
from clickhouse_sim.sql.system import parse_system
from clickhouse_sim.sql.tokens import Cursor, split_statements
from replica.commands import (
    AlterCommand,
    Definition,
    DescribeTable,
    DropTable,
    PartitionCommand,
    ShowCreateTable,
    SystemCommand,
)
from replica.errors import ClickHouseError, NotImplementedInModel, SqlSyntaxError

T = TypeVar("T")

_BEGINNING = 40

Ddl = Definition | DropTable | AlterCommand
Question = Query | ShowTables | ShowCreateTable | ExistsTable | DescribeTable
Statement = Ddl | PartitionCommand | InsertStatement | Question | Optimization | SystemCommand

# First words of statements that ClickHouse has and the model has not.
_ABSENT = frozenset(
    (
        *("ATTACH", "BACKUP", "CHECK", "DELETE", "DETACH", "EXCHANGE", "EXPLAIN", "GRANT"),
        *("KILL", "MOVE", "RENAME", "RESTORE", "REVOKE", "SET", "UNDROP", "UPDATE"),
        *("USE", "WATCH"),
    )
)


def parse_statements(text: str) -> list[Statement]:
    """The statements, in order; all of them are read before any is run.

    Raises SqlSyntaxError for an empty text or one that cannot be read, and what the parsers of the statements
    raise.
    """
    text, data = without_inline_data(text)
    cursors = split_statements(text)
    if not cursors:
        raise SqlSyntaxError("there is no statement")
    statements = [_parse_one_of(cursors, number) for number in range(len(cursors))]
    if data is not None and isinstance(statements[-1], InsertFormat):
        statements[-1] = replace(statements[-1], data=data)
    return statements


def first_words(text: str) -> list[str]:
    """How each of the statements begins, to name it by."""
    return [_beginning(cursor) for cursor in split_statements(without_inline_data(text)[0])]


def parse_table_name(text: str) -> tuple[str, str]:
    """Database and table of `[database.]table`, quoted or not; of a text that is not that, the table is all of it."""
    try:
        cursors = split_statements(text)
        if len(cursors) == 1:
            name = cursors[0].table_name()
            _expect_end(cursors[0])
            return name
    except SqlSyntaxError:
        pass
    return "default", text


def _parse_one_of(cursors: list[Cursor], number: int) -> Statement:
    """What is wrong with one of several is told with its number."""
    try:
        return _parse(cursors[number])
    except ClickHouseError as error:
        if len(cursors) == 1:
            raise
        which = f"statement {number + 1} of {len(cursors)} ({_beginning(cursors[number])})"
        raise type(error)(f"{which}: {error.message}; none was run") from None


def _beginning(cursor: Cursor) -> str:
    whole = cursor.statement
    return textwrap.shorten(whole, _BEGINNING, placeholder=" …") if " " in whole[:_BEGINNING] else whole[:_BEGINNING]


def _parse(cursor: Cursor) -> Statement:
    first = (cursor.words() or ("",))[0]
    if first == "CREATE":
        return parse_create(cursor)
    if first == "INSERT":
        return parse_insert(cursor)
    if first in ("SELECT", "WITH") or cursor.statement.startswith("("):
        return parse_select(cursor.statement)
    if first == "OPTIMIZE":
        return parse_optimize(cursor)
    if first == "DROP":
        return parse_drop(cursor)
    if first == "ALTER":
        return parse_alter(cursor)
    if first == "TRUNCATE":
        return parse_truncate(cursor)
    if first == "SYSTEM":
        return parse_system(cursor)
    if first in ("DESCRIBE", "DESC"):
        return _parse_describe(cursor)
    if first == "SHOW":
        return _whole(cursor, parse_show(cursor))
    if first == "EXISTS":
        return _whole(cursor, parse_exists(cursor))
    if first in _ABSENT:
        raise NotImplementedInModel(f"{first} is not in the model")
    raise cursor.error("CREATE, ALTER, DROP or OPTIMIZE TABLE, INSERT, SELECT, SYSTEM, SHOW, EXISTS or DESCRIBE")


def _parse_describe(cursor: Cursor) -> DescribeTable:
    cursor.position += 1
    cursor.take_words("TABLE")
    return _whole(cursor, DescribeTable(*cursor.table_name()))


def _whole(cursor: Cursor, question: T) -> T:
    """The question, unless something follows it."""
    _expect_end(cursor)
    return question


def _expect_end(cursor: Cursor) -> None:
    if not cursor.at_end:
        raise cursor.error("the end of the statement")
