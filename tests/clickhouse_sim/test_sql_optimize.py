"""OPTIMIZE TABLE: its grammar, and `chsim sql` with it."""

from __future__ import annotations

from typing import Any

import pytest

from clickhouse_sim.sql.optimize import Optimization
from clickhouse_sim.sql.statements import parse_statements
from replica.commands import ColumnDefinition, OptimizeTable
from replica.errors import BadArguments, ClickHouseError, NoSuchColumnInTable
from replica.schema import TableSchema

SCHEMA = TableSchema.from_definitions([ColumnDefinition(name, "UInt8") for name in ("a", "b", "c")])


def parsed(text: str) -> Optimization:
    (statement,) = parse_statements(text)
    assert isinstance(statement, Optimization)
    return statement


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("OPTIMIZE TABLE t", OptimizeTable("default", "t")),
        ("optimize table db.`a t` final;", OptimizeTable("db", "a t", final=True)),
        ("OPTIMIZE TABLE t PARTITION 202401", OptimizeTable("default", "t", partition="202401")),
        (
            "OPTIMIZE TABLE t PARTITION (202401, 'a,b') FINAL",
            OptimizeTable("default", "t", partition="(202401, 'a,b')", final=True),
        ),
        ("OPTIMIZE TABLE t PARTITION tuple() FINAL", OptimizeTable("default", "t", partition="tuple()", final=True)),
        ("OPTIMIZE TABLE t PARTITION ID '2024-01'", OptimizeTable("default", "t", partition_id="2024-01")),
        ("OPTIMIZE TABLE t DEDUPLICATE", OptimizeTable("default", "t", deduplicate=True)),
        (
            "OPTIMIZE TABLE t PARTITION ID 'all' FINAL DEDUPLICATE BY a, `b c`",
            OptimizeTable("default", "t", "", "all", True, True, ("a", "b c")),
        ),
    ],
)
def test_statements(text: str, command: OptimizeTable) -> None:
    assert parsed(text) == Optimization(command)


@pytest.mark.parametrize(
    ("by", "columns"),
    [
        ("*", ("a", "b", "c")),
        ("* EXCEPT (a, c)", ("b",)),
        ("* EXCEPT b", ("a", "c")),
    ],
)
def test_a_star_is_the_columns_of_the_table(by: str, columns: tuple[str, ...]) -> None:
    statement = parsed(f"OPTIMIZE TABLE t DEDUPLICATE BY {by}")
    assert statement.over(SCHEMA) == OptimizeTable("default", "t", deduplicate=True, deduplicate_by=columns)


def test_a_star_that_leaves_nothing_and_one_without_an_unknown_column() -> None:
    with pytest.raises(BadArguments, match="no column"):
        parsed("OPTIMIZE TABLE t DEDUPLICATE BY * EXCEPT (a, b, c)").over(SCHEMA)
    with pytest.raises(NoSuchColumnInTable):
        parsed("OPTIMIZE TABLE t DEDUPLICATE BY * EXCEPT (d)").over(SCHEMA)


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("OPTIMIZE t", "SYNTAX_ERROR", "TABLE"),
        ("OPTIMIZE TABLE", "SYNTAX_ERROR", "name of a table"),
        ("OPTIMIZE TABLE t PARTITION", "SYNTAX_ERROR", "value of a partition"),
        ("OPTIMIZE TABLE t PARTITION FINAL", "SYNTAX_ERROR", "value of a partition"),
        ("OPTIMIZE TABLE t PARTITION ID 5", "SYNTAX_ERROR", "id of a partition"),
        ("OPTIMIZE TABLE t PARTITION ID ''", "BAD_ARGUMENTS", "empty"),
        ("OPTIMIZE TABLE t PARTITION 1, 2", "SYNTAX_ERROR", "end of the statement"),
        ("OPTIMIZE TABLE t PARTITION ALL", "NOT_IMPLEMENTED", "PARTITION ALL"),
        ("OPTIMIZE TABLE t FINAL FINAL", "SYNTAX_ERROR", "end of the statement"),
        ("OPTIMIZE TABLE t DEDUPLICATE BY", "SYNTAX_ERROR", "name of a column"),
        ("OPTIMIZE TABLE t DEDUPLICATE BY a,", "SYNTAX_ERROR", "name of a column"),
        ("OPTIMIZE TABLE t DEDUPLICATE BY COLUMNS('a.*')", "NOT_IMPLEMENTED", "COLUMNS"),
        ("OPTIMIZE TABLE t DEDUPLICATE BY * EXCEPT ('a.*')", "NOT_IMPLEMENTED", "pattern"),
        ("OPTIMIZE TABLE t DEDUPLICATE BY * APPLY x", "NOT_IMPLEMENTED", "APPLY"),
        ("OPTIMIZE TABLE t DEDUPLICATE FINAL", "NOT_IMPLEMENTED", "FINAL"),
        ("OPTIMIZE TABLE t ON CLUSTER c", "NOT_IMPLEMENTED", "ON CLUSTER"),
        ("OPTIMIZE TABLE t FINAL CLEANUP", "NOT_IMPLEMENTED", "CLEANUP"),
        ("OPTIMIZE TABLE t SETTINGS a = 1", "NOT_IMPLEMENTED", "SETTINGS"),
        ("OPTIMIZE TABLE t x", "SYNTAX_ERROR", "end of the statement"),
    ],
)
def test_bad_statements(text: str, name: str, message: str) -> None:
    with pytest.raises(ClickHouseError, match=message) as caught:
        parse_statements(text)
    assert caught.value.name == name


def test_one_replica_is_asked_and_its_rows_are_shown(toy_cluster: Any) -> None:
    engine = "ENGINE = ReplicatedMergeTree('/t', '{replica}') ORDER BY a"
    toy_cluster.records("sql", f"CREATE TABLE t (a UInt8, b UInt8) {engine}")
    rows = toy_cluster.records("sql", "OPTIMIZE TABLE t FINAL DEDUPLICATE BY *", "--replica", "r2")
    assert rows == [{"partition_id": "all", "new_part": "all_0_1_1", "reason": ""}]
    asked = OptimizeTable("default", "t", final=True, deduplicate=True, deduplicate_by=("a", "b"))
    assert [server.optimized for server in toy_cluster.servers.values()] == [[], [asked]]
