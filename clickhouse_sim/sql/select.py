"""SELECT: ClickHouse's syntax tree, made DuckDB's, run over tables that the caller has scanned.

Known differences from ClickHouse: a LEFT JOIN gives NULL where nothing matched (ClickHouse: zero or empty unless
`join_use_nulls`), and an aggregate over no rows is NULL (ClickHouse: zero or empty, unless Nullable).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import duckdb
import pyarrow as pa
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.generator import Generator
from sqlglot.generators.duckdb import DuckDBGenerator

from clickhouse_sim.sql.column_names import column_name
from clickhouse_sim.sql.functions import duckdb_call
from clickhouse_sim.sql.grammar import CALLS, call_arguments, call_name, call_parameters, parse
from clickhouse_sim.sql.result_values import converter
from clickhouse_sim.sql.type_names import MACRO, macro_sql
from clickhouse_sim.sql.znode_paths import znode_paths
from replica.errors import (
    BadArguments,
    ClickHouseError,
    IllegalTypeOfArgument,
    NotImplementedInModel,
    SqlSyntaxError,
    UnknownIdentifier,
)
from replica.quoting import did_you_mean
from replica.schema import TableSchema, readable

_SELECT_PARTS = frozenset(
    (
        "kind",
        "expressions",
        "distinct",
        "from",
        "joins",
        "where",
        "group",
        "having",
        "order",
        "limit",
        "offset",
        "with",
    )
)
_GROUP_PARTS = frozenset(("expressions", "all"))
_JOIN_KINDS = frozenset(("", "INNER", "CROSS", "OUTER"))
SHUT_IN: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
}
"""How DuckDB is configured so that a query sees nothing but what it is given."""

_MISSING_COLUMN = re.compile(r'(?:Referenced column|column named|does not have a column named) "([^"]+)"')


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query gives: names of the columns, and rows of Python values."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def records(self) -> list[dict[str, Any]]:
        """One dictionary a row; of columns with equal names the last one counts."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT, ready to run: the tables it reads, the column names it mentions, the aliases it makes.

    `znode_paths` are what system.zookeeper is to list, if it reads that.
    """

    sql: str
    tables: tuple[TableName, ...]
    mentioned: tuple[str, ...]
    aliases: frozenset[str]
    takes_all: bool
    znode_paths: tuple[str, ...] = ()

    def needed(self, schema: TableSchema) -> list[str]:
        """The columns to scan of a table with this schema: at least one, so that its rows can be counted."""
        if self.takes_all:
            return list(schema.names)
        return [name for name in schema.names if name in self.mentioned] or [schema.names[0]]

    def run(self, tables: Mapping[TableName, pa.Table]) -> Answer:
        """The answer over these tables, as `scanned` prepared them.

        Raises UnknownIdentifier, IllegalTypeOfArgument and SqlSyntaxError for what only a run can find out.
        """
        with self._engine(tables) as engine:
            result = engine.execute(self.sql)
            columns = tuple(column[0] for column in result.description)
            converters = [converter(column[1]) for column in result.description]
            rows = (zip(converters, row, strict=True) for row in result.fetchall())
            return Answer(columns, tuple(tuple(convert(value) for convert, value in row) for row in rows))

    def rows(self, tables: Mapping[TableName, pa.Table], within: duckdb.DuckDBPyConnection | None = None) -> pa.Table:
        """The answer as Arrow, of an engine of its own or on a cursor of one that is there; raises as `run`."""
        with self._engine(tables, within) as engine:
            return engine.sql(self.sql).to_arrow_table()

    @contextmanager
    def _engine(
        self, tables: Mapping[TableName, pa.Table], within: duckdb.DuckDBPyConnection | None = None
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        known = [column for rows in tables.values() for column in rows.column_names]
        for name in self.mentioned:
            if name not in known and name not in self.aliases:
                raise _unknown_column(name, known)
        with duckdb.connect(config=SHUT_IN) if within is None else within.cursor() as engine:
            for table, rows in tables.items():
                engine.register(str(table), rows)
            if MACRO in self.sql:
                engine.execute(macro_sql(tables.values()))
            try:
                yield engine
            except duckdb.Error as problem:
                raise _translated(problem, known) from None


def scanned(rows: pa.Table, schema: TableSchema | None = None) -> pa.Table:
    """A scan as a query sees it: Strings as text, times as the time of day in their column's zone (else UTC)."""
    return readable(rows, schema)


def parse_select(text: str) -> Query:
    """The query that a SELECT statement (or WITH … SELECT, or UNION) asks.

    Raises SqlSyntaxError, UnknownFunction, BadArguments for system.zookeeper without a path, and
    NotImplementedInModel for the parts of ClickHouse's SELECT that have no meaning here.
    """
    tree = parse(text)
    if not isinstance(tree, exp.Query):
        raise SqlSyntaxError(f"not a SELECT: {text}")
    _refuse_foreign_parts(tree)
    for ordered in tree.find_all(exp.Ordered):
        if _is_all(ordered):
            ordered.set("this", exp.var("ALL"))  # else it would be taken for a column of that name
    _join_names_of_nested(tree)
    mentioned = _mentioned_columns(tree)
    takes_all = any(not isinstance(star.parent, CALLS) for star in tree.find_all(exp.Star))
    paths = znode_paths(tree)
    tables = _name_tables(tree)
    _name_columns(tree)
    return Query(tree.sql(dialect=_OverScans), tables, mentioned, _aliases(tree), takes_all, paths)


def is_stable(text: str) -> bool:
    """Whether a SELECT gives the same rows in the same order each time it runs over the same data: ORDER BY ALL.

    ClickHouse: an order by less than all columns leaves open which of equal rows comes first.
    """
    order = parse(text).args.get("order")
    return order is not None and [_is_all(each) for each in order.expressions] == [True]


def _is_all(ordered: exp.Expr) -> bool:
    """Whether this is the ALL of ORDER BY ALL."""
    column = ordered.this
    return isinstance(column, exp.Column) and not column.this.args.get("quoted") and column.name.upper() == "ALL"


# --- what a query reads --------------------------------------------------------------------------------------


def _join_names_of_nested(tree: exp.Expr) -> None:
    """`n.a` is a column of a Nested where there is no table n."""
    tables = {table.alias_or_name for table in tree.find_all(exp.Table)} | {
        cte.alias for cte in tree.find_all(exp.CTE)
    }
    tables |= {subquery.alias for subquery in tree.find_all(exp.Subquery)}
    for column in tree.find_all(exp.Column):
        if column.table and not column.db and column.table not in tables and isinstance(column.this, exp.Identifier):
            column.set("this", exp.to_identifier(f"{column.table}.{column.name}", quoted=True))
            column.set("table", None)


def _mentioned_columns(tree: exp.Expr) -> tuple[str, ...]:
    names = {column.name for column in tree.find_all(exp.Column) if not isinstance(column.this, exp.Star)}
    names |= {identifier.name for join in tree.find_all(exp.Join) for identifier in join.args.get("using") or []}
    return tuple(sorted(names))


def _aliases(tree: exp.Expr) -> frozenset[str]:
    """Names that the query itself gives to values."""
    of_tables = {column.name for alias in tree.find_all(exp.TableAlias) for column in alias.columns}
    return frozenset(of_tables | {alias.alias for alias in tree.find_all(exp.Alias)})


def _name_tables(tree: exp.Expr) -> tuple[TableName, ...]:
    """Give every table the one name under which its scan is registered; the tables, sorted."""
    common = {cte.alias for cte in tree.find_all(exp.CTE)}
    tables: set[TableName] = set()
    for table in list(tree.find_all(exp.Table)):
        if not isinstance(table.this, exp.Identifier):
            raise NotImplementedInModel(f"table functions are not in the model: {table.sql('clickhouse')}")
        if not table.db and table.name in common:
            continue
        name = TableName(table.db or "default", table.name)
        tables.add(name)
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
        table.set("db", None)
        table.set("this", exp.to_identifier(str(name), quoted=True))
    for column in tree.find_all(exp.Column):
        column.set("db", None)
    return tuple(sorted(tables))


# --- what a query says ---------------------------------------------------------------------------------------


def _refuse_foreign_parts(tree: exp.Expr) -> None:
    """Refuse by name what DuckDB would not understand, or worse, would leave out."""
    for select in tree.find_all(exp.Select):
        _refuse_unless_in(select, _SELECT_PARTS)
    for group in tree.find_all(exp.Group):
        _refuse_unless_in(group, _GROUP_PARTS, " of GROUP BY")
    if any(limit.expressions for limit in tree.find_all(exp.Limit)):
        raise NotImplementedInModel("LIMIT … BY is not in the model")
    for set_operation in tree.find_all(exp.SetOperation):
        for part in ("settings", "format"):
            if set_operation.args.get(part):
                raise NotImplementedInModel(f"{part.upper()} in SELECT is not in the model")
    for join in tree.find_all(exp.Join):
        strictness = " ".join(filter(None, (join.args.get("global") and "GLOBAL", join.method, join.kind)))
        if strictness.upper() not in _JOIN_KINDS:
            raise NotImplementedInModel(f"{strictness.upper()} JOIN is not in the model")
    for kind, meaning in ((exp.Final, "FINAL"), (exp.TableSample, "SAMPLE"), (exp.Placeholder, "query parameters")):
        if tree.find(kind):
            raise NotImplementedInModel(f"{meaning} in SELECT is not in the model")


def _refuse_unless_in(node: exp.Expr, known: frozenset[str], suffix: str = " in SELECT") -> None:
    for part, value in node.args.items():
        if value and part.rstrip("_") not in known:
            hint = ": use --format" if part == "format" else ""
            raise NotImplementedInModel(f"{part.replace('_', ' ').upper()}{suffix} is not in the model{hint}")


def _name_columns(tree: exp.Expr) -> None:
    """Give every projection the name that ClickHouse gives it, and comparisons ClickHouse's type."""
    for select in tree.find_all(exp.Select):
        projections: list[exp.Expr] = []
        for projection in select.expressions:
            value = projection.this if isinstance(projection, exp.Alias) else projection
            if isinstance(value, (exp.Star, exp.Column)):
                projections.append(projection)
                continue
            name = projection.alias if isinstance(projection, exp.Alias) else column_name(value)
            is_comparison = isinstance(value.unnest(), (exp.Predicate, exp.Not, exp.And, exp.Or))
            typed = exp.cast(value.copy(), "UTINYINT", dialect="duckdb") if is_comparison else value
            projections.append(exp.alias_(typed.copy(), name, quoted=True))
        select.set("expressions", projections)


# --- DuckDB's words ------------------------------------------------------------------------------------------


def _call_sql(generator: Generator, call: exp.Expr) -> str:
    arguments = [generator.sql(argument) for argument in call_arguments(call)]
    parameters = [generator.sql(parameter) for parameter in call_parameters(call)]
    return duckdb_call(call_name(call), arguments, parameters)


def _cast_to_text_type_sql(generator: Generator, cast: exp.CastToStrType) -> str:
    target = exp.DataType.build(cast.args["to"].name, dialect="clickhouse")
    return generator.sql(exp.Cast(this=cast.this.copy(), to=target))


class _OverScans(DuckDB):
    """DuckDB's dialect, with ClickHouse's functions in it."""

    class Generator(DuckDBGenerator):
        TRANSFORMS: ClassVar[dict[type[exp.Expr], Any]] = {
            **DuckDBGenerator.TRANSFORMS,
            **dict.fromkeys(CALLS, _call_sql),
            exp.CastToStrType: _cast_to_text_type_sql,
        }


def _translated(problem: duckdb.Error, known: list[str]) -> ClickHouseError:
    """DuckDB's complaint under ClickHouse's name."""
    message = re.sub(r"^\w[\w ]* Error: ", "", str(problem).splitlines()[0])
    missing = _MISSING_COLUMN.search(message)
    if missing is not None:
        return _unknown_column(missing.group(1), known)
    if isinstance(problem, duckdb.ParserException):
        return SqlSyntaxError(message)
    if isinstance(problem, duckdb.BinderException):
        return IllegalTypeOfArgument(message)
    return BadArguments(message)


def _unknown_column(name: str, known: list[str]) -> UnknownIdentifier:
    return UnknownIdentifier(f"there is no column {name} in the tables of this SELECT.{did_you_mean(name, known)}")
