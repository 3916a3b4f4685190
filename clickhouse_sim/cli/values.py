"""Single values as output has them: for JSON, and as ClickHouse's text."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping
from typing import Any

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


def plain(value: Any) -> Any:
    """The value as JSON has it: times as ClickHouse writes them, numbers that JSON lacks as null."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case bytes():
            return value.decode("utf-8", "replace")
        case datetime.datetime():
            return value.isoformat(sep=" ", timespec="milliseconds" if value.microsecond else "seconds")
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
    return str(value)


def json_text(value: Any) -> str:
    """One line of JSON."""
    return json.dumps(plain(value), ensure_ascii=False)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def clickhouse_text(value: Any) -> str:
    """The value as ClickHouse's text formats write it, not escaped; NULL is not among them."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return str(int(value)) if value.is_integer() and abs(value) < 1e16 else str(value)
        case list() | tuple():
            return f"[{','.join(_element(item) for item in value)}]"
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
