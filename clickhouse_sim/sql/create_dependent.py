"""CREATE MATERIALIZED VIEW and ENGINE = Alias: from their tokens to what `replica.commands` says of them."""

from __future__ import annotations

from sqlglot import TokenType, exp

from clickhouse_sim.sql.grammar import parse
from clickhouse_sim.sql.select import parse_select
from clickhouse_sim.sql.tokens import Cursor
from replica.commands import CreateAlias, CreateView
from replica.errors import BadArguments, NotImplementedInModel, NumberOfArgumentsDoesntMatch

ALIAS = "Alias"

# What may stand between the name of a view and its SELECT, and is not in the model.
_FOREIGN = (("ENGINE",), ("POPULATE",), ("REFRESH",), ("EMPTY",), ("DEFINER",), ("SQL",), ("COMMENT",))


def parse_view(cursor: Cursor) -> CreateView:
    """What follows CREATE MATERIALIZED VIEW.

    Raises SqlSyntaxError where it cannot be read, what `parse_select` raises, and NotImplementedInModel for a view
    with a table of its own, or a SELECT over another number of tables than one.
    """
    if_not_exists = cursor.take_words("IF", "NOT", "EXISTS")
    database, view = cursor.table_name()
    uuid = cursor.string("the UUID of the view") if cursor.take_words("UUID") else ""
    if cursor.take_words("ON", "CLUSTER"):
        raise NotImplementedInModel("ON CLUSTER: leave it out, chsim runs DDL on every living replica by itself")
    if cursor.words() in _FOREIGN:
        raise NotImplementedInModel(f"{cursor.words()[0]} of a materialized view: the model has TO target AS SELECT")
    cursor.expect_words("TO")
    target_database, target = cursor.table_name()
    if not cursor.at_end and cursor.tokens[cursor.position].token_type is TokenType.L_PAREN:
        raise NotImplementedInModel("the columns of a view cannot be named: they are those that its SELECT gives")
    cursor.expect_words("AS")
    text = cursor.text_between(cursor.position, len(cursor.tokens))
    source = _source_of(text)
    return CreateView(
        database, view, target_database, target, *source, select=text, if_not_exists=if_not_exists, uuid=uuid
    )


def _source_of(select: str) -> tuple[str, str]:
    tables = parse_select(select).tables
    if len(tables) != 1:
        named = ", ".join(map(str, tables)) or "none"
        raise NotImplementedInModel(
            f"the SELECT of a view reads one table, the one whose inserts it follows: {named}"
        )
    return tables[0].database, tables[0].table


def parse_alias(cursor: Cursor, database: str, table: str, uuid: str, *, if_not_exists: bool) -> CreateAlias:
    """What follows the name in CREATE TABLE name ENGINE = Alias(…).

    Raises SqlSyntaxError, also for another engine, which needs columns, and NumberOfArgumentsDoesntMatch and
    BadArguments for what does not name a table.
    """
    cursor.expect_words("ENGINE")
    cursor.take(TokenType.EQ)
    engine = cursor.name("the name of an engine")
    if engine != ALIAS:
        raise cursor.error("the list of columns in parentheses, before ENGINE")
    arguments = _arguments(cursor)
    if not 1 <= len(arguments) <= 2:
        raise NumberOfArgumentsDoesntMatch(
            f"Storage {ALIAS} requires the name of its target: {ALIAS}('table') or {ALIAS}('database', 'table')"
        )
    if not cursor.at_end:
        raise cursor.error("the end of the statement")
    target = arguments if len(arguments) == 2 else _qualified(arguments[0], database)
    return CreateAlias(database, table, *target, arguments=arguments, if_not_exists=if_not_exists, uuid=uuid)


def _arguments(cursor: Cursor) -> tuple[str, ...]:
    """Each a string, or a name with or without its database; as text."""
    arguments: list[str] = []
    if not cursor.take(TokenType.L_PAREN):
        return ()
    while not cursor.take(TokenType.R_PAREN):
        if arguments:
            cursor.expect(TokenType.COMMA, "a comma or the end of the arguments")
        if not cursor.at_end and cursor.tokens[cursor.position].token_type is TokenType.STRING:
            arguments.append(cursor.string("the name of a table"))
            continue
        name = cursor.name("the name of a table")
        arguments.append(f"{name}.{cursor.name('the name of a table')}" if cursor.take(TokenType.DOT) else name)
    return tuple(arguments)


def _qualified(name: str, database: str) -> tuple[str, str]:
    tree = parse(f"SELECT 1 FROM {name}").find(exp.Table)
    if tree is None or not isinstance(tree.this, exp.Identifier):
        raise BadArguments(f"{name!r} is not the name of a table")
    return tree.db or database, tree.name
