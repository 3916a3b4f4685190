"""A stream of rows cut into blocks of a given number of rows, however the source was chunked."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import pyarrow as pa

MAX_INSERT_BLOCK_SIZE = 1_048_449
"""ClickHouse's `max_insert_block_size`: the rows of a block where nothing else is said."""


def cut(batches: Iterable[pa.RecordBatch], block_rows: int) -> Iterator[pa.Table]:
    """Tables of exactly `block_rows` rows, the last one of what is left (none of no rows)."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        while rows >= block_rows:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, block_rows)
            waiting = table.slice(block_rows).to_batches()
            rows -= block_rows
    if rows:
        yield pa.Table.from_batches(waiting)


def seekable(source: BinaryIO) -> BinaryIO:
    """The source, read into memory when it is a pipe: some formats begin at their end."""
    return source if source.seekable() else io.BytesIO(source.read())
