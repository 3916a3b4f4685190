"""CREATE TABLE: from its tokens to `replica.commands.CreateTable`."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import TokenType

from clickhouse_sim.sql.create_dependent import ALIAS, parse_alias, parse_view
from clickhouse_sim.sql.grammar import check_expression
from clickhouse_sim.sql.settings import parse_settings
from clickhouse_sim.sql.tokens import Cursor
from replica.commands import ColumnDefinition, CreateTable, Definition, Engine
from replica.errors import (
    BadArguments,
    DuplicateColumn,
    EmptyListOfColumnsPassed,
    NotImplementedInModel,
    NumberOfArgumentsDoesntMatch,
    SqlSyntaxError,
    UnknownStorage,
)

_ENGINES = " and ".join(Engine)
DEFAULT_ZOOKEEPER_PATH = "/clickhouse/tables/{uuid}/{shard}"
DEFAULT_REPLICA_NAME = "{replica}"

_CLAUSES = (
    ("ENGINE",),
    ("PARTITION", "BY"),
    ("PRIMARY", "KEY"),
    ("ORDER", "BY"),
    ("SAMPLE", "BY"),
    ("TTL",),
    ("SETTINGS",),
    ("COMMENT",),
    ("AS",),
)
_COLUMN_WORDS = (
    ("DEFAULT",),
    ("MATERIALIZED",),
    ("ALIAS",),
    ("EPHEMERAL",),
    ("CODEC",),
    ("TTL",),
    ("STATISTICS",),
    ("COMMENT",),
    ("PRIMARY", "KEY"),
    ("COLLATE",),
    ("SETTINGS",),
    ("NOT", "NULL"),
    ("NULL",),
)
_NOT_COLUMNS = (("INDEX",), ("CONSTRAINT",), ("PROJECTION",))


@dataclass(frozen=True, slots=True)
class _EngineClause:
    """An engine; the path and the replica name are those that a replicated one is given."""

    engine: Engine
    zookeeper_path: str = ""
    replica_name: str = ""


@dataclass(slots=True)
class _Clauses:
    """What follows the columns."""

    engine: _EngineClause | None = None
    expressions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)


def parse_create(cursor: Cursor) -> Definition:
    """The table, view or alias that a CREATE statement describes; expressions keep their original text.

    Raises SqlSyntaxError where it cannot be read, UnknownStorage for another engine, NotImplementedInModel for
    a clause that the model does not have, and the errors of ClickHouse for missing or doubled parts.
    """
    cursor.expect_words("CREATE")
    if cursor.take_words("MATERIALIZED", "VIEW"):
        return parse_view(cursor)
    if not cursor.take_words("TABLE"):
        raise NotImplementedInModel(
            f"CREATE {' '.join(cursor.words(1))}: the model creates tables and materialized views only"
        )
    if_not_exists = cursor.take_words("IF", "NOT", "EXISTS")
    database, table = cursor.table_name()
    uuid = cursor.string("the UUID of the table") if cursor.take_words("UUID") else ""
    if cursor.take_words("ON", "CLUSTER"):
        raise NotImplementedInModel("ON CLUSTER: leave it out, chsim runs DDL on every living replica by itself")
    if cursor.words(1) in (("AS",), ("CLONE",)):
        raise NotImplementedInModel("CREATE TABLE … AS: name the columns instead")
    if cursor.words() == ("ENGINE",):
        return parse_alias(cursor, database, table, uuid, if_not_exists=if_not_exists)
    columns = _columns(cursor)
    clauses = _clauses(cursor)
    if clauses.engine is None:
        raise SqlSyntaxError(f"ENGINE is missing; the model has {_ENGINES}")
    primary_key = clauses.expressions.get("PRIMARY KEY", "")
    order_by = clauses.expressions.get("ORDER BY", primary_key)
    if not order_by:
        raise BadArguments("an ORDER BY is missing; for a table without sorting say ORDER BY tuple()")
    return CreateTable(
        database=database,
        table=table,
        columns=columns,
        zookeeper_path=clauses.engine.zookeeper_path,
        replica_name=clauses.engine.replica_name,
        order_by=order_by,
        partition_by=clauses.expressions.get("PARTITION BY", ""),
        primary_key=primary_key,
        settings=clauses.settings,
        if_not_exists=if_not_exists,
        uuid=uuid,
        engine=clauses.engine.engine,
    )


# --- columns -------------------------------------------------------------------------------------------------


def _columns(cursor: Cursor) -> tuple[ColumnDefinition, ...]:
    cursor.expect(TokenType.L_PAREN, "the list of columns in parentheses")
    columns: list[ColumnDefinition] = []
    while not cursor.take(TokenType.R_PAREN):
        if columns:
            cursor.expect(TokenType.COMMA, "a comma or the end of the column list")
            if cursor.take(TokenType.R_PAREN):
                break
        columns.append(_column(cursor))
    if not columns:
        raise EmptyListOfColumnsPassed("a table needs at least one column")
    names = [column.name for column in columns]
    for name in names:
        if names.count(name) > 1:
            raise DuplicateColumn(f"column {name} is defined twice")
    return tuple(columns)


def _column(cursor: Cursor) -> ColumnDefinition:
    name = cursor.name("the name of a column")
    if (name.upper(),) in _NOT_COLUMNS and len(cursor.words(2)) == 2:
        raise NotImplementedInModel(f"{name.upper()} in a column list is not in the model")
    if not cursor.words():
        raise cursor.error(f"the type of column {name}")
    type_text = cursor.skip_balanced(*_COLUMN_WORDS)
    cursor.take_words("NOT", "NULL")
    if cursor.take_words("NULL"):
        type_text = f"Nullable({type_text})"
    default = None
    if cursor.take_words("DEFAULT"):
        default = cursor.skip_balanced(*_COLUMN_WORDS[1:-2])
        if not default:
            raise cursor.error(f"the DEFAULT expression of column {name}")
        check_expression(default, f"the DEFAULT of column {name}")
    if not cursor.at_end and cursor.tokens[cursor.position].token_type not in (TokenType.COMMA, TokenType.R_PAREN):
        word = " ".join(cursor.words(1)) or cursor.statement
        raise NotImplementedInModel(f"{word} of column {name} is not in the model")
    return ColumnDefinition(name, type_text, default)


# --- the clauses after the columns ---------------------------------------------------------------------------


def _clauses(cursor: Cursor) -> _Clauses:
    clauses = _Clauses()
    seen: list[str] = []
    while not cursor.at_end:
        clause = next((" ".join(words) for words in _CLAUSES if cursor.take_words(*words)), None)
        if clause is None:
            raise cursor.error("one of ENGINE, PARTITION BY, ORDER BY, PRIMARY KEY, SETTINGS")
        if clause in seen:
            raise SqlSyntaxError(f"{clause} is given twice")
        seen.append(clause)
        if clause == "ENGINE":
            clauses.engine = _engine(cursor)
        elif clause == "SETTINGS":
            clauses.settings = parse_settings(cursor)
        elif clause in ("PARTITION BY", "PRIMARY KEY", "ORDER BY"):
            clauses.expressions[clause] = _expression(cursor, clause)
        else:
            raise NotImplementedInModel(f"{clause} of a table is not in the model")
    return clauses


def _expression(cursor: Cursor, clause: str) -> str:
    text = cursor.skip_balanced(*_CLAUSES)
    if not text:
        raise cursor.error(f"the expression of {clause}")
    if not cursor.at_end and cursor.take(TokenType.COMMA):
        raise SqlSyntaxError(f"{clause} takes one expression: put several in parentheses, as in {clause} (a, b)")
    check_expression(text, clause)
    return text


def _engine(cursor: Cursor) -> _EngineClause:
    cursor.take(TokenType.EQ)
    name = cursor.name("the name of an engine")
    if name == ALIAS:
        raise BadArguments(f"Storage {ALIAS} does not support explicit column definitions: leave them out")
    if name not in list(Engine):
        raise UnknownStorage(f"engine {name} is not in the model, which has {_ENGINES} and {ALIAS}")
    engine = Engine(name)
    no_arguments = not cursor.take(TokenType.L_PAREN) or cursor.take(TokenType.R_PAREN)
    if engine is Engine.MERGE_TREE:
        if not no_arguments:
            raise NumberOfArgumentsDoesntMatch(f"{engine} takes no arguments: keys come in clauses of their own")
        return _EngineClause(engine)
    if no_arguments:
        return _EngineClause(engine, DEFAULT_ZOOKEEPER_PATH, DEFAULT_REPLICA_NAME)
    path = cursor.string("the path of the table in ZooKeeper, a string")
    replica = cursor.string("the name of the replica, a string") if cursor.take(TokenType.COMMA) else None
    if replica is None or cursor.take(TokenType.COMMA):
        raise NumberOfArgumentsDoesntMatch(f"{engine} takes two arguments, a path and a replica name, or none")
    cursor.expect(TokenType.R_PAREN, "the end of the engine's arguments")
    return _EngineClause(engine, path, replica)
