"""Columns as ClickHouse holds them in memory: fixed-width little-endian numbers, a byte map of NULLs beside them.

Hashing, arithmetic and partition ids are defined on these values, so all three read columns through here.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.schema.types import DataType, Kind

_LETTERS = {
    Kind.UNSIGNED: "u",
    Kind.SIGNED: "i",
    Kind.FLOAT: "f",
    Kind.BOOL: "u",
    Kind.DATE: "u",
    Kind.DATETIME: "u",
    Kind.NOTHING: "u",
}


def plain(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The same values without a dictionary or run-end encoding around them."""
    if pa.types.is_dictionary(values.type):
        return plain(pc.cast(values, values.type.value_type))
    if pa.types.is_run_end_encoded(values.type):
        if isinstance(values, pa.ChunkedArray):
            decoded = [pc.run_end_decode(chunk) for chunk in values.chunks]
            return plain(pa.chunked_array(decoded, values.type.value_type))
        return plain(pc.run_end_decode(values))
    return values


def dtype(data_type: DataType) -> np.dtype[np.generic]:
    """The numpy type of a fixed-width type's values in memory."""
    return np.dtype(f"<{_LETTERS[data_type.kind]}{data_type.width}")


def stored_values(array: pa.Array, data_type: DataType) -> np.ndarray:
    """The values of a fixed-width column in memory; zero under NULL. Shares the array's buffer where it can."""
    if array.null_count:
        array = pc.fill_null(array, data_type.with_nullable(False).default)
    if data_type.kind is Kind.BOOL:
        array = pc.cast(array, pa.uint8())
    elif data_type.kind is Kind.DATE:
        array = array.view(pa.int32())
    elif data_type.kind is Kind.DATETIME:
        array = array.view(pa.int64())
    values: np.ndarray = array.to_numpy(zero_copy_only=True)
    return values.astype(dtype(data_type), copy=False)


def null_map(array: pa.Array) -> np.ndarray:
    """One byte a row: 1 where the value is NULL."""
    nulls: np.ndarray = pc.cast(pc.is_null(array), pa.uint8()).to_numpy(zero_copy_only=True)
    return nulls


def from_stored(values: np.ndarray, nulls: np.ndarray | None, data_type: DataType) -> pa.Array:
    """The Arrow array of values in memory; NULL where `nulls` is set."""
    mask = None if nulls is None else nulls.astype(bool)
    if data_type.kind is Kind.BOOL:
        return pa.array(values.astype(bool), mask=mask)
    if data_type.kind is Kind.DATE:
        return pa.array(values.astype(np.int32), mask=mask).view(data_type.arrow)
    if data_type.kind is Kind.DATETIME:
        return pa.array(values.astype(np.int64), mask=mask).view(data_type.arrow)
    return pa.array(values.astype(dtype(data_type), copy=False), mask=mask)
