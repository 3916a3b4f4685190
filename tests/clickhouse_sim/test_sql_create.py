"""CREATE TABLE to `CreateTable`, and the statements that are refused."""

from __future__ import annotations

import pytest

from clickhouse_sim.sql.show import ShowTables
from clickhouse_sim.sql.statements import parse_statements, parse_table_name
from replica.commands import ColumnDefinition, CreateTable, DescribeTable, Engine
from replica.errors import ClickHouseError


def create(text: str) -> CreateTable:
    [statement] = parse_statements(text)
    assert isinstance(statement, CreateTable)
    return statement


def refused(text: str) -> ClickHouseError:
    with pytest.raises(ClickHouseError) as caught:
        parse_statements(text)
    return caught.value


def test_every_clause_reaches_the_command_in_its_own_words() -> None:
    assert create(
        """
        CREATE TABLE IF NOT EXISTS db.`the flights` (
            time_hour DateTime('UTC') NOT NULL,  -- when
            carrier String DEFAULT concat('a,b)', "x"),
            delay Nullable( Int32 ),
            tail String NULL
        ) ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/flights', '{replica}')
        PARTITION BY toYYYYMM(time_hour)
        PRIMARY KEY carrier
        ORDER BY (carrier, /* then */
                  time_hour)
        SETTINGS index_granularity = 1024, storage_policy = 'hot', flag = true;
        """
    ) == CreateTable(
        database="db",
        table="the flights",
        columns=(
            ColumnDefinition("time_hour", "DateTime('UTC')"),
            ColumnDefinition("carrier", "String", "concat('a,b)', \"x\")"),
            ColumnDefinition("delay", "Nullable( Int32 )"),
            ColumnDefinition("tail", "Nullable(String)"),
        ),
        zookeeper_path="/clickhouse/tables/{shard}/flights",
        replica_name="{replica}",
        order_by="(carrier, time_hour)",
        partition_by="toYYYYMM(time_hour)",
        primary_key="carrier",
        settings={"index_granularity": "1024", "storage_policy": "hot", "flag": "1"},
        if_not_exists=True,
    )


def test_names_of_functions_stay_clickhouses() -> None:
    made = create(
        "CREATE TABLE t (d Date, s String DEFAULT toString(sipHash64(substring(upper(s), 1)))) "
        "ENGINE = ReplicatedMergeTree('/t', 'r') PARTITION BY toMonday(d) ORDER BY toStartOfHour(toDateTime(d))"
    )
    assert made.columns[1].default == "toString(sipHash64(substring(upper(s), 1)))"
    assert (made.partition_by, made.order_by) == ("toMonday(d)", "toStartOfHour(toDateTime(d))")


def test_words_of_the_grammar_are_fine_names_of_columns() -> None:
    made = create(
        "create table t (date Date, index Int8, ttl Int8, comment String, `null` String, select UInt8, order UInt8) "
        "engine ReplicatedMergeTree order by date"
    )
    assert [column.name for column in made.columns] == ["date", "index", "ttl", "comment", "null", "select", "order"]


@pytest.mark.parametrize("engine", ["ReplicatedMergeTree", "ReplicatedMergeTree()"])
def test_an_engine_without_arguments_has_clickhouses_defaults(engine: str) -> None:
    made = create(f"CREATE TABLE t (a Int8) ENGINE = {engine} ORDER BY a")
    assert (made.zookeeper_path, made.replica_name) == ("/clickhouse/tables/{uuid}/{shard}", "{replica}")


@pytest.mark.parametrize("engine", ["MergeTree", "MergeTree()"])
def test_a_table_that_is_not_replicated_has_neither_path_nor_name(engine: str) -> None:
    made = create(f"CREATE TABLE t (a Int8) ENGINE = {engine} PARTITION BY a ORDER BY a")
    assert (made.engine, made.zookeeper_path, made.replica_name) == (Engine.MERGE_TREE, "", "")


def test_a_primary_key_alone_is_the_order_too() -> None:
    made = create("CREATE TABLE t (a Int8) ENGINE = ReplicatedMergeTree('/t', 'r') PRIMARY KEY (a)")
    assert (made.order_by, made.primary_key) == ("(a)", "(a)")


def test_a_uuid_is_kept() -> None:
    text = "CREATE TABLE t UUID '00000000-0000-4000-8000-000000000001' (a Int8) ENGINE ReplicatedMergeTree ORDER BY a"
    assert create(text).uuid == "00000000-0000-4000-8000-000000000001"


_BODY = "(a Int8) ENGINE = ReplicatedMergeTree('/t', 'r') ORDER BY a"


@pytest.mark.parametrize(
    ("text", "name", "part"),
    [
        ("CREATE TABLE t (a Int8) ENGINE = Log ORDER BY a", "UNKNOWN_STORAGE", "Log"),
        ("CREATE TABLE t (a Int8) ENGINE = MergeTree(a) ORDER BY a", "NUMBER_OF_ARGUMENTS", "no arguments"),
        ("CREATE TABLE t (a Int8) ENGINE = MergeTree", "BAD_ARGUMENTS", "ORDER BY"),
        ("CREATE TABLE t (a Int8) ENGINE = ReplicatedMergeTree('/t') ORDER BY a", "NUMBER_OF_ARGUMENTS", "two"),
        (
            "CREATE TABLE t (a Int8) ENGINE = ReplicatedMergeTree('/t', 'r', x) ORDER BY a",
            "NUMBER_OF_ARGUMENTS",
            "two",
        ),
        ("CREATE TABLE t (a Int8) ENGINE = ReplicatedMergeTree('/t', 'r')", "BAD_ARGUMENTS", "ORDER BY"),
        ("CREATE TABLE t (a Int8) ORDER BY a", "SYNTAX_ERROR", "ENGINE"),
        (f"CREATE TABLE t {_BODY} TTL a", "NOT_IMPLEMENTED", "TTL"),
        (f"CREATE TABLE t {_BODY} SAMPLE BY a", "NOT_IMPLEMENTED", "SAMPLE"),
        (f"CREATE TABLE t {_BODY} COMMENT 'x'", "NOT_IMPLEMENTED", "COMMENT"),
        (f"CREATE TABLE t {_BODY} ORDER BY a", "SYNTAX_ERROR", "twice"),
        (f"CREATE TABLE t {_BODY}, b", "SYNTAX_ERROR", "parentheses"),
        (f"CREATE TABLE t {_BODY} nonsense", "SYNTAX_ERROR", "nonsense"),
        (f"CREATE TABLE t {_BODY} + ", "SYNTAX_ERROR", "ORDER BY"),
        (f"CREATE TABLE t {_BODY} FROM u", "SYNTAX_ERROR", "ORDER BY"),
        (f"CREATE TABLE t {_BODY} DESC", "SYNTAX_ERROR", "ORDER BY"),
        (f"CREATE TABLE t {_BODY})", "SYNTAX_ERROR", ")"),
        (f"CREATE TABLE t {_BODY} SETTINGS x", "SYNTAX_ERROR", "="),
        (f"CREATE TABLE t ON CLUSTER c {_BODY}", "NOT_IMPLEMENTED", "ON CLUSTER"),
        ("CREATE TABLE t (a Int8 CODEC(ZSTD)) ENGINE = ReplicatedMergeTree ORDER BY a", "NOT_IMPLEMENTED", "CODEC"),
        ("CREATE TABLE t (a Int8 ALIAS 1) ENGINE = ReplicatedMergeTree ORDER BY a", "NOT_IMPLEMENTED", "ALIAS"),
        ("CREATE TABLE t (a Int8, INDEX i a TYPE minmax) ENGINE = ReplicatedMergeTree", "NOT_IMPLEMENTED", "INDEX"),
        ("CREATE TABLE t (a Int8, a Int8) ENGINE = ReplicatedMergeTree ORDER BY a", "DUPLICATE_COLUMN", "a"),
        ("CREATE TABLE t () ENGINE = ReplicatedMergeTree ORDER BY a", "EMPTY_LIST_OF_COLUMNS_PASSED", "column"),
        ("CREATE TABLE t (a) ENGINE = ReplicatedMergeTree ORDER BY a", "SYNTAX_ERROR", "type of column a"),
        ("CREATE TABLE t (a 'x') ENGINE = ReplicatedMergeTree ORDER BY a", "SYNTAX_ERROR", "type of column a"),
        ("CREATE TABLE t (a Int8 DEFAULT) ENGINE = ReplicatedMergeTree ORDER BY a", "SYNTAX_ERROR", "DEFAULT"),
        ("CREATE TABLE t (a Int8", "SYNTAX_ERROR", "ends"),
        ("CREATE TABLE 't' (a Int8)", "SYNTAX_ERROR", "name of a table"),
        ("CREATE TABLE t AS u", "NOT_IMPLEMENTED", "AS"),
        ("CREATE DATABASE d", "NOT_IMPLEMENTED", "DATABASE"),
        ("ALTER TABLE t DELETE WHERE 1", "NOT_IMPLEMENTED", "ALTER"),
        ("SHOW CREATE DATABASE d", "NOT_IMPLEMENTED", "SHOW CREATE"),
        ("DESCRIBE TABLE t u", "SYNTAX_ERROR", "end of the statement"),
        ("HELLO", "SYNTAX_ERROR", "HELLO"),
        ("SELECT 'open", "SYNTAX_ERROR", "never closed"),
        (" ; -- nothing\n;", "SYNTAX_ERROR", "no statement"),
    ],
)
def test_what_the_model_lacks_is_refused_by_name(text: str, name: str, part: str) -> None:
    error = refused(text)
    assert error.name.startswith(name)
    assert part in error.message


def test_the_place_of_an_error_counts_lines_and_columns() -> None:
    assert "(line 2, column 3)" in refused("CREATE TABLE t (a Int8)\n  nonsense").message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("SELECT 'it''s',\n  'open", "a quote (') is opened at line 2, column 3, and never closed"),
        ('SELECT 1; SELECT `a, "b"', "a quote (`) is opened at line 1, column 18,"),
        ("-- don't\nSELECT \"a", 'a quote (") is opened at line 2, column 8,'),
        ("SELECT 'a\\'b", "a quote (') is opened at line 1, column 8,"),
        ("SELECT 1 /* it's", "a comment (/*) is opened at line 1, column 10,"),
    ],
)
def test_a_quote_that_is_never_closed_is_named_with_its_place(text: str, part: str) -> None:
    assert part in refused(text).message


def test_the_other_statements() -> None:
    assert parse_statements("SHOW TABLES; SHOW TABLES FROM `system`; DESCRIBE TABLE a.b; desc c") == [
        ShowTables("default"),
        ShowTables("system"),
        DescribeTable("a", "b"),
        DescribeTable("default", "c"),
    ]


@pytest.mark.parametrize("text", ["a b", "a.b.c", "a;b", "'a'", "1", "a`b", "my-events", "a'b"])
def test_what_is_no_name_in_sql_is_the_name_of_a_table_as_it_stands(text: str) -> None:
    assert parse_table_name(text) == ("default", text)


@pytest.mark.parametrize("text", ["SELECT 1; SELEC 2; SELECT 3", "SELECT 1; SELEC 2;; SELECT 3"])
def test_one_of_several_statements_is_named_when_it_cannot_be_read(text: str) -> None:
    assert refused(text).message.startswith("statement 2 of 3 (SELEC 2): ")
    assert refused(text).message.endswith("none was run")
    assert "statement" not in refused("SELEC 1").message


def test_names_of_tables() -> None:
    assert parse_table_name("t") == ("default", "t")
    assert parse_table_name("db.`a b`") == ("db", "a b")
