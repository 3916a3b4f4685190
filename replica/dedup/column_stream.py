"""The bytes of a column that are hashed for deduplication and summed up in a part's checksum: its values as
ClickHouse holds them in memory, whatever their Arrow representation and wherever it is cut into chunks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.schema.memory import null_map, plain, stored_values
from replica.schema.types import DataType, Kind


def column_stream(values: pa.Array | pa.ChunkedArray, data_type: DataType) -> Iterator[np.ndarray]:
    """The stream, as contiguous buffers in order.

    Fixed-width values back to back. Strings: the characters of all rows, then for each row the offset of its end,
    u64. Of a Nullable, what its type gives with zero or empty under NULL, then a byte a row: 1 is NULL.
    """
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    if data_type.kind is Kind.STRING:
        yield from _strings(chunks, data_type)
    else:
        for chunk in chunks:
            yield stored_values(_as_declared(chunk, data_type), data_type)
    if data_type.nullable:
        for chunk in chunks:
            yield null_map(plain(chunk))


def _strings(chunks: list[pa.Array], data_type: DataType) -> Iterator[np.ndarray]:
    ends: list[np.ndarray] = []
    length = 0
    for chunk in chunks:
        offsets, characters = _offsets_and_characters(_as_declared(chunk, data_type))
        yield characters
        ends.append(offsets[1:] - offsets[0] + length)
        length += characters.nbytes
    yield from ends


def _offsets_and_characters(strings: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Where each string begins, and the last one ends, in the buffer; the characters from the first to the last."""
    if strings.null_count:
        # The buffer may hold characters under a NULL; filled, it does not.
        strings = pc.fill_null(strings, b"")
    if len(strings) == 0:
        return np.zeros(1, "<i8"), np.zeros(0, np.uint8)
    _, offset_buffer, character_buffer = strings.buffers()
    offsets = np.frombuffer(offset_buffer, "<i8", len(strings) + 1, strings.offset * 8)
    length = int(offsets[-1] - offsets[0])
    if length == 0:
        return offsets, np.zeros(0, np.uint8)
    return offsets, np.frombuffer(character_buffer, np.uint8, length, int(offsets[0]))


def _as_declared(chunk: pa.Array, data_type: DataType) -> pa.Array:
    """The chunk as the Arrow type that the column's own type declares."""
    chunk = plain(chunk)
    return chunk if chunk.type == data_type.arrow else pc.cast(chunk, data_type.arrow)
