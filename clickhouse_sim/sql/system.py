"""SYSTEM statements about replicas: from their tokens to the values of `replica.commands`."""

from __future__ import annotations

from clickhouse_sim.sql.tokens import Cursor
from replica.commands import (
    Action,
    DropReplica,
    RestartReplica,
    RestoreReplica,
    SwitchAction,
    SyncMode,
    SyncReplica,
    SystemCommand,
)
from replica.errors import NotImplementedInModel

_KNOWN = "STOP, START, or SYNC, RESTART, RESTORE or DROP REPLICA"


def parse_system(cursor: Cursor) -> SystemCommand:
    """What a SYSTEM statement asks of the server that it is sent to.

    Raises SqlSyntaxError where it cannot be read, and NotImplementedInModel for what the model does not have.
    """
    cursor.expect_words("SYSTEM")
    command = _command(cursor)
    _refuse_cluster(cursor)
    if not cursor.at_end:
        raise cursor.error("the end of the statement")
    return command


def _refuse_cluster(cursor: Cursor) -> None:
    if cursor.words(2) == ("ON", "CLUSTER"):
        raise NotImplementedInModel("ON CLUSTER: a SYSTEM statement is for one server, say which with --replica")


def _command(cursor: Cursor) -> SystemCommand:
    if cursor.take_words("STOP"):
        return _switch(cursor, stop=True)
    if cursor.take_words("START"):
        return _switch(cursor, stop=False)
    if cursor.take_words("SYNC", "REPLICA"):
        return _sync(cursor)
    if cursor.take_words("RESTART", "REPLICA"):
        return RestartReplica(*cursor.table_name())
    if cursor.take_words("RESTORE", "REPLICA"):
        return RestoreReplica(*cursor.table_name())
    if cursor.take_words("DROP", "REPLICA"):
        return _drop_replica(cursor)
    if cursor.words():
        raise NotImplementedInModel(f"SYSTEM {' '.join(cursor.words(2))}: the model has SYSTEM {_KNOWN}")
    raise cursor.error(_KNOWN)


def _switch(cursor: Cursor, *, stop: bool) -> SwitchAction:
    for action in Action:
        if cursor.take_words(*action.split()):
            _refuse_cluster(cursor)
            database, table = ("", "") if cursor.at_end else cursor.table_name()
            return SwitchAction(action, stop, database, table)
    names = ", ".join(Action)
    if cursor.words():
        word = "STOP" if stop else "START"
        raise NotImplementedInModel(f"SYSTEM {word} {' '.join(cursor.words(2))}: the model has {names}")
    raise cursor.error(f"one of {names}")


def _sync(cursor: Cursor) -> SyncReplica:
    database, table = cursor.table_name()
    for mode in (SyncMode.STRICT, SyncMode.LIGHTWEIGHT, SyncMode.PULL):
        if cursor.take_words(mode):
            if cursor.take_words("FROM"):
                raise NotImplementedInModel(f"SYNC REPLICA … {mode} FROM: the model waits for all replicas")
            return SyncReplica(database, table, mode)
    return SyncReplica(database, table)


def _drop_replica(cursor: Cursor) -> DropReplica:
    replica = cursor.string("the name of a replica, a string")
    if not cursor.take_words("FROM", "TABLE"):
        raise NotImplementedInModel("SYSTEM DROP REPLICA needs FROM TABLE and a table: the model drops one at a time")
    database, table = cursor.table_name()
    return DropReplica(database, table, replica)
