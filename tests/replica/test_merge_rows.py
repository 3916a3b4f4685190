import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.expression import compile_key, sort_block
from replica.schema import Column, TableSchema, parse_type
from replica.storage.merge_rows import merge_rows

SCHEMA = TableSchema(
    tuple(Column(*each) for each in (("k", parse_type("Int64")), ("v", parse_type("Nullable(String)"))))
)
KEY = compile_key("k", SCHEMA)
FLOATS = TableSchema((Column("f", parse_type("Float64")), Column("g", parse_type("Float64"))))
NAN, OTHER_NAN = (struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in (0x7FF8 << 48, 0xFFF8 << 48))


def table(*rows: tuple[int, bytes | None], schema: TableSchema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema.arrow_schema)


def rows_of(merged: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in merged.to_pylist()]


def test_rows_of_all_parts_in_the_order_of_the_key() -> None:
    merged = merge_rows([table((1, b"a"), (4, b"b")), table((2, b"c"), (3, None)), table()], KEY)
    assert rows_of(merged) == [(1, b"a"), (2, b"c"), (3, None), (4, b"b")]
    assert merged.schema.equals(SCHEMA.arrow_schema, check_metadata=True)


def test_of_equal_keys_the_earlier_part_comes_first() -> None:
    parts = table((1, b"1"), (1, b"2"), (2, b"3")), table((1, b"4"), (2, b"5")), table((1, b"0"), (2, b"6"))
    assert [v for _, v in rows_of(merge_rows(parts, KEY))] == [b"1", b"2", b"4", b"0", b"3", b"5", b"6"]
    assert rows_of(merge_rows(parts, compile_key("", SCHEMA))) == [row for part in parts for row in rows_of(part)]


def test_equal_rows_go_wherever_they_stand() -> None:
    parts = table((1, b"a"), (1, b"b"), (1, b"a"), (2, None)), table((0, b"a"), (1, b"b"), (1, b"a"), (2, None))
    assert rows_of(merge_rows(parts, KEY, deduplicate=True)) == [(0, b"a"), (1, b"a"), (1, b"b"), (2, None)]
    assert merge_rows(parts, KEY, deduplicate=True).schema.equals(SCHEMA.arrow_schema, check_metadata=True)
    assert len(rows_of(merge_rows(parts, KEY))) == 8


def test_of_rows_that_are_equal_in_some_columns_the_first_stays() -> None:
    parts = table((1, b"a"), (2, b"b")), table((0, b"b"), (1, b"c"), (3, None), (4, None))
    assert rows_of(merge_rows(parts, KEY, True, ("k",))) == [(0, b"b"), (1, b"a"), (2, b"b"), (3, None), (4, None)]
    assert rows_of(merge_rows(parts, KEY, True, ("v",))) == [(0, b"b"), (1, b"a"), (1, b"c"), (3, None)]
    assert rows_of(merge_rows([table()], KEY, True, ("v",))) == []


@pytest.mark.parametrize(
    ("key", "by", "count"), [("f", (), 2), ("g", (), 4), ("", (), 4), ("(-g, f)", ("f", "g"), 2), ("-f", (), 4)]
)
def test_floats_are_equal_as_the_order_says_in_the_key_and_bit_by_bit_elsewhere(
    key: str, by: tuple[str, ...], count: int
) -> None:
    values = table(*((value, 1.0) for value in (0.0, -0.0, NAN, OTHER_NAN, 0.0)), schema=FLOATS)  # type: ignore[arg-type]
    sorting_key = compile_key(key, FLOATS)
    assert merge_rows([sort_block(values, sorting_key)], sorting_key, True, by).num_rows == count


sorted_part = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([None, b"", b"x", b"y"])), max_size=8).map(
    lambda rows: sort_block(table(*rows), KEY)
)


@given(st.lists(sorted_part, min_size=1, max_size=4), st.sampled_from([(), ("k",), ("v",), ("v", "k")]))
def test_a_merge_is_a_stable_sort_and_deduplication_a_walk_with_a_memory(
    parts: list[pa.Table], by: tuple[str, ...]
) -> None:
    expected = sorted((row for part in parts for row in rows_of(part)), key=lambda row: row[0])
    assert rows_of(merge_rows(parts, KEY)) == expected
    picked = [SCHEMA.names.index(each) for each in by or SCHEMA.names]
    firsts: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in expected:
        firsts.setdefault(tuple(row[position] for position in picked), row)
    assert rows_of(merge_rows(parts, KEY, True, by)) == list(firsts.values())


@given(st.lists(sorted_part, min_size=3, max_size=3))
def test_it_does_not_matter_how_merges_are_grouped(parts: list[pa.Table]) -> None:
    first, second, third = parts
    for deduplicate in (False, True):
        at_once = merge_rows(parts, KEY, deduplicate)
        assert merge_rows([merge_rows([first, second], KEY, deduplicate), third], KEY, deduplicate).equals(at_once)
