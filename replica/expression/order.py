"""The order of values, as Arrow can sort by it: ClickHouse's, for every type that a key may have."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.schema.types import DataType, Kind
from replica.schema.types.containers import lengths, pairs_of
from replica.schema.types.data_type import fixed_bytes
from replica.schema.types.numbers import WideInteger


def sort_columns(values: pa.Array, data_type: DataType) -> list[pa.Array]:
    """The columns by which Arrow sorts the values, one after another.

    Strings are compared byte by byte, -0.0 is equal to 0.0, NaN comes after every number and NULL after NaN; a UUID
    counts by its second half first; a tuple by its elements; an array by its elements, a shorter one first.
    """
    data_type = data_type.value_type
    if isinstance(data_type, WideInteger):
        return [_with_nulls(_big_endian(data_type.filled(values), data_type), values)]
    if data_type.kind is Kind.UUID:
        halves = fixed_bytes(data_type.filled(values), 16).reshape(-1, 2, 8)[:, ::-1]
        return [_with_nulls(_fixed(halves, 16), values)]
    if data_type.kind is Kind.TUPLE:
        elements = zip(data_type.nested, values.flatten(), strict=True)
        columns = [column for element, own in elements for column in sort_columns(own, element)]
        return [pc.is_null(values), *columns] if data_type.nullable else columns
    if data_type.kind is Kind.ARRAY:
        return [_ranked_lists(_ranks([(values.flatten(), data_type.nested[0])]), lengths(values))]
    if data_type.kind is Kind.MAP:
        pairs = list(zip(pairs_of(values), data_type.nested, strict=True))
        return [_ranked_lists(_ranks(pairs), lengths(values))]
    return [values]


def _big_endian(values: pa.Array, data_type: WideInteger) -> pa.Array:
    """Bytes that are in the order of the numbers."""
    numbers = fixed_bytes(values, data_type.width).reshape(-1, data_type.width)[:, ::-1].copy()
    if data_type.signed:
        numbers[:, 0] ^= 0x80
    return _fixed(numbers, data_type.width)


def _fixed(content: np.ndarray, width: int) -> pa.Array:
    buffer = pa.py_buffer(np.ascontiguousarray(content))
    return pa.Array.from_buffers(pa.binary(width), content.size // width, [None, buffer])


def _with_nulls(ordered: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_null(values), pa.scalar(None, ordered.type), ordered) if values.null_count else ordered


def _ranks(columns: list[tuple[pa.Array, DataType]]) -> np.ndarray:
    """The place of each row among all, equal rows in the same."""
    combined = np.zeros(len(columns[0][0]), np.int64)
    for values, data_type in columns:
        for column in sort_columns(values, data_type):
            ranks = pc.rank(column, "ascending", tiebreaker="dense").to_numpy()
            combined = np.unique(combined * (len(combined) + 1) + ranks.astype(np.int64), return_inverse=True)[1]
    return combined


def _ranked_lists(elements: np.ndarray, lengths: np.ndarray) -> pa.Array:
    ends = np.cumsum(lengths)
    rows = [tuple(elements[end - length : end].tolist()) for end, length in zip(ends, lengths, strict=True)]
    places = {row: place for place, row in enumerate(sorted(set(rows)))}
    return pa.array([places[row] for row in rows], pa.int64())
