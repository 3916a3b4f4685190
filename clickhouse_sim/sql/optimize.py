"""OPTIMIZE TABLE: from its tokens to `replica.commands.OptimizeTable`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import TokenType

from clickhouse_sim.sql.grammar import check_expression
from clickhouse_sim.sql.tokens import Cursor
from replica.commands import OptimizeTable
from replica.errors import BadArguments, NotImplementedInModel
from replica.schema import TableSchema

_CLAUSES = (("FINAL",), ("FORCE",), ("DEDUPLICATE",), ("CLEANUP",), ("SETTINGS",))


@dataclass(frozen=True, slots=True)
class Optimization:
    """An OPTIMIZE TABLE statement. `all_but`: DEDUPLICATE BY * with these columns excepted; None without a star."""

    command: OptimizeTable
    all_but: tuple[str, ...] | None = None

    def over(self, schema: TableSchema) -> OptimizeTable:
        """The command, with the star made the columns of the table. Raises NoSuchColumnInTable, BadArguments."""
        if self.all_but is None:
            return self.command
        excepted = [schema.column(name).name for name in self.all_but]
        columns = tuple(name for name in schema.names if name not in excepted)
        if not columns:
            raise BadArguments("DEDUPLICATE BY * EXCEPT leaves no column to compare rows by")
        return replace(self.command, deduplicate_by=columns)


def parse_optimize(cursor: Cursor) -> Optimization:
    """What an OPTIMIZE TABLE statement asks.

    Raises SqlSyntaxError where it cannot be read, and NotImplementedInModel for a clause that the model does not
    have.
    """
    cursor.expect_words("OPTIMIZE")
    cursor.expect_words("TABLE")
    database, table = cursor.table_name()
    if cursor.take_words("ON", "CLUSTER"):
        raise NotImplementedInModel("ON CLUSTER: leave it out, a merge is written into the log for all replicas")
    partition, partition_id = _partition(cursor)
    final = cursor.take_words("FINAL")
    columns: tuple[str, ...] = ()
    all_but = None
    deduplicate = cursor.take_words("DEDUPLICATE")
    if deduplicate and cursor.take_words("BY"):
        if cursor.take(TokenType.STAR):
            all_but = _excepted(cursor)
        else:
            columns = _columns(cursor)
    if not cursor.at_end:
        word = " ".join(cursor.words())
        if (word,) in (*_CLAUSES, ("DRY",), ("PARTS",)) and not (word == "FINAL" and final):
            raise NotImplementedInModel(f"{word} of OPTIMIZE TABLE is not in the model, or not at this place")
        raise cursor.error("the end of the statement")
    command = OptimizeTable(database, table, partition, partition_id, final, deduplicate, columns)
    return Optimization(command, all_but)


def _partition(cursor: Cursor) -> tuple[str, str]:
    """The text of the partition's value, and its id; at most one of them is not empty."""
    if not cursor.take_words("PARTITION"):
        return "", ""
    if cursor.take_words("ID"):
        partition_id = cursor.string("the id of a partition, a string")
        if not partition_id:
            raise BadArguments("the id of a partition is not empty")
        return "", partition_id
    if cursor.take_words("ALL"):
        raise NotImplementedInModel("PARTITION ALL of OPTIMIZE TABLE: leave it out, and every partition is meant")
    text = cursor.skip_balanced(*_CLAUSES)
    if not text:
        raise cursor.error("the value of a partition, or ID and its id")
    check_expression(text, "PARTITION")
    return text, ""


def _columns(cursor: Cursor) -> tuple[str, ...]:
    columns = [_column(cursor)]
    while cursor.take(TokenType.COMMA):
        columns.append(_column(cursor))
    return tuple(columns)


def _column(cursor: Cursor) -> str:
    name = cursor.name("the name of a column")
    if cursor.take(TokenType.L_PAREN):
        raise NotImplementedInModel(f"DEDUPLICATE BY {name}(…) is not in the model: name the columns, or say *")
    return name


def _excepted(cursor: Cursor) -> tuple[str, ...]:
    """What comes after the star of DEDUPLICATE BY."""
    if not cursor.take_words("EXCEPT"):
        if cursor.words():
            raise NotImplementedInModel(f"DEDUPLICATE BY * {' '.join(cursor.words())} is not in the model")
        return ()
    if not cursor.take(TokenType.L_PAREN):
        return (cursor.name("the name of a column"),)
    if cursor.take(TokenType.STRING):
        raise NotImplementedInModel("DEDUPLICATE BY * EXCEPT with a pattern is not in the model: name the columns")
    columns = _columns(cursor)
    cursor.expect(TokenType.R_PAREN, "the end of the list of columns")
    return columns
