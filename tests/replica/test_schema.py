"""Types, the columns text, and the check that a block fits."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.commands import ColumnDefinition
from replica.errors import (
    BadArguments,
    CannotInsertNullInOrdinaryColumn,
    CannotParseText,
    ClickHouseError,
    DuplicateColumn,
    EmptyListOfColumnsPassed,
    IllegalTypeOfArgument,
    NoSuchColumnInTable,
    NotImplementedInModel,
    TypeMismatch,
    UnknownFormatVersion,
    UnknownType,
    ValueIsOutOfRangeOfDataType,
)
from replica.schema import Column, DataType, TableSchema, conform, parse_type, readable

NEW_TABLES = Path(__file__).parent.parent / "data" / "clickhouse-26.9" / "new-tables"
PLAIN_TYPES = [
    *(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)),
    *("Float32", "Float64", "Bool", "Date", "DateTime", "DateTime('Europe/Berlin')", "String"),
]
ALL_TYPES = PLAIN_TYPES + [f"Nullable({text})" for text in PLAIN_TYPES]


# --- types ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ALL_TYPES)
def test_a_type_is_written_as_it_was_read(text: str) -> None:
    assert parse_type(text).text == text


@pytest.mark.parametrize("text", ALL_TYPES)
def test_a_default_value_is_of_the_type(text: str) -> None:
    data_type = parse_type(text)
    assert data_type.default.type == data_type.arrow
    assert data_type.default.is_valid is not data_type.nullable


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (" Nullable( UInt8 ) ", "Nullable(UInt8)"),
        ("int", "Int32"),
        ("BigInt  unsigned", "UInt64"),
        ("varchar", "String"),
        ("bool", "Bool"),
        ("datetime( 'UTC' )", "DateTime('UTC')"),
    ],
)
def test_other_spellings_become_the_canonical_one(text: str, canonical: str) -> None:
    assert parse_type(text).text == canonical


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("Strng", UnknownType, "Did you mean 'String'"),
        ("UInt512", UnknownType, "It has UInt8, "),
        ("nullable(String)", UnknownType, "'Nullable'"),
        ("", UnknownType, "not a type"),
        ("UInt8) ENGINE", UnknownType, "not a type"),
        ("UInt8(3)", IllegalTypeOfArgument, "takes no arguments"),
        ("Nullable", IllegalTypeOfArgument, "Nullable takes one type"),
        ("Nullable(Nullable(String))", IllegalTypeOfArgument, "cannot be inside Nullable"),
        ("DateTime(UTC)", IllegalTypeOfArgument, "single quotes"),
        ("DateTime('Nowhere/X')", BadArguments, "Cannot load time zone Nowhere/X"),
        ("DateTime('../../etc/passwd')", BadArguments, "Cannot load time zone"),
    ],
)
def test_what_is_no_type_is_refused_by_name(text: str, error: type[ClickHouseError], says: str) -> None:
    with pytest.raises(error) as refusal:
        parse_type(text)
    assert says in refusal.value.message


# --- the columns text ----------------------------------------------------------------------------------------


def columns_text(table: str) -> str:
    (node,) = (
        node
        for node in json.loads((NEW_TABLES / f"{table}.json").read_text())
        if node["path"].endswith(f"/{table}/columns")
    )
    return str(node["value"])


def test_the_columns_text_is_clickhouses() -> None:
    definitions = (ColumnDefinition("k", "UInt64"), ColumnDefinition("v", "String"))
    schema = TableSchema.from_definitions(definitions)
    assert schema.to_text() == columns_text("plain")
    assert TableSchema.parse(columns_text("plain")) == schema


def test_a_default_stands_after_tabs_as_clickhouse_writes_it() -> None:
    line = columns_text("monthly").splitlines()[4]
    assert line.split(" ", 1)[0] == "`amount`"
    clause = line[line.index("\t") :]
    assert Column("amount", parse_type("UInt64"), "0").to_text() == "`amount` UInt64" + clause


def test_a_clause_that_the_model_lacks_is_refused_by_name() -> None:
    with pytest.raises(NotImplementedInModel, match="COMMENT 'with space'"):
        TableSchema.parse(columns_text("replacing"))


def test_the_time_zone_of_a_type_is_escaped_in_the_text() -> None:
    schema = TableSchema((Column("t", parse_type("DateTime('UTC')")),))
    assert schema.to_text() == "columns format version: 1\n1 columns:\n`t` DateTime(\\'UTC\\')\n"


columns = st.builds(
    Column,
    st.text(min_size=1, max_size=8),
    st.sampled_from(ALL_TYPES).map(parse_type),
    st.none() | st.text(min_size=1, max_size=8),
)


@given(st.lists(columns, min_size=1, max_size=4, unique_by=lambda column: column.name))
def test_any_columns_survive_their_text(some: list[Column]) -> None:
    schema = TableSchema(tuple(some))
    assert TableSchema.parse(schema.to_text()) == schema


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", UnknownFormatVersion),
        ("columns format version: 2\n1 columns:\n`a` UInt8\n", UnknownFormatVersion),
        ("columns format version: 1\n2 columns:\n`a` UInt8\n", CannotParseText),
        ("columns format version: 1\n1 columns:\n`a` UInt8", CannotParseText),
        ("columns format version: 1\n1 columns:\na UInt8\n", CannotParseText),
        ("columns format version: 1\n0 columns:\n", EmptyListOfColumnsPassed),
        ("columns format version: 1\n2 columns:\n`a` UInt8\n`a` UInt8\n", DuplicateColumn),
    ],
)
def test_a_broken_columns_text_is_refused(text: str, error: type[ClickHouseError]) -> None:
    with pytest.raises(error):
        TableSchema.parse(text)


def test_an_unknown_column_is_refused_with_the_nearest_name() -> None:
    schema = TableSchema((Column("amount", parse_type("UInt8")), Column("user", parse_type("String"))))
    with pytest.raises(NoSuchColumnInTable, match="Did you mean 'amount'"):
        schema.column("amout")
    assert schema.column("user").type.text == "String"
    assert schema.arrow_schema == pa.schema(
        [pa.field("amount", pa.uint8(), False), pa.field("user", pa.large_binary(), False)]
    )


# --- conform -------------------------------------------------------------------------------------------------


def conformed(values: pa.Array | pa.ChunkedArray, data_type: str | DataType) -> pa.ChunkedArray:
    parsed = parse_type(data_type) if isinstance(data_type, str) else data_type
    column = conform(pa.table({"c": values}), TableSchema((Column("c", parsed),))).column("c")
    assert column.type == parsed.arrow
    return column


BERLIN_NOON = datetime.datetime(2024, 7, 1, 10, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("values", "data_type", "expected"),
    [
        (pa.array([0, 255], pa.int64()), "UInt8", [0, 255]),
        (pa.array([-128.0, 127.0]), "Int8", [-128, 127]),
        (pa.array([Decimal("12.00")]), "UInt16", [12]),
        (pa.array([True, False]), "UInt8", [1, 0]),
        (pa.array(["12", "-3"]), "Int32", [12, -3]),
        (pa.array([2**53 + 1]), "Float64", [float(2**53)]),
        (pa.array(["1.5"]), "Float32", [1.5]),
        (pa.array([0, 1], pa.int8()), "Bool", [False, True]),
        (pa.array(["true"]), "Bool", [True]),
        (pa.array(["a", "ä"]), "String", [b"a", "ä".encode()]),
        (pa.array([b"\xff\x00"], pa.binary(2)), "String", [b"\xff\x00"]),
        (pa.array(["x", "y", "x"]).dictionary_encode(), "String", [b"x", b"y", b"x"]),
        (pa.array([7, 7, None], pa.int64()).dictionary_encode(), "Nullable(UInt8)", [7, 7, None]),
        (pa.RunEndEncodedArray.from_arrays([2, 3], [5, 6]), "UInt64", [5, 5, 6]),
        (pa.array(["a"], pa.string_view()), "String", [b"a"]),
        (pa.nulls(2), "Nullable(String)", [None, None]),
        (pa.array(["2024-02-29"]), "Date", [datetime.date(2024, 2, 29)]),
        (pa.array([65535], pa.uint16()), "Date", [datetime.date(2149, 6, 6)]),
        (pa.array([datetime.datetime(2024, 2, 29)]), "Date", [datetime.date(2024, 2, 29)]),
        (pa.array([datetime.datetime(2024, 7, 1, 10)], pa.timestamp("ns")), "DateTime", [BERLIN_NOON]),
        (pa.array(["2024-07-01 12:00:00"]), "DateTime('Europe/Berlin')", [BERLIN_NOON]),
        (pa.array(["2024-07-01T10:00:00Z", "2024-07-01 10:00:00"]), "DateTime", [BERLIN_NOON] * 2),
        (pa.array(["2024-07-01 13:00:00+03:00"]), "DateTime('Europe/Berlin')", [BERLIN_NOON]),
        (pa.array([1719828000]), "DateTime", [BERLIN_NOON]),
        (pa.array([datetime.date(2024, 7, 1)]), "DateTime", [BERLIN_NOON.replace(hour=0)]),
        (pa.array([], pa.int64()), "DateTime", []),
        (pa.array(["+22", "7", None]), "Nullable(Int32)", [22, 7, None]),
        (pa.array([b"+1.5"]), "Float64", [1.5]),
    ],
)
def test_any_representation_of_the_same_values_fits(values: pa.Array, data_type: str, expected: list[object]) -> None:
    assert conformed(values, data_type).to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "data_type", "error", "says"),
    [
        (pa.array([1, 2, 256]), "UInt8", ValueIsOutOfRangeOfDataType, "Row 3: 256 in column 'c' does not fit UInt8"),
        (pa.array([5, -1]), "UInt64", ValueIsOutOfRangeOfDataType, "Row 2: -1"),
        (pa.array([2**63], pa.uint64()), "Int64", ValueIsOutOfRangeOfDataType, "Row 1: 9223372036854775808"),
        (pa.array([1.0, 1.5]), "Int32", ValueIsOutOfRangeOfDataType, "Row 2: 1.5"),
        (pa.array([float("nan")]), "Int32", ValueIsOutOfRangeOfDataType, "Row 1: nan"),
        (pa.array([1e20]), "UInt64", ValueIsOutOfRangeOfDataType, "Row 1: 1e+20"),
        (pa.array(["1", "999"]), "UInt8", ValueIsOutOfRangeOfDataType, "Row 2: '999'"),
        (pa.array(["1", "one"]), "UInt8", CannotParseText, "Row 2: 'one' in column 'c' does not spell a UInt8"),
        (pa.array([b"\xff"]), "Date", CannotParseText, "Row 1: '\ufffd'"),
        (pa.array([2]), "Bool", ValueIsOutOfRangeOfDataType, "Row 1: 2"),
        (pa.array([1, None]), "Int64", CannotInsertNullInOrdinaryColumn, "Row 2: NULL in column 'c', which is Int64"),
        (pa.nulls(1), "String", CannotInsertNullInOrdinaryColumn, "Row 1"),
        (pa.array([datetime.date(1969, 12, 31)]), "Date", ValueIsOutOfRangeOfDataType, "Row 1: 1969-12-31"),
        (pa.array([datetime.date(2149, 6, 7)]), "Nullable(Date)", ValueIsOutOfRangeOfDataType, "2149-06-07"),
        (pa.array([datetime.datetime(2024, 1, 1, 5)]), "Date", ValueIsOutOfRangeOfDataType, "2024-01-01 05:00:00"),
        (pa.array([65536]), "Date", ValueIsOutOfRangeOfDataType, "65536"),
        (pa.array([2**32 - 1, 2**32]), "DateTime", ValueIsOutOfRangeOfDataType, "Row 2: 4294967296"),
        (
            pa.array([0, 2**32], pa.timestamp("s", "UTC")),
            "DateTime",
            ValueIsOutOfRangeOfDataType,
            "Row 2: 2106-02-07 06:28:16",
        ),
        (pa.array([1], pa.timestamp("ms")), "DateTime", ValueIsOutOfRangeOfDataType, "Row 1"),
        (pa.array([-1], pa.timestamp("s")), "DateTime", ValueIsOutOfRangeOfDataType, "Row 1"),
        (pa.array(["soon"]), "DateTime", CannotParseText, "'soon'"),
        (pa.array(["1e3"]), "Int32", CannotParseText, "'1e3' in column 'c' does not spell an Int32."),
        (pa.array(["1.0"]), "UInt8", CannotParseText, "'1.0' in column 'c' does not spell a UInt8."),
        (pa.array(["+300"]), "UInt8", ValueIsOutOfRangeOfDataType, "'+300' in column 'c' does not fit UInt8."),
        (pa.array(["9999-01-01"]), "Date", ValueIsOutOfRangeOfDataType, "is out of range of Date: from 1970-01-01"),
        (pa.array(["9999-13-01"]), "Date", CannotParseText, "does not spell a Date"),
        (pa.array(["2106-02-08 00:00:00"]), "DateTime", ValueIsOutOfRangeOfDataType, "out of range of DateTime"),
        (pa.array(["2200-01-01T00:00:00Z"]), "DateTime", ValueIsOutOfRangeOfDataType, "out of range of DateTime"),
        (pa.array([1]), "String", TypeMismatch, "Column 'c' is String, and values of Arrow type int64"),
        (pa.array([1.5]), "DateTime", TypeMismatch, "double"),
        (pa.array([[1]]), "UInt8", TypeMismatch, "list"),
    ],
)
def test_a_value_that_does_not_fit_is_named(
    values: pa.Array, data_type: str, error: type[ClickHouseError], says: str
) -> None:
    with pytest.raises(error) as refusal:
        conformed(values, data_type)
    assert says in refusal.value.message


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20),
    st.sampled_from(["UInt8", "Int8", "UInt16", "Int16", "UInt32", "Int32", "UInt64", "Int64"]),
)
def test_integers_pass_unchanged_or_the_first_that_does_not_fit_is_named(values: list[int], text: str) -> None:
    data_type = parse_type(text)
    bits = 8 * data_type.width
    low, high = (0, 2**bits - 1) if text.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    misfits = [row for row, value in enumerate(values, 1) if not low <= value <= high]
    if not misfits:
        assert conformed(pa.array(values, pa.int64()), data_type).to_pylist() == values
    else:
        with pytest.raises(ValueIsOutOfRangeOfDataType, match=f"^Row {misfits[0]}: {values[misfits[0] - 1]} "):
            conformed(pa.array(values, pa.int64()), data_type)


def test_the_row_is_counted_over_chunks() -> None:
    with pytest.raises(ValueIsOutOfRangeOfDataType, match=r"^Row 4: 300 "):
        conformed(pa.chunked_array([[1, 2], [], [3, 300], [400]]), "UInt8")


def test_the_order_of_the_block_is_kept_and_columns_may_be_left_out() -> None:
    schema = TableSchema(tuple(Column(name, parse_type("UInt8")) for name in "abc"))
    block = conform(pa.table({"c": [1], "a": [2]}), schema)
    assert block.to_pydict() == {"c": [1], "a": [2]}


def test_columns_that_the_table_lacks_or_that_come_twice_are_refused() -> None:
    schema = TableSchema((Column("user", parse_type("UInt8")),))
    with pytest.raises(NoSuchColumnInTable, match="Did you mean 'user'"):
        conform(pa.table({"usr": [1]}), schema)
    with pytest.raises(DuplicateColumn):
        conform(pa.table([pa.array([1]), pa.array([1])], names=["user", "user"]), schema)


def test_strings_can_be_shown_as_text() -> None:
    block = pa.table({"s": pa.array([b"a", None, b"\xff"], pa.large_binary()), "n": [1, 2, 3]})
    assert readable(block).to_pydict() == {"s": ["a", None, "\U0010f7ff"], "n": [1, 2, 3]}
