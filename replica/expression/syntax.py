"""The syntax of expressions: from ClickHouse text, parsed by sqlglot, to a few kinds of nodes, and back to the text
under which ClickHouse stores an expression (`k % 4`, `toYYYYMM(ts)`, `(a + b) * c`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias, TypeGuard

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from replica.errors import NotImplementedInModel, SqlSyntaxError
from replica.quoting import backquote_if_needed, string_literal


@dataclass(frozen=True, slots=True)
class Name:
    """A column."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant as it is written; None is NULL."""

    value: int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class Call:
    """A function applied. Operators are calls too; `as_operator` remembers how this one was written."""

    function: str
    arguments: tuple[Node, ...]
    as_operator: bool = False


@dataclass(frozen=True, slots=True)
class Parentheses:
    """Parentheses that somebody wrote around a single expression; ClickHouse keeps them."""

    inner: Node


@dataclass(frozen=True, slots=True)
class Tuple:
    """`(a, b)`, or `tuple(a, b)` when `as_function`."""

    items: tuple[Node, ...]
    as_function: bool


Node: TypeAlias = Name | Literal | Call | Parentheses | Tuple

_OPERATORS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Add: ("plus", "+"),
    exp.Sub: ("minus", "-"),
    exp.Mul: ("multiply", "*"),
    exp.Div: ("divide", "/"),
    exp.Mod: ("modulo", "%"),
    exp.EQ: ("equals", "="),
    exp.NEQ: ("notEquals", "!="),
    exp.LT: ("less", "<"),
    exp.LTE: ("lessOrEquals", "<="),
    exp.GT: ("greater", ">"),
    exp.GTE: ("greaterOrEquals", ">="),
}
_SYMBOLS = dict(_OPERATORS.values())
_EQUALITIES = ("equals", "notEquals")
_INEQUALITIES = ("less", "lessOrEquals", "greater", "greaterOrEquals")
_FLOAT_NAMES = {"nan": math.nan, "inf": math.inf}


def parse(text: str) -> Node:
    """The expression of a text.

    Raises SqlSyntaxError when it is none, NotImplementedInModel when it uses syntax that the model lacks.
    """
    return _parse(text, text)


def parse_list(text: str) -> tuple[Node, ...]:
    """The expressions that a key's text lists: none of an empty one, one of `a`, two of `a, b` or of `(a, b)`.

    Raises what `parse` raises.
    """
    if not text.strip():
        return ()
    # The line break keeps a comment at the end from swallowing the parenthesis.
    whole = _parse(f"tuple({text}\n)", text)
    if not isinstance(whole, Tuple):
        raise SqlSyntaxError(f"{text!r} is not a list of expressions: the parentheses do not match.")
    items = whole.items
    while len(items) == 1 and isinstance(items[0], Tuple):
        items = items[0].items
    return items


def _parse(text: str, shown: str) -> Node:
    try:
        _require_closed_parentheses(text, shown)
        return _node(sqlglot.parse_one(text, dialect="clickhouse"))
    except SqlglotError as problem:
        raise SqlSyntaxError(f"{shown!r} is not an expression: {_reason(problem)}") from None
    except RecursionError:
        raise SqlSyntaxError(f"The expression {shown[:40]!r}… is nested too deeply.") from None


def _require_closed_parentheses(text: str, shown: str) -> None:
    """sqlglot forgives a function's missing parenthesis; ClickHouse does not."""
    kinds = [token.token_type for token in sqlglot.tokenize(text, dialect="clickhouse")]
    if kinds.count(sqlglot.TokenType.L_PAREN) != kinds.count(sqlglot.TokenType.R_PAREN):
        raise SqlSyntaxError(f"{shown!r} is not an expression: the parentheses do not match.")


def _reason(problem: SqlglotError) -> str:
    described = [each["description"] for each in getattr(problem, "errors", ()) if each.get("description")]
    return str(described[0]) if described else str(problem).splitlines()[0]


def _node(parsed: exp.Expr) -> Node:
    operator = _OPERATORS.get(type(parsed))
    if operator is not None:
        return _operation(operator[0], _node(parsed.this), _node(parsed.expression))
    if isinstance(parsed, exp.Neg):
        return _negative(_node(parsed.this), twice=isinstance(parsed.this, exp.Neg))
    if isinstance(parsed, exp.Column):
        return _name(parsed)
    if isinstance(parsed, exp.Paren):
        return _parentheses(_node(parsed.this))
    if isinstance(parsed, exp.Tuple | exp.Struct):
        return Tuple(tuple(map(_node, parsed.expressions)), as_function=isinstance(parsed, exp.Struct))
    if isinstance(parsed, exp.Anonymous):
        return Call(parsed.name, tuple(map(_node, parsed.expressions)))
    if isinstance(parsed, exp.Func) and "clickhouse_name" in parsed.meta:
        return Call(parsed.meta["clickhouse_name"], ())
    return Literal(_constant(parsed))


def _operation(function: str, left: Node, right: Node) -> Node:
    """To ClickHouse all comparisons are of one precedence, to sqlglot `<` binds closer than `=`."""
    if function in _EQUALITIES and isinstance(right, Call) and right.as_operator and right.function in _INEQUALITIES:
        middle, last = right.arguments
        return Call(right.function, (_operation(function, left, middle), last), as_operator=True)
    return Call(function, (left, right), as_operator=True)


def _negative(operand: Node, twice: bool) -> Node:
    """The innermost minus belongs to the number."""
    if isinstance(operand, Literal) and not twice:
        value = operand.value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return Literal(_fitting(-value))
    return Call("negate", (operand,), as_operator=True)


def _parentheses(inner: Node) -> Node:
    return inner if isinstance(inner, Parentheses | Tuple) else Parentheses(inner)


def _name(column: exp.Column) -> Node:
    parts = [part.name for part in column.parts]
    if len(parts) == 1 and not column.this.args.get("quoted") and parts[0] in _FLOAT_NAMES:
        return Literal(_FLOAT_NAMES[parts[0]])
    return Name(".".join(parts))


def _constant(parsed: exp.Expr) -> int | float | str | bool | None:
    if isinstance(parsed, exp.Null):
        return None
    if isinstance(parsed, exp.Boolean):
        return bool(parsed.this)
    if isinstance(parsed, exp.HexString) and parsed.args.get("is_integer"):
        return _fitting(int(parsed.this, 16))
    if isinstance(parsed, exp.Literal):
        return str(parsed.this) if parsed.is_string else _number(parsed.this)
    raise NotImplementedInModel(
        f"{parsed.sql(dialect='clickhouse')!r} ({parsed.key}) is no expression that the model has: it has columns,"
        f" numbers, strings, NULL, true and false, the operators {' '.join(_SYMBOLS.values())}, and functions."
    )


def _number(text: str) -> int | float:
    try:
        return _fitting(int(text))
    except ValueError:
        return float(text)


def _fitting(number: int | float) -> int | float:
    """An integer beyond 64 bits is read as a float."""
    if isinstance(number, int) and not -(2**63) <= number < 2**64:
        return float(number)
    return number


def to_text(node: Node) -> str:
    """The expression as ClickHouse formats and stores it."""
    if isinstance(node, Name):
        return backquote_if_needed(node.name)
    if isinstance(node, Literal):
        return _literal_text(node.value)
    if isinstance(node, Parentheses):
        return f"({to_text(node.inner)})"
    if isinstance(node, Tuple):
        inner = ", ".join(map(to_text, node.items))
        return f"tuple({inner})" if node.as_function or len(node.items) < 2 else f"({inner})"
    if not node.as_operator:
        return f"{backquote_if_needed(node.function)}({', '.join(map(to_text, node.arguments))})"
    if node.function == "negate":
        (operand,) = node.arguments
        needs_parentheses = isinstance(operand, Literal) or _is_minus(operand)
        return f"-({to_text(operand)})" if needs_parentheses else f"-{_operand_text(operand)}"
    left, right = map(_operand_text, node.arguments)
    return f"{left} {_SYMBOLS[node.function]} {right}"


def _operand_text(node: Node) -> str:
    """An operand: an operator inside an operator stands in parentheses, but for a minus that has some inside."""
    text = to_text(node)
    is_operation = isinstance(node, Call) and node.as_operator
    return f"({text})" if is_operation and not _is_minus_of_constant_or_minus(node) else text


def _is_minus(node: Node) -> TypeGuard[Call]:
    return isinstance(node, Call) and node.as_operator and node.function == "negate"


def _is_minus_of_constant_or_minus(node: Node) -> bool:
    if not _is_minus(node):
        return False
    (operand,) = node.arguments
    if isinstance(operand, Parentheses):
        operand = operand.inner
    return isinstance(operand, Literal) or _is_minus(operand)


def _literal_text(value: int | float | str | bool | None) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return string_literal(value)
    return _float_text(value) if isinstance(value, float) else str(value)


def _float_text(value: float) -> str:
    """The shortest text that reads back as the float, with a point or an exponent to tell it from an integer."""
    if not math.isfinite(value):
        return str(value)
    exponent = Decimal(repr(value)).adjusted()
    if value == 0 or -7 < exponent < 21:
        text = f"{Decimal(repr(value)):f}"
        whole, _, fraction = text.partition(".")
        return f"{whole}.{fraction.rstrip('0')}"
    digits, _, _ = f"{Decimal(repr(value)):e}".partition("e")
    mantissa = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return f"{mantissa}e{exponent}"
