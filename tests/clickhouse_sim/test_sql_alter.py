"""ALTER TABLE: its grammar, and `chsim sql` with it."""

from __future__ import annotations

from typing import Any

import pytest

from clickhouse_sim.sql.statements import parse_statements
from replica.commands import AlterSettings, Command, from_json, to_json
from replica.errors import BadArguments, ClickHouseError, NotImplementedInModel, SqlSyntaxError

STATEMENTS = [
    ("ALTER TABLE t MODIFY SETTING a = 1", AlterSettings("default", "t", {"a": "1"})),
    ("alter table db.`a t` modify setting a = 1, b = 'x';", AlterSettings("db", "a t", {"a": "1", "b": "x"})),
    ("ALTER TABLE t RESET SETTING a", AlterSettings("default", "t", reset=("a",))),
    ("ALTER TABLE t RESET SETTING a, b", AlterSettings("default", "t", reset=("a", "b"))),
]


@pytest.mark.parametrize(("text", "command"), STATEMENTS)
def test_statements(text: str, command: Command) -> None:
    assert parse_statements(text) == [command]
    assert from_json(to_json(command)) == command


@pytest.mark.parametrize(
    ("text", "error", "complaint"),
    [
        ("ALTER DATABASE d MODIFY SETTING a = 1", NotImplementedInModel, "ALTER DATABASE: the model alters tables"),
        ("ALTER TABLE t ON CLUSTER c MODIFY SETTING a = 1", NotImplementedInModel, "every living replica"),
        ("ALTER TABLE", SqlSyntaxError, "the name of a table"),
        ("ALTER TABLE t", SqlSyntaxError, "one of MODIFY SETTING, RESET SETTING"),
        ("ALTER TABLE t ADD COLUMN c Int8", NotImplementedInModel, "ALTER TABLE … ADD COLUMN: the model has MODIFY"),
        ("ALTER TABLE t MODIFY SETTING", SqlSyntaxError, "the name of a setting"),
        ("ALTER TABLE t MODIFY SETTING a", SqlSyntaxError, "= after the setting a"),
        ("ALTER TABLE t MODIFY SETTING a = 1, a = 2", SqlSyntaxError, "setting a is given twice"),
        ("ALTER TABLE t MODIFY SETTING a = 1, RESET SETTING b", SqlSyntaxError, "="),
        ("ALTER TABLE t RESET SETTING a, a", BadArguments, "setting a is given twice"),
        ("ALTER TABLE t RESET SETTING a = 1", SqlSyntaxError, "one action at a time"),
    ],
)
def test_what_cannot_be_read(text: str, error: type[ClickHouseError], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        parse_statements(text)


# --- chsim sql -----------------------------------------------------------------------------------------------

CREATE = "CREATE TABLE t (a UInt64) ENGINE = ReplicatedMergeTree('/t', '{replica}') ORDER BY a"


def test_settings_change_on_every_living_replica(toy_cluster: Any) -> None:
    toy_cluster.records("sql", CREATE)
    rows = toy_cluster.records("sql", "ALTER TABLE t MODIFY SETTING old_parts_lifetime = 7")
    assert [(row["replica"], row["table"], row["error"]) for row in rows] == [("r1", "t", ""), ("r2", "t", "")]
    assert [server.tables["t"].settings for server in toy_cluster.servers.values()] == [
        {"old_parts_lifetime": "7"}
    ] * 2


def test_one_replica_is_named(toy_cluster: Any) -> None:
    toy_cluster.records("sql", CREATE)
    toy_cluster.records("sql", "--replica", "r2", "ALTER TABLE t MODIFY SETTING old_parts_lifetime = 7")
    assert [len(server.tables["t"].settings) for server in toy_cluster.servers.values()] == [0, 1]


def test_who_is_away_keeps_the_old_settings(toy_cluster: Any) -> None:
    toy_cluster.records("sql", CREATE)
    toy_cluster.bury("r2")
    result = toy_cluster.chsim("sql", "ALTER TABLE t RESET SETTING old_parts_lifetime")
    assert "still with the old settings: r2." in result.stderr


def test_what_nobody_can_do_is_told_once(toy_cluster: Any) -> None:
    toy_cluster.records("sql", CREATE)
    result = toy_cluster.chsim("sql", "ALTER TABLE t MODIFY SETTING index_granularity = 7")
    assert result.exit_code != 0
    assert "READONLY_SETTING" in result.stderr
