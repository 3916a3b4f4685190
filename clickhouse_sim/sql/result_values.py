"""Values as DuckDB gives them to values that show of which ClickHouse type they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class NamedTuple(dict[str, Any]):
    """A tuple whose elements have names."""


def converter(duckdb_type: Any) -> Callable[[Any], Any]:
    """What makes DuckDB's values of a type ours: a struct is a tuple, with names or without."""
    match duckdb_type.id:
        case "list" | "array":
            element = converter(_child(duckdb_type, "child"))
            return lambda value: value if value is None else [element(each) for each in value]
        case "map":
            key, item = converter(_child(duckdb_type, "key")), converter(_child(duckdb_type, "value"))
            return lambda value: value if value is None else {_hashable(key(k)): item(v) for k, v in value.items()}
        case "struct":
            fields = [(name, converter(child)) for name, child in duckdb_type.children]
            unnamed = [name for name, _ in fields] == [str(number + 1) for number in range(len(fields))]
            return lambda value: value if value is None else _tuple(value, fields, unnamed)
    return lambda value: value


def _child(duckdb_type: Any, name: str) -> Any:
    return dict(duckdb_type.children)[name]


def _tuple(value: dict[str, Any], fields: list[tuple[str, Callable[[Any], Any]]], unnamed: bool) -> Any:
    values = {name: convert(value[name]) for name, convert in fields}
    return tuple(values.values()) if unnamed else NamedTuple(values)


def _hashable(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key
