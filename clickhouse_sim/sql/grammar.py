"""ClickHouse's grammar as sqlglot knows it, with every function call left as it was written.

sqlglot would turn functions into its own, some of them under other names; the closed list in `functions` decides
what a function is here.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from sqlglot import TokenType, exp
from sqlglot.dialects.clickhouse import ClickHouse
from sqlglot.errors import ParseError
from sqlglot.parsers.clickhouse import ClickHouseParser

from replica.errors import SqlSyntaxError

CALLS = (exp.Anonymous, exp.AnonymousAggFunc, exp.CombinedAggFunc, exp.ParameterizedAgg)
"""The nodes that a function call can be."""

_KEPT_FUNCTION_GRAMMARS = ("CAST", "EXTRACT")


class VerbatimClickHouse(ClickHouse):
    """The dialect; CAST and EXTRACT keep their grammar, which is more than a list of arguments."""

    class Tokenizer(ClickHouse.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()  # else SHOW would swallow its statement as one token

    class Parser(ClickHouseParser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parse
            for name, parse in ClickHouseParser.FUNCTION_PARSERS.items()
            if name in _KEPT_FUNCTION_GRAMMARS
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parse for name, parse in ClickHouseParser.NO_PAREN_FUNCTION_PARSERS.items() if name == "CASE"
        }
        NO_PAREN_FUNCTIONS: ClassVar[dict[TokenType, Any]] = {}


def parse(text: str) -> exp.Expr:
    """The syntax tree of one statement. Raises SqlSyntaxError, with the place."""
    try:
        tree = VerbatimClickHouse().parse(text)[0]
    except ParseError as problem:
        raise SqlSyntaxError(_explained(problem)) from None
    if tree is None:
        raise SqlSyntaxError("the statement is empty")
    return tree


def check_expression(text: str, meaning: str) -> None:
    """Raises SqlSyntaxError unless the text is one expression."""
    try:
        tree = parse(f"SELECT {text}")
    except SqlSyntaxError as problem:
        raise SqlSyntaxError(f"{meaning} {text!r} is not an expression: {problem.message}") from None
    parts = [name for name, value in tree.args.items() if value]
    if parts != ["expressions"] or len(tree.expressions) != 1 or isinstance(tree.expressions[0], exp.Alias):
        raise SqlSyntaxError(f"{meaning} {text!r} is not one expression")


def call_name(call: exp.Expr) -> str:
    """The function's name as it was written."""
    return str(call.this) if not isinstance(call.this, exp.Expr) else call.name


def call_arguments(call: exp.Expr) -> list[exp.Expr]:
    """The arguments of a call; of a parametric one (`quantile(0.5)(x)`) those in the second parentheses."""
    if isinstance(call, exp.ParameterizedAgg):
        return list(call.args.get("params") or [])
    return list(call.expressions)


def call_parameters(call: exp.Expr) -> list[exp.Expr]:
    """The parameters of a parametric call: the first parentheses of `quantile(0.5)(x)`."""
    return list(call.expressions) if isinstance(call, exp.ParameterizedAgg) else []


def _explained(problem: ParseError) -> str:
    if not problem.errors:
        return str(problem).splitlines()[0]
    first = problem.errors[0]
    description = re.sub(r" but got <Token.*", "", str(first["description"])).rstrip(".")
    return f"{description} near {first['highlight']!r} (line {first['line']})"
