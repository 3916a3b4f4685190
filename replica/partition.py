"""Partitions: the key of a table, and a block cut into its partitions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.errors import BadArguments
from replica.expression.compile import Expression, compile_node
from replica.expression.key import Key, compile_partition_key
from replica.expression.syntax import Node, parse_list
from replica.partition_id import UNPARTITIONED, partition_id
from replica.schema.conform import conform
from replica.schema.memory import is_numeric, null_map, stored_values
from replica.schema.table import Column, TableSchema
from replica.schema.types import DataType, Kind

_NUMBER = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_DAY = re.compile(r"[0-9]{8}", re.ASCII)


@dataclass(frozen=True)
class PartitionKey:
    """The PARTITION BY of a table. `key` comes from `compile_partition_key`."""

    key: Key

    @classmethod
    def compile(
        cls, text: str, schema: TableSchema, allow_nullable: bool = False, allow_floats: bool = False
    ) -> PartitionKey:
        """The partition key of a ClickHouse text; raises what `compile_partition_key` raises."""
        return cls(compile_partition_key(text, schema, allow_nullable, allow_floats))

    @property
    def text(self) -> str:
        """The key as the `metadata` znode has it."""
        return self.key.text

    def split(self, block: pa.Table) -> list[tuple[str, pa.Table]]:
        """The block's rows by partition id, in order of first appearance; inside, rows keep their order.

        The block must have the columns that the key reads.
        """
        numbers = self.row_numbers(block)
        if not numbers:
            return []
        pieces = _pieces(block, [rows for _, rows in numbers])
        return [(partition, rows) for (partition, _), rows in zip(numbers, pieces, strict=True)]

    def row_numbers(self, block: pa.Table) -> list[tuple[str, np.ndarray]]:
        """Which rows `split` gives to which partition, by their numbers in the block."""
        if block.num_rows == 0:
            return []
        if not self.key:
            return [(UNPARTITIONED, np.arange(block.num_rows))]
        columns = [_KeyColumn(expression, block) for expression in self.key.expressions]
        groups = _groups([column.codes() for column in columns])
        return [(partition_id([column.element(int(rows[0])) for column in columns]), rows) for rows in groups]

    def value_of(self, partition_id: str) -> str:
        """The value as `id_of` takes it, as far as the id tells it: no key, or one whole number or Date; else ""."""
        kinds = [expression.type.kind for expression in self.key.expressions]
        if not kinds:
            return "tuple()"
        if kinds == [Kind.DATE] and _DAY.fullmatch(partition_id):
            return f"{partition_id[:4]}-{partition_id[4:6]}-{partition_id[6:]}"
        is_number = kinds in ([Kind.UNSIGNED], [Kind.SIGNED]) and _NUMBER.fullmatch(partition_id)
        return partition_id if is_number else ""

    def id_of(self, text: str) -> str:
        """The id of the partition that a PARTITION clause names by value: `202401`, `(202401, 'a')`, `tuple()`.

        Raises BadArguments unless there is one constant for each element of the key, and what `conform` raises for a
        value that is not of its type.
        """
        constants = parse_list(text)
        expressions = self.key.expressions
        if len(constants) != len(expressions):
            raise BadArguments(
                f"PARTITION {text} has {len(constants)} values, the key ({self.text}) {len(expressions)}."
            )
        if not expressions:
            return UNPARTITIONED
        names = [f"value{position}" for position in range(len(expressions))]
        schema = TableSchema(
            tuple(Column(name, expression.type) for name, expression in zip(names, expressions, strict=True))
        )
        values = {name: _constant(node, schema) for name, node in zip(names, constants, strict=True)}
        ((partition, _),) = PartitionKey.compile(", ".join(names), schema).split(conform(pa.table(values), schema))
        return partition


def _constant(node: Node, schema: TableSchema) -> pa.Array:
    expression = compile_node(node, schema)
    if not expression.constant:
        raise BadArguments(f"PARTITION takes constants, and {expression.text} is none.")
    return expression.evaluate(pa.table({"": [None]}))


def _pieces(block: pa.Table, groups: list[np.ndarray]) -> Iterator[pa.Table]:
    """The rows of each group, as slices of one reordered block: far faster than as many small ones."""
    reordered = block if len(groups) == 1 else block.take(pa.array(np.concatenate(groups)))
    begin = 0
    for rows in groups:
        yield reordered.slice(begin, len(rows))
        begin += len(rows)


def _groups(codes: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The row numbers of each group of rows with equal codes, groups in order of first appearance."""
    combined = codes[0]
    for more in codes[1:]:
        combined = _numbered(combined * (int(more.max()) + 1) + more)
    combined = _numbered(combined)
    by_group = np.argsort(combined, kind="stable")
    groups = np.split(by_group, np.cumsum(np.bincount(combined))[:-1])
    return sorted(groups, key=lambda rows: int(rows[0]))


def _numbered(values: np.ndarray) -> np.ndarray:
    """Equal values as equal numbers, from 0 without gaps."""
    return np.asarray(np.unique(values, return_inverse=True)[1])


class _KeyColumn:
    """One element of the key over all rows of a block."""

    def __init__(self, expression: Expression, block: pa.Table) -> None:
        self._type = expression.type
        self._values = expression.evaluate(block)

    def codes(self) -> np.ndarray:
        """A number for each row, equal for values that are equal in every bit."""
        if is_numeric(self._type):
            numbers = stored_values(self._values, self._type)
            codes = _numbered(numbers.view(f"u{self._type.width}"))
            return np.where(null_map(self._values), 0, codes + 1) if self._values.null_count else codes
        rows = self._values if self._type.kind is Kind.STRING else self._type.rows(self._values)
        encoded = pc.dictionary_encode(rows, null_encoding="encode").indices
        return np.asarray(encoded.to_numpy(zero_copy_only=True).astype(np.int64))

    def element(self, row: int) -> tuple[DataType, pa.Array]:
        """Type and value of one row."""
        return self._type, self._values.slice(row, 1)
