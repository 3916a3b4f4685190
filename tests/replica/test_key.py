"""Sorting keys: their text, what ClickHouse refuses, and the order of rows. DEFAULTs of columns left out."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import (
    BadArguments,
    CannotInsertNullInOrdinaryColumn,
    CannotParseText,
    ClickHouseError,
    CyclicAliases,
    IllegalColumn,
    NotImplementedInModel,
    SqlSyntaxError,
    UnknownIdentifier,
    ValueIsOutOfRangeOfDataType,
)
from replica.expression import check_defaults, check_primary_key, compile_key, complete, sort_block
from replica.schema import Column, TableSchema, conform, parse_type


def schema_of(**columns: str) -> TableSchema:
    return TableSchema(tuple(Column(name, parse_type(text)) for name, text in columns.items()))


SCHEMA = schema_of(**{"a": "UInt8", "b": "UInt16", "c": "Int64", "n": "Nullable(UInt8)", "odd name": "String"})


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("", ""),
        ("tuple()", ""),
        ("()", ""),
        ("a", "a"),
        ("(a)", "(a)"),
        ("((a))", "(a)"),
        ("tuple(a)", "a"),
        ("(a,)", "a"),
        ("(a, b)", "a, b"),
        ("tuple(a, b)", "a, b"),
        ("(((a, b)))", "a, b"),
        ("a, b", "a, b"),
        ("(a+b*c, -c)", "a + (b * c), -c"),
        ("a % 4, `odd name`", "a % 4, `odd name`"),
        ("a -- the first", "a"),
    ],
)
def test_a_key_is_stored_as_clickhouse_stores_it(written: str, stored: str) -> None:
    key = compile_key(written, SCHEMA)
    assert key.text == stored
    assert compile_key(key.text, SCHEMA).text == stored


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("n", IllegalColumn, "allow_nullable_key"),
        ("1", IllegalColumn, "constants"),
        ("(a, 1 + 1)", IllegalColumn, "constants"),
        ("NULL", IllegalColumn, "constants"),
        ("(a, b, a)", BadArguments, "duplicate expression: a"),
        ("(a, (b, c))", NotImplementedInModel, "only be a whole key"),
        ("a DESC", SqlSyntaxError, "'a DESC' is not an expression"),
        ("(a, nb)", UnknownIdentifier, "Did you mean"),
        ("a) + tuple(b", SqlSyntaxError, "parentheses"),
        ("(a", SqlSyntaxError, "parentheses"),
    ],
)
def test_keys_that_are_refused(text: str, error: type[ClickHouseError], says: str) -> None:
    with pytest.raises(error) as refusal:
        compile_key(text, SCHEMA)
    assert says in refusal.value.message


def test_a_primary_key_is_a_prefix_of_the_sorting_key() -> None:
    sorting = compile_key("(a, b)", SCHEMA)
    for text in ("", "a", "(a, b)"):
        check_primary_key(compile_key(text, SCHEMA), sorting)
    with pytest.raises(BadArguments, match="position 0 is a, not b"):
        check_primary_key(compile_key("b", SCHEMA), sorting)
    with pytest.raises(BadArguments, match="its length: 3 is greater"):
        check_primary_key(compile_key("(a, b, c)", SCHEMA), sorting)


# --- order ---------------------------------------------------------------------------------------------------


def test_zeros_are_equal_and_nan_and_null_come_last() -> None:
    schema = schema_of(i="UInt8", f="Nullable(Float64)")
    floats = [math.nan, None, 1.0, -0.0, 0.0, math.nan, math.inf, -math.inf, None, math.nan, 0.0, -0.0]
    block = pa.table({"i": pa.array(range(1, 13), pa.uint8()), "f": pa.array(floats, pa.float64())})
    ordered = sort_block(block, compile_key("f", schema, allow_nullable_key=True))
    assert ordered.column("i").to_pylist() == [8, 4, 5, 11, 12, 3, 7, 1, 6, 10, 2, 9]


rows = st.tuples(st.booleans(), st.integers(-2, 2), st.binary(max_size=2))


@given(st.lists(rows, max_size=20))
def test_rows_are_sorted_stably_by_the_whole_key(some: list[tuple[bool, int, bytes]]) -> None:
    schema = schema_of(flag="Bool", k="Int32", s="String", row="UInt8")
    columns = [*zip(*some, strict=True)] if some else [(), (), ()]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema.arrow_schema, strict=False)]
    block = pa.table([*arrays, pa.array(range(len(some)), pa.uint8())], schema=schema.arrow_schema)
    ordered = sort_block(block, compile_key("(flag, s, -k)", schema))
    expected = sorted(range(len(some)), key=lambda row: (some[row][0], some[row][2], -some[row][1]))
    assert ordered.column("row").to_pylist() == expected
    assert ordered.schema == block.schema


# --- defaults ------------------------------------------------------------------------------------------------


def completed(default: str | None, text: str, a: list[int]) -> list[Any]:
    schema = TableSchema((Column("x", parse_type(text), default), Column("a", parse_type("Int64"))))
    block = complete(pa.table({"a": pa.array(a, pa.int64())}), schema)
    assert block.schema == schema.arrow_schema
    values = block.column("x").to_pylist()
    return [str(value) if text.startswith("Date") else value for value in values]


@pytest.mark.parametrize(
    ("default", "text", "expected"),
    [
        (None, "UInt8", [0, 0]),
        (None, "String", [b"", b""]),
        (None, "Nullable(String)", [None, None]),
        (None, "Date", ["1970-01-01"] * 2),
        ("300", "UInt8", [44, 44]),
        ("a", "UInt8", [44, 249]),
        ("-1", "UInt8", [255, 255]),
        ("1.7", "UInt8", [1, 1]),
        ("a / 3", "Float32", [100.0, -2.3333332538604736]),
        ("a = 300", "Bool", [True, False]),
        ("2", "Bool", [True, True]),
        ("a", "Nullable(Int64)", [300, -7]),
        ("NULL", "Nullable(UInt8)", [None, None]),
        ("a + 1", "String", [b"301", b"-6"]),
        ("'it''s'", "String", [b"it's", b"it's"]),
        ("'5'", "UInt8", [5, 5]),
        ("'2020-01-05'", "Date", ["2020-01-05"] * 2),
        ("5", "Date", ["1970-01-06"] * 2),
        ("toDate('2020-01-05')", "DateTime", ["2020-01-05 00:00:00+00:00"] * 2),
    ],
)
def test_columns_left_out_get_clickhouses_default(default: str | None, text: str, expected: list[Any]) -> None:
    assert completed(default, text, [300, -7]) == expected


def test_a_default_may_read_another_default() -> None:
    columns = (("a", None), ("b", "c + 1"), ("c", "a + 1"))
    schema = TableSchema(tuple(Column(name, parse_type("Int64"), default) for name, default in columns))
    assert complete(pa.table({"a": [1]}), schema).to_pydict() == {"a": [1], "b": [3], "c": [2]}
    assert complete(pa.table({"c": [5]}), schema).to_pydict() == {"a": [0], "b": [6], "c": [5]}


def test_a_full_block_is_only_put_in_order() -> None:
    schema = schema_of(a="Int64", b="Int64")
    assert complete(pa.table({"b": [1], "a": [2]}), schema).column_names == ["a", "b"]


def test_defaults_that_cannot_be_are_refused() -> None:
    with pytest.raises(CyclicAliases, match="a, b"):
        check_defaults(TableSchema((Column("a", parse_type("Int64"), "b"), Column("b", parse_type("Int64"), "a"))))
    with pytest.raises(UnknownIdentifier):
        check_defaults(TableSchema((Column("a", parse_type("Int64"), "missing"),)))
    with pytest.raises(CannotInsertNullInOrdinaryColumn):
        completed("NULL", "UInt8", [1])
    with pytest.raises(ValueIsOutOfRangeOfDataType, match="DEFAULT nan"):
        completed("nan", "UInt8", [1])


def test_checked_defaults_are_written_as_clickhouse_stores_them() -> None:
    columns = (("a", None), ("b", "a+1*2"), ("c", "'x'"))
    schema = TableSchema(tuple(Column(name, parse_type("String"), default) for name, default in columns[:1]))
    assert check_defaults(schema) == schema
    types = {"a": "Int64", "b": "UInt8", "c": "String"}
    schema = TableSchema(tuple(Column(name, parse_type(types[name]), default) for name, default in columns))
    assert [column.default for column in check_defaults(schema).columns] == [None, "a + (1 * 2)", "'x'"]


def test_a_constant_that_never_fits_is_refused_when_the_table_is_created() -> None:
    with pytest.raises(CannotParseText, match="'x' in column 'a'"):
        check_defaults(TableSchema((Column("a", parse_type("UInt8"), "'x'"),)))
    with pytest.raises(CannotInsertNullInOrdinaryColumn):
        check_defaults(TableSchema((Column("a", parse_type("UInt8"), "NULL"),)))


def test_conform_and_complete_go_together() -> None:
    schema = TableSchema((Column("k", parse_type("UInt8")), Column("v", parse_type("String"), "'none'")))
    block = conform(pa.table({"k": [1, 2]}), schema)
    assert complete(block, schema).to_pydict() == {"k": [1, 2], "v": [b"none", b"none"]}
