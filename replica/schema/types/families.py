"""From the name of a type to the type: ClickHouse's families of types (`system.data_type_families`), one entry each.

A type that is not here is refused by name.
"""

from __future__ import annotations

import functools
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from replica.errors import (
    ArgumentOutOfBound,
    BadArguments,
    DuplicateColumn,
    IllegalTypeOfArgument,
    NotImplementedInModel,
    NumberOfArgumentsDoesntMatch,
    SqlSyntaxError,
    UnexpectedAstStructure,
    UnknownAggregateFunction,
    UnknownType,
)
from replica.quoting import backquote_if_needed, did_you_mean
from replica.schema.types.containers import Array, Map, Tuple
from replica.schema.types.data_type import DataType, Kind
from replica.schema.types.grammar import Argument, Number, Text, TypeName, parse_type_name
from replica.schema.types.moments import Date, Date32, DateTime, DateTime64, Time
from replica.schema.types.numbers import BFloat16, Bool, DecimalType, Float, Integer, WideInteger
from replica.schema.types.strings import EnumType, FixedString, IPv4, IPv6, String, UuidType
from replica.schema.types.variant import Variant
from replica.schema.types.wrappers import Alias, LowCardinality, SimpleAggregateFunction


@dataclass(frozen=True)
class _Nothing(Bool):
    @property
    def base(self) -> str:
        return "Nothing"

    @property
    def kind(self) -> Kind:
        return Kind.NOTHING

    @property
    def arrow(self) -> pa.DataType:
        return pa.null()


NULL_TYPE: DataType = _Nothing(nullable=True)
"""The type of a NULL that stands alone. No column has it."""

# Kinds of whose columns ClickHouse makes a LowCardinality.
_LOW_CARDINALITY = {
    *(Kind.UNSIGNED, Kind.SIGNED, Kind.WIDE, Kind.FLOAT, Kind.BFLOAT, Kind.BOOL, Kind.DATE, Kind.DATE32),
    *(Kind.DATETIME, Kind.UUID, Kind.IPV4, Kind.IPV6, Kind.STRING, Kind.FIXED_STRING),
}
_SIMPLE_FUNCTIONS = (
    *("any", "anyLast", "any_respect_nulls", "anyLast_respect_nulls", "anyValue", "first_value", "last_value"),
    *(
        "min",
        "max",
        "sum",
        "sumWithOverflow",
        "groupBitAnd",
        "groupBitOr",
        "groupBitXor",
        "sumMap",
        "minMap",
        "maxMap",
    ),
    *("groupArrayArray", "groupArrayLastArray", "groupUniqArrayArray", "groupUniqArrayArrayMap", "minMappedArrays"),
    *("maxMappedArrays", "sumMappedArrays"),
)
_NOT_IN_THE_MODEL = ("Dynamic", "JSON", "Object", "AggregateFunction", "Geometry", "QBit", "Nothing")

_Arguments = tuple[Argument, ...]
_Family = Callable[[TypeName], DataType]


def parse_type(text: str) -> DataType:
    """The type that a ClickHouse text names.

    Raises UnknownType for one that does not exist, NotImplementedInModel for one that the model lacks, and for wrong
    arguments IllegalTypeOfArgument, NumberOfArgumentsDoesntMatch, ArgumentOutOfBound, BadArguments and their like.
    """
    return _type(parse_type_name(text))


@functools.cache
def integer_type(width: int, signed: bool) -> DataType:
    """The integer of that many bytes, at most eight."""
    return Integer(8 * width, signed)


def _type(written: TypeName) -> DataType:
    name = written.name if written.name in _FAMILIES else _ALIASES.get(" ".join(written.name.upper().split()))
    if name is None:
        if written.name in _NOT_IN_THE_MODEL or written.name.startswith("Interval"):
            raise NotImplementedInModel(f"The data type {written.name} is not in the model.")
        raise UnknownType(
            f"The model has no data type {written.name}.{did_you_mean(written.name, SUPPORTED)}"
            f" It has {', '.join(SUPPORTED)}."
        )
    return _FAMILIES[name](written)


# --- arguments -------------------------------------------------------------------------------------------------


def _plain(data_type: DataType) -> _Family:
    """A family without arguments."""

    def family(written: TypeName) -> DataType:
        if written.arguments:
            raise IllegalTypeOfArgument(f"The type {data_type.base} takes no arguments.")
        return data_type

    return family


def _numbers(written: TypeName, fewest: int, most: int) -> list[int]:
    arguments = written.arguments or ()
    if not fewest <= len(arguments) <= most:
        expected = str(fewest) if fewest == most else f"{fewest} to {most}"
        raise NumberOfArgumentsDoesntMatch(f"{written.name} takes {expected} numbers, and has {len(arguments)}.")
    numbers = [argument.value for argument in arguments if isinstance(argument, Number)]
    if len(numbers) != len(arguments):
        raise IllegalTypeOfArgument(f"{written.name} takes numbers only.")
    return numbers


def _types(written: TypeName, example: str, count: int | None = None) -> list[DataType]:
    arguments = written.arguments or ()
    if count is not None and len(arguments) != count:
        raise NumberOfArgumentsDoesntMatch(
            f"{written.name} takes {count} type{'s' * (count > 1)}, as in {example}, and has {len(arguments)}."
        )
    return [_type_argument(written, argument) for argument in arguments]


def _type_argument(written: TypeName, argument: Argument) -> DataType:
    if not isinstance(argument, TypeName):
        raise IllegalTypeOfArgument(f"{written.name} takes types, not {argument.value!r}.")
    return _type(argument)


def _zone(written: TypeName, arguments: _Arguments) -> str | None:
    """The time zone that is left of the arguments, if there is one."""
    if not arguments:
        return None
    if len(arguments) > 1 or not isinstance(arguments[0], Text) or arguments[0].number is not None:
        raise IllegalTypeOfArgument(
            f"{written.name} takes a time zone in single quotes, as in DateTime('UTC'), and nothing after it."
        )
    zone = arguments[0].value
    if zone != "UTC":
        try:
            zoneinfo.ZoneInfo(zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as problem:
            raise BadArguments(f"Cannot load time zone {zone}") from problem
    return zone


# --- families --------------------------------------------------------------------------------------------------


def _decimal(written: TypeName) -> DataType:
    precision, scale = (*_numbers(written, 0, 2), *(10, 0)[len(written.arguments or ()) :])
    return _checked_decimal(precision, scale)


def _decimal_of(precision: int) -> _Family:
    return lambda written: _checked_decimal(precision, *_numbers(written, 1, 1))


def _checked_decimal(precision: int, scale: int) -> DataType:
    if not 1 <= precision <= 76:
        raise ArgumentOutOfBound(f"Wrong precision: it must be between 1 and 76, got {precision}.")
    if not 0 <= scale <= precision:
        raise ArgumentOutOfBound("Negative scales and scales larger than precision are not supported.")
    return DecimalType(precision, scale)


def _datetime(written: TypeName) -> DataType:
    arguments = written.arguments or ()
    if arguments and isinstance(arguments[0], Number):
        return _datetime64(written)
    return DateTime(_zone(written, arguments))


def _datetime64(written: TypeName) -> DataType:
    scale, *rest = written.arguments or (Number(3),)
    if not isinstance(scale, Number):
        raise IllegalTypeOfArgument("DateTime64 takes a scale and perhaps a time zone, as in DateTime64(3, 'UTC').")
    return DateTime64(_zone(written, tuple(rest)), _sub_second(scale.value, "DateTime64"))


def _time(written: TypeName) -> DataType:
    return _time64(written) if written.arguments else Time()


def _time64(written: TypeName) -> DataType:
    (scale,) = _numbers(written, 0, 1) or [3]
    return Time(_sub_second(scale, "Time64"))


def _sub_second(scale: int, name: str) -> int:
    if not 0 <= scale <= 9:
        raise ArgumentOutOfBound(f"Scale {scale} of {name} is not between 0 and 9, which are nanoseconds.")
    return scale


def _fixed_string(written: TypeName) -> DataType:
    (length,) = _numbers(written, 1, 1)
    if not 1 <= length <= 0xFFFFFF:
        raise UnexpectedAstStructure(f"FixedString takes a length from 1 to 16777215, not {length}.")
    return FixedString(length)


def _enum(bits: int | None) -> _Family:
    def family(written: TypeName) -> DataType:
        members = _members(written)
        wide = bits == 16 or (bits is None and any(not -128 <= number <= 127 for _, number in members))
        limit = 2**15 if wide else 2**7
        for name, number in members:
            if not -limit <= number < limit:
                raise ArgumentOutOfBound(f"Value {number} for element {name!r} exceeds range of {written.name}.")
        return EnumType(16 if wide else 8, tuple(sorted(members, key=lambda member: member[1])))

    return family


def _members(written: TypeName) -> list[tuple[str, int]]:
    given = [argument for argument in written.arguments or () if isinstance(argument, Text)]
    numbers = [argument.number for argument in given]
    is_strange = not given or len(given) != len(written.arguments or ())
    if is_strange or (None in numbers and any(number is not None for number in numbers[1:])):
        raise UnexpectedAstStructure(
            f"All elements of {written.name} must be of the form 'name' = number, or all of the form 'name'."
        )
    first = 1 if numbers[0] is None else numbers[0]
    members = [
        (each.value, first + place if each.number is None else each.number) for place, each in enumerate(given)
    ]
    for place, (name, number) in enumerate(members):
        for other, taken in members[:place]:
            if name == other:
                raise SqlSyntaxError(f"Duplicate names in enum: {name!r} = {number} and {taken}.")
            if number == taken:
                raise SqlSyntaxError(f"Duplicate values in enum: {name!r} = {number} and {other!r}.")
    return members


def _nullable(written: TypeName) -> DataType:
    arguments = written.arguments or ()
    if len(arguments) != 1:
        raise IllegalTypeOfArgument(f"Nullable takes one type, as in Nullable(String), and has {len(arguments)}.")
    (inner,) = _types(written, "Nullable(String)", 1)
    if inner.nullable or not inner.can_be_nullable:
        raise IllegalTypeOfArgument(f"Nested type {inner} cannot be inside Nullable type.")
    return inner.with_nullable(True)


def _low_cardinality(written: TypeName) -> DataType:
    (inner,) = _types(written, "LowCardinality(String)", 1)
    if inner.kind not in _LOW_CARDINALITY or isinstance(inner, LowCardinality | SimpleAggregateFunction):
        raise IllegalTypeOfArgument(f"LowCardinality is for numbers, strings, Date or DateTime, but got {inner}.")
    return LowCardinality(inner, nullable=inner.nullable)


def _array(written: TypeName) -> DataType:
    return Array(*_types(written, "Array(UInt8)", 1))


def _tuple(written: TypeName) -> DataType:
    elements = tuple(_types(written, "Tuple(UInt8, String)"))
    if not elements:
        raise NotImplementedInModel("The empty Tuple() is not in the model.")
    return Tuple(elements, _labels(written))


def _labels(written: TypeName) -> tuple[str, ...]:
    labels = [argument.label for argument in written.arguments or () if isinstance(argument, TypeName)]
    names = tuple(label for label in labels if label is not None)
    if names and len(names) != len(labels):
        raise BadArguments(f"Names are specified not for all elements of {written.name} type.")
    for place, name in enumerate(names):
        if name in names[:place]:
            raise DuplicateColumn(f"Names of {written.name.lower()} elements must be unique. Duplicate name: {name}.")
    return names


def nested_columns(text: str) -> list[tuple[str, DataType]] | None:
    """The columns that a column of a Nested type stands for, as names and types of arrays; None of any other type."""
    written = parse_type_name(text)
    if written.name != "Nested":
        return None
    elements = _nested_elements(written)
    return [(name, Array(each)) for name, each in zip(elements.names, elements.elements, strict=True)]


def _nested(written: TypeName) -> DataType:
    """Where a table does not flatten it, inside another type."""
    elements = _nested_elements(written)
    named = zip(elements.names, elements.elements, strict=True)
    name = f"Nested({', '.join(f'{backquote_if_needed(name)} {each}' for name, each in named)})"
    return Alias(Array(elements), name)


def _nested_elements(written: TypeName) -> Tuple:
    elements = tuple(_types(written, "Nested(a UInt8, b String)"))
    names = _labels(written)
    if not names:
        raise BadArguments("Nested takes named types, as in Nested(a UInt8, b String).")
    return Tuple(elements, names)


def _map(written: TypeName) -> DataType:
    key, value = _types(written, "Map(String, UInt64)", 2)
    if key.nullable:
        raise BadArguments(f"Map cannot have a key of type {key}.")
    return Map(key, value)


def _variant(written: TypeName) -> DataType:
    alternatives = {each.text: each for each in _types(written, "Variant(UInt64, String)")}
    if not alternatives:
        raise BadArguments("Variant type should have at least one nested type.")
    for each in alternatives.values():
        if each.nullable:
            raise BadArguments(
                "Nullable, LowCardinality(Nullable) and Variant types are not allowed inside Variant type."
            )
    return Variant(tuple(alternatives[text] for text in sorted(alternatives)), nullable=True)


def _simple_aggregate_function(written: TypeName) -> DataType:
    function, *rest = written.arguments or (Number(0),)
    if not isinstance(function, TypeName) or function.arguments or len(rest) != 1:
        raise BadArguments("SimpleAggregateFunction takes a function and a type, as in (max, UInt64).")
    if function.name not in _SIMPLE_FUNCTIONS:
        raise UnknownAggregateFunction(f"SimpleAggregateFunction has no function {function.name}.")
    inner = _type_argument(written, rest[0])
    return SimpleAggregateFunction(inner, function.name, nullable=inner.nullable)


_POINT = Tuple((Float(64), Float(64)))
_GEOMETRIES = {"Point": _POINT, "Ring": Array(_POINT), "LineString": Array(_POINT)}
_GEOMETRIES |= {"Polygon": Array(Alias(_GEOMETRIES["Ring"], "Ring"))}
_GEOMETRIES |= {"MultiLineString": Array(Alias(_GEOMETRIES["LineString"], "LineString"))}
_GEOMETRIES |= {"MultiPolygon": Array(Alias(_GEOMETRIES["Polygon"], "Polygon"))}

_FAMILIES: dict[str, _Family] = {
    **{f"UInt{bits}": _plain(Integer(bits, signed=False)) for bits in (8, 16, 32, 64)},
    **{f"Int{bits}": _plain(Integer(bits, signed=True)) for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": _plain(WideInteger(bits, signed=False)) for bits in (128, 256)},
    **{f"Int{bits}": _plain(WideInteger(bits, signed=True)) for bits in (128, 256)},
    "Float32": _plain(Float(32)),
    "Float64": _plain(Float(64)),
    "BFloat16": _plain(BFloat16()),
    "Bool": _plain(Bool()),
    "Decimal": _decimal,
    "Decimal32": _decimal_of(9),
    "Decimal64": _decimal_of(18),
    "Decimal128": _decimal_of(38),
    "Decimal256": _decimal_of(76),
    "Date": _plain(Date()),
    "Date32": _plain(Date32()),
    "DateTime": _datetime,
    "DateTime32": lambda written: DateTime(_zone(written, written.arguments or ())),
    "DateTime64": _datetime64,
    "Time": _time,
    "Time64": _time64,
    "String": _plain(String()),
    "FixedString": _fixed_string,
    "UUID": _plain(UuidType()),
    "IPv4": _plain(IPv4()),
    "IPv6": _plain(IPv6()),
    "Enum": _enum(None),
    "Enum8": _enum(8),
    "Enum16": _enum(16),
    "Nullable": _nullable,
    "LowCardinality": _low_cardinality,
    "Array": _array,
    "Tuple": _tuple,
    "Map": _map,
    "Nested": _nested,
    "Variant": _variant,
    "SimpleAggregateFunction": _simple_aggregate_function,
    **{name: _plain(Alias(inner, name)) for name, inner in _GEOMETRIES.items()},
}

SUPPORTED = tuple(_FAMILIES)


def _without_width(family: str) -> _Family:
    """MySQL's numbers have a width for display, its texts a length: both mean nothing."""

    def ignoring(written: TypeName) -> DataType:
        _numbers(written, 0, 2)
        return _FAMILIES[family](TypeName(written.name))

    return ignoring


_OF_COMMON_SQL = {
    "Int8": ("TINYINT", "INT1", "BYTE", "TINYINT SIGNED", "INT1 SIGNED"),
    "Int16": ("SMALLINT", "SMALLINT SIGNED"),
    "Int32": ("INT", "INTEGER", "MEDIUMINT", "INT SIGNED", "INTEGER SIGNED", "MEDIUMINT SIGNED"),
    "Int64": ("BIGINT", "SIGNED", "BIGINT SIGNED"),
    "UInt8": ("TINYINT UNSIGNED", "INT1 UNSIGNED"),
    "UInt16": ("SMALLINT UNSIGNED", "YEAR"),
    "UInt32": ("INT UNSIGNED", "INTEGER UNSIGNED", "MEDIUMINT UNSIGNED"),
    "UInt64": ("BIGINT UNSIGNED", "UNSIGNED", "BIT", "SET"),
    "Float32": ("FLOAT", "REAL", "SINGLE"),
    "Float64": ("DOUBLE", "DOUBLE PRECISION"),
    "String": (
        *("CHAR", "VARCHAR", "TEXT", "BLOB", "BYTEA", "TINYTEXT", "MEDIUMTEXT", "LONGTEXT", "TINYBLOB", "MEDIUMBLOB"),
        *("LONGBLOB", "CLOB", "CHARACTER", "NCHAR", "NVARCHAR", "VARCHAR2", "VARBINARY", "CHAR VARYING"),
        *("CHARACTER VARYING", "NATIONAL CHAR"),
    ),
}
_SAME_ARGUMENTS = {
    "BOOL": "Bool",
    "BOOLEAN": "Bool",
    "DATE": "Date",
    "DATE32": "Date32",
    "DATETIME": "DateTime",
    "TIMESTAMP": "DateTime",
    "DATETIME32": "DateTime32",
    "DATETIME64": "DateTime64",
    "TIME": "Time",
    "TIME64": "Time64",
    "DECIMAL": "Decimal",
    "DEC": "Decimal",
    "NUMERIC": "Decimal",
    "FIXED": "Decimal",
    "DECIMAL32": "Decimal32",
    "DECIMAL64": "Decimal64",
    "DECIMAL128": "Decimal128",
    "DECIMAL256": "Decimal256",
    "BINARY": "FixedString",
    "ENUM": "Enum",
    "INET4": "IPv4",
    "INET6": "IPv6",
}
# Names that ClickHouse takes in any case.
_ALIASES = dict(_SAME_ARGUMENTS)
for _family, _names in _OF_COMMON_SQL.items():
    for _name in _names:
        _ALIASES[_name] = _name
        _FAMILIES[_name] = _without_width(_family)
