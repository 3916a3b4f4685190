"""The functions that expressions may use: a closed list. Names count their case, as in ClickHouse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from replica.errors import NotImplementedInModel, NumberOfArgumentsDoesntMatch, UnknownFunction
from replica.expression import arithmetic, comparison, dates
from replica.expression.vector import Vector
from replica.quoting import did_you_mean
from replica.schema.types import NULL_TYPE, DataType, Kind

_COMPUTED = (Kind.UNSIGNED, Kind.SIGNED, Kind.FLOAT, Kind.BOOL, Kind.DATE, Kind.DATETIME, Kind.STRING)
_MOMENTS = (Kind.DATE32, Kind.DATETIME64)


@dataclass(frozen=True, slots=True)
class Function:
    """One function.

    `result` gives the result's type for argument types that are not Nullable, or raises IllegalTypeOfArgument and
    its like. `compute` gives the values; where an argument is NULL what it computes does not matter.
    `reads_text` says that a string constant among the arguments is read as a value of the other's type. `also` are
    kinds of arguments that it takes beyond those that most functions do.
    """

    name: str
    arity: int
    result: Callable[..., DataType]
    compute: Callable[[tuple[Vector, ...], DataType], Vector]
    reads_text: bool = False
    also: tuple[Kind, ...] = ()

    def result_type(self, arguments: tuple[DataType, ...]) -> DataType:
        """The type of the result; NULL goes in, NULL comes out."""
        if len(arguments) != self.arity:
            raise NumberOfArgumentsDoesntMatch(
                f"Number of arguments for function {self.name} doesn't match: passed {len(arguments)},"
                f" should be {self.arity}."
            )
        if any(argument.kind is Kind.NOTHING for argument in arguments):
            return NULL_TYPE
        for argument in arguments:
            if argument.kind not in _COMPUTED and argument.kind not in self.also:
                raise NotImplementedInModel(f"The model has no function {self.name} of {argument.with_article}.")
        plain = self.result(*(argument.with_nullable(False) for argument in arguments))
        return plain.with_nullable(any(argument.nullable for argument in arguments))

    def evaluate(self, arguments: tuple[Vector, ...], result: DataType) -> Vector:
        """The values for evaluated arguments."""
        if result.kind is Kind.NOTHING:
            return Vector(result, np.zeros((), np.uint8), np.ones((), bool))
        return self.compute(arguments, result)


_FUNCTIONS = {
    function.name: function
    for function in (
        Function("plus", 2, arithmetic.type_of_plus, arithmetic.evaluate_sum(np.add)),
        Function("minus", 2, arithmetic.type_of_minus, arithmetic.evaluate_sum(np.subtract)),
        Function("multiply", 2, arithmetic.type_of_multiply, arithmetic.elementwise(np.multiply)),
        Function("divide", 2, arithmetic.type_of_divide, arithmetic.elementwise(np.true_divide)),
        Function("modulo", 2, arithmetic.type_of_modulo, arithmetic.evaluate_modulo),
        Function("moduloLegacy", 2, arithmetic.type_of_legacy_modulo, arithmetic.evaluate_modulo),
        Function("negate", 1, arithmetic.type_of_negate, arithmetic.elementwise(np.negative)),
        *(
            Function(name, 2, comparison.type_of_comparison, comparison.comparison(verdict), reads_text=True)
            for name, verdict in comparison.VERDICTS.items()
        ),
        Function("toYYYYMM", 1, dates.type_of_yyyymm, dates.evaluate_yyyymm, also=_MOMENTS),
        Function("toDate", 1, dates.type_of_date, dates.evaluate_date, also=_MOMENTS),
    )
}


def function_named(name: str) -> Function:
    """The function of that name; UnknownFunction, with all there are, when the model has none."""
    try:
        return _FUNCTIONS[name]
    except KeyError:
        raise UnknownFunction(
            f"The model has no function {name}.{did_you_mean(name, _FUNCTIONS)}"
            f" It has {', '.join(_FUNCTIONS)}, tuple."
        ) from None
