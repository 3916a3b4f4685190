"""The table that all pairs get, and the rows that go into it: the same for everybody, each key once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

COLUMNS = (("d", "Date"), ("k", "UInt64"), ("s", "String"))
PARTITION_BY = "toYYYYMM(d)"
ORDER_BY = "k"

_DAY = 20_000  # all rows are in one partition
_TEXT_BYTES = 16
_ROW_BINARY = np.dtype([("d", "<u2"), ("k", "<u8"), ("length", "u1"), ("s", f"S{_TEXT_BYTES}")])


@dataclass(frozen=True)
class Block:
    """`rows` rows with ascending keys from `first_key` on."""

    first_key: int
    rows: int

    @cached_property
    def keys(self) -> np.ndarray:
        return np.arange(self.first_key, self.first_key + self.rows, dtype=np.uint64)

    @cached_property
    def texts(self) -> np.ndarray:
        return np.char.zfill(self.keys.astype(f"S{_TEXT_BYTES}"), _TEXT_BYTES)

    @cached_property
    def row_binary(self) -> bytes:
        """ClickHouse's RowBinary."""
        rows = np.empty(self.rows, _ROW_BINARY)
        rows["d"], rows["k"], rows["length"], rows["s"] = _DAY, self.keys, _TEXT_BYTES, self.texts
        return rows.tobytes()

    @cached_property
    def arrow(self) -> pa.RecordBatch:
        days = pa.array(np.full(self.rows, _DAY, np.int32)).cast(pa.date32())
        texts = pa.array(self.texts.tolist(), pa.large_binary())
        return pa.record_batch([days, pa.array(self.keys), texts], names=["d", "k", "s"])
