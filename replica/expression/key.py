"""Keys: the lists of expressions behind ORDER BY, PRIMARY KEY and PARTITION BY, and the order of rows by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from replica.errors import BadArguments, DataTypeCannotBeUsedInKey, IllegalColumn, NotImplementedInModel
from replica.expression.compile import Expression, Modulo, compile_node
from replica.expression.order import sort_columns
from replica.expression.syntax import parse_list
from replica.quoting import backquote_if_needed
from replica.schema.table import TableSchema
from replica.schema.types import DataType, Kind
from replica.schema.types.wrappers import SimpleAggregateFunction


@dataclass(frozen=True)
class Key:
    """A list of expressions, perhaps none."""

    expressions: tuple[Expression, ...]

    @cached_property
    def text(self) -> str:
        """The key as the `metadata` znode has it: `` id % 4, `odd name` ``; empty for an empty key."""
        return ", ".join(expression.text for expression in self.expressions)

    def __bool__(self) -> bool:
        return bool(self.expressions)


def compile_key(text: str, schema: TableSchema, allow_nullable_key: bool = False) -> Key:
    """The sorting or primary key of a text: `a`, `(a, b)`, `tuple()`, empty, or as `Key.text` gives it.

    Raises IllegalColumn for a constant, or a Nullable that is not allowed; DataTypeCannotBeUsedInKey for a Variant
    or a SimpleAggregateFunction; BadArguments for an expression that comes twice; and what `compile_expression`
    raises.
    """
    key = Key(tuple(compile_node(node, schema) for node in parse_list(text)))
    _refuse_constants(key, "Sorting key")
    _refuse_variants(key)
    _refuse_aggregates(key, schema)
    _refuse_nullable(key, "Sorting key", allow_nullable_key)
    texts = [expression.text for expression in key.expressions]
    for position, each in enumerate(texts):
        if each in texts[:position]:
            raise BadArguments(f"Sorting key contains a duplicate expression: {each}.")
    return key


def compile_partition_key(
    text: str,
    schema: TableSchema,
    allow_nullable_key: bool = False,
    allow_floating_point_partition_key: bool = False,
) -> Key:
    """The partition key of a text, whose `%` is ClickHouse's `moduloLegacy`.

    Raises IllegalColumn for a constant, or a Nullable that is not allowed; DataTypeCannotBeUsedInKey for a Variant;
    BadArguments for a float that is not allowed; NotImplementedInModel for a Nullable(IPv4); and
    what `compile_expression` raises.
    """
    key = Key(tuple(compile_node(node, schema, Modulo.LEGACY) for node in parse_list(text)))
    _refuse_constants(key, "Partition key")
    _refuse_variants(key)
    _refuse_nullable(key, "Partition key", allow_nullable_key)
    for expression in key.expressions:
        if expression.type.kind in (Kind.FLOAT, Kind.BFLOAT) and not allow_floating_point_partition_key:
            raise BadArguments(f"Floating point partition key is not supported: {expression.text}.")
        if expression.type.kind is Kind.IPV4 and expression.type.nullable:
            # ClickHouse's ids have quotes and dots then: '1.2.3.4'.
            raise NotImplementedInModel(f"The model has no partitions by {expression.type}: {expression.text}.")
    return key


def check_primary_key(primary: Key, sorting: Key) -> None:
    """Raises BadArguments unless the primary key is a prefix of the sorting key."""
    if len(primary.expressions) > len(sorting.expressions):
        raise BadArguments(
            f"Primary key must be a prefix of the sorting key, but its length: {len(primary.expressions)}"
            f" is greater than the sorting key length: {len(sorting.expressions)}."
        )
    for position, (mine, its) in enumerate(zip(primary.expressions, sorting.expressions, strict=False)):
        if mine.text != its.text:
            raise BadArguments(
                "Primary key must be a prefix of the sorting key,"
                f" but the column in the position {position} is {its.text}, not {mine.text}."
            )


def sort_block(block: pa.Table, key: Key) -> pa.Table:
    """The rows in the key's order; rows with equal keys stay in their order.

    The order is ClickHouse's: see `sort_columns`.
    """
    if not key or block.num_rows < 2:
        return block
    columns = [
        column
        for expression in key.expressions
        for column in sort_columns(expression.evaluate(block), expression.type)
    ]
    names = [str(position) for position in range(len(columns))]
    keys = pa.table(columns, names=names)
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending", "at_end") for name in names])
    return block.take(order)


def _refuse_constants(key: Key, what: str) -> None:
    for expression in key.expressions:
        if expression.constant:
            raise IllegalColumn(f"{what} cannot contain constants, but has {expression.text}.")


def _refuse_variants(key: Key) -> None:
    for expression in key.expressions:
        if _contains(expression.type, lambda data_type: data_type.kind is Kind.VARIANT):
            raise DataTypeCannotBeUsedInKey(f"A Variant is not allowed in a key: {expression.text}.")


def _refuse_aggregates(key: Key, schema: TableSchema) -> None:
    aggregates = [backquote_if_needed(each.name) for each in schema.columns if _is_aggregate(each.type)]
    for expression in key.expressions:
        if expression.text in aggregates:
            raise DataTypeCannotBeUsedInKey(f"A SimpleAggregateFunction is not allowed in a key: {expression.text}.")


def _is_aggregate(data_type: DataType) -> bool:
    return isinstance(data_type, SimpleAggregateFunction)


def _contains(data_type: DataType, is_wanted: Callable[[DataType], bool]) -> bool:
    return is_wanted(data_type) or any(_contains(each, is_wanted) for each in data_type.nested)


def _refuse_nullable(key: Key, what: str, allowed: bool) -> None:
    for expression in key.expressions:
        if not allowed and _contains(expression.type, lambda data_type: data_type.nullable):
            raise IllegalColumn(
                f"{what} contains nullable columns, but merge tree setting `allow_nullable_key` is disabled:"
                f" {expression.text} is {expression.type}."
            )
