"""SQLite's write-ahead log, switched on for a file that several processes may open at the same moment."""

from __future__ import annotations

import sqlite3
import time

_SECONDS_BETWEEN_TRIES = 0.01


def use_write_ahead_log(connection: sqlite3.Connection, wait_seconds: float) -> None:
    """Switch the file to its write-ahead log, and try again while others hold it.

    SQLite's own busy timeout does not cover this switch: two that begin it at once are both refused. Raises
    sqlite3.OperationalError when the file is still held after `wait_seconds`.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            return
        except sqlite3.OperationalError as refusal:
            if refusal.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(_SECONDS_BETWEEN_TRIES)
