"""Comparison: by value across all number types, exactly where a cast would round; strings byte by byte.

NaN is neither less than, equal to nor greater than anything.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.errors import IllegalTypeOfArgument, NoCommonType
from replica.expression.dates import midnights
from replica.expression.vector import Vector, any_null
from replica.schema.types import DataType, Kind, integer_type

_MOMENTS = {Kind.DATE, Kind.DATETIME}


def type_of_comparison(left: DataType, right: DataType) -> DataType:
    """UInt8, where the two can be compared at all."""
    kinds = {left.kind, right.kind}
    if Kind.STRING in kinds and len(kinds) > 1:
        raise NoCommonType(f"There is no supertype for types {left}, {right}: one is a String and the other is not.")
    if Kind.DATE in kinds and not kinds <= _MOMENTS:
        raise IllegalTypeOfArgument(f"Illegal types of arguments ({left}, {right}) of a comparison.")
    return integer_type(1, signed=False)


# What each comparison says of a pair that is less, equal, or neither and not unordered (greater).
_Verdict = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

VERDICTS: dict[str, _Verdict] = {
    "equals": lambda less, equal, greater: equal,
    "notEquals": lambda less, equal, greater: ~equal,
    "less": lambda less, equal, greater: less,
    "lessOrEquals": lambda less, equal, greater: less | equal,
    "greater": lambda less, equal, greater: greater,
    "greaterOrEquals": lambda less, equal, greater: greater | equal,
}


def comparison(verdict: _Verdict) -> Callable[[tuple[Vector, ...], DataType], Vector]:
    """The evaluation of one comparison."""

    def evaluate(arguments: tuple[Vector, ...], result: DataType) -> Vector:
        answer = verdict(*_order(*arguments))
        return Vector(result, np.asarray(answer).astype(np.uint8), any_null(arguments))

    return evaluate


def _order(left: Vector, right: Vector) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each row whether left is less than, equal to, greater than right."""
    if left.type.kind is Kind.STRING:
        comparisons = (compare(left.values, right.values) for compare in (pc.less, pc.equal, pc.greater))
        less, equal, greater = map(_to_numpy, comparisons)
        return less, equal, greater
    a, b = _on_one_scale(left, right), _on_one_scale(right, left)
    if a.dtype.kind == "f" and _is_wide_integer(b):
        greater, equal, less = _order_of_integer_and_float(b, a)
        return less, equal, greater
    if b.dtype.kind == "f" and _is_wide_integer(a):
        return _order_of_integer_and_float(a, b)
    return np.less(a, b), np.equal(a, b), np.greater(a, b)


def _to_numpy(answer: pa.Array | pa.Scalar) -> np.ndarray:
    if isinstance(answer, pa.Scalar):
        return np.asarray(answer.as_py())
    booleans: np.ndarray = answer.to_numpy(zero_copy_only=False)
    return booleans


def _on_one_scale(vector: Vector, other: Vector) -> np.ndarray:
    """A Date beside a DateTime is the second at which it begins."""
    if vector.type.kind is Kind.DATE and other.type.kind is Kind.DATETIME:
        return midnights(vector.values, other.type.zone)
    return np.asarray(vector.values)


def _is_wide_integer(values: np.ndarray) -> bool:
    return values.dtype.kind in "iu" and values.dtype.itemsize == 8


def _order_of_integer_and_float(
    integers: np.ndarray, floats: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Exact where the integer has more digits than a float can hold."""
    bounds = np.iinfo(integers.dtype)
    floats = floats.astype(np.float64)
    # Both bounds of 64 bits, the upper one exclusive, are exact as floats.
    below, above = floats < float(bounds.min), floats >= float(bounds.max)
    inside = ~below & ~above & ~np.isnan(floats)
    whole = np.floor(np.where(inside, floats, 0.0))
    as_integers = whole.astype(integers.dtype)
    has_fraction = inside & (floats > whole)
    less = above | (inside & ((integers < as_integers) | ((integers == as_integers) & has_fraction)))
    equal = inside & (integers == as_integers) & ~has_fraction
    greater = below | (inside & ~less & ~equal)
    return less, equal, greater
