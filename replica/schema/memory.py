"""Columns of numbers as ClickHouse holds them in memory: fixed-width and little-endian, a byte map of NULLs beside.

Arithmetic is defined on these values. (What all columns are in memory, `DataType.stream` says.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from replica.schema.types import DataType
from replica.schema.types.data_type import null_map
from replica.schema.types.numbers import Numeric

__all__ = ["dtype", "from_stored", "is_numeric", "null_map", "stored_values"]


def is_numeric(data_type: DataType) -> bool:
    """Whether its values are numbers to numpy."""
    return isinstance(data_type.value_type, Numeric)


def dtype(data_type: DataType) -> np.dtype[Any]:
    """The numpy type of a numeric type's values in memory."""
    found = data_type.dtype
    assert found is not None, f"{data_type} is numeric"
    return found


def stored_values(array: pa.Array, data_type: DataType) -> np.ndarray:
    """The values of a numeric column in memory; zero under NULL. Shares the array's buffer where it can."""
    numeric = _numeric(data_type)
    return numeric.stored(numeric.filled(array))


def from_stored(values: np.ndarray, nulls: np.ndarray | None, data_type: DataType) -> pa.Array:
    """The Arrow array of values in memory; NULL where `nulls` is set."""
    return _numeric(data_type).from_stored(values, nulls)


def _numeric(data_type: DataType) -> Numeric:
    numeric = data_type.value_type
    assert isinstance(numeric, Numeric), f"{data_type} is numeric"
    return numeric
