"""ALTER TABLE: the table, then one action, each with a grammar of its own."""

from __future__ import annotations

from collections.abc import Callable

from clickhouse_sim.sql.alter_partition import (
    parse_attach_part,
    parse_attach_partition,
    parse_detach_part,
    parse_detach_partition,
    parse_drop_detached,
    parse_drop_part,
    parse_drop_partition,
    parse_forget_partition,
    parse_move_partition,
    parse_replace_partition,
)
from clickhouse_sim.sql.alter_settings import parse_modify_setting, parse_reset_setting
from clickhouse_sim.sql.tokens import Cursor
from replica.commands import AlterCommand, PartitionCommand
from replica.errors import NotImplementedInModel

Action = Callable[[Cursor, str, str], AlterCommand | PartitionCommand]
"""What reads an action behind its first words; it is given the database and the table."""

_ACTIONS: dict[tuple[str, ...], Action] = {
    ("MODIFY", "SETTING"): parse_modify_setting,
    ("RESET", "SETTING"): parse_reset_setting,
    ("DROP", "PARTITION"): parse_drop_partition,
    ("DROP", "PART"): parse_drop_part,
    ("DROP", "DETACHED"): parse_drop_detached,
    ("DETACH", "PARTITION"): parse_detach_partition,
    ("DETACH", "PART"): parse_detach_part,
    ("ATTACH", "PARTITION"): parse_attach_partition,
    ("ATTACH", "PART"): parse_attach_part,
    ("FORGET", "PARTITION"): parse_forget_partition,
    ("REPLACE", "PARTITION"): parse_replace_partition,
    ("MOVE", "PARTITION"): parse_move_partition,
}


def parse_alter(cursor: Cursor) -> AlterCommand | PartitionCommand:
    """What an ALTER TABLE statement asks.

    Raises SqlSyntaxError where it cannot be read, and NotImplementedInModel for what else can be altered.
    """
    cursor.expect_words("ALTER")
    if not cursor.take_words("TABLE"):
        raise NotImplementedInModel(f"ALTER {' '.join(cursor.words())}: the model alters tables only")
    database, table = cursor.table_name()
    if cursor.take_words("ON", "CLUSTER"):
        raise NotImplementedInModel("ON CLUSTER: leave it out, chsim runs DDL on every living replica by itself")
    command = _action(cursor, database, table)
    if not cursor.at_end:
        raise cursor.error("the end of the statement: the model takes one action at a time")
    return command


def _action(cursor: Cursor, database: str, table: str) -> AlterCommand | PartitionCommand:
    for words, parse in _ACTIONS.items():
        if cursor.take_words(*words):
            return parse(cursor, database, table)
    known = ", ".join(map(" ".join, _ACTIONS))
    if cursor.words():
        raise NotImplementedInModel(f"ALTER TABLE … {' '.join(cursor.words(2))}: the model has {known}")
    raise cursor.error(f"one of {known}")
