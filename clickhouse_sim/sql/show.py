"""SHOW and EXISTS: from their tokens to what they ask."""

from __future__ import annotations

from dataclasses import dataclass

from clickhouse_sim.sql.tokens import Cursor
from replica.commands import ShowCreateTable
from replica.errors import NotImplementedInModel


@dataclass(frozen=True, slots=True)
class ShowTables:
    """SHOW TABLES [FROM database]."""

    database: str


@dataclass(frozen=True, slots=True)
class ExistsTable:
    """EXISTS [TABLE] table: one row with `result`, 1 or 0."""

    database: str
    table: str


def parse_show(cursor: Cursor) -> ShowTables | ShowCreateTable:
    """SHOW TABLES or SHOW CREATE TABLE. Raises SqlSyntaxError, and NotImplementedInModel for any other SHOW."""
    cursor.expect_words("SHOW")
    if cursor.take_words("TABLES"):
        has_database = cursor.take_words("FROM") or cursor.take_words("IN")
        return ShowTables(cursor.name("the name of a database") if has_database else "default")
    if cursor.take_words("CREATE"):
        _refuse_other_than_table(cursor, "SHOW CREATE")
        return ShowCreateTable(*cursor.table_name())
    raise NotImplementedInModel(f"SHOW {' '.join(cursor.words())}: the model has SHOW TABLES and SHOW CREATE TABLE")


def parse_exists(cursor: Cursor) -> ExistsTable:
    """Raises SqlSyntaxError, and NotImplementedInModel for what else can exist."""
    cursor.expect_words("EXISTS")
    _refuse_other_than_table(cursor, "EXISTS")
    return ExistsTable(*cursor.table_name())


def _refuse_other_than_table(cursor: Cursor, what: str) -> None:
    """Step over TABLE or VIEW, which may be left out."""
    words = cursor.words(2)
    if cursor.take_words("TABLE") or (len(words) == 2 and cursor.take_words("VIEW")) or len(words) < 2:
        return
    raise NotImplementedInModel(f"{what} {words[0]}: the model has {what} TABLE and {what} VIEW")
