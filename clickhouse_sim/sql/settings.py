"""SETTINGS clauses: their text, and the settings of an INSERT as `InsertOptions`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any

from sqlglot import TokenType

from clickhouse_sim.sql.tokens import Cursor
from replica.commands import InsertOptions
from replica.errors import BadArguments, SqlSyntaxError, UnknownSetting
from replica.quoting import did_you_mean

_BOOLEANS = {"1": True, "true": True, "0": False, "false": False}


def parse_settings(cursor: Cursor) -> dict[str, str]:
    """`name = value, …` as text; strings without their quotes."""
    settings: dict[str, str] = {}
    while True:
        name = cursor.name("the name of a setting")
        cursor.expect(TokenType.EQ, f"= after the setting {name}")
        if name in settings:
            raise SqlSyntaxError(f"setting {name} is given twice")
        settings[name] = _setting_value(cursor, name)
        if not cursor.take(TokenType.COMMA):
            return settings


def _setting_value(cursor: Cursor, name: str) -> str:
    if not cursor.at_end and cursor.tokens[cursor.position].token_type is TokenType.STRING:
        return cursor.string(f"the value of {name}")
    sign = "-" if cursor.take(TokenType.DASH) else ""
    number = cursor.take(TokenType.NUMBER)
    if number is not None:
        return sign + number.text
    words = cursor.words(1)
    if not sign and words in (("TRUE",), ("FALSE",)):
        cursor.position += 1
        return "1" if words == ("TRUE",) else "0"
    raise cursor.error(f"the value of {name}")


def insert_options(settings: Mapping[str, str]) -> InsertOptions:
    """The options that the SETTINGS of an INSERT ask for.

    Raises UnknownSetting, which names the nearest one, and BadArguments for a value that does not fit.
    """
    kinds = {field.name: type(field.default) for field in fields(InsertOptions) if field.name != "row_source"}
    for name in settings:
        if name not in kinds:
            raise UnknownSetting(
                f"the model has no setting {name} for INSERT.{did_you_mean(name, kinds)} It has {', '.join(kinds)}."
            )
    values: dict[str, Any] = {name: _typed(name, value, kinds[name]) for name, value in settings.items()}
    return InsertOptions(**values)


def _typed(name: str, value: str, kind: type) -> str | bool | int:
    if kind is bool:
        if value.lower() not in _BOOLEANS:
            raise BadArguments(f"setting {name} is 0 or 1, not {value!r}")
        return _BOOLEANS[value.lower()]
    if kind is int:
        if not value.isdecimal():
            raise BadArguments(f"setting {name} is a whole number, not {value!r}")
        return int(value)
    if issubclass(kind, StrEnum):
        if value not in list(kind):
            raise BadArguments(f"setting {name} is one of {', '.join(kind)}, not {value!r}")
        return kind(value)
    return value
