"""system.zookeeper_log: the requests of this server's sessions and the responses, by its log of them."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from itertools import count
from typing import Any

from coordinator.api import (
    BadArguments,
    BadVersion,
    Check,
    CheckNotExists,
    CoordinationError,
    Create,
    Delete,
    NoAuth,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionLost,
    Set,
    Stat,
)
from replica.system_tables.asked import Asked, SystemTable
from replica.system_tables.columns import Columns, Row
from replica.zookeeper_log import Children, Exists, Failure, Get, Message, MessageType, Multi, Outcome

_COLUMNS = Columns.parse("""
    hostname LowCardinality(String)
    type Enum8(Request, Response, Finalize)
    event_date Date
    event_time DateTime64(6)
    thread_id UInt64
    query_id String
    address IPv6
    port UInt16
    session_id Int64
    duration_microseconds UInt64
    xid Int64
    has_watch UInt8
    op_num Enum16(Watch, Close, Error, Create, Remove, Exists, Get, Set, List, Check, Multi, CheckNotExists)
    path String
    data String
    is_ephemeral UInt8
    is_sequential UInt8
    version Nullable(Int32)
    requests_size UInt32
    request_idx UInt32
    zxid Int64
    error Nullable(Enum8(ZOK))
    watch_type Nullable(Enum8(NONE))
    watch_state Nullable(Enum16(NONE))
    path_created String
    stat_czxid Int64
    stat_mzxid Int64
    stat_pzxid Int64
    stat_version Int32
    stat_cversion Int32
    stat_dataLength Int32
    stat_numChildren Int32
    children Array(String)
""")

_ERRORS: dict[type[CoordinationError], str] = {
    NoNode: "ZNONODE",
    NodeExists: "ZNODEEXISTS",
    BadVersion: "ZBADVERSION",
    NotEmpty: "ZNOTEMPTY",
    NoChildrenForEphemerals: "ZNOCHILDRENFOREPHEMERALS",
    BadArguments: "ZBADARGUMENTS",
    NoAuth: "ZNOAUTH",
    SessionLost: "ZCONNECTIONLOSS",
}


async def _rows(asked: Asked) -> list[Row]:
    return [
        {"hostname": asked.server_name, **_of_the_message(message), **row}
        for message in asked.share.sessions.requests
        for row in _parts(message)
    ]


def _of_the_message(message: Message) -> dict[str, Any]:
    """What the rows of a multi have in common."""
    return {
        "type": str(message.type),
        "event_date": datetime.datetime.fromtimestamp(message.time, datetime.UTC).date(),
        "event_time": int(message.time * 1_000_000),
        "session_id": message.session_id,
        "duration_microseconds": max(0, int(message.duration_seconds * 1_000_000)),
        "xid": message.xid,
    }


def _parts(message: Message) -> Iterator[dict[str, Any]]:
    """The request or response, then those of its operations if it is a multi."""
    request, outcome = message.request, message.outcome
    answered = message.type is not MessageType.REQUEST
    if not isinstance(request, Multi):
        yield _request(request) | (_response(outcome) if answered else {})
        return
    size = len(request.operations)
    yield {"op_num": "Multi", "requests_size": size} | ({"error": _error(outcome)} if answered else {})
    for index, operation in zip(count(1), request.operations, strict=False):
        yield _request(operation) | {"request_idx": index} | (_response(_of(outcome, index - 1)) if answered else {})


def _of(outcome: Outcome, index: int) -> Outcome:
    """What became of one operation of a multi: of one that was refused, all others are undone (DataTree.java)."""
    if isinstance(outcome, Failure):
        return outcome if outcome.index in (index, -1) else Failure(_Undone) if index > outcome.index else None
    assert isinstance(outcome, list)
    result: Outcome = outcome[index]
    return result


def _request(request: Operation | Get | Exists | Children) -> dict[str, Any]:
    row: dict[str, Any] = {"path": request.path}
    match request:
        case Create(data=data, ephemeral=ephemeral, sequential=sequential):
            row |= {"op_num": "Create", "data": data.decode("utf-8", "replace")}
            row |= {"is_ephemeral": int(ephemeral), "is_sequential": int(sequential)}
        case Set(data=data, version=version):
            row |= {"op_num": "Set", "data": data.decode("utf-8", "replace"), "version": version}
        case Delete(version=version):
            row |= {"op_num": "Remove", "version": version}
        case Check(version=version):
            row |= {"op_num": "Check", "version": version}
        case CheckNotExists():
            row |= {"op_num": "CheckNotExists", "version": -1}
        case Get() | Exists() | Children():
            kind = {Get: "Get", Exists: "Exists", Children: "List"}[type(request)]
            row |= {"op_num": kind, "has_watch": int(request.has_watch)}
    return row


def _response(outcome: Outcome) -> dict[str, Any]:
    row: dict[str, Any] = {"error": _error(outcome)}
    match outcome:
        case str():
            row["path_created"] = outcome
        case Stat():
            row |= {
                "stat_czxid": outcome.czxid,
                "stat_mzxid": outcome.mzxid,
                "stat_pzxid": outcome.pzxid,
                "stat_version": outcome.version,
                "stat_cversion": outcome.cversion,
                "stat_dataLength": outcome.data_length,
                "stat_numChildren": outcome.num_children,
            }
        case list():
            row["children"] = outcome
    return row


class _Undone(CoordinationError):
    """An operation of a multi after the one that failed."""


def _error(outcome: Outcome) -> str:
    if not isinstance(outcome, Failure):
        return "ZOK"
    return _ERRORS.get(outcome.error, "ZRUNTIMEINCONSISTENCY" if outcome.error is _Undone else "ZSYSTEMERROR")


ZOOKEEPER_LOG = SystemTable(_COLUMNS, _rows)
