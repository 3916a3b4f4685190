"""The rows of a merged part.

Equal input gives equal output on every replica: nothing here depends on anything but the rows, their order and the
sorting key. Source of the rules: ClickHouse's `MergingSortedAlgorithm`, `MergeTask`, `DistinctSortedTransform`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.expression.key import Key, sort_block
from replica.quoting import backquote_if_needed


def merge_rows(
    tables: Sequence[pa.Table], key: Key, deduplicate: bool = False, deduplicate_by: tuple[str, ...] = ()
) -> pa.Table:
    """The rows of the source parts in the key's order, in the schema that all the tables have.

    `tables` come in the order of the parts' blocks; of rows with equal keys, those of the earlier part come first, in
    the order that they have there. `deduplicate` keeps the first of rows that are equal in all columns or, if there
    are any, in those of `deduplicate_by`, wherever the others stand. Floats of a key's column are equal if the order
    holds them to be, others only in every bit.
    """
    rows = sort_block(pa.concat_tables(tables), key)
    if not deduplicate:
        return rows
    return _first_of_equal(rows, deduplicate_by or tuple(rows.column_names), key)


def _first_of_equal(rows: pa.Table, names: Sequence[str], key: Key) -> pa.Table:
    in_key = [expression.text for expression in key.expressions]
    columns = [_comparable(rows[name], backquote_if_needed(name) in in_key) for name in names]
    positions = [str(position) for position in range(len(columns))]
    numbered = pa.table([*columns, pa.array(np.arange(rows.num_rows))], names=[*positions, "row"])
    firsts = numbered.group_by(positions, use_threads=False).aggregate([("row", "min")])["row_min"]
    return rows.take(pa.array(np.sort(firsts.to_numpy())))


def _comparable(column: pa.ChunkedArray, in_key: bool) -> pa.ChunkedArray:
    """The column as Arrow can group by it."""
    if pa.types.is_nested(column.type):
        return _by_value(column)
    return _by_order(column) if in_key else column


def _by_value(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """One text for all rows that are equal in every bit; NULLs are equal to each other."""
    return pa.chunked_array([pa.array([repr(value) for value in column.to_pylist()], pa.large_string())])


def _by_order(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with one bit pattern for all values that the order holds to be equal: zeros, and NaNs."""
    if not pa.types.is_floating(column.type):
        return column
    zero, nan = pa.scalar(0.0, column.type), pa.scalar(float("nan"), column.type)
    return pc.if_else(pc.is_nan(column), nan, pc.if_else(pc.equal(column, zero), zero, column))
