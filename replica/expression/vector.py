"""The values of one expression over the rows of a table, as the functions compute with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.schema.memory import from_stored, is_numeric, null_map, stored_values
from replica.schema.types import DataType, Kind, plain


@dataclass(frozen=True, slots=True)
class Vector:
    """Values of a type, one a row, or a single one that stands for every row.

    `values` are numbers as ClickHouse has them in memory (a numpy array, of no dimension when single); of types that
    are no numbers to numpy, Strings among them, an Arrow array or scalar. `nulls` marks the rows that are NULL; None
    when none is.
    """

    type: DataType
    values: Any
    nulls: np.ndarray | None = None

    @classmethod
    def of_column(cls, column: pa.ChunkedArray, data_type: DataType) -> Vector:
        """A column of a conformed block."""
        array = plain(column.combine_chunks())
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
        nulls = null_map(array).astype(bool) if array.null_count else None
        if is_numeric(data_type):
            return cls(data_type, stored_values(array, data_type), nulls)
        return cls(data_type, data_type.filled(array), nulls)

    @classmethod
    def of_scalar(cls, scalar: pa.Scalar, data_type: DataType) -> Vector:
        """One value for every row."""
        if data_type.kind is Kind.NOTHING:
            return cls(data_type, np.zeros((), np.uint8), np.ones((), bool))
        if not is_numeric(data_type):
            return cls(data_type, scalar)
        return cls(data_type, stored_values(pa.array([scalar.as_py()], data_type.arrow), data_type).reshape(()))

    def to_arrow(self, rows: int) -> pa.Array:
        """The Arrow array of that many rows."""
        nulls = None if self.nulls is None else np.broadcast_to(self.nulls, rows)
        if self.type.kind is Kind.NOTHING:
            return pa.nulls(rows)
        if is_numeric(self.type):
            return from_stored(np.broadcast_to(self.values, rows), nulls, self.type)
        array = pa.repeat(self.values, rows) if isinstance(self.values, pa.Scalar) else self.values
        return array if nulls is None else pc.if_else(pa.array(nulls), pa.scalar(None, array.type), array)


def any_null(vectors: tuple[Vector, ...]) -> np.ndarray | None:
    """Where at least one of the vectors is NULL."""
    maps = [vector.nulls for vector in vectors if vector.nulls is not None]
    if not maps:
        return None
    return np.asarray(np.logical_or.reduce(np.broadcast_arrays(*maps)))
