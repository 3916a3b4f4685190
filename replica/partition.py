"""Partitions: the id of each row's (`MergeTreePartition::getID`), and a block cut into its partitions."""

from __future__ import annotations

import datetime
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.dedup.siphash import siphash128
from replica.errors import BadArguments
from replica.expression.compile import compile_node
from replica.expression.key import Key, compile_partition_key
from replica.expression.syntax import Node, parse_list
from replica.expression.vector import Vector
from replica.schema.conform import conform
from replica.schema.table import Column, TableSchema
from replica.schema.types import DataType, Kind

UNPARTITIONED = "all"

_ID = re.compile(r"[0-9A-Za-z-]+", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_DAY = re.compile(r"[0-9]{8}", re.ASCII)
_EPOCH = datetime.date(1970, 1, 1)

# The tags under which values of other types than whole numbers enter a hashed id (`FieldVisitorHash`).
_NULL, _UNSIGNED, _SIGNED, _FLOAT, _STRING = b"\x00", b"\x01", b"\x02", b"\x03", b"\x10"


def check_partition_id(text: str) -> str:
    """The text, if it can be a partition id at all; BadArguments if not. Ids from outside become names of files."""
    if not _ID.fullmatch(text):
        raise BadArguments(f"{text!r} is not a partition id: those have only digits, ASCII letters and hyphens.")
    return text


def partition_id(values: Sequence[tuple[DataType, Any]]) -> str:
    """The id of the partition with these key values: integers as in memory, bytes for a String, None for NULL."""
    if not values:
        return UNPARTITIONED
    texts = [_text(data_type, value) for data_type, value in values]
    if None not in texts:
        return "-".join(text for text in texts if text is not None)
    first, second = siphash128(b"".join(_tagged(data_type, value) for data_type, value in values))
    return struct.pack("<QQ", first, second).hex()


def _text(data_type: DataType, value: Any) -> str | None:
    """What stands for the value in an id made of whole numbers; None when there can be no such id."""
    if value is None or data_type.kind in (Kind.STRING, Kind.FLOAT):
        return None
    if data_type.kind is Kind.DATE:
        return f"{_EPOCH + datetime.timedelta(days=int(value)):%Y%m%d}"
    return str(int(value))


def _tagged(data_type: DataType, value: Any) -> bytes:
    if value is None:
        return _NULL
    if data_type.kind is Kind.STRING:
        return _STRING + struct.pack("<Q", len(value)) + bytes(value)
    if data_type.kind is Kind.FLOAT:
        return _FLOAT + struct.pack("<d", value)
    if data_type.kind is Kind.SIGNED:
        return _SIGNED + struct.pack("<q", value)
    return _UNSIGNED + struct.pack("<Q", value)


@dataclass(frozen=True)
class PartitionKey:
    """The PARTITION BY of a table. `key` comes from `compile_partition_key`."""

    key: Key

    @classmethod
    def compile(cls, text: str, schema: TableSchema) -> PartitionKey:
        """The partition key of a ClickHouse text; raises what `compile_partition_key` raises."""
        return cls(compile_partition_key(text, schema))

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
        columns = [_KeyColumn(expression.compute(block), block.num_rows) for expression in self.key.expressions]
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

    def __init__(self, vector: Vector, rows: int) -> None:
        self._type = vector.type
        self._values = vector.values if self._type.kind is Kind.STRING else np.broadcast_to(vector.values, rows)
        self._nulls = None if vector.nulls is None else np.broadcast_to(vector.nulls, rows)

    def codes(self) -> np.ndarray:
        """A number for each row, equal for equal values; floats count as their bits."""
        if self._type.kind is Kind.STRING:
            codes = pc.dictionary_encode(self._values).indices.to_numpy(zero_copy_only=True).astype(np.int64)
        elif self._type.kind is Kind.FLOAT:
            codes = _numbered(np.ascontiguousarray(self._values).view(f"u{self._type.width}"))
        else:
            codes = _numbered(self._values)
        return codes if self._nulls is None else np.where(self._nulls, 0, codes + 1)

    def element(self, row: int) -> tuple[DataType, Any]:
        """Type and value of one row."""
        if self._nulls is not None and self._nulls[row]:
            return self._type, None
        value = self._values[row]
        return self._type, value.as_py() if isinstance(value, pa.Scalar) else value.item()
