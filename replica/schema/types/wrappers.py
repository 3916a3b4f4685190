"""Types that are another one under a name of their own, or held in another way."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.schema.types.data_type import Conversion, DataType, Kind
from replica.schema.types.nested_text import NestedText


@dataclass(frozen=True)
class _Wrapper(DataType):
    """All that it does not say itself, the type inside says."""

    inner: DataType

    @property
    @abstractmethod
    def base(self) -> str: ...

    @property
    def kind(self) -> Kind:
        return self.inner.kind

    @property
    def arrow(self) -> pa.DataType:
        return self.inner.arrow

    @property
    def arrow_is_exact(self) -> bool:
        return self.inner.arrow_is_exact

    @property
    def width(self) -> int:
        return self.inner.width

    @property
    def dtype(self) -> np.dtype[Any] | None:
        return self.inner.dtype

    @property
    def zone(self) -> str:
        return self.inner.zone

    @property
    def value_type(self) -> DataType:
        return self.inner.value_type

    @property
    def nested(self) -> tuple[DataType, ...]:
        return (self.inner,)

    @property
    def zero(self) -> Any:
        return self.inner.zero

    @property
    def own_default(self) -> Any:
        return self.inner.own_default

    def stream(self, values: pa.Array) -> Iterator[np.ndarray]:
        return self.inner.stream(values)

    def contents(self, values: pa.Array) -> Iterator[np.ndarray]:
        return self.inner.contents(values)

    def rows(self, values: pa.Array) -> pa.Array:
        return self.inner.rows(values)

    def own_rows(self, values: pa.Array) -> pa.Array:
        return self.inner.own_rows(values)

    def filled(self, values: pa.Array) -> pa.Array:
        return self.inner.filled(values)

    def conversion(self, source: pa.DataType) -> Conversion | None:
        return self.inner.conversion(source)

    @property
    def text_shape(self) -> pa.DataType:
        return self.inner.text_shape

    def read(self, text: NestedText) -> Any:
        return self.inner.read(text)

    @property
    def default_text(self) -> Any:
        return self.inner.default_text

    def spells_another(self, text: str) -> bool:
        return self.inner.spells_another(text)

    @property
    def range_text(self) -> str:
        return self.inner.range_text

    def readable(self, values: pa.Array) -> pa.Array:
        return self.inner.readable(values)


@dataclass(frozen=True)
class Alias(_Wrapper):
    """A name for another type: Point, Ring, Nested(…). Nullable if the inner one is."""

    name: str

    @property
    def base(self) -> str:
        return self.name

    @property
    def can_be_nullable(self) -> bool:
        return self.inner.can_be_nullable

    def with_nullable(self, nullable: bool) -> Self:
        return replace(self, inner=self.inner.with_nullable(nullable), nullable=nullable)


@dataclass(frozen=True)
class SimpleAggregateFunction(_Wrapper):
    """The values of the inner type, which merges of some engines combine by the function."""

    function: str

    @property
    def base(self) -> str:
        return f"SimpleAggregateFunction({self.function}, {self.inner})"

    @property
    def text(self) -> str:
        return self.base

    @property
    def can_be_nullable(self) -> bool:
        return False


@dataclass(frozen=True)
class LowCardinality(_Wrapper):
    """The same values, which ClickHouse holds and hashes otherwise: row by row, as `rows` has them. A dictionary in
    Arrow is a representation and has nothing to do with it."""

    @property
    def base(self) -> str:
        return f"LowCardinality({self.inner})"

    @property
    def text(self) -> str:
        return self.base

    @property
    def can_be_nullable(self) -> bool:
        return False

    def stream(self, values: pa.Array) -> Iterator[np.ndarray]:
        rows = self._rows(values)
        offsets = np.frombuffer(rows.buffers()[1], "<i8", len(rows) + 1, rows.offset * 8)
        length = int(offsets[-1] - offsets[0])
        if length:
            yield np.frombuffer(rows.buffers()[2], np.uint8, length, int(offsets[0]))

    def _rows(self, values: pa.Array) -> pa.Array:
        """Of each different string once. (Numbers that are equal may differ in their bits.)"""
        if self.kind not in (Kind.STRING, Kind.FIXED_STRING):
            return self.inner.rows(values)
        encoded = pc.dictionary_encode(values, null_encoding="encode")
        return self.inner.rows(encoded.dictionary).take(encoded.indices)
