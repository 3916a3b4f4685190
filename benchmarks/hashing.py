"""The 128-bit block hash, of bytes and of columns, beside siphash24's 64-bit digest and ClickHouse's own `sipHash128`
of the same bytes."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import siphash24

from benchmarks.processes import NotMeasured
from benchmarks.report import Row, compared, in_turns
from replica.dedup.column_stream import column_stream
from replica.dedup.siphash import SipHash128, gathered, siphash128
from replica.schema import parse_type

_BYTES = bytes(range(256))
_REPEATS = 1 << 16
_MEGABYTE = 1 << 20
_ROWS = 1 << 20


def hashing() -> list[Row]:
    data = _BYTES * _REPEATS
    ours, siphash = in_turns((lambda: siphash128(data), lambda: siphash24.siphash24(data, key=bytes(16)).digest()))
    rows = [_row("siphash24 (C, 64 bits)", len(data), ours, siphash)]
    rows += [_of_column(text, column) for text, column in _columns().items()]
    if importlib.util.find_spec("chdb") is None:
        return [*rows, Row("block hash, 16 MiB", "", "chdb is not installed here: pip install chdb")]
    with tempfile.TemporaryDirectory(prefix="chsim-bench-") as folder:
        engine_hash = _engine_hash(folder)
        if engine_hash() != b"".join(half.to_bytes(8, "little") for half in siphash128(data)).hex().upper():
            raise NotMeasured("the real engine hashes the same bytes to something else")
        ours, engine = in_turns((lambda: siphash128(data), engine_hash))
    return [*rows, _row("sipHash128 of chdb, one query", len(data), ours, engine)]


def _columns() -> dict[str, pa.Array]:
    """Columns by their types: as wide in Arrow as in ClickHouse, wider, with NULLs, of short strings, nested."""
    chance = np.random.default_rng(1)
    numbers = chance.integers(0, 2**31, _ROWS)
    words = pa.array([b"abcdefgh"[: number % 9] for number in range(_ROWS)], pa.large_binary())
    return {
        "UInt64": pa.array(numbers.astype(np.uint64)),
        "UInt8": pa.array(numbers.astype(np.uint8)),
        "DateTime": pa.array(numbers).cast(pa.timestamp("s", "UTC")),
        "Decimal(9, 2)": pa.array(numbers // 1000).cast(pa.decimal128(21, 2)).cast(pa.decimal128(9, 2)),
        "UUID": pa.array([chance.bytes(16) for _ in range(_ROWS // 4)], pa.binary(16)),
        "Nullable(UInt32)": pa.array(numbers.astype(np.uint32), mask=chance.random(_ROWS) < 0.1),
        "String": words,
        "LowCardinality(String)": words,
        "Array(UInt32)": pa.LargeListArray.from_arrays(np.arange(0, _ROWS + 1, 4), numbers.astype(np.uint32)),
    }


def _of_column(text: str, column: pa.Array) -> Row:
    data_type = parse_type(text)
    content = b"".join(gathered(piece).tobytes() for piece in column_stream(column, data_type))

    def hash_column() -> None:
        state = SipHash128()
        for piece in column_stream(column, data_type):
            state.update(piece)

    ours, siphash = in_turns((hash_column, lambda: siphash24.siphash24(content, key=bytes(16)).digest()))
    return _row("siphash24 (C, 64 bits)", len(content), ours, siphash, f"column of {text}")


def _row(beside: str, size: int, ours: float, theirs: float, what: str = "block hash, 16 MiB") -> Row:
    megabytes = size / _MEGABYTE
    return compared(what, megabytes / ours, beside, megabytes / theirs, "{:,.0f} MB/s", True)


def _engine_hash(folder: str) -> Callable[[], str]:
    """A query that hashes the same bytes with the real engine; what else the query costs is a few percent of it."""
    from chdb import session

    engine: Any = session.Session(folder)
    engine.query("CREATE DATABASE b")
    engine.query("CREATE TABLE b.t (s String) ENGINE = Memory")
    engine.query(f"INSERT INTO b.t SELECT repeat(unhex('{_BYTES.hex()}'), {_REPEATS})")
    return lambda: str(engine.query("SELECT hex(sipHash128(s)) FROM b.t", "TSV")).strip()
