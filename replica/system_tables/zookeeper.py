"""system.zookeeper: the znodes below the paths that the query names, read as it is asked.

ClickHouse: StorageSystemZooKeeper.cpp. That expands no macros; here those of the asked server are filled in, so
that one query works on every shard. The column `path` shows the path as the query has it.
"""

from __future__ import annotations

from coordinator.api import CoordinationError, NoNode, Stat
from replica.errors import BadArguments, KeeperException
from replica.macros import expanded_where_known
from replica.session import ServerSession
from replica.system_tables.asked import Asked, SystemTable
from replica.system_tables.columns import Columns, Row

_COLUMNS = Columns.parse("""
    name String
    value String
    czxid Int64
    mzxid Int64
    ctime DateTime
    mtime DateTime
    version Int32
    cversion Int32
    aversion Int32
    ephemeralOwner Int64
    dataLength Int32
    numChildren Int32
    pzxid Int64
    path String
""")


async def _rows(asked: Asked) -> list[Row]:
    if not asked.paths:
        raise BadArguments(
            "SELECT from system.zookeeper needs the paths to list in its WHERE: path = '/like/this' or path IN (…)"
        )
    session = asked.share.sessions.current
    if session is None:
        raise KeeperException("This server has no session with the coordination service at the moment")
    try:
        return [row for path in sorted(set(asked.paths)) for row in await _children(session, path, asked)]
    except CoordinationError as problem:
        raise KeeperException(f"The znodes could not be read: {problem}") from problem


async def _children(session: ServerSession, path: str, asked: Asked) -> list[Row]:
    """The children of one path, none if it does not exist."""
    root = "/" + expanded_where_known(path, asked.macros).strip("/")
    try:
        names = await session.children(root)
    except NoNode:
        return []
    found = await session.get_many([f"{root.rstrip('/')}/{name}" for name in names])
    return [_row(path, name, *each) for name, each in zip(names, found, strict=True) if each is not None]


def _row(path: str, name: str, value: bytes, stat: Stat) -> Row:
    return {
        "name": name,
        "value": value.decode("utf-8", "replace"),
        "czxid": stat.czxid,
        "mzxid": stat.mzxid,
        "ctime": stat.ctime // 1000,
        "mtime": stat.mtime // 1000,
        "version": stat.version,
        "cversion": stat.cversion,
        "aversion": stat.aversion,
        "ephemeralOwner": stat.ephemeral_owner,
        "dataLength": stat.data_length,
        "numChildren": stat.num_children,
        "pzxid": stat.pzxid,
        "path": path,
    }


ZOOKEEPER = SystemTable(_COLUMNS, _rows)
