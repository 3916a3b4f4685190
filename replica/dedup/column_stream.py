"""The bytes of a column: what block ids and the checksums of parts are made of. They are the column's values as
ClickHouse holds them in memory, whatever their Arrow representation and wherever it is cut into chunks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from replica.schema.types import DataType, converted


def column_stream(values: pa.Array | pa.ChunkedArray, data_type: DataType) -> Iterator[np.ndarray]:
    """The stream, in pieces as `SipHash128.update` takes them; what they hold, each type says in its `contents`.

    A dictionary or run ends of Arrow are only a representation; to be a LowCardinality is a matter of the type.
    """
    yield from data_type.stream(_whole(values, data_type))


def _whole(values: pa.Array | pa.ChunkedArray, data_type: DataType) -> pa.Array:
    """The column as one array of the Arrow type that its own type declares."""
    if isinstance(values, pa.ChunkedArray):
        chunks = [_as_declared(chunk, data_type) for chunk in values.chunks]
        return chunks[0] if len(chunks) == 1 else pa.chunked_array(chunks, data_type.arrow).combine_chunks()
    return _as_declared(values, data_type)


def _as_declared(values: pa.Array, data_type: DataType) -> pa.Array:
    return values if values.type == data_type.arrow else converted(values, data_type)
