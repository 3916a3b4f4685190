"""INSERT … VALUES: literals to a block of the table's types."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickhouse_sim.sql.insert import InsertValues
from clickhouse_sim.sql.statements import parse_statements
from clickhouse_sim.sql.tokens import string_literal
from replica.commands import ColumnDefinition, InsertOptions
from replica.errors import ClickHouseError
from replica.schema import TableSchema

SCHEMA = TableSchema.from_definitions(
    ColumnDefinition(*column.split(" ", 1))
    for column in (
        "i8 Int8",
        "u64 UInt64",
        "s String",
        "f Nullable(Float64)",
        "d Date",
        "utc DateTime",
        "york DateTime('America/New_York')",
        "b Bool",
    )
)


def insert(text: str) -> InsertValues:
    [statement] = parse_statements(text)
    assert isinstance(statement, InsertValues)
    return statement


def rows(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = insert(text).block(SCHEMA).to_pylist()
    return found


def test_literals_of_every_type() -> None:
    [first, second] = rows(
        r"INSERT INTO t VALUES (-128, 18446744073709551615, 'a\'b\x41\n''\\', NULL, '2020-01-02', "
        "'2020-01-01T00:00:00Z', '2020-01-01T00:00:00Z', true),"
        "(0x10, 1e2, 5, 1.5e-3, '2149-06-06', '2020-01-01 00:00:00', '2020-01-01 00:00:00', 0),"
    )
    utc = datetime.UTC
    assert first == {
        "i8": -128,
        "u64": 2**64 - 1,
        "s": b"a'bA\n'\\",
        "f": None,
        "d": datetime.date(2020, 1, 2),
        "utc": datetime.datetime(2020, 1, 1, tzinfo=utc),
        "york": datetime.datetime(2020, 1, 1, tzinfo=utc),
        "b": True,
    }
    assert second == {
        "i8": 16,
        "u64": 100,
        "s": b"5",
        "f": 0.0015,
        "d": datetime.date(2149, 6, 6),
        "utc": datetime.datetime(2020, 1, 1, tzinfo=utc),
        "york": datetime.datetime(2020, 1, 1, 5, tzinfo=utc),
        "b": False,
    }


def test_listed_columns_only_and_in_their_order() -> None:
    assert insert("INSERT INTO TABLE db.t (s, `i8`) VALUES ('x', 1)").block(SCHEMA).column_names == ["s", "i8"]


def test_settings_become_options() -> None:
    text = "INSERT INTO t (s) SETTINGS insert_deduplication_token = 'x', insert_deduplicate = 0 VALUES ('y')"
    assert insert(text).options == InsertOptions("x", insert_deduplicate=False)


@pytest.mark.parametrize(
    ("text", "name", "part"),
    [
        ("INSERT INTO t (i8) VALUES (1), (128)", "VALUE_IS_OUT_OF_RANGE", "Row 2: '128' in column 'i8'"),
        ("INSERT INTO t (i8) VALUES (1.5)", "CANNOT_PARSE_TEXT", "does not spell an Int8"),
        ("INSERT INTO t (u64) VALUES (-1)", "VALUE_IS_OUT_OF_RANGE", "Row 1"),
        ("INSERT INTO t (u64) VALUES (18446744073709551616)", "VALUE_IS_OUT_OF_RANGE", "Row 1"),
        ("INSERT INTO t (i8) VALUES ('x')", "CANNOT_PARSE_TEXT", "Row 1: 'x' in column 'i8'"),
        ("INSERT INTO t (i8) VALUES (NULL)", "CANNOT_INSERT_NULL", "Row 1"),
        ("INSERT INTO t (d) VALUES ('2020-13-01')", "CANNOT_PARSE_TEXT", "column 'd'"),
        ("INSERT INTO t (utc) VALUES ('soon')", "CANNOT_PARSE_TEXT", "column 'utc'"),
        ("INSERT INTO t (b) VALUES ('maybe')", "CANNOT_PARSE_TEXT", "column 'b'"),
        ("INSERT INTO t (i8, s) VALUES (1, 'a'), (2)", "SYNTAX_ERROR", "Row 2 has 1 values for 2 columns"),
        ("INSERT INTO t (nope) VALUES (1)", "NO_SUCH_COLUMN_IN_TABLE", "nope"),
        ("INSERT INTO t (s, s) VALUES (1, 2)", "DUPLICATE_COLUMN", "s"),
        ("INSERT INTO t (s) VALUES (now())", "NOT_IMPLEMENTED", "now"),
        ("INSERT INTO t (s) VALUES (DEFAULT)", "NOT_IMPLEMENTED", "DEFAULT"),
        ("INSERT INTO t (s) VALUES ([1])", "NOT_IMPLEMENTED", "["),
        ("INSERT INTO t (i8) VALUES (1 + 1)", "SYNTAX_ERROR", "'+'"),
        ("INSERT INTO t (i8) VALUES (-'1')", "SYNTAX_ERROR", "a number"),
        ("INSERT INTO t (i8) VALUES (1) (2)", "SYNTAX_ERROR", "comma"),
        ("INSERT INTO t (i8) VALUES (1", "SYNTAX_ERROR", "ends"),
        ("INSERT INTO t (i8) VALUES ()", "SYNTAX_ERROR", "a value"),
        ("INSERT INTO t (i8) VALUES", "SYNTAX_ERROR", "a row of values"),
        ("INSERT INTO t", "SYNTAX_ERROR", "VALUES"),
        ("INSERT INTO t FORMAT Csv", "UNKNOWN_FORMAT", "CSV"),
        ("INSERT INTO t SETTINGS deduplicate_insert = 'x' VALUES (1)", "BAD_ARGUMENTS", "backward_compatible_choice"),
        ("INSERT INTO t SETTINGS row_source = 'data' VALUES (1)", "UNKNOWN_SETTING", "row_source"),
        ("INSERT INTO FUNCTION file('x') VALUES (1)", "NOT_IMPLEMENTED", "FUNCTION"),
        (
            "INSERT INTO t SETTINGS insert_dedup_token = 'x' VALUES (1)",
            "UNKNOWN_SETTING",
            "insert_deduplication_token",
        ),
        ("INSERT INTO t SETTINGS insert_deduplicate = 2 VALUES (1)", "BAD_ARGUMENTS", "insert_deduplicate"),
    ],
)
def test_what_does_not_fit_is_refused_whole(text: str, name: str, part: str) -> None:
    with pytest.raises(ClickHouseError) as caught:
        rows(text)
    assert caught.value.name.startswith(name)
    assert part in caught.value.message


@given(st.binary())
def test_escaped_bytes_come_through(content: bytes) -> None:
    escaped = "".join(f"\\x{byte:02x}" for byte in content)
    assert string_literal(f"'{escaped}'") == content


@given(st.text(st.characters(exclude_characters="\\", exclude_categories=["Cs"])))
def test_text_without_backslashes_comes_through_with_doubled_quotes(content: str) -> None:
    doubled = content.replace("'", "''")
    assert string_literal(f"'{doubled}'") == content.encode()


def test_an_unknown_escape_keeps_its_backslash() -> None:
    assert string_literal(r"'\q\x4'") == rb"\q\x4"


@given(st.lists(st.integers(-(2**7), 2**7 - 1), min_size=1))
def test_numbers_come_through(numbers: list[int]) -> None:
    text = ", ".join(f"({number})" for number in numbers)
    assert [row["i8"] for row in rows(f"INSERT INTO t (i8) VALUES {text}")] == numbers
