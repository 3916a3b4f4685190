"""Single values as output has them: for JSON, and as ClickHouse's text.

Bytes that are no UTF-8 are lone surrogates here, as Python's `surrogateescape` has them.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from clickhouse_sim.sql.result_values import NamedTuple
from replica.quoting import STAND_IN

_TEXT_ESCAPES = str.maketrans(
    {
        "\\": "\\\\",
        "'": "\\'",
        "\t": "\\t",
        "\n": "\\n",
        "\r": "\\r",
        "\b": "\\b",
        "\f": "\\f",
        "\0": "\\0",
    }
)
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if chr(code) not in "\n\t"}
_CONTROL |= {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)}
_SURROGATES = {STAND_IN + byte: 0xDC00 + byte for byte in range(0x80, 0x100)}
_JSON_ESCAPES = {0xDC00 + byte: f"\\udc{byte:02x}" for byte in range(0x80, 0x100)}


def plain(value: Any) -> Any:
    """The value as JSON has it: times as ClickHouse writes them, numbers that JSON lacks as null."""
    match value:
        case None | bool() | int():
            return value
        case str():
            return value if value.isascii() else value.translate(_SURROGATES)
        case float():
            return value if math.isfinite(value) else None
        case bytes():
            return value.decode("utf-8", "surrogateescape")
        case datetime.datetime():
            return value.isoformat(sep=" ", timespec=_precision(value.microsecond))
        case Decimal():
            return float(value) if Decimal(repr(float(value))) == value else _decimal_text(value)
        case Mapping():
            return {key if isinstance(key, str) else clickhouse_text(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
    return str(value)


def _precision(microsecond: int) -> str:
    if microsecond == 0:
        return "seconds"
    return "microseconds" if microsecond % 1000 else "milliseconds"


def _decimal_text(value: Decimal) -> str:
    """Without zeros at the end, as ClickHouse writes it."""
    return f"{value.normalize():f}"


def json_text(value: Any) -> str:
    """One line of JSON. A byte b that is no UTF-8 is spelled as the lone surrogate \\udc00 + b, which no text has."""
    text = json.dumps(plain(value), ensure_ascii=False)
    return text if text.isascii() else text.translate(_JSON_ESCAPES)


def output_bytes(text: str) -> bytes:
    """The text as it goes out: UTF-8, and bytes that are none as they were."""
    return text.encode("utf-8", "surrogateescape")


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def clickhouse_text(value: Any) -> str:
    """The value as ClickHouse's text formats write it, not escaped; NULL is not among them."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return str(int(value)) if value.is_integer() and abs(value) < 1e16 else str(value)
        case Decimal():
            return _decimal_text(value)
        case list():
            return f"[{','.join(_element(item) for item in value)}]"
        case tuple():
            return f"({','.join(_element(item) for item in value)})"
        case NamedTuple():
            return clickhouse_text(tuple(value.values()))
        case Mapping():
            return f"{{{','.join(f'{_element(key)}:{_element(item)}' for key, item in value.items())}}}"
    return str(plain(value))


def escaped(text: str) -> str:
    """With ClickHouse's backslashes, as TSV and elements of arrays have them."""
    return text.translate(_TEXT_ESCAPES)


def shown(value: Any, null: str = "NULL") -> str:
    """The value for people: control characters are spelled, so that no value moves the cursor."""
    return null if value is None else clickhouse_text(value).translate(_CONTROL)


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    is_quoted = not (is_number(value) or isinstance(value, (bool, list, tuple, Mapping)))
    return f"'{escaped(clickhouse_text(value))}'" if is_quoted else clickhouse_text(value)
