"""JSON values to what spells a value of a type, in the type's `text_shape`.

An array of ClickHouse is an array; a tuple is an array, or an object where its elements have names; a map is an
object. Inside them null is the default of a type that is not Nullable, and so is an element that an object lacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

from replica.schema.types import DataType, Kind
from replica.schema.types.containers import Tuple

_LAST_SECOND = 2**32 - 1


class JsonNumber(str):
    """A JSON number as it is spelled, so that no digit is lost on the way to its column."""


@dataclass(frozen=True, slots=True)
class JsonObject:
    """The pairs of an object, in their order."""

    pairs: list[tuple[str, Any]]


def spelling(value: Any, data_type: DataType) -> Any:
    """What spells the value; None is NULL. Raises ValueError, whose text says what the value is."""
    data_type = data_type.value_type
    if value is None:
        return None
    match data_type.kind:
        case Kind.ARRAY if isinstance(value, list):
            return [_inside(each, data_type.nested[0]) for each in value]
        case Kind.TUPLE if isinstance(data_type, Tuple):
            return _tuple(value, data_type)
        case Kind.MAP if isinstance(value, JsonObject):
            key, item = data_type.nested
            return [(spelling(name, key), _inside(each, item)) for name, each in value.pairs]
    return _text(value, data_type)


def _inside(value: Any, data_type: DataType) -> Any:
    if value is None and not data_type.nullable:
        return data_type.default_text
    return spelling(value, data_type)


def _tuple(value: Any, data_type: Tuple) -> dict[str, Any]:
    if isinstance(value, list):
        if len(value) != len(data_type.elements):
            raise ValueError(f"an array of {len(value)} values")
        given = list(zip(data_type.field_names, value, strict=True))
    elif isinstance(value, JsonObject) and data_type.names:
        given = value.pairs
    else:
        _refuse(value)
    values = dict(data_type.default_text)
    types = dict(zip(data_type.field_names, data_type.elements, strict=True))
    for name, each in given:
        if name not in types:
            raise ValueError(f"an object with an unknown key {name!r}")
        values[name] = _inside(each, types[name])
    return values


def _text(value: Any, data_type: DataType) -> bytes:
    if isinstance(value, bool):
        is_number = data_type.is_number
        return (b"1" if is_number else b"true") if value else (b"0" if is_number else b"false")
    if isinstance(value, JsonNumber) and data_type.kind is Kind.DATETIME:
        return _instant(value)
    if not isinstance(value, str):
        _refuse(value)
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair") from None


def _refuse(value: Any) -> NoReturn:
    if isinstance(value, list):
        raise ValueError("an array")
    raise ValueError("an object" if isinstance(value, JsonObject) else repr(value))


def _instant(seconds: str) -> bytes:
    """The time that so many seconds since 1970 are; a number that is none stays as it is, to be refused."""
    if not seconds.isdecimal() or int(seconds) > _LAST_SECOND:
        return seconds.encode()
    return f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%dT%H:%M:%SZ}".encode()
