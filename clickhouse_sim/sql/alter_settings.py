"""ALTER TABLE … MODIFY SETTING and RESET SETTING: from their tokens to `replica.commands.AlterSettings`."""

from __future__ import annotations

from sqlglot import TokenType

from clickhouse_sim.sql.settings import parse_settings
from clickhouse_sim.sql.tokens import Cursor
from replica.commands import AlterSettings
from replica.errors import BadArguments


def parse_modify_setting(cursor: Cursor, database: str, table: str) -> AlterSettings:
    """`name = value, …`. Raises SqlSyntaxError."""
    return AlterSettings(database, table, modified=parse_settings(cursor))


def parse_reset_setting(cursor: Cursor, database: str, table: str) -> AlterSettings:
    """`name, …`. Raises SqlSyntaxError, and BadArguments for a name that is given twice."""
    names: list[str] = []
    while True:
        name = cursor.name("the name of a setting")
        if name in names:
            raise BadArguments(f"setting {name} is given twice")
        names.append(name)
        if not cursor.take(TokenType.COMMA):
            return AlterSettings(database, table, reset=tuple(names))
