"""Variant: values of one type or another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.schema.types.containers import converted
from replica.schema.types.data_type import Conversion, DataType, Kind, null_map, rows_of_width


@dataclass(frozen=True)
class Variant(DataType):
    """A value of one of the alternatives, which are in the order of their names, or NULL. In Arrow a struct with one
    field an alternative, named by its type; at most one of them is there."""

    alternatives: tuple[DataType, ...]

    @property
    def base(self) -> str:
        return f"Variant({', '.join(map(str, self.alternatives))})"

    @property
    def text(self) -> str:
        return self.base

    @property
    def kind(self) -> Kind:
        return Kind.VARIANT

    @cached_property
    def _fields(self) -> list[pa.Field]:
        return [pa.field(each.text, each.arrow) for each in self.alternatives]

    @cached_property
    def arrow(self) -> pa.DataType:
        return pa.struct(self._fields)

    @property
    def arrow_is_exact(self) -> bool:
        return False

    @property
    def nested(self) -> tuple[DataType, ...]:
        return self.alternatives

    @property
    def can_be_nullable(self) -> bool:
        return False

    def stream(self, values: pa.Array) -> Iterator[np.ndarray]:
        yield from self.contents(values)

    def contents(self, values: pa.Array) -> Iterator[np.ndarray]:
        """For each row the number of its alternative, 255 for NULL, then the values of each alternative."""
        columns = values.flatten()
        yield self._discriminators(columns, len(values))
        for alternative, column in zip(self.alternatives, columns, strict=True):
            yield from alternative.stream(column.drop_null())

    def _discriminators(self, columns: list[pa.Array], rows: int) -> np.ndarray:
        numbers = np.full(rows, 255, np.uint8)
        for number, column in enumerate(columns):
            numbers[null_map(column) == 0] = number
        return numbers

    def rows(self, values: pa.Array) -> pa.Array:
        return self.own_rows(values)

    def own_rows(self, values: pa.Array) -> pa.Array:
        columns = values.flatten()
        numbers = rows_of_width(self._discriminators(columns, len(values)), 1)
        given = [
            pc.if_else(pc.is_null(column), pa.scalar(None, pa.large_binary()), each.rows(column))
            for each, column in zip(self.alternatives, columns, strict=True)
        ]
        nothing = pa.scalar(b"", pa.large_binary())
        return pc.binary_join_element_wise(numbers, pc.coalesce(*given, nothing), nothing)

    def conversion(self, source: pa.DataType) -> Conversion | None:
        if not pa.types.is_struct(source):
            return None
        found = [source.field(index).name for index in range(source.num_fields)]
        if not set(found) <= {each.text for each in self.alternatives}:
            return None

        def alternatives(values: pa.Array) -> pa.Array:
            given = dict(zip(found, values.flatten(), strict=True))
            nothing = pa.nulls(len(values))
            columns = [converted(given.get(each.text, nothing), each) for each in self.alternatives]
            if any(np.sum([null_map(column) == 0 for column in columns], axis=0) > 1):
                raise ValueError("two alternatives at once")
            return pa.StructArray.from_arrays(columns, fields=self._fields, mask=self._is_null(columns))

        return alternatives

    def _is_null(self, columns: list[pa.Array]) -> pa.Array:
        return pa.array(np.all([null_map(column) == 1 for column in columns], axis=0))

    def readable(self, values: pa.Array) -> pa.Array:
        """The text of each value."""
        shown = [each.readable(column) for each, column in zip(self.alternatives, values.flatten(), strict=True)]
        rows = zip(*(column.to_pylist() for column in shown), strict=True)
        return pa.array([next((str(item) for item in row if item is not None), None) for row in rows], pa.string())
