"""Types: how they are written, what is refused, what their values are, and how text becomes them."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.commands import ColumnDefinition
from replica.errors import (
    ArgumentOutOfBound,
    BadArguments,
    CannotParseText,
    ClickHouseError,
    DuplicateColumn,
    IllegalTypeOfArgument,
    NotImplementedInModel,
    NumberOfArgumentsDoesntMatch,
    SizesOfArraysDontMatch,
    SqlSyntaxError,
    TypeMismatch,
    UnexpectedAstStructure,
    UnknownElementOfEnum,
    UnknownType,
    ValueIsOutOfRangeOfDataType,
)
from replica.schema import Column, TableSchema, conform, parse_type, readable

CANONICAL = {
    "Decimal(9,2)": "Decimal(9, 2)",
    "DECIMAL": "Decimal(10, 0)",
    "Decimal64( 3 )": "Decimal(18, 3)",
    "DateTime64": "DateTime64(3)",
    "DateTime(3)": "DateTime64(3)",
    "DateTime64( 6 , 'Europe/Berlin')": "DateTime64(6, 'Europe/Berlin')",
    "DateTime32('UTC')": "DateTime('UTC')",
    "Time64": "Time64(3)",
    "Enum('a','b')": "Enum8('a' = 1, 'b' = 2)",
    "Enum('a'=1,'b'=300)": "Enum16('a' = 1, 'b' = 300)",
    "Enum8('b'=2,'a'=1)": "Enum8('a' = 1, 'b' = 2)",
    "Enum8('it\\'s' = 1)": "Enum8('it\\'s' = 1)",
    "Tuple(UInt8,String)": "Tuple(UInt8, String)",
    "Tuple(`a b` UInt8, c String)": "Tuple(`a b` UInt8, c String)",
    "Map(String,Array(Nullable(UInt8)))": "Map(String, Array(Nullable(UInt8)))",
    "LowCardinality(Nullable(String))": "LowCardinality(Nullable(String))",
    "Variant(UInt64,String)": "Variant(String, UInt64)",
    "SimpleAggregateFunction(max,UInt64)": "SimpleAggregateFunction(max, UInt64)",
    "Array(Nested(a UInt8))": "Array(Nested(a UInt8))",
    "Nullable(Point)": "Nullable(Point)",
    "DOUBLE PRECISION": "Float64",
    "int(11) unsigned": "UInt32",
    "varchar(20)": "String",
    "BINARY(3)": "FixedString(3)",
    "INET6": "IPv6",
}


@pytest.mark.parametrize(("text", "canonical"), CANONICAL.items())
def test_a_type_is_written_as_clickhouse_writes_it(text: str, canonical: str) -> None:
    data_type = parse_type(text)
    assert data_type.text == canonical
    assert parse_type(canonical) == data_type
    assert data_type.default.type == data_type.arrow


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("Decimal(77, 2)", ArgumentOutOfBound, "between 1 and 76"),
        ("Decimal(5, 6)", ArgumentOutOfBound, "larger than precision"),
        ("DateTime64(10)", ArgumentOutOfBound, "between 0 and 9"),
        ("DateTime64(3, 'Nowhere/X')", BadArguments, "Nowhere/X"),
        ("Enum8('a'=200)", ArgumentOutOfBound, "exceeds range of Enum8"),
        ("Enum8('a'=1,'a'=2)", SqlSyntaxError, "Duplicate names"),
        ("Enum8('a'=1,'b'=1)", SqlSyntaxError, "Duplicate values"),
        ("Enum8('a', 'b' = 5)", UnexpectedAstStructure, "'name' = number"),
        ("FixedString(0)", UnexpectedAstStructure, "from 1"),
        ("FixedString", NumberOfArgumentsDoesntMatch, "takes 1"),
        ("Array", NumberOfArgumentsDoesntMatch, "as in Array(UInt8)"),
        ("Nullable(Array(UInt8))", IllegalTypeOfArgument, "cannot be inside Nullable"),
        ("Nullable(LowCardinality(String))", IllegalTypeOfArgument, "cannot be inside Nullable"),
        ("LowCardinality(Decimal(9, 2))", IllegalTypeOfArgument, "Decimal(9, 2)"),
        ("Map(Nullable(String), UInt8)", BadArguments, "key of type Nullable(String)"),
        ("Tuple(a UInt8, String)", BadArguments, "not for all elements"),
        ("Tuple(a UInt8, a String)", DuplicateColumn, "Duplicate name: a"),
        ("Variant(String, Nullable(UInt8))", BadArguments, "inside Variant"),
        ("Dynamic", NotImplementedInModel, "Dynamic"),
        ("Array(JSON)", NotImplementedInModel, "JSON"),
        ("AggregateFunction(sum, UInt64)", NotImplementedInModel, "AggregateFunction"),
        ("IntervalDay", NotImplementedInModel, "IntervalDay"),
        ("Array(Array)", NumberOfArgumentsDoesntMatch, "Array"),
        ("Array(" * 200 + "UInt8" + ")" * 200, UnknownType, "too deeply"),
        ("Map(String UInt8)", NumberOfArgumentsDoesntMatch, "Map takes 2"),
        ("Array(UInt8", UnknownType, "not a type"),
    ],
)
def test_what_cannot_be_is_refused_by_name(text: str, error: type[ClickHouseError], says: str) -> None:
    with pytest.raises(error) as refusal:
        parse_type(text)
    assert says in refusal.value.message


@given(st.text(max_size=30))
def test_any_text_is_a_type_or_refused(text: str) -> None:
    with contextlib.suppress(ClickHouseError):
        assert parse_type(parse_type(text).text).text == parse_type(text).text


def conformed(values: pa.Array, text: str) -> pa.Table:
    return conform(pa.table({"c": values}), TableSchema((Column("c", parse_type(text)),)))


def shown(text: str, spelled: str) -> object:
    """What SELECT has of a value that a text spells."""
    block = conformed(pa.array([spelled.encode()], pa.large_binary()), text)
    (value,) = readable(block, TableSchema((Column("c", parse_type(text)),)))["c"].to_pylist()
    return value


@pytest.mark.parametrize(
    ("text", "spelled", "value"),
    [
        ("Int256", "-57896044618658097711785492504343953926634992332820282019728792003956564819968", None),
        ("Array(UInt8)", "[1, 2,3]", [1, 2, 3]),
        ("Array(String)", r"['a\'b', '\x41', '']", ["a'b", "A", ""]),
        ("Array(Array(Nullable(UInt8)))", "[[1,NULL],[]]", [[1, None], []]),
        ("Tuple(UInt8, String)", "(1,'a')", {"1": 1, "2": "a"}),
        ("Tuple(a UInt8)", "(1,)", {"a": 1}),
        ("Map(String, UInt8)", "{'k':1}", [("k", 1)]),
        ("Nullable(Tuple(UInt8, String))", "NULL", None),
        ("Enum8('a' = 1, 'b' = 2)", "2", "b"),
        ("IPv6", "1.2.3.4", "::ffff:1.2.3.4"),
        ("Decimal(9, 2)", "-1.999", "-1.99"),
        ("Time", "-100:00:01", "-100:00:01"),
        ("Time64(3)", "45296.5", "refused"),
        ("DateTime64(3)", "2024-02-29T12:34:56.7891Z", "2024-02-29 12:34:56.789000"),
        ("DateTime64(3, 'Europe/Berlin')", "2024-07-01 12:00:00", "2024-07-01 12:00:00"),
        ("DateTime64(9)", "2024-02-29 00:00:00.123456789", "2024-02-29 00:00:00.123456789"),
        ("FixedString(3)", "ab", "ab\0"),
        ("BFloat16", "1.01", 1.0078125),
    ],
)
def test_text_becomes_a_value(text: str, spelled: str, value: object) -> None:
    if value == "refused":
        with pytest.raises(CannotParseText):
            shown(text, spelled)
        return
    found = shown(text, spelled)
    if value is None and text == "Int256":
        value = spelled
    assert (str(found) if isinstance(value, str) else found) == value


@pytest.mark.parametrize(
    ("values", "text", "error"),
    [
        (pa.array(["[1,300]"]), "Array(UInt8)", CannotParseText),
        (pa.array([[1, 300]]), "Array(UInt8)", ValueIsOutOfRangeOfDataType),
        (pa.array([[1, None]]), "Array(UInt8)", ValueIsOutOfRangeOfDataType),
        (pa.array(["[1,2"]), "Array(UInt8)", CannotParseText),
        (pa.array(["[a]"]), "Array(String)", CannotParseText),
        (pa.array(["x"]), "Enum8('a' = 1)", UnknownElementOfEnum),
        (pa.array([3]), "Enum8('a' = 1)", UnknownElementOfEnum),
        (pa.array(["abcd"]), "FixedString(3)", ValueIsOutOfRangeOfDataType),
        (pa.array(["12345678.1"]), "Decimal(9, 2)", ValueIsOutOfRangeOfDataType),
        (pa.array(["1e"]), "Decimal(9, 2)", CannotParseText),
        (pa.array([10**7]), "Decimal(9, 2)", ValueIsOutOfRangeOfDataType),
        (pa.array([2**63], pa.uint64()), "Array(UInt8)", TypeMismatch),
        (pa.array(["-1"]), "UInt128", ValueIsOutOfRangeOfDataType),
        (pa.array(["0x10"]), "UInt8", CannotParseText),
        (pa.array(["1000:00:00"]), "Time", CannotParseText),
        (pa.array(["0011"]), "UUID", CannotParseText),
        (pa.array(["1"]), "Variant(UInt64, String)", TypeMismatch),
    ],
)
def test_a_value_that_does_not_fit_is_named(values: pa.Array, text: str, error: type[ClickHouseError]) -> None:
    with pytest.raises(error, match="'c'"):
        conformed(values, text)


def test_a_nested_column_is_arrays_of_equal_length() -> None:
    schema = TableSchema.from_definitions([ColumnDefinition("n", "Nested(a UInt8, b String)")])
    assert [(column.name, column.type.text) for column in schema.columns] == [
        ("n.a", "Array(UInt8)"),
        ("n.b", "Array(String)"),
    ]
    assert TableSchema.parse(schema.to_text()) == schema
    assert conform(pa.table({"n.a": [[1]], "n.b": [["x"]]}), schema).num_rows == 1
    with pytest.raises(SizesOfArraysDontMatch, match=r"^Row 8: 'n.a' has 2 elements and 'n.b' has 1"):
        conform(pa.table({"n.a": [[1], [1, 2]], "n.b": [["x"], ["y"]]}), schema, first_row=7)


@pytest.mark.parametrize("text", ["Decimal(9, 2)", "Decimal(18, 0)", "Decimal(76, 60)"])
def test_integers_are_decimals(text: str) -> None:
    assert conformed(pa.array([7, -3], pa.int64()), text)["c"].cast(pa.float64()).to_pylist() == [7, -3]
