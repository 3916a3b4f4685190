"""Arithmetic: ClickHouse's result types (`NumberTraits.h`) and values.

Integers wrap around at the width of the result. `/` is on Float64, by zero infinite or NaN. `%` keeps the sign of
its left side, and of integers is refused by zero and where the smallest signed one meets -1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from replica.errors import DecimalOverflow, IllegalDivision, IllegalTypeOfArgument, NotImplementedInModel
from replica.expression.vector import Vector, any_null
from replica.schema.memory import dtype
from replica.schema.types import DataType, Kind, integer_type, parse_type

_FLOAT64 = parse_type("Float64")
_MOMENTS = (Kind.DATE, Kind.DATETIME)


def _wider(width: int) -> int:
    return min(2 * width, 8)


def _is_number(data_type: DataType) -> bool:
    """Bool counts as UInt8."""
    return data_type.is_number or data_type.kind is Kind.BOOL


def _refusal(function: str, *types: DataType) -> IllegalTypeOfArgument:
    return IllegalTypeOfArgument(f"Illegal types {', '.join(map(str, types))} of arguments of function {function}.")


# --- result types --------------------------------------------------------------------------------------------


def type_of_plus(left: DataType, right: DataType) -> DataType:
    """Of `+`: twice the wider width, signed if one side is; a Date or DateTime moved by an integer stays one."""
    if left.kind in _MOMENTS and _is_number(right):
        return _moved("plus", left, right)
    if right.kind in _MOMENTS and _is_number(left):
        return _moved("plus", right, left)
    return _type_of_sum("plus", left, right, signed=Kind.SIGNED in (left.kind, right.kind))


def type_of_minus(left: DataType, right: DataType) -> DataType:
    """Of `-`: as `+`, but always signed; of two Dates or two DateTimes Int32."""
    if left.kind in _MOMENTS and _is_number(right):
        return _moved("minus", left, right)
    if left.kind in _MOMENTS and left.kind is right.kind:
        return integer_type(4, signed=True)
    return _type_of_sum("minus", left, right, signed=True)


def type_of_multiply(left: DataType, right: DataType) -> DataType:
    """Of `*`: as `+`, of numbers only."""
    return _type_of_sum("multiply", left, right, signed=Kind.SIGNED in (left.kind, right.kind))


def type_of_divide(left: DataType, right: DataType) -> DataType:
    """Of `/`: Float64."""
    _require_numbers("divide", left, right)
    return _FLOAT64


def type_of_modulo(left: DataType, right: DataType) -> DataType:
    """Of `%`: the width of the right side, or twice that and signed if the left side is signed."""
    if left.kind in _MOMENTS and _is_number(right):
        raise NotImplementedInModel(f"The model has no remainder of a {left}: take that of a number.")
    _require_numbers("modulo", left, right)
    if Kind.FLOAT in (left.kind, right.kind):
        return _FLOAT64
    signed = left.kind is Kind.SIGNED
    return integer_type(_wider(right.width) if signed else right.width, signed)


def type_of_legacy_modulo(left: DataType, right: DataType) -> DataType:
    """Of `%` in a partition key, where ClickHouse stays with the type that it once had: it can be too narrow."""
    modern = type_of_modulo(left, right)
    if modern.kind is Kind.FLOAT:
        return modern
    return integer_type(right.width, signed=Kind.SIGNED in (left.kind, right.kind))


def type_of_negate(operand: DataType) -> DataType:
    """Of unary `-`: signed, and wider if the operand was not."""
    _require_numbers("negate", operand)
    if operand.kind in (Kind.UNSIGNED, Kind.BOOL):
        return integer_type(_wider(operand.width), signed=True)
    return operand


def _type_of_sum(function: str, left: DataType, right: DataType, signed: bool) -> DataType:
    _require_numbers(function, left, right)
    if Kind.FLOAT in (left.kind, right.kind):
        return _FLOAT64
    return integer_type(_wider(max(left.width, right.width)), signed)


def _moved(function: str, moment: DataType, amount: DataType) -> DataType:
    if amount.kind is Kind.FLOAT:
        raise NotImplementedInModel(
            f"The model moves a {moment} by whole numbers only, not by {amount} ({function})."
        )
    return moment


def _require_numbers(function: str, *types: DataType) -> None:
    if not all(map(_is_number, types)):
        raise _refusal(function, *types)


# --- values --------------------------------------------------------------------------------------------------


def elementwise(operation: Callable[..., np.ndarray]) -> Callable[[tuple[Vector, ...], DataType], Vector]:
    """A numpy operation on the arguments in the result's own width."""

    def evaluate(arguments: tuple[Vector, ...], result: DataType) -> Vector:
        with np.errstate(all="ignore"):
            operands = [argument.values.astype(dtype(result)) for argument in arguments]
            return Vector(result, np.asarray(operation(*operands)), any_null(arguments))

    return evaluate


def evaluate_sum(operation: Callable[..., np.ndarray]) -> Callable[[tuple[Vector, ...], DataType], Vector]:
    """`+` or `-`. A Date or DateTime is moved by as much as Int64 can say, no further, and wraps around."""
    compute = elementwise(operation)

    def evaluate(arguments: tuple[Vector, ...], result: DataType) -> Vector:
        if result.kind in _MOMENTS:
            for argument in arguments:
                _refuse_beyond_int64(argument)
        return compute(arguments, result)

    return evaluate


def _refuse_beyond_int64(amount: Vector) -> None:
    beyond = amount.values > np.iinfo(np.int64).max
    if np.any(beyond if amount.nulls is None else beyond & ~amount.nulls):
        raise DecimalOverflow(f"Numeric overflow: no moment can be moved by more than {np.iinfo(np.int64).max}.")


def evaluate_modulo(arguments: tuple[Vector, ...], result: DataType) -> Vector:
    """The remainder of the magnitudes, under the sign of the left side."""
    if result.kind is Kind.FLOAT:
        return elementwise(_float_remainder)(arguments, result)
    left, right = (argument.values for argument in arguments)
    nulls = any_null(arguments)
    if nulls is not None:
        right = np.where(nulls, right.dtype.type(1), right)
    _refuse_impossible_division(left, right)
    remainder = _magnitude(left) % _magnitude(right)
    signed = np.where(left < 0, -remainder.astype(np.int64), remainder.astype(np.int64))
    return Vector(result, signed.astype(dtype(result)), nulls)


def _float_remainder(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """By the formula that ClickHouse takes for speed: not always what C's fmod gives, and NaN by an infinity."""
    return np.asarray(left - np.trunc(left / right) * right)


def _magnitude(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "u":
        return values.astype(np.uint64)
    with np.errstate(over="ignore"):
        return np.abs(values.astype(np.int64)).astype(np.uint64)


def _refuse_impossible_division(left: np.ndarray, right: np.ndarray) -> None:
    if np.any(right == 0) and left.size:
        raise IllegalDivision("Division by zero: the right side of % is 0 in at least one row.")
    if left.dtype.kind == right.dtype.kind == "i":
        smallest = np.iinfo(left.dtype).min
        if np.any((left == smallest) & (right == -1)):
            raise IllegalDivision(f"Division of minimal signed number by minus one: {smallest} % -1.")
