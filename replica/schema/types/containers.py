"""Types that are made of others: arrays, tuples, maps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.errors import TypeMismatch
from replica.quoting import backquote_if_needed
from replica.schema.types.conversions import is_text, plain
from replica.schema.types.data_type import Conversion, DataType, Kind, null_map, with_length_before
from replica.schema.types.nested_text import NestedText


def converted(values: pa.Array, data_type: DataType) -> pa.Array:
    """Any Arrow representation of values as the type's own; NULLs stay.

    Raises TypeMismatch when such values never fit, ValueError or OverflowError when one of them does not.
    """
    values = plain(values)
    if values.type == data_type.arrow and data_type.arrow_is_exact:
        return values
    if pa.types.is_null(values.type):
        return pc.cast(values, data_type.arrow)
    convert = data_type.conversion(values.type)
    if convert is None:
        raise TypeMismatch(f"values of Arrow type {values.type} do not fit {data_type}")
    return convert(values)


def _converted_inside(values: pa.Array, data_type: DataType) -> pa.Array:
    if values.null_count and not data_type.nullable:
        raise ValueError(f"NULL in {data_type}")
    return converted(values, data_type)


class _Nesting(DataType):
    """A type whose text is parsed into the texts of its leaves first."""

    @property
    def arrow_is_exact(self) -> bool:
        return False

    def _from_text(self, values: pa.Array) -> pa.Array:
        given = pc.cast(values, pa.large_binary()).to_pylist()
        texts = pa.array([None if text is None else self._parsed(text) for text in given], self.text_shape)
        return converted(texts, self)

    def _parsed(self, text: bytes) -> Any:
        nested = NestedText(text)
        value = self.read(nested)
        nested.end()
        return value


@dataclass(frozen=True)
class Array(_Nesting):
    element: DataType

    @property
    def base(self) -> str:
        return f"Array({self.element})"

    @property
    def kind(self) -> Kind:
        return Kind.ARRAY

    @cached_property
    def arrow(self) -> pa.DataType:
        return pa.large_list(pa.field("item", self.element.arrow, self.element.nullable))

    @property
    def nested(self) -> tuple[DataType, ...]:
        return (self.element,)

    @property
    def can_be_nullable(self) -> bool:
        return False

    @property
    def zero(self) -> list[Any]:
        return []

    def filled(self, values: pa.Array) -> pa.Array:
        return self._of(lengths(values), values.flatten()) if values.null_count else values

    def contents(self, values: pa.Array) -> Iterator[np.ndarray]:
        """All elements, then for each row where its elements end, u64."""
        yield from self.element.stream(values.flatten())
        offsets = values.offsets.to_numpy(zero_copy_only=True)
        yield offsets[1:] - offsets[0] if len(values) and offsets[0] else offsets[1:]

    def own_rows(self, values: pa.Array) -> pa.Array:
        elements = self.element.rows(values.flatten())
        starts = np.concatenate([[0], np.cumsum(lengths(values))])
        offsets = np.frombuffer(elements.buffers()[1], "<i8", len(elements) + 1, elements.offset * 8)
        row_offsets = pa.py_buffer(np.ascontiguousarray(offsets[starts]))
        joined = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(values), [None, row_offsets, elements.buffers()[2]]
        )
        return with_length_before(joined)

    def conversion(self, source: pa.DataType) -> Conversion | None:
        if is_text(source):
            return self._from_text
        if _is_list(source):
            return lambda values: self._of(lengths(values), _converted_inside(values.flatten(), self.element))
        return None

    def _of(self, lengths: np.ndarray, elements: pa.Array) -> pa.Array:
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int64())
        return pa.LargeListArray.from_arrays(offsets, elements, type=self.arrow)

    @property
    def text_shape(self) -> pa.DataType:
        return pa.large_list(self.element.text_shape)

    @property
    def default_text(self) -> list[Any]:
        return []

    def read(self, text: NestedText) -> list[Any]:
        text.expect("[")
        elements: list[Any] = []
        while not text.take("]"):
            if elements:
                text.expect(",")
            elements.append(self.element.read(text))
        return elements

    def readable(self, values: pa.Array) -> pa.Array:
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths(values))]), pa.int64())
        return pa.LargeListArray.from_arrays(offsets, self.element.readable(values.flatten()))


def lengths(values: pa.Array) -> np.ndarray:
    """How many elements each list has; a NULL has none."""
    if pa.types.is_map(values.type):
        offsets = values.offsets.to_numpy()[: len(values) + 1]
        return np.where(null_map(values), 0, np.diff(offsets)).astype(np.int64)
    counted = pc.fill_null(pc.cast(pc.list_value_length(values), pa.int64()), 0)
    return np.asarray(counted.to_numpy(zero_copy_only=False))


def _distinct(*columns: pa.Array | np.ndarray) -> int:
    """How many different rows the columns have."""
    names = [str(place) for place in range(len(columns))]
    return int(pa.table(list(columns), names=names).group_by(names).aggregate([]).num_rows)


def pairs_of(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """All keys and all values of maps, or of lists of pairs."""
    if not pa.types.is_map(values.type):
        keys, items = values.flatten().flatten()
        return keys, items
    present = values.drop_null() if values.null_count else values
    first, end = (present.offsets[place].as_py() for place in (0, len(present)))
    return present.keys.slice(first, end - first), present.items.slice(first, end - first)


def _is_list(source: pa.DataType) -> bool:
    types = pa.types
    is_view = types.is_list_view(source) or types.is_large_list_view(source)
    return bool(types.is_list(source) or types.is_large_list(source) or types.is_fixed_size_list(source) or is_view)


@dataclass(frozen=True)
class Tuple(_Nesting):
    """`names` are empty where the elements have none; Arrow calls those 1, 2, …"""

    elements: tuple[DataType, ...]
    names: tuple[str, ...] = ()

    @property
    def base(self) -> str:
        if not self.names:
            return f"Tuple({', '.join(map(str, self.elements))})"
        named = (f"{backquote_if_needed(name)} {each}" for name, each in zip(self.names, self.elements, strict=True))
        return f"Tuple({', '.join(named)})"

    @property
    def kind(self) -> Kind:
        return Kind.TUPLE

    @property
    def field_names(self) -> tuple[str, ...]:
        return self.names or tuple(str(number) for number in range(1, len(self.elements) + 1))

    @cached_property
    def fields(self) -> list[pa.Field]:
        named = zip(self.field_names, self.elements, strict=True)
        return [pa.field(name, element.arrow, element.nullable) for name, element in named]

    @cached_property
    def arrow(self) -> pa.DataType:
        return pa.struct(self.fields)

    @property
    def nested(self) -> tuple[DataType, ...]:
        return self.elements

    @property
    def zero(self) -> dict[str, Any]:
        named = zip(self.field_names, self.elements, strict=True)
        return {name: None if element.nullable else element.zero for name, element in named}

    @property
    def own_default(self) -> dict[str, Any]:
        named = zip(self.field_names, self.elements, strict=True)
        return {name: None if element.nullable else element.own_default for name, element in named}

    def filled(self, values: pa.Array) -> pa.Array:
        return self._of(values.flatten(), None) if values.null_count else values

    def contents(self, values: pa.Array) -> Iterator[np.ndarray]:
        """One element over all rows, then the next."""
        for element, column in zip(self.elements, values.flatten(), strict=True):
            yield from element.stream(column)

    def own_rows(self, values: pa.Array) -> pa.Array:
        columns = [each.rows(column) for each, column in zip(self.elements, values.flatten(), strict=True)]
        return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.large_binary()))

    def conversion(self, source: pa.DataType) -> Conversion | None:
        if is_text(source):
            return self._from_text
        if not pa.types.is_struct(source) or source.num_fields != len(self.elements):
            return None
        found = [source.field(index).name for index in range(source.num_fields)]
        if self.names and sorted(found) == sorted(self.names):
            places = [found.index(name) for name in self.names]
        else:
            places = list(range(len(found)))

        def elements(values: pa.Array) -> pa.Array:
            given = values.flatten()
            columns = [given[place] for place in places]
            for element, column in zip(self.elements, columns, strict=True):
                if not element.nullable and column.null_count > values.null_count:
                    raise ValueError(f"NULL in {element}")
            own = [converted(column, each) for each, column in zip(self.elements, columns, strict=True)]
            return self._of(own, pc.is_null(values) if values.null_count else None)

        return elements

    def _of(self, columns: list[pa.Array], mask: pa.Array | None) -> pa.Array:
        """NULL elements that may not be are those of a tuple that is NULL itself: zeros."""
        filled = [
            column if element.nullable else element.filled(column)
            for element, column in zip(self.elements, columns, strict=True)
        ]
        return pa.StructArray.from_arrays(filled, fields=self.fields, mask=mask)

    @property
    def text_shape(self) -> pa.DataType:
        named = zip(self.field_names, self.elements, strict=True)
        return pa.struct([(name, element.text_shape) for name, element in named])

    @property
    def default_text(self) -> dict[str, Any]:
        named = zip(self.field_names, self.elements, strict=True)
        return {name: None if element.nullable else element.default_text for name, element in named}

    def read(self, text: NestedText) -> dict[str, Any] | None:
        if self.nullable and text.take("NULL"):
            return None
        text.expect("(")
        values: dict[str, Any] = {}
        for name, element in zip(self.field_names, self.elements, strict=True):
            if values:
                text.expect(",")
            values[name] = element.read(text)
        if len(self.elements) == 1:
            text.take(",")
        text.expect(")")
        return values

    def readable(self, values: pa.Array) -> pa.Array:
        columns = [each.readable(column) for each, column in zip(self.elements, values.flatten(), strict=True)]
        mask = pc.is_null(values) if values.null_count else None
        return pa.StructArray.from_arrays(columns, names=list(self.field_names), mask=mask)


@dataclass(frozen=True)
class Map(_Nesting):
    """In memory an array of pairs, in the order in which they came."""

    key: DataType
    value: DataType

    @property
    def base(self) -> str:
        return f"Map({self.key}, {self.value})"

    @property
    def kind(self) -> Kind:
        return Kind.MAP

    @cached_property
    def arrow(self) -> pa.DataType:
        return pa.map_(
            pa.field("key", self.key.arrow, False), pa.field("value", self.value.arrow, self.value.nullable)
        )

    @property
    def nested(self) -> tuple[DataType, ...]:
        return (self.key, self.value)

    @property
    def can_be_nullable(self) -> bool:
        return False

    @property
    def zero(self) -> list[Any]:
        return []

    def filled(self, values: pa.Array) -> pa.Array:
        return self._of(lengths(values), *pairs_of(values)) if values.null_count else values

    def contents(self, values: pa.Array) -> Iterator[np.ndarray]:
        """All keys, all values, then for each row where its pairs end, u64."""
        keys, items = pairs_of(values)
        yield from self.key.stream(keys)
        yield from self.value.stream(items)
        yield np.cumsum(lengths(values))

    def own_rows(self, values: pa.Array) -> pa.Array:
        pairs = Tuple((self.key, self.value), ("key", "value"))
        return Array(pairs).own_rows(self._as_list(values, pairs))

    def _as_list(self, values: pa.Array, pairs: Tuple) -> pa.Array:
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths(values))]), pa.int64())
        entries = pa.StructArray.from_arrays(list(pairs_of(values)), fields=pairs.fields)
        return pa.LargeListArray.from_arrays(offsets, entries)

    def conversion(self, source: pa.DataType) -> Conversion | None:
        if is_text(source):
            return self._from_text
        if not pa.types.is_map(source) and not (_is_list(source) and _is_pair(source.value_type)):
            return None

        def pairs(values: pa.Array) -> pa.Array:
            keys, items = pairs_of(values)
            return self._of(lengths(values), _converted_inside(keys, self.key), _converted_inside(items, self.value))

        return pairs

    def _of(self, lengths: np.ndarray, keys: pa.Array, items: pa.Array) -> pa.Array:
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        return pa.MapArray.from_arrays(offsets, keys, items, type=self.arrow)

    def _has_duplicates(self, values: pa.Array, keys: pa.Array) -> bool:
        return _distinct(np.repeat(np.arange(len(values)), lengths(values)), self.key.rows(keys)) < len(keys)

    @property
    def text_shape(self) -> pa.DataType:
        return pa.map_(self.key.text_shape, self.value.text_shape)

    @property
    def default_text(self) -> list[Any]:
        return []

    def read(self, text: NestedText) -> list[tuple[Any, Any]]:
        text.expect("{")
        pairs: list[tuple[Any, Any]] = []
        while not text.take("}"):
            if pairs:
                text.expect(",")
            key = self.key.read(text)
            if key is None:
                raise ValueError("NULL as a key")
            text.expect(":")
            pairs.append((key, self.value.read(text)))
        return pairs

    def readable(self, values: pa.Array) -> pa.Array:
        """A map; where a key comes twice, which DuckDB does not have, an array of pairs."""
        keys, items = pairs_of(values)
        if self._has_duplicates(values, keys):
            pairs = Tuple((self.key, self.value), ("key", "value"))
            return Array(pairs).readable(self._as_list(values, pairs))
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths(values))]), pa.int32())
        return pa.MapArray.from_arrays(offsets, self.key.readable(keys), self.value.readable(items))


def _is_pair(source: pa.DataType) -> bool:
    return bool(pa.types.is_struct(source) and source.num_fields == 2)
