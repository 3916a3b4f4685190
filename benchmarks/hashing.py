"""The 128-bit block hash, beside siphash24's 64-bit digest and ClickHouse's own `sipHash128` of the same bytes."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from typing import Any

import siphash24

from benchmarks.processes import NotMeasured
from benchmarks.report import Row, compared, in_turns
from replica.dedup.siphash import siphash128

_BYTES = bytes(range(256))
_REPEATS = 1 << 16
_MEGABYTE = 1 << 20


def hashing() -> list[Row]:
    data = _BYTES * _REPEATS
    ours, siphash = in_turns((lambda: siphash128(data), lambda: siphash24.siphash24(data, key=bytes(16)).digest()))
    rows = [_row("siphash24 (C, 64 bits)", len(data), ours, siphash)]
    if importlib.util.find_spec("chdb") is None:
        return [*rows, Row("block hash, 16 MiB", "", "chdb is not installed here: pip install chdb")]
    with tempfile.TemporaryDirectory(prefix="chsim-bench-") as folder:
        engine_hash = _engine_hash(folder)
        if engine_hash() != b"".join(half.to_bytes(8, "little") for half in siphash128(data)).hex().upper():
            raise NotMeasured("the real engine hashes the same bytes to something else")
        ours, engine = in_turns((lambda: siphash128(data), engine_hash))
    return [*rows, _row("sipHash128 of chdb, one query", len(data), ours, engine)]


def _row(beside: str, size: int, ours: float, theirs: float) -> Row:
    megabytes = size / _MEGABYTE
    return compared("block hash, 16 MiB", megabytes / ours, beside, megabytes / theirs, "{:,.0f} MB/s", True)


def _engine_hash(folder: str) -> Callable[[], str]:
    """A query that hashes the same bytes with the real engine; what else the query costs is a few percent of it."""
    from chdb import session

    engine: Any = session.Session(folder)
    engine.query("CREATE DATABASE b")
    engine.query("CREATE TABLE b.t (s String) ENGINE = Memory")
    engine.query(f"INSERT INTO b.t SELECT repeat(unhex('{_BYTES.hex()}'), {_REPEATS})")
    return lambda: str(engine.query("SELECT hex(sipHash128(s)) FROM b.t", "TSV")).strip()
