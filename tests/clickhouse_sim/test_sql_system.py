"""DROP TABLE and SYSTEM: their grammar, and `chsim sql` with them."""

from __future__ import annotations

from typing import Any

import pytest

from clickhouse_sim.sql.statements import parse_statements
from replica.commands import (
    Action,
    Command,
    DropReplica,
    DropTable,
    RestartReplica,
    RestoreReplica,
    SwitchAction,
    SyncMode,
    SyncReplica,
    from_json,
    to_json,
)
from replica.errors import NotImplementedInModel, SqlSyntaxError

CREATE = "CREATE TABLE t (a UInt64) ENGINE = ReplicatedMergeTree('/t', '{replica}') ORDER BY a"

STATEMENTS = [
    ("DROP TABLE t", DropTable("default", "t")),
    ("drop table if exists db.`a t` sync;", DropTable("db", "a t", if_exists=True)),
    ("DROP TABLE t NO DELAY", DropTable("default", "t")),
    ("SYSTEM STOP MERGES", SwitchAction(Action.MERGES, stop=True)),
    ("system start merges t", SwitchAction(Action.MERGES, False, "default", "t")),
    ("SYSTEM STOP FETCHES db.t", SwitchAction(Action.FETCHES, True, "db", "t")),
    ("SYSTEM STOP REPLICATION QUEUES t", SwitchAction(Action.REPLICATION_QUEUES, True, "default", "t")),
    ("SYSTEM START PULLING REPLICATION LOG", SwitchAction(Action.PULLING_REPLICATION_LOG, stop=False)),
    ("SYSTEM SYNC REPLICA t", SyncReplica("default", "t")),
    ("SYSTEM SYNC REPLICA db.t STRICT", SyncReplica("db", "t", SyncMode.STRICT)),
    ("SYSTEM SYNC REPLICA t LIGHTWEIGHT", SyncReplica("default", "t", SyncMode.LIGHTWEIGHT)),
    ("SYSTEM SYNC REPLICA t PULL", SyncReplica("default", "t", SyncMode.PULL)),
    ("SYSTEM RESTART REPLICA t", RestartReplica("default", "t")),
    ("SYSTEM RESTORE REPLICA db.t", RestoreReplica("db", "t")),
    ("SYSTEM DROP REPLICA 'r2' FROM TABLE db.t", DropReplica("db", "t", "r2")),
]


@pytest.mark.parametrize(("text", "command"), STATEMENTS)
def test_statements(text: str, command: Command) -> None:
    assert parse_statements(text) == [command]
    assert from_json(to_json(command)) == command


def test_several_in_one_text() -> None:
    text = "; ".join(text for text, _ in STATEMENTS)
    assert parse_statements(text) == [command for _, command in STATEMENTS]


@pytest.mark.parametrize(
    ("text", "error", "complaint"),
    [
        ("DROP DATABASE d", NotImplementedInModel, "DROP DATABASE: the model drops tables and views only"),
        ("DROP TABLE t ON CLUSTER c", NotImplementedInModel, "every living replica"),
        ("DROP TABLE", SqlSyntaxError, "the name of a table"),
        ("DROP TABLE t, u", SqlSyntaxError, "expected SYNC"),
        ("SYSTEM", SqlSyntaxError, "STOP, START"),
        ("SYSTEM RELOAD CONFIG", NotImplementedInModel, "SYSTEM RELOAD CONFIG"),
        ("SYSTEM STOP", SqlSyntaxError, "MERGES, FETCHES"),
        ("SYSTEM STOP TTL MERGES t", NotImplementedInModel, "SYSTEM STOP TTL MERGES"),
        ("SYSTEM START REPLICATED SENDS", NotImplementedInModel, "SYSTEM START REPLICATED SENDS"),
        ("SYSTEM STOP MERGES ON CLUSTER c", NotImplementedInModel, "--replica"),
        ("SYSTEM STOP MERGES t u", SqlSyntaxError, "the end of the statement"),
        ("SYSTEM SYNC REPLICA", SqlSyntaxError, "the name of a table"),
        ("SYSTEM SYNC REPLICA t LIGHTWEIGHT FROM 'r1'", NotImplementedInModel, "LIGHTWEIGHT FROM"),
        ("SYSTEM DROP REPLICA r2 FROM TABLE t", SqlSyntaxError, "a string"),
        ("SYSTEM DROP REPLICA 'r2'", NotImplementedInModel, "FROM TABLE"),
        ("SYSTEM DROP REPLICA 'r2' FROM ZKPATH '/t'", NotImplementedInModel, "FROM TABLE"),
    ],
)
def test_what_cannot_be_read_or_done_is_said(text: str, error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        parse_statements(text)


def test_drop_runs_on_every_living_replica(toy_cluster: Any) -> None:
    toy_cluster.records("sql", CREATE)
    rows = toy_cluster.records("sql", "DROP TABLE t SYNC")
    assert [(row["replica"], row["table"], row["error"]) for row in rows] == [("r1", "t", ""), ("r2", "t", "")]
    assert [server.tables for server in toy_cluster.servers.values()] == [{}, {}]
    result = toy_cluster.chsim("sql", "DROP TABLE t")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "UNKNOWN_TABLE" in result.stderr
    assert toy_cluster.chsim("sql", "DROP TABLE IF EXISTS t").exit_code == 0


def test_drop_on_one_replica_and_what_fails_or_is_away(toy_cluster: Any) -> None:
    toy_cluster.records("sql", CREATE)
    toy_cluster.records("sql", "DROP TABLE t", "--replica", "r2")
    assert list(toy_cluster.servers["r1"].tables) == ["t"]
    failed = toy_cluster.chsim("sql", "DROP TABLE t")
    assert failed.exit_code == 1
    assert "t was not dropped on r2" in failed.stderr
    toy_cluster.records("sql", CREATE)
    toy_cluster.bury("r2")
    assert "still with the table: r2" in toy_cluster.chsim("sql", "DROP TABLE t").stderr


def test_system_is_for_the_one_server_that_is_asked(toy_cluster: Any) -> None:
    result = toy_cluster.chsim("sql", "SYSTEM STOP MERGES t", "--replica", "r2")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "Done on r2" in result.stderr
    assert toy_cluster.chsim("sql", "SYSTEM SYNC REPLICA t").exit_code == 0
    assert toy_cluster.servers["r1"].system_commands == [SyncReplica("default", "t")]
    assert toy_cluster.servers["r2"].system_commands == [SwitchAction(Action.MERGES, True, "default", "t")]
