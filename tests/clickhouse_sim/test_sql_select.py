"""SELECT: ClickHouse's words over DuckDB."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from clickhouse_sim.sql.select import Answer, Query, TableName, scanned
from clickhouse_sim.sql.statements import parse_statements
from replica.commands import ColumnDefinition
from replica.errors import ClickHouseError
from replica.schema import TableSchema

SCHEMA = TableSchema.from_definitions(
    ColumnDefinition(*column.split(" ", 1))
    for column in (
        "carrier String",
        "i Int8",
        "n Nullable(Float64)",
        "d Date",
        "t DateTime",
        "york DateTime('America/New_York')",
        "b Bool",
    )
)
_NOON = datetime.datetime(2013, 1, 1, 2, 30)
ROWS = pa.table(
    {
        "carrier": [b"UA", b"AA", b"UA", "é".encode()],
        "i": [1, 2, 3, 4],
        "n": [1.5, None, 2.5, None],
        "d": [datetime.date(2013, month, 15) for month in (1, 1, 2, 3)],
        "t": [_NOON + datetime.timedelta(days=31 * month) for month in range(4)],
        "york": [_NOON] * 4,
        "b": [True, False, True, False],
    },
    schema=SCHEMA.arrow_schema,
)
PARTS = pa.table({"name": ["all_0_0_0"], "rows": [4]})


def query(text: str) -> Query:
    [statement] = parse_statements(text)
    assert isinstance(statement, Query)
    return statement


def ask(text: str) -> Answer:
    asked = query(text)
    tables = {
        name: PARTS if name.database == "system" else scanned(ROWS.select(asked.needed(SCHEMA)), SCHEMA)
        for name in asked.tables
    }
    return asked.run(tables)


def value(expression: str) -> Any:
    return ask(f"SELECT {expression} FROM f WHERE i = 1").rows[0][0]


def test_the_query_of_the_readme() -> None:
    answer = ask("SELECT toYYYYMM(t), count() FROM flights GROUP BY 1 ORDER BY 1")
    assert answer.columns == ("toYYYYMM(t)", "count()")
    assert answer.rows == ((201301, 1), (201302, 1), (201303, 1), (201304, 1))


def test_only_the_named_tables_and_columns_are_read() -> None:
    asked = query("SELECT count(), max(a.i) FROM flights AS a JOIN system.parts p ON a.carrier = p.name WHERE a.b")
    assert asked.tables == (TableName("default", "flights"), TableName("system", "parts"))
    assert asked.needed(SCHEMA) == ["carrier", "i", "b"]
    assert query("SELECT count() FROM flights").needed(SCHEMA) == ["carrier"]
    assert query("SELECT * FROM flights").needed(SCHEMA) == list(SCHEMA.names)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("count()", "count()"),
        ("COUNT(*)", "COUNT()"),
        ("count(DISTINCT i)", "countDistinct(i)"),
        ("sum(i + 1)", "sum(plus(i, 1))"),
        ("-i", "negate(i)"),
        ("- 1", "-1"),
        ("((i))", "i"),
        ("f.i", "i"),
        ("i <> 2", "notEquals(i, 2)"),
        ("NOT b", "not(b)"),
        ("b AND b OR b AND NOT b", "or(and(b, b), and(b, not(b)))"),
        ("b AND b AND b", "and(b, b, b)"),
        ("i % 2", "modulo(i, 2)"),
        ("carrier LIKE 'a%'", "like(carrier, 'a%')"),
        ("carrier NOT LIKE 'b'", "notLike(carrier, 'b')"),
        ("i IN (1, 2)", "in(i, (1, 2))"),
        ("i NOT IN (1)", "notIn(i, 1)"),
        ("n IS NOT NULL", "isNotNull(n)"),
        ("i BETWEEN 1 AND 2", "and(greaterOrEquals(i, 1), lessOrEquals(i, 2))"),
        ("carrier || 'x' || 'y'", "concat(carrier, 'x', 'y')"),
        ("i::Int64", "CAST(i, 'Int64')"),
        ("quantile(0.5)(i)", "quantile(0.5)(i)"),
        ("UPPER(carrier)", "UPPER(carrier)"),
        ("countIf(i = 1)", "countIf(equals(i, 1))"),
        ("'it''s'", r"'it\'s'"),
        ("i AS x", "x"),
    ],
)
def test_columns_are_called_as_clickhouse_calls_them(expression: str, expected: str) -> None:
    grouped = " GROUP BY ALL" if expression.startswith(("count(", "COUNT(", "sum(", "quantile", "countIf")) else ""
    assert ask(f"SELECT {expression} FROM f{grouped}").columns == (expected,)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("i = 1", 1),
        ("b", True),
        ("i / 2", 0.5),
        ("intDiv(7, 2)", 3),
        ("length('é')", 2),
        ("lengthUTF8('é')", 1),
        ("toYear(t)", 2013),
        ("toStartOfMonth(d)", datetime.date(2013, 1, 1)),
        ("toStartOfHour(t)", datetime.datetime(2013, 1, 1, 2)),
        ("toDate(t)", datetime.date(2013, 1, 1)),
        ("toDate(york)", datetime.date(2012, 12, 31)),
        ("toDayOfWeek(d)", 2),
        ("if(i > 0, 'yes', 'no')", "yes"),
        ("CASE WHEN i = 2 THEN 'two' ELSE 'other' END", "other"),
        ("coalesce(n, 0)", 1.5),
        ("CAST(i, 'String')", "1"),
        ("toString(i)", "1"),
        ("d = '2013-01-15'", 1),
        ("extract(year FROM d)", 2013),
    ],
)
def test_values(expression: str, expected: Any) -> None:
    assert value(expression) == expected


def test_aggregates() -> None:
    columns = "uniq(carrier), uniqExact(carrier), sumIf(i, b), avg(n), any(d), argMax(carrier, t), groupArray(i)"
    [row] = ask(f"SELECT {columns} FROM f").rows
    assert row == (3, 3, 4, 2.0, datetime.date(2013, 1, 15), "é", [1, 2, 3, 4])


def test_nulls_come_last_in_both_directions() -> None:
    assert [row[0] for row in ask("SELECT n FROM f ORDER BY n").rows] == [1.5, 2.5, None, None]
    assert [row[0] for row in ask("SELECT n FROM f ORDER BY n DESC").rows] == [2.5, 1.5, None, None]


def test_subqueries_common_tables_unions_and_limits() -> None:
    assert ask("SELECT i FROM f ORDER BY i LIMIT 1, 2").rows == ((2,), (3,))
    assert ask("WITH x AS (SELECT i, count() FROM f GROUP BY i) SELECT max(`count()`) FROM x").rows == ((1,),)
    assert ask("SELECT count() FROM (SELECT DISTINCT carrier FROM f)").rows == ((3,),)
    assert sorted(ask("SELECT i FROM f WHERE i < 2 UNION ALL SELECT rows FROM system.parts").rows) == [(1,), (4,)]
    assert ask("SELECT i FROM f WHERE i IN (SELECT max(i) FROM f)").rows == ((4,),)


@pytest.mark.parametrize(
    ("text", "name", "part"),
    [
        ("SELECT foo(i) FROM f", "UNKNOWN_FUNCTION", "foo"),
        ("SELECT toYYYYMMM(d) FROM f", "UNKNOWN_FUNCTION", "'toYYYYMM'"),
        ("SELECT TOYYYYMM(d) FROM f", "UNKNOWN_FUNCTION", "TOYYYYMM"),
        ("SELECT read_csv('/etc/hostname')", "UNKNOWN_FUNCTION", "read_csv"),
        ("SELECT toYYYYMM(d, 1, 2) FROM f", "NUMBER_OF_ARGUMENTS_DOESNT_MATCH", "1 argument"),
        ("SELECT sum(0.5)(i) FROM f", "NUMBER_OF_ARGUMENTS_DOESNT_MATCH", "parameters"),
        ("SELECT carier FROM f", "UNKNOWN_IDENTIFIER", "'carrier'"),
        ("SELECT Carrier FROM f", "UNKNOWN_IDENTIFIER", "'carrier'"),
        ("SELECT i FROM f WHERE z.i = 1", "UNKNOWN_IDENTIFIER", "z"),
        ("SELECT sum(carrier) FROM f", "ILLEGAL_TYPE_OF_ARGUMENT", "sum"),
        ("SELECT toInt8(carrier) FROM f", "BAD_ARGUMENTS", "UA"),
        ("SELECT 1 FROM", "SYNTAX_ERROR", "table name"),
        ("SELECT i FROM f WHERE", "SYNTAX_ERROR", ""),
        ("SELECT * FROM numbers(10)", "NOT_IMPLEMENTED", "numbers(10)"),
        ("SELECT i FROM f FINAL", "NOT_IMPLEMENTED", "FINAL"),
        ("SELECT i FROM f SAMPLE 0.1", "NOT_IMPLEMENTED", "SAMPLE"),
        ("SELECT i FROM f PREWHERE i = 1", "NOT_IMPLEMENTED", "PREWHERE"),
        ("SELECT i FROM f ARRAY JOIN i", "NOT_IMPLEMENTED", "ARRAY JOIN"),
        ("SELECT i FROM f ANY LEFT JOIN f g USING (i)", "NOT_IMPLEMENTED", "ANY JOIN"),
        ("SELECT i FROM f LIMIT 1 BY i", "NOT_IMPLEMENTED", "LIMIT"),
        ("SELECT count() FROM f GROUP BY i WITH TOTALS", "NOT_IMPLEMENTED", "TOTALS"),
        ("SELECT i FROM f SETTINGS max_threads = 1", "NOT_IMPLEMENTED", "SETTINGS"),
        ("SELECT i FROM f FORMAT JSON", "NOT_IMPLEMENTED", "--format"),
    ],
)
def test_what_cannot_be_answered_is_refused_by_name(text: str, name: str, part: str) -> None:
    with pytest.raises(ClickHouseError) as caught:
        ask(text)
    assert caught.value.name == name
    assert part in caught.value.message


def test_files_of_this_machine_are_out_of_reach() -> None:
    assert query("SELECT * FROM '/etc/hostname'").tables == (TableName("default", "/etc/hostname"),)


def test_bytes_that_are_no_text_stay_apart_in_queries() -> None:
    rows = scanned(pa.table({"s": pa.array([b"\xff", b"a"], pa.large_binary())}))
    assert rows.column("s").to_pylist() == ["\U0010f7ff", "a"]
