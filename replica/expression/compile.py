"""From an expression's syntax and a table's columns to something that has a type and can be evaluated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import pyarrow as pa

from replica.errors import ClickHouseError, NotImplementedInModel, TypeMismatch, UnknownIdentifier
from replica.expression.functions import Function, function_named
from replica.expression.syntax import Call, Literal, Name, Node, Parentheses, Tuple, parse, to_text
from replica.expression.vector import Vector
from replica.quoting import did_you_mean
from replica.schema.conform import conform
from replica.schema.table import Column, TableSchema
from replica.schema.types import NULL_TYPE, DataType, Kind, integer_type, parse_type


class Modulo(Enum):
    """Which function `%` is: a partition key keeps the one that it had before the result type was widened."""

    MODERN = "modulo"
    LEGACY = "moduloLegacy"


@dataclass(frozen=True, slots=True)
class Expression:
    """A typed expression over a table.

    `text` is what ClickHouse stores, `columns` are the names it reads, `constant` says that it reads none and is
    the same in every row.
    """

    text: str
    type: DataType
    columns: frozenset[str]
    compute: Callable[[pa.Table], Vector]

    @property
    def constant(self) -> bool:
        return not self.columns

    def evaluate(self, table: pa.Table) -> pa.Array:
        """Its values, one a row, for a table that has (conformed) the columns it reads.

        Raises IllegalDivision, CannotParseDate: where ClickHouse refuses the values too.
        """
        return self.compute(table).to_arrow(table.num_rows)


def compile_expression(text: str, schema: TableSchema) -> Expression:
    """The expression of a ClickHouse text.

    Raises SqlSyntaxError, UnknownIdentifier, UnknownFunction, NumberOfArgumentsDoesntMatch, IllegalTypeOfArgument,
    NoCommonType, NotImplementedInModel.
    """
    return compile_node(parse(text), schema)


def compile_node(node: Node, schema: TableSchema, modulo: Modulo = Modulo.MODERN) -> Expression:
    """The expression of a parsed text."""
    return replace(_compile(node, schema, modulo), text=to_text(node))


# Inside, only types and values count; the text is that of the whole.
_INNER = ""


def _compile(node: Node, schema: TableSchema, modulo: Modulo) -> Expression:
    if isinstance(node, Name):
        return _column(node.name, schema)
    if isinstance(node, Literal):
        return _constant(node)
    if isinstance(node, Parentheses):
        return _compile(node.inner, schema, modulo)
    if isinstance(node, Tuple):
        raise NotImplementedInModel(
            f"The tuple {to_text(node)} can only be a whole key, not a value in an expression."
        )
    return _call(node, schema, modulo)


def _column(name: str, schema: TableSchema) -> Expression:
    if name not in schema:
        raise UnknownIdentifier(
            f"Unknown identifier {name!r}.{did_you_mean(name, schema.names)} The table has {', '.join(schema.names)}."
        )
    data_type = schema.column(name).type.value_type
    return Expression(
        _INNER, data_type, frozenset({name}), lambda table: Vector.of_column(table.column(name), data_type)
    )


def _constant(literal: Literal) -> Expression:
    data_type = _type_of_constant(literal.value)
    value = literal.value.encode() if isinstance(literal.value, str) else literal.value
    return _constant_of(pa.scalar(value, data_type.arrow), data_type)


def _constant_of(scalar: pa.Scalar, data_type: DataType) -> Expression:
    vector = Vector.of_scalar(scalar, data_type)
    return Expression(_INNER, data_type, frozenset(), lambda table: vector)


def _type_of_constant(value: int | float | str | bool | None) -> DataType:
    """The narrowest type that holds it: unsigned unless it is negative."""
    if value is None:
        return NULL_TYPE
    if isinstance(value, bool):
        return parse_type("Bool")
    if isinstance(value, str):
        return parse_type("String")
    if isinstance(value, float):
        return parse_type("Float64")
    if value < 0:
        return integer_type(next(width for width in (1, 2, 4, 8) if value >= -(2 ** (8 * width - 1))), signed=True)
    return integer_type(next(width for width in (1, 2, 4, 8) if value < 2 ** (8 * width)), signed=False)


def _call(call: Call, schema: TableSchema, modulo: Modulo) -> Expression:
    function = function_named(modulo.value if call.function == Modulo.MODERN.value else call.function)
    arguments = tuple(_compile(argument, schema, modulo) for argument in call.arguments)
    if function.reads_text:
        arguments = _with_text_read(function, call.arguments, arguments)
    data_type = function.result_type(tuple(argument.type for argument in arguments))
    return Expression(
        _INNER,
        data_type,
        frozenset().union(*(argument.columns for argument in arguments)),
        lambda table: function.evaluate(tuple(argument.compute(table) for argument in arguments), data_type),
    )


def _with_text_read(
    function: Function, nodes: tuple[Node, ...], arguments: tuple[Expression, ...]
) -> tuple[Expression, ...]:
    """The arguments, a string literal among them read as a value of the other one's type."""
    if len(arguments) != function.arity:
        return arguments
    (left_node, right_node), (left, right) = nodes, arguments
    if isinstance(left_node, Literal) and isinstance(left_node.value, str):
        return _read(left_node.value, right.type) or left, right
    if isinstance(right_node, Literal) and isinstance(right_node.value, str):
        return left, _read(right_node.value, left.type) or right
    return arguments


def _read(text: str, wanted: DataType) -> Expression | None:
    if wanted.kind in (Kind.STRING, Kind.NOTHING):
        return None
    plain = wanted.with_nullable(False)
    try:
        read = conform(pa.table({"": [text]}), TableSchema((Column("", plain),)))
    except ClickHouseError as problem:
        raise TypeMismatch(f"Cannot convert string {text!r} to type {plain}.") from problem
    return _constant_of(read.column(0)[0], plain)
