"""SHOW CREATE TABLE and EXISTS: their grammar, and statements that make the same table again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickhouse_sim.sql.show import ExistsTable
from clickhouse_sim.sql.statements import parse_statements
from replica.commands import ColumnDefinition, Command, CreateTable, ShowCreateTable, from_json, to_json
from replica.create_statement import create_statement, create_table_query, engine_full
from replica.errors import NotImplementedInModel, SqlSyntaxError
from replica.table_structure import TableStructure

CREATE = "CREATE TABLE t (a UInt64) ENGINE = ReplicatedMergeTree('/t', '{replica}') ORDER BY a"


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("SHOW CREATE TABLE t", ShowCreateTable("default", "t")),
        ("show create db.`a t`", ShowCreateTable("db", "a t")),
        ("EXISTS TABLE t", ExistsTable("default", "t")),
        ("exists db.`a t`;", ExistsTable("db", "a t")),
    ],
)
def test_statements(text: str, question: object) -> None:
    assert parse_statements(text) == [question]


def test_show_create_crosses_the_wire() -> None:
    command: Command = ShowCreateTable("db", "t")
    assert from_json(to_json(command)) == command


@pytest.mark.parametrize(
    ("text", "error", "complaint"),
    [
        ("SHOW DATABASES", NotImplementedInModel, "SHOW DATABASES: the model has SHOW TABLES and SHOW CREATE TABLE"),
        ("SHOW CREATE DATABASE d", NotImplementedInModel, "SHOW CREATE DATABASE: the model has SHOW CREATE TABLE"),
        ("SHOW CREATE TABLE", SqlSyntaxError, "name of a table"),
        ("SHOW CREATE TABLE t u", SqlSyntaxError, "end of the statement"),
        ("EXISTS DATABASE d", NotImplementedInModel, "EXISTS DATABASE: the model has EXISTS TABLE"),
        ("EXISTS", SqlSyntaxError, "name of a table"),
    ],
)
def test_what_cannot_be_read_or_shown(text: str, error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        parse_statements(text)


# --- the statement -------------------------------------------------------------------------------------------

TABLE = CreateTable(
    database="default",
    table="a t",
    columns=(
        ColumnDefinition("k", "UInt64", "1+ 2"),
        ColumnDefinition("v 1", "Nullable(String)"),
        ColumnDefinition("select", "String", "'it''s'"),
    ),
    zookeeper_path="/tables/{shard}/it's",
    replica_name="{replica}",
    order_by="(k,`select`)",
    partition_by="k%2",
    primary_key="k",
    settings={"old_parts_lifetime": "7", "always_fetch_merged_part": "true"},
)

SHOWN = r"""CREATE TABLE default.`a t`
(
    `k` UInt64 DEFAULT 1 + 2,
    `v 1` Nullable(String),
    `select` String DEFAULT 'it\'s'
)
ENGINE = ReplicatedMergeTree('/tables/{shard}/it\'s', '{replica}')
PARTITION BY k % 2
PRIMARY KEY k
ORDER BY (k, `select`)
SETTINGS old_parts_lifetime = 7, always_fetch_merged_part = 'true', index_granularity = 8192"""


def test_it_is_what_clickhouse_shows() -> None:
    structure = TableStructure.from_definition(TABLE)
    assert create_statement(TABLE, structure) == SHOWN
    assert create_table_query(TABLE, structure) == SHOWN.replace("\n    ", "").replace("\n", " ").replace(
        "( ", "("
    ).replace(" )", ")").replace(",`", ", `")
    assert engine_full(TABLE, structure) == SHOWN.partition("ENGINE = ")[2].replace("\n", " ")


NAMES = st.text("ab `'\\\n\"ж", min_size=1, max_size=6)


@given(
    NAMES,
    st.lists(NAMES, min_size=2, max_size=4, unique=True),
    st.sampled_from(["", "k", "(k, k + 1)", "tuple()"]),
    st.sampled_from(["", "k % 4", "(k % 2, k % 3)", "tuple()"]),
    st.dictionaries(
        st.sampled_from(["parts_to_throw_insert", "old_parts_lifetime", "index_granularity"]), st.just("9")
    ),
)
def test_it_makes_the_same_table(
    table: str, columns: list[str], primary: str, partition: str, settings: dict[str, str]
) -> None:
    made = CreateTable(
        database="default",
        table=table,
        columns=(
            ColumnDefinition("k", "UInt32"),
            *(ColumnDefinition(name, "String", "'x'") for name in columns if name != "k"),
        ),
        zookeeper_path=f"/t/{{shard}}/{table}",
        replica_name="{replica}",
        order_by="(k, k + 1)" if primary else "tuple()",
        partition_by=partition,
        primary_key=primary,
        settings=settings,
    )
    structure = TableStructure.from_definition(made)
    for text in (create_statement(made, structure), create_table_query(made, structure)):
        (again,) = parse_statements(text)
        assert isinstance(again, CreateTable)
        same = TableStructure.from_definition(again)
        assert (same.metadata_text, same.columns_text, same.settings) == (
            structure.metadata_text,
            structure.columns_text,
            structure.settings,
        )
        assert (again.table, again.zookeeper_path, again.replica_name) == (table, made.zookeeper_path, "{replica}")
        assert create_statement(again, same) == create_statement(made, structure)


@pytest.mark.real
def test_clickhouse_shows_the_same() -> None:
    session = pytest.importorskip("chdb.session").Session()
    known = replace(TABLE, table="t", settings={"old_parts_lifetime": "7"})
    ours = create_statement(known, TableStructure.from_definition(known))
    engine = "ReplicatedMergeTree('/tables/{shard}/it\\'s', '{replica}')"
    theirs = ours.replace(engine, "MergeTree")
    session.query(theirs)
    assert str(session.query("SHOW CREATE TABLE default.t", "TSVRaw")).strip() == theirs


# --- chsim sql -----------------------------------------------------------------------------------------------


def test_what_the_replica_that_is_asked_has(toy_cluster: Any) -> None:
    toy_cluster.records("sql", CREATE)
    (row,) = toy_cluster.records("sql", "SHOW CREATE TABLE t")
    assert row["statement"].startswith("CREATE TABLE default.t\n(\n    `a` UInt64\n)\nENGINE = ")
    assert toy_cluster.records("sql", "EXISTS t; EXISTS TABLE db.t; EXISTS system.parts") == [
        {"result": 1},
        {"result": 0},
        {"result": 1},
    ]
