"""ALTER TABLE … PARTITION and PART, TRUNCATE TABLE: from their tokens to the values of `replica.commands`."""

from __future__ import annotations

from clickhouse_sim.sql.grammar import check_expression
from clickhouse_sim.sql.settings import parse_settings
from clickhouse_sim.sql.tokens import Cursor
from replica.commands import (
    AttachPartition,
    DropDetached,
    DropPart,
    DropPartition,
    ForgetPartition,
    MovePartition,
    ReplacePartition,
)
from replica.errors import BadArguments, NotImplementedInModel, UnknownSetting
from replica.quoting import did_you_mean

_CLAUSES = (("FROM",), ("TO",), ("SETTINGS",))


def parse_truncate(cursor: Cursor) -> DropPartition:
    """`TRUNCATE TABLE t`, which drops every partition. Raises SqlSyntaxError and NotImplementedInModel."""
    cursor.expect_words("TRUNCATE")
    if not cursor.take_words("TABLE"):
        raise NotImplementedInModel(f"TRUNCATE {' '.join(cursor.words())}: the model truncates tables only")
    database, table = cursor.table_name()
    if cursor.take_words("ON", "CLUSTER"):
        raise NotImplementedInModel("ON CLUSTER: leave it out, the log brings it to every replica")
    cursor.take_words("SYNC")
    alter_sync = _alter_sync(cursor)
    if not cursor.at_end:
        raise cursor.error("SETTINGS or the end of the statement")
    return DropPartition(database, table, alter_sync=alter_sync)


def parse_drop_partition(cursor: Cursor, database: str, table: str) -> DropPartition:
    partition, partition_id = _partition_or_all(cursor)
    return DropPartition(database, table, partition, partition_id, alter_sync=_alter_sync(cursor))


def parse_detach_partition(cursor: Cursor, database: str, table: str) -> DropPartition:
    partition, partition_id = _partition_or_all(cursor)
    return DropPartition(database, table, partition, partition_id, True, _alter_sync(cursor))


def parse_drop_part(cursor: Cursor, database: str, table: str) -> DropPart:
    return DropPart(database, table, _part(cursor), alter_sync=_alter_sync(cursor))


def parse_detach_part(cursor: Cursor, database: str, table: str) -> DropPart:
    return DropPart(database, table, _part(cursor), True, _alter_sync(cursor))


def parse_attach_partition(cursor: Cursor, database: str, table: str) -> AttachPartition | ReplacePartition:
    """From `detached/`, or with FROM from another table."""
    partition, partition_id = _partition_or_all(cursor)
    if not cursor.take_words("FROM"):
        return AttachPartition(database, table, partition, partition_id)
    return _replacement(cursor, database, table, partition, partition_id, replace=False)


def parse_attach_part(cursor: Cursor, database: str, table: str) -> AttachPartition:
    return AttachPartition(database, table, part=_part(cursor))


def parse_drop_detached(cursor: Cursor, database: str, table: str) -> DropDetached:
    partition = partition_id = part = ""
    if cursor.take_words("PART"):
        part = _part(cursor)
    else:
        cursor.expect_words("PARTITION")
        partition, partition_id = _partition_or_all(cursor)
    allowed = _setting(cursor, "allow_drop_detached")
    return DropDetached(database, table, partition, partition_id, part, allowed not in ("", "0", "false"))


def parse_forget_partition(cursor: Cursor, database: str, table: str) -> ForgetPartition:
    partition, partition_id = _partition(cursor)
    return ForgetPartition(database, table, partition, partition_id)


def parse_replace_partition(cursor: Cursor, database: str, table: str) -> ReplacePartition:
    partition, partition_id = _partition(cursor)
    cursor.expect_words("FROM")
    return _replacement(cursor, database, table, partition, partition_id, replace=True)


def _replacement(
    cursor: Cursor, database: str, table: str, partition: str, partition_id: str, *, replace: bool
) -> ReplacePartition:
    source = cursor.table_name()
    return ReplacePartition(database, table, *source, partition, partition_id, replace, _alter_sync(cursor))


def parse_move_partition(cursor: Cursor, database: str, table: str) -> MovePartition:
    partition, partition_id = _partition(cursor)
    if not cursor.take_words("TO", "TABLE"):
        raise NotImplementedInModel("MOVE PARTITION needs TO TABLE: the model has one disk")
    return MovePartition(database, table, *cursor.table_name(), partition, partition_id, _alter_sync(cursor))


# --- what several of them have -------------------------------------------------------------------------------


def _partition_or_all(cursor: Cursor) -> tuple[str, str]:
    """Value and id as `_partition`; both empty for ALL."""
    return ("", "") if cursor.take_words("ALL") else _partition(cursor)


def _partition(cursor: Cursor) -> tuple[str, str]:
    """The text of the partition's value, and its id; one of them is empty."""
    if cursor.take_words("ID"):
        partition_id = cursor.string("the id of a partition, a string")
        if not partition_id:
            raise BadArguments("the id of a partition is not empty")
        return "", partition_id
    if cursor.take_words("ALL"):
        raise NotImplementedInModel("PARTITION ALL is not in the model here: name one partition")
    text = cursor.skip_balanced(*_CLAUSES)
    if not text:
        raise cursor.error("the value of a partition, or ID and its id")
    check_expression(text, "PARTITION")
    return text, ""


def _part(cursor: Cursor) -> str:
    part = cursor.string("the name of a part, a string")
    if not part:
        raise BadArguments("the name of a part is not empty")
    return part


def _alter_sync(cursor: Cursor) -> int:
    text = _setting(cursor, "alter_sync") or "1"
    if text not in ("0", "1", "2"):
        raise BadArguments(f"setting alter_sync is 0, 1 or 2, not {text!r}")
    return int(text)


def _setting(cursor: Cursor, known: str) -> str:
    """The text of the one setting that a statement may have; "" without it. Raises UnknownSetting for another."""
    settings = parse_settings(cursor) if cursor.take_words("SETTINGS") else {}
    for name in settings:
        if name != known:
            raise UnknownSetting(f"the model has no setting {name} for this.{did_you_mean(name, [known])}")
    return settings.get(known, "")
