"""The columns that a block leaves out: from their DEFAULT expressions, or the default of their type."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.errors import CyclicAliases, ValueIsOutOfRangeOfDataType
from replica.expression.compile import Expression, compile_expression
from replica.expression.vector import Vector
from replica.schema.conform import conform
from replica.schema.memory import dtype
from replica.schema.table import Column, TableSchema
from replica.schema.types import DataType, Kind

# What a constant is tried on when a table is created.
_ONE_ROW = pa.table({"": [0]})


def complete(block: pa.Table, schema: TableSchema) -> pa.Table:
    """The conformed block with every column of the table, in the table's order.

    A DEFAULT may read any column, also one that is itself left out. Hash the block before: block ids are of the
    columns that the INSERT listed. Raises CyclicAliases when defaults need each other, and what their expressions
    and values raise.
    """
    expressions = _defaults(schema, left_out=[name for name in schema.names if name not in block.column_names])
    for name in _in_order_of_need(expressions):
        block = block.append_column(name, _default_values(block, schema.column(name), expressions[name]))
    return pa.table([block.column(name) for name in schema.names], schema=schema.arrow_schema)


def check_defaults(schema: TableSchema) -> TableSchema:
    """The schema with its DEFAULT expressions written as ClickHouse stores them.

    Raises, when the table is created, what an expression would raise at every INSERT.
    """
    expressions = _defaults(schema, left_out=list(schema.names))
    complete(pa.table([], names=[]), schema)
    for name, expression in expressions.items():
        if expression is not None and expression.constant:
            _default_values(_ONE_ROW, schema.column(name), expression)
    return TableSchema(tuple(_with_stored_text(each, expressions[each.name]) for each in schema.columns))


def _with_stored_text(column: Column, expression: Expression | None) -> Column:
    return column if expression is None else replace(column, default=expression.text)


def _defaults(schema: TableSchema, left_out: list[str]) -> dict[str, Expression | None]:
    """For each column that is left out its DEFAULT expression, None when it has none."""
    columns = (schema.column(name) for name in left_out)
    return {each.name: None if each.default is None else compile_expression(each.default, schema) for each in columns}


def _in_order_of_need(expressions: dict[str, Expression | None]) -> list[str]:
    """The names, each after those that its expression reads."""
    ordered: list[str] = []
    waiting = list(expressions)
    while waiting:
        ready = [name for name in waiting if not _needs(expressions[name]) & set(waiting)]
        if not ready:
            raise CyclicAliases(f"The DEFAULT expressions of the columns {', '.join(waiting)} need each other.")
        ordered += ready
        waiting = [name for name in waiting if name not in ready]
    return ordered


def _needs(expression: Expression | None) -> frozenset[str]:
    return frozenset() if expression is None else expression.columns


def _default_values(block: pa.Table, column: Column, expression: Expression | None) -> pa.ChunkedArray:
    if expression is None:
        # Arrow cannot repeat a list no times.
        repeated = [pa.repeat(column.type.default, block.num_rows)] if block.num_rows else []
        return pa.chunked_array(repeated, column.type.arrow)
    values = _converted(expression.compute(block), column, block.num_rows)
    return conform(pa.table({column.name: values}), TableSchema((column,))).column(0)


def _converted(vector: Vector, column: Column, rows: int) -> pa.Array:
    """The values as CAST makes them the column's: integers wrap around, floats lose their fraction."""
    target = column.type
    if not (_is_numeric(vector.type) and _is_numeric(target)) or target.kind is Kind.FLOAT:
        values = vector.to_arrow(rows)
        is_digits = vector.type.is_integer and target.kind is Kind.STRING
        return pc.cast(values, pa.large_string()) if is_digits else values
    numbers = vector.values
    if target.kind is Kind.BOOL:
        numbers = numbers != 0
    elif vector.type.kind is Kind.FLOAT:
        numbers = _whole(numbers, column)
    return Vector(target, numbers.astype(dtype(target)), vector.nulls).to_arrow(rows)


def _whole(numbers: np.ndarray, column: Column) -> np.ndarray:
    whole: np.ndarray = np.trunc(numbers)
    if not np.all((whole >= -(2.0**63)) & (whole < 2.0**63)):
        raise ValueIsOutOfRangeOfDataType(
            f"DEFAULT {column.default} of column {column.name!r} is not a number that {column.type} can hold."
        )
    return whole.astype(np.int64)


def _is_numeric(data_type: DataType) -> bool:
    return data_type.is_number or data_type.kind is Kind.BOOL
