"""Expressions: their text, their types and their values are ClickHouse's; what is not on the list is refused."""

from __future__ import annotations

import json
import math
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import (
    CannotParseDate,
    ClickHouseError,
    DecimalOverflow,
    IllegalDivision,
    IllegalTypeOfArgument,
    NoCommonType,
    NotImplementedInModel,
    NumberOfArgumentsDoesntMatch,
    SqlSyntaxError,
    TypeMismatch,
    UnknownFunction,
    UnknownIdentifier,
)
from replica.expression import Expression, compile_expression
from replica.expression.compile import Modulo, compile_node
from replica.expression.syntax import Call, Literal, Name, Node, Parentheses, parse, to_text
from replica.schema import Column, DataType, TableSchema, conform, parse_type

RULES = json.loads(
    (Path(__file__).parent.parent / "data" / "clickhouse-26.9" / "function_types.json").read_text(encoding="utf-8")
)
TYPES: list[str] = RULES["types"]
ALL = TableSchema(tuple(Column(text, parse_type(text)) for text in TYPES))
NULLABLE = TableSchema(tuple(Column(text, parse_type(f"Nullable({text})")) for text in TYPES))


def compiled(text: str, **columns: str) -> Expression:
    schema = TableSchema(tuple(Column(name, parse_type(of)) for name, of in columns.items()))
    return compile_expression(text, schema)


def arrow_of(column: list[object], data_type: DataType) -> pa.Array:
    """The values as the type's own Arrow array, or as text and numbers that conform to it."""
    return pa.array(column, data_type.arrow if data_type.is_number or not column else None)


def values(text: str, types: dict[str, str], rows: dict[str, list[object]]) -> list[object]:
    schema = TableSchema(tuple(Column(name, parse_type(of)) for name, of in types.items()))
    arrays = {name: arrow_of(column, schema.column(name).type) for name, column in rows.items()}
    block = conform(pa.table(arrays), schema)
    expression = compile_expression(text, schema)
    result = expression.evaluate(block)
    assert result.type == expression.type.arrow
    return result.to_pylist()  # type: ignore[no-any-return]


def constant(text: str) -> object:
    """The value of an expression without columns."""
    (value,) = values(text, {"c": "UInt8"}, {"c": [0]})
    return value


# --- text ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("a+b*c", "a + (b * c)"),
        ("(a+b)*c", "(a + b) * c"),
        ("a-(b-c)", "a - (b - c)"),
        ("a + 1 - 2 + 3", "((a + 1) - 2) + 3"),
        ("-(a)", "-(a)"),
        ("- 1", "-1"),
        ("-(1)", "-(1)"),
        ("- -a", "-(-a)"),
        ("- -1", "-(-1)"),
        ("-(1) + 2", "-(1) + 2"),
        ("-(a) + 2", "(-(a)) + 2"),
        ("-true = a", "-(true) = a"),
        ("a = b < c = d >= e", "(((a = b) < c) = d) >= e"),
        ("a = (b < c)", "a = (b < c)"),
        ("a+-b", "a + (-b)"),
        ("a - -1", "a - -1"),
        ("-a%4", "(-a) % 4"),
        ("modulo(a,4)", "modulo(a, 4)"),
        ("a==b", "a = b"),
        ("a<>b", "a != b"),
        ("a = b = c", "(a = b) = c"),
        ("toYYYYMM((a))", "toYYYYMM((a))"),
        ("((a))", "(a)"),
        ("`toDate`(a)", "toDate(a)"),
        ('"a"', "a"),
        ("`odd name`", "`odd name`"),
        ("`a``b`", "`a\\`b`"),
        ("`null` = `order`", "`null` = order"),
        ("'it''s \\n'", "'it\\'s \\n'"),
        ("1.50", "1.5"),
        ("1e3", "1000."),
        ("1.0", "1."),
        ("0x10", "16"),
        ("1_000", "1000"),
        ("100000000000000000000", "100000000000000000000."),
        ("1e21", "1e21"),
        ("1e30", "1e30"),
        ("1.5e-7", "1.5e-7"),
        ("-0", "0"),
        ("-0.0", "-0."),
        ("123456789.123456789", "123456789.12345679"),
        ("TRUE", "true"),
        ("null", "NULL"),
        ("-inf", "-inf"),
        ("`inf`", "`inf`"),
        ("a /* why */ + 1 -- because", "a + 1"),
    ],
)
def test_an_expression_is_stored_as_clickhouse_formats_it(written: str, stored: str) -> None:
    assert to_text(parse(written)) == stored


names = st.sampled_from(["a", "ts", "odd name", "select", "ä`\n"]).map(Name)
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
literals = (numbers | st.text(max_size=4) | st.booleans() | st.none()).map(Literal)


def deeper(nodes: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    binary = st.sampled_from(["plus", "minus", "multiply", "divide", "modulo", "equals", "less", "greaterOrEquals"])
    return st.one_of(
        st.builds(Call, binary, st.tuples(nodes, nodes), st.just(True)),
        st.builds(Call, st.just("negate"), st.tuples(names | nodes.filter(lambda n: isinstance(n, Call)))),
        st.builds(Call, st.sampled_from(["toYYYYMM", "plus", "no such"]), st.lists(nodes, max_size=3).map(tuple)),
        st.builds(Parentheses, nodes.filter(lambda node: not isinstance(node, Parentheses))),
    )


def without_added_parentheses(node: Node, inside_operator: bool = False) -> Node:
    """The node as it is before its text puts operators inside operators in parentheses."""
    if isinstance(node, Parentheses):
        inner = without_added_parentheses(node.inner)
        return inner if inside_operator and isinstance(inner, Call) and inner.as_operator else Parentheses(inner)
    if isinstance(node, Call):
        arguments = tuple(without_added_parentheses(each, node.as_operator) for each in node.arguments)
        return Call(node.function, arguments, node.as_operator)
    return node


@given(st.recursive(names | literals, deeper, max_leaves=8))
def test_the_stored_text_means_the_same(node: Node) -> None:
    text = to_text(node)
    again = parse(text)
    assert to_text(again) == text
    assert without_added_parentheses(again) == without_added_parentheses(node)


# --- types ---------------------------------------------------------------------------------------------------


def ruled() -> list[tuple[str, tuple[str, ...], str | int]]:
    """Every function with every combination of argument types, and what ClickHouse says of it."""
    binary = [
        (function, (left, right), rows[i][j])
        for function, rows in RULES["binary"].items()
        for i, left in enumerate(TYPES)
        for j, right in enumerate(TYPES)
    ]
    unary = [(function, (of,), row[i]) for function, row in RULES["unary"].items() for i, of in enumerate(TYPES)]
    return binary + unary


def not_in_the_model(function: str, arguments: tuple[str, ...]) -> bool:
    """What ClickHouse has and the model refuses."""
    moments = {"Date", "DateTime"} & set(arguments)
    if function in ("plus", "minus"):
        return bool(moments and {"Float32", "Float64"} & set(arguments))
    if function in ("modulo", "moduloLegacy"):
        return arguments[0] in moments
    return function == "toDate" and arguments[0] not in ("Date", "DateTime", "String")


def outcome(text: str, schema: TableSchema) -> str | int:
    try:
        return compile_expression(text, schema).type.text
    except ClickHouseError as refusal:
        return refusal.code


def test_every_function_has_clickhouses_result_type_for_every_pair_of_types() -> None:
    wrong = []
    for function, arguments, expected in ruled():
        found = outcome(f"{function}({', '.join(arguments)})", ALL)
        if found != expected and not (not_in_the_model(function, arguments) and isinstance(found, int)):
            wrong.append((function, arguments, expected, found))
    assert wrong == []


def test_a_nullable_argument_makes_a_nullable_result() -> None:
    for function, arguments, _ in ruled():
        text = f"{function}({', '.join(arguments)})"
        plain, nullable = outcome(text, ALL), outcome(text, NULLABLE)
        assert nullable == (f"Nullable({plain})" if isinstance(plain, str) else plain)


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        ("0", "UInt8"),
        ("255", "UInt8"),
        ("256", "UInt16"),
        ("65536", "UInt32"),
        ("4294967296", "UInt64"),
        ("18446744073709551616", "Float64"),
        ("-1", "Int8"),
        ("-129", "Int16"),
        ("-2147483649", "Int64"),
        ("-9223372036854775809", "Float64"),
        ("-(1)", "Int16"),
        ("1.", "Float64"),
        ("nan", "Float64"),
        ("'a'", "String"),
        ("true", "Bool"),
        ("-true", "Int16"),
        ("NULL", "Nullable(Nothing)"),
        ("NULL + 1", "Nullable(Nothing)"),
        ("toYYYYMM(NULL)", "Nullable(Nothing)"),
    ],
)
def test_the_type_of_a_constant(literal: str, text: str) -> None:
    assert compiled(literal, c="UInt8").type.text == text


def test_a_datetime_keeps_its_zone() -> None:
    assert compiled("1 + t", t="DateTime('Europe/Berlin')").type.text == "DateTime('Europe/Berlin')"


# --- values --------------------------------------------------------------------------------------------------

U64, I64 = 2**64 - 1, 2**63 - 1


@pytest.mark.parametrize(
    ("text", "types", "rows", "expected"),
    [
        ("a + b", {"a": "UInt8", "b": "UInt8"}, {"a": [255], "b": [255]}, [510]),
        ("a + 1", {"a": "UInt64"}, {"a": [U64]}, [0]),
        ("a + 1", {"a": "Int64"}, {"a": [I64]}, [-I64 - 1]),
        ("a - 2", {"a": "UInt64"}, {"a": [1]}, [-1]),
        ("a + b", {"a": "UInt64", "b": "Int8"}, {"a": [U64], "b": [-1]}, [-2]),
        ("a * 2", {"a": "Int64"}, {"a": [I64]}, [-2]),
        ("-a", {"a": "UInt64"}, {"a": [U64]}, [1]),
        ("-a", {"a": "Int8"}, {"a": [-128]}, [-128]),
        ("a / b", {"a": "UInt8", "b": "UInt8"}, {"a": [5, 5], "b": [2, 0]}, [2.5, math.inf]),
        ("a / 1", {"a": "UInt64"}, {"a": [2**53 + 1]}, [float(2**53)]),
        ("a % b", {"a": "Int64", "b": "UInt8"}, {"a": [-200, -5, 5], "b": [255, 3, 3]}, [-200, -2, 2]),
        ("a % b", {"a": "UInt64", "b": "Int8"}, {"a": [5, U64], "b": [-3, -3]}, [2, 0]),
        ("a % b", {"a": "Int64", "b": "UInt64"}, {"a": [-I64 - 1, -7], "b": [2**63 + 5, U64]}, [-I64 - 1, -7]),
        ("a % 3", {"a": "Float64"}, {"a": [-5.5, 5.5]}, [-2.5, 2.5]),
        ("d < t", {"d": "Date", "t": "DateTime"}, {"d": ["2149-06-06"] * 2, "t": [2**32 - 1, 4294944000]}, [1, 0]),
        ("toDate(t)", {"t": "DateTime('Europe/Berlin')"}, {"t": ["2087-06-30T22:30:00Z"]}, [date(2087, 7, 1)]),
        ("moduloLegacy(a, 255)", {"a": "Int64"}, {"a": [-200, -255]}, [56, 0]),
        ("a + b", {"a": "Nullable(UInt8)", "b": "UInt8"}, {"a": [1, None], "b": [1, 1]}, [2, None]),
        ("a % b", {"a": "UInt8", "b": "Nullable(UInt8)"}, {"a": [5, 5], "b": [None, 3]}, [None, 2]),
        ("a = b", {"a": "Nullable(UInt8)", "b": "Nullable(UInt8)"}, {"a": [1, None], "b": [None, 2]}, [None, None]),
        ("a + NULL", {"a": "UInt8"}, {"a": [1, 2]}, [None, None]),
        ("a = NULL", {"a": "String"}, {"a": ["x"]}, [None]),
        ("a", {"a": "Nullable(String)"}, {"a": ["x", None]}, [b"x", None]),
        ("a < b", {"a": "Int8", "b": "UInt64"}, {"a": [-1, 1], "b": [U64, 1]}, [1, 0]),
        ("a = b", {"a": "UInt64", "b": "Int8"}, {"a": [U64], "b": [-1]}, [0]),
        ("a = b", {"a": "Int64", "b": "Float64"}, {"a": [2**53 + 1], "b": [float(2**53)]}, [0]),
        ("a > b", {"a": "Int64", "b": "Float64"}, {"a": [2**53 + 1], "b": [float(2**53)]}, [1]),
        ("b < a", {"a": "UInt64", "b": "Float64"}, {"a": [U64, U64], "b": [2.0**64, -1.0]}, [0, 1]),
        ("a >= 1.5", {"a": "Int64"}, {"a": [1, 2, -2]}, [0, 1, 0]),
        ("a < nan", {"a": "Int64"}, {"a": [1]}, [0]),
        ("a > nan", {"a": "Int64"}, {"a": [1]}, [0]),
        ("a < 5.", {"a": "Int64"}, {"a": [5, 4]}, [0, 1]),
        ("a != a", {"a": "Float32"}, {"a": [math.nan, 1.0]}, [1, 0]),
        ("a < b", {"a": "String", "b": "String"}, {"a": ["a", "a\0", "ä"], "b": ["b", "a", "z"]}, [1, 0, 0]),
        ("a = 'x'", {"a": "Nullable(String)"}, {"a": ["x", None, ""]}, [1, None, 0]),
        ("'2020-01-05' <= a", {"a": "Date"}, {"a": ["2020-01-05", "2020-01-04"]}, [1, 0]),
        ("a < '2020-01-05 00:00:01'", {"a": "DateTime"}, {"a": ["2020-01-05 00:00:00"]}, [1]),
        ("a = '300'", {"a": "UInt16"}, {"a": [300]}, [1]),
        (
            "d = t",
            {"d": "Date", "t": "DateTime('Europe/Berlin')"},
            {"d": ["2020-01-01"], "t": ["2020-01-01 00:00:00"]},
            [1],
        ),
        ("toDate('2020-01-01') = t", {"t": "DateTime"}, {"t": ["2020-01-01 00:00:00"]}, [1]),
        ("d + 1", {"d": "Date"}, {"d": ["2149-06-06"]}, [date(1970, 1, 1)]),
        ("d - 1", {"d": "Date"}, {"d": ["1970-01-01"]}, [date(2149, 6, 6)]),
        ("a - b", {"a": "Date", "b": "Date"}, {"a": ["2020-01-05"], "b": ["2020-01-07"]}, [-2]),
        ("a - b", {"a": "DateTime", "b": "DateTime"}, {"a": [5], "b": [2**32 - 1]}, [6]),
        ("toYYYYMM(d)", {"d": "Date"}, {"d": ["2024-02-29", "2149-06-06", "1970-01-01"]}, [202402, 214906, 197001]),
        ("toYYYYMM(t)", {"t": "DateTime"}, {"t": ["2020-01-31 23:30:00"]}, [202001]),
        ("toYYYYMM(t)", {"t": "DateTime('Europe/Berlin')"}, {"t": ["2020-01-31T23:30:00Z"]}, [202002]),
        ("toDate(t)", {"t": "DateTime('Europe/Berlin')"}, {"t": ["2020-01-31T23:30:00Z"]}, [date(2020, 2, 1)]),
        ("toDate(t)", {"t": "DateTime"}, {"t": [2**32 - 1]}, [date(2106, 2, 7)]),
        ("toDate(s)", {"s": "String"}, {"s": ["2020-01-05", "1900-01-01"]}, [date(2020, 1, 5), date(1970, 1, 1)]),
        ("7", {"a": "UInt8"}, {"a": [1, 2]}, [7, 7]),
        ("'x'", {"a": "UInt8"}, {"a": [1, 2]}, [b"x", b"x"]),
        ("a % 0", {"a": "UInt8"}, {"a": []}, []),
    ],
)  # fmt: skip
def test_values(text: str, types: dict[str, str], rows: dict[str, list[object]], expected: list[object]) -> None:
    assert values(text, types, rows) == expected


def test_zero_divided_by_zero_is_nan() -> None:
    assert math.isnan(constant("0 / 0"))  # type: ignore[arg-type]
    assert math.isnan(constant("5.5 % 0"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "divisors"), [("a % b", [1, 0]), ("a % 0", [1, 1]), ("1 % 0", [1, 1])])
def test_a_remainder_by_zero_is_refused(text: str, divisors: list[object]) -> None:
    with pytest.raises(IllegalDivision, match="Division by zero"):
        values(text, {"a": "UInt8", "b": "UInt8"}, {"a": [1, 1], "b": divisors})


def test_the_smallest_number_has_no_remainder_by_minus_one() -> None:
    with pytest.raises(IllegalDivision, match="minimal signed number"):
        values("a % -1", {"a": "Int8"}, {"a": [-128]})


def test_a_date_moves_no_further_than_int64_can_say() -> None:
    assert values("d + a", {"d": "Date", "a": "UInt64"}, {"d": ["2020-01-01"], "a": [I64]}) == [date(2019, 12, 31)]
    with pytest.raises(DecimalOverflow):
        values("d + a", {"d": "Date", "a": "UInt64"}, {"d": ["2020-01-01"], "a": [I64 + 1]})


def test_chunks_and_dictionaries_make_no_difference() -> None:
    schema = TableSchema((Column("s", parse_type("String")),))
    chunks = pa.chunked_array([pa.array([b"a"], pa.large_binary()), pa.array([b"b"], pa.large_binary())])
    expression = compile_expression("s = 'b'", schema)
    assert expression.evaluate(pa.table({"s": chunks})).to_pylist() == [0, 1]
    assert expression.evaluate(pa.table({"s": chunks.dictionary_encode()})).to_pylist() == [0, 1]
    assert expression.evaluate(pa.table({"s": pa.chunked_array([], pa.large_binary())})).to_pylist() == []


INTEGERS = ["UInt8", "Int8", "UInt16", "Int16", "UInt32", "Int32", "UInt64", "Int64"]


@st.composite
def typed_integers(draw: st.DrawFn) -> tuple[str, int]:
    text = draw(st.sampled_from(INTEGERS))
    bounds = np.iinfo(text.lower())
    near = st.sampled_from([int(bounds.min), int(bounds.max), 0, 1]).flatmap(lambda n: st.integers(n - 2, n + 2))
    drawn = st.integers(int(bounds.min), int(bounds.max)) | near
    return text, draw(drawn.filter(lambda n: bounds.min <= n <= bounds.max))


def wrapped(value: int, text: str) -> int:
    """What is left of an integer in a type that it does not fit."""
    bounds = np.iinfo(text.lower())
    return (value - int(bounds.min)) % 2**bounds.bits + int(bounds.min)


def remainder(a: int, b: int) -> int:
    """With the sign of the left side."""
    return abs(a) % abs(b) * (1 if a > 0 else -1)


@given(typed_integers(), typed_integers())
def test_integer_arithmetic_is_exact_up_to_wrapping(left: tuple[str, int], right: tuple[str, int]) -> None:
    (left_type, a), (right_type, b) = left, right
    exact = {"a + b": a + b, "a - b": a - b, "a * b": a * b}
    if b and not (a == np.iinfo(left_type.lower()).min and b == -1):
        exact["a % b"] = remainder(a, b)
    for text, value in exact.items():
        result_type = compiled(text, a=left_type, b=right_type).type.text
        found = values(text, {"a": left_type, "b": right_type}, {"a": [a], "b": [b]})
        assert found == [wrapped(value, result_type)], text


@given(typed_integers(), typed_integers() | st.floats().map(lambda value: ("Float64", value)))
def test_comparison_is_exact(left: tuple[str, int], right: tuple[str, int | float]) -> None:
    (left_type, a), (right_type, b) = left, right
    verdicts = {"=": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}
    for symbol, verdict in verdicts.items():
        found = values(f"a {symbol} b", {"a": left_type, "b": right_type}, {"a": [a], "b": [b]})
        assert found == [int(verdict)], symbol


def test_legacy_modulo_reaches_every_percent_sign() -> None:
    schema = TableSchema((Column("k", parse_type("Int64")),))
    expression = compile_node(parse("(k % 255) + 0"), schema, Modulo.LEGACY)
    assert expression.text == "(k % 255) + 0"
    assert expression.evaluate(pa.table({"k": [-200]})).to_pylist() == [56]


# --- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("", SqlSyntaxError, "not an expression"),
        ("a +", SqlSyntaxError, "not an expression"),
        ("a) + (b", SqlSyntaxError, "not an expression"),
        ("plus(amount, 1", SqlSyntaxError, "parentheses"),
        ("amout", UnknownIdentifier, "Did you mean 'amount'"),
        ("t.amount", UnknownIdentifier, "t.amount"),
        ("toyyyymm(d)", UnknownFunction, "Did you mean 'toYYYYMM'"),
        ("sipHash128(s)", UnknownFunction, "It has plus, "),
        ("lower(s)", UnknownFunction, "lower"),
        ("count()", UnknownFunction, "count"),
        ("now()", UnknownFunction, "now"),
        ("plus(1)", NumberOfArgumentsDoesntMatch, "passed 1, should be 2"),
        ("equals(1)", NumberOfArgumentsDoesntMatch, "passed 1, should be 2"),
        ("toYYYYMM(d, 'UTC')", NumberOfArgumentsDoesntMatch, "passed 2, should be 1"),
        ("s + 1", IllegalTypeOfArgument, "String"),
        ("toYYYYMM(s)", IllegalTypeOfArgument, "String"),
        ("d = 5", IllegalTypeOfArgument, "Date"),
        ("s = amount", NoCommonType, "String"),
        ("amount = 'x'", TypeMismatch, "Cannot convert string 'x' to type UInt8"),
        ("d < '2020'", TypeMismatch, "'2020'"),
        ("(amount, s)", NotImplementedInModel, "only be a whole key"),
        ("amount and 1", NotImplementedInModel, "and"),
        ("amount DESC", NotImplementedInModel, "alias"),
        ("[1]", NotImplementedInModel, "array"),
        ("(select 1)", NotImplementedInModel, "subquery"),
        ("amount; drop table x", NotImplementedInModel, "block"),
        ("*", NotImplementedInModel, "star"),
        ("d + 1.5", NotImplementedInModel, "whole numbers"),
        ("(" * 5000 + "1" + ")" * 5000, SqlSyntaxError, ""),
        ("+".join(["amount"] * 5000), SqlSyntaxError, ""),
    ],
)  # fmt: skip
def test_what_is_not_on_the_list_is_refused_by_name(text: str, error: type[ClickHouseError], says: str) -> None:
    with pytest.raises(error) as refusal:
        compiled(text, amount="UInt8", s="String", d="Date")
    assert says in refusal.value.message
    assert "\x1b" not in refusal.value.message


def test_a_text_that_spells_no_date_is_refused() -> None:
    with pytest.raises(CannotParseDate):
        constant("toDate('x')")
