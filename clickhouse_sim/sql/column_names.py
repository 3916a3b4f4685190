"""What ClickHouse calls a column of a result that has no alias: operators by the names of their functions.

Checked against the engine: `i + 1` is `plus(i, 1)`, `i IN (1, 2)` is `in(i, (1, 2))`, `(i)` is `i`.
"""

from __future__ import annotations

from sqlglot import exp

from clickhouse_sim.sql.grammar import CALLS, call_arguments, call_name, call_parameters
from replica.quoting import string_literal

_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "plus",
    exp.Sub: "minus",
    exp.Mul: "multiply",
    exp.Div: "divide",
    exp.Mod: "modulo",
    exp.EQ: "equals",
    exp.NEQ: "notEquals",
    exp.LT: "less",
    exp.GT: "greater",
    exp.LTE: "lessOrEquals",
    exp.GTE: "greaterOrEquals",
    exp.Like: "like",
    exp.ILike: "ilike",
}
_CHAINS: dict[type[exp.Expr], str] = {exp.And: "and", exp.Or: "or", exp.DPipe: "concat"}
_NEGATED = {"like": "notLike", "ilike": "notILike", "in": "notIn", "isNull": "isNotNull"}


def column_name(node: exp.Expr) -> str:
    """The name of an expression without alias; in rarer cases, its text."""
    if isinstance(node, exp.Paren):
        return column_name(node.this)
    if isinstance(node, exp.Column):
        return str(node.name)
    if isinstance(node, CALLS):
        return _call(node)
    chain = _CHAINS.get(type(node))
    if chain is not None:
        return _spelled(chain, _flattened(node))
    binary = _BINARY.get(type(node))
    if binary is not None:
        return _spelled(_NEGATED[binary] if node.args.get("negate") else binary, [node.this, node.expression])
    return _special(node)


def _call(node: exp.Expr) -> str:
    name, arguments = call_name(node), call_arguments(node)
    if [type(argument) for argument in arguments] == [exp.Star]:
        return f"{name}()"
    if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
        return _spelled(f"{name}Distinct", arguments[0].expressions)
    parameters = call_parameters(node)
    return _spelled(_spelled(name, parameters) if parameters else name, arguments)


def _special(node: exp.Expr) -> str:
    match node:
        case exp.Neg(this=exp.Literal() as literal):
            return f"-{column_name(literal)}"
        case exp.Neg():
            return _spelled("negate", [node.this])
        case exp.Not(this=exp.In() | exp.Is() | exp.Like() | exp.ILike()):
            name, _, arguments = column_name(node.this).partition("(")
            return f"{_NEGATED[name]}({arguments}" if name in _NEGATED else f"not({name}({arguments})"
        case exp.Not():
            return _spelled("not", [node.this])
        case exp.Is(expression=exp.Null()):
            return _spelled("isNull", [node.this])
        case exp.In(expressions=[single]):
            return _spelled("in", [node.this, single])
        case exp.In() if node.expressions:
            listed = ", ".join(column_name(value) for value in node.expressions)
            return f"in({column_name(node.this)}, ({listed}))"
        case exp.Between():
            value, low, high = (column_name(node.args[part]) for part in ("this", "low", "high"))
            return f"and(greaterOrEquals({value}, {low}), lessOrEquals({value}, {high}))"
        case exp.Cast():
            return f"CAST({column_name(node.this)}, '{node.args['to'].sql('clickhouse')}')"
        case exp.Array():
            return f"[{', '.join(column_name(value) for value in node.expressions)}]"
        case exp.Literal(is_string=True):
            return string_literal(node.name)
        case exp.Boolean():
            return "true" if node.this else "false"
        case exp.Tuple():
            return f"({', '.join(column_name(value) for value in node.expressions)})"
    return str(node.sql("clickhouse"))


def _flattened(node: exp.Expr) -> list[exp.Expr]:
    """The operands of a chain such as a AND b AND c."""
    operands: list[exp.Expr] = []
    for side in (node.this, node.expression):
        operands += _flattened(side) if type(side) is type(node) else [side]
    return operands


def _spelled(name: str, arguments: list[exp.Expr]) -> str:
    return f"{name}({', '.join(column_name(argument) for argument in arguments)})"
