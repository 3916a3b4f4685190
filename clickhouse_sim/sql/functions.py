"""The ClickHouse functions that SELECT knows, each as a template of DuckDB SQL.

`{0}` is the first argument, `{*}` all of them, `{p}` the parameters of a parametric aggregate. `If` after an
aggregate's name (`sumIf`) needs no entry of its own. A name that is not here is an unknown function.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from clickhouse_sim.sql.type_names import TEMPLATE as TYPE_NAME
from replica.errors import NumberOfArgumentsDoesntMatch, UnknownFunction
from replica.quoting import did_you_mean


@dataclass(frozen=True, slots=True)
class Function:
    """`fewest` and `most` bound the number of arguments; an aggregate may take the suffix `If`."""

    template: str
    fewest: int = 1
    most: int = 1
    aggregate: bool = False


def _plain(name: str, fewest: int = 1, most: int = 1) -> Function:
    return Function(f"{name}({{*}})", fewest, most)


def _aggregate(template: str, fewest: int = 1, most: int = 1) -> Function:
    return Function(template, fewest, most, aggregate=True)


def _cast(duckdb_type: str) -> Function:
    return Function(f"CAST({{0}} AS {duckdb_type})")


_ANY_NUMBER = 1000

# ClickHouse takes these in any case.
_ANY_CASE: dict[str, Function] = {
    "count": _aggregate("count({*})", 0),
    "sum": _aggregate("sum({0})"),
    "min": _aggregate("min({0})"),
    "max": _aggregate("max({0})"),
    "avg": _aggregate("avg({0})"),
    "median": _aggregate("quantile_cont({0}, 0.5)"),
    "abs": _plain("abs"),
    "sqrt": _plain("sqrt"),
    "exp": _plain("exp"),
    "ln": _plain("ln"),
    "log": _plain("ln"),
    "log2": _plain("log2"),
    "log10": _plain("log10"),
    "pow": _plain("pow", 2, 2),
    "power": _plain("pow", 2, 2),
    "floor": _plain("floor"),
    "ceil": _plain("ceil"),
    "ceiling": _plain("ceil"),
    "round": Function("round_even({0}, 0)"),
    "sign": _plain("sign"),
    "mod": Function("({0}) % ({1})", 2, 2),
    "length": Function(
        "CASE WHEN typeof({0}) LIKE '%[]' THEN len({0}) ELSE octet_length(encode(CAST({0} AS VARCHAR))) END"
    ),
    "lower": _plain("lower"),
    "upper": _plain("upper"),
    "concat": Function("concat({*})", 1, _ANY_NUMBER),
    "substring": _plain("substring", 2, 3),
    "substr": _plain("substring", 2, 3),
    "left": _plain("left", 2, 2),
    "right": _plain("right", 2, 2),
    "reverse": _plain("reverse"),
    "replace": _plain("replace", 3, 3),
    "position": Function("strpos({0}, {1})", 2, 2),
    "if": Function("CASE WHEN {0} THEN {1} ELSE {2} END", 3, 3),
    "coalesce": _plain("coalesce", 1, _ANY_NUMBER),
    "ifNull": _plain("ifnull", 2, 2),
    "nullIf": _plain("nullif", 2, 2),
    "isNull": Function("({0}) IS NULL"),
    "greatest": _plain("greatest", 1, _ANY_NUMBER),
    "least": _plain("least", 1, _ANY_NUMBER),
    "now": Function("CAST(now() AT TIME ZONE 'UTC' AS TIMESTAMP_S)", 0, 0),
    "today": Function("CAST(now() AT TIME ZONE 'UTC' AS DATE)", 0, 0),
    "date": _cast("DATE"),
    "date_trunc": _plain("date_trunc", 2, 2),
    "year": Function("year({0})"),
    "month": Function("month({0})"),
    "day": Function("day({0})"),
    "hour": Function("hour({0})"),
    "minute": Function("minute({0})"),
    "second": Function("second({0})"),
}

# ClickHouse takes these in this case only.
_EXACT_CASE: dict[str, Function] = {
    "any": _aggregate("any_value({0})"),
    "uniq": _aggregate("count(DISTINCT {0})"),
    "uniqExact": _aggregate("count(DISTINCT {0})"),
    "quantile": _aggregate("quantile_cont({0}, {p})"),
    "argMin": _aggregate("arg_min({*})", 2, 2),
    "argMax": _aggregate("arg_max({*})", 2, 2),
    "groupArray": _aggregate("list({0})"),
    "groupUniqArray": _aggregate("list(DISTINCT {0})"),
    "intDiv": Function("({0}) // ({1})", 2, 2),
    "plus": Function("({0}) + ({1})", 2, 2),
    "minus": Function("({0}) - ({1})", 2, 2),
    "multiply": Function("({0}) * ({1})", 2, 2),
    "divide": Function("({0}) / ({1})", 2, 2),
    "modulo": Function("({0}) % ({1})", 2, 2),
    "equals": Function("({0}) = ({1})", 2, 2),
    "notEquals": Function("({0}) <> ({1})", 2, 2),
    "less": Function("({0}) < ({1})", 2, 2),
    "greater": Function("({0}) > ({1})", 2, 2),
    "lessOrEquals": Function("({0}) <= ({1})", 2, 2),
    "greaterOrEquals": Function("({0}) >= ({1})", 2, 2),
    "isNotNull": Function("({0}) IS NOT NULL"),
    "empty": Function("len({0}) = 0"),
    "notEmpty": Function("len({0}) > 0"),
    "lengthUTF8": _plain("length"),
    "has": _plain("list_contains", 2, 2),
    "startsWith": _plain("starts_with", 2, 2),
    "endsWith": _plain("ends_with", 2, 2),
    "toTypeName": Function(TYPE_NAME),
    "toString": _cast("VARCHAR"),
    "toInt8": _cast("TINYINT"),
    "toInt16": _cast("SMALLINT"),
    "toInt32": _cast("INTEGER"),
    "toInt64": _cast("BIGINT"),
    "toUInt8": _cast("UTINYINT"),
    "toUInt16": _cast("USMALLINT"),
    "toUInt32": _cast("UINTEGER"),
    "toUInt64": _cast("UBIGINT"),
    "toFloat32": _cast("FLOAT"),
    "toFloat64": _cast("DOUBLE"),
    "toDate": _cast("DATE"),
    "toDateTime": _cast("TIMESTAMP_S"),
    "toYear": Function("year({0})"),
    "toMonth": Function("month({0})"),
    "toQuarter": Function("quarter({0})"),
    "toDayOfMonth": Function("day({0})"),
    "toDayOfYear": Function("dayofyear({0})"),
    "toDayOfWeek": Function("isodow({0})"),
    "toHour": Function("hour({0})"),
    "toMinute": Function("minute({0})"),
    "toSecond": Function("second({0})"),
    "toYYYYMM": Function("(year({0}) * 100 + month({0}))"),
    "toYYYYMMDD": Function("(year({0}) * 10000 + month({0}) * 100 + day({0}))"),
    "toStartOfYear": Function("CAST(date_trunc('year', {0}) AS DATE)"),
    "toStartOfQuarter": Function("CAST(date_trunc('quarter', {0}) AS DATE)"),
    "toStartOfMonth": Function("CAST(date_trunc('month', {0}) AS DATE)"),
    "toMonday": Function("CAST(date_trunc('week', {0}) AS DATE)"),
    "toStartOfDay": Function("CAST(date_trunc('day', {0}) AS TIMESTAMP_S)"),
    "toStartOfHour": Function("CAST(date_trunc('hour', {0}) AS TIMESTAMP_S)"),
    "toStartOfMinute": Function("CAST(date_trunc('minute', {0}) AS TIMESTAMP_S)"),
    "toUnixTimestamp": Function("CAST(epoch(CAST({0} AS TIMESTAMP)) AS UBIGINT)"),
}

_PLACE = re.compile(r"\{[*p0-9]\}")

_FOLDED = {name.casefold(): function for name, function in _ANY_CASE.items()}


def lookup(name: str) -> tuple[Function, bool]:
    """The function of that name, and whether the suffix `If` makes its last argument a condition.

    Raises UnknownFunction, which names the nearest.
    """
    function = _EXACT_CASE.get(name) or _FOLDED.get(name.casefold())
    if function is not None:
        return function, False
    base = name.removesuffix("If")
    conditional = _EXACT_CASE.get(base) or _FOLDED.get(base.casefold())
    if base != name and conditional is not None and conditional.aggregate:
        return conditional, True
    known = [*_ANY_CASE, *_EXACT_CASE]
    raise UnknownFunction(f"SELECT knows no function {name}.{did_you_mean(name, known)}")


def duckdb_call(name: str, arguments: list[str], parameters: list[str]) -> str:
    """The DuckDB SQL of a call. Raises UnknownFunction and NumberOfArgumentsDoesntMatch."""
    function, conditional = lookup(name)
    condition = arguments.pop() if conditional and arguments else ""
    if not function.fewest <= len(arguments) <= function.most or (conditional and not condition):
        raise NumberOfArgumentsDoesntMatch(f"function {name} takes {_expected(function, conditional)}")
    if bool(parameters) and "{p}" not in function.template:
        raise NumberOfArgumentsDoesntMatch(f"function {name} takes no parameters in parentheses before its arguments")
    places = {"{*}": ", ".join(arguments), "{p}": ", ".join(parameters) or "0.5"}
    places |= {f"{{{index}}}": argument for index, argument in enumerate(arguments)}
    sql = _PLACE.sub(lambda place: places[place.group()], function.template)
    return f"{sql} FILTER (WHERE {condition})" if conditional else sql


def _expected(function: Function, conditional: bool) -> str:
    few, many = function.fewest + conditional, function.most + conditional
    if many > _ANY_NUMBER:
        return f"{few} or more arguments"
    plural = "" if many == 1 else "s"
    return f"{few} argument{plural}" if few == many else f"{few} to {many} argument{plural}"
