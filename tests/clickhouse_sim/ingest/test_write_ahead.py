"""A SQLite file that several open at the same moment."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

import pytest

from clickhouse_sim.ingest.write_ahead import use_write_ahead_log


def test_the_switch_waits_while_another_holds_the_file(tmp_path: Path) -> None:
    file = tmp_path / "x.sqlite"
    holder = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    holder.execute("CREATE TABLE t (x)")
    holder.execute("BEGIN EXCLUSIVE")
    waiting = sqlite3.connect(file, timeout=0, isolation_level=None)
    letting_go = threading.Timer(0.2, lambda: holder.execute("COMMIT"))
    letting_go.start()
    use_write_ahead_log(waiting, 20)
    letting_go.join()
    assert waiting.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_the_switch_gives_up_in_the_end(tmp_path: Path) -> None:
    file = tmp_path / "x.sqlite"
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("CREATE TABLE t (x)")
    holder.execute("BEGIN EXCLUSIVE")
    began = time.monotonic()
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        use_write_ahead_log(sqlite3.connect(file, timeout=0), 0.1)
    assert time.monotonic() - began >= 0.1
