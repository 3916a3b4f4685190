"""Where in a table's znodes a path lies."""

from __future__ import annotations

from replica.errors import ClickHouseError
from replica.log_entry import LogEntry
from replica.znodes import TableZnodes


def place(table: TableZnodes, path: str) -> list[str]:
    """The pieces of a path below the table's, none for other paths: `["replicas", "r1", "queue", "queue-…"]`."""
    return path[len(table.root) + 1 :].split("/") if path.startswith(f"{table.root}/") else []


def entry_of(data: bytes | None) -> LogEntry | None:
    """The log entry that a znode holds, None if it is none that can be read."""
    try:
        return LogEntry.parse((data or b"").decode(), znode_ctime_ms=0)
    except (ClickHouseError, UnicodeDecodeError):
        return None
