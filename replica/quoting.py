"""How ClickHouse writes names and texts where they need quotes or escapes (`WriteHelpers.h`), and sizes for people
(`formatReadable.h`); what was meant when a name is not known."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from replica.errors import CannotParseText

STAND_IN = 0x10F700
"""`STAND_IN` + b is the character that stands for a byte b that is no UTF-8, where a text must be one: far out in a
private plane, since neither Arrow nor DuckDB hold the lone surrogates that Python would use."""

_ESCAPES = {
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\0": "\\0",
    "\\": "\\\\",
}
_UNESCAPES = {text[1]: char for char, text in _ESCAPES.items()}
_PLAIN_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_KEYWORDS = ("all", "distinct", "from", "select", "some", "table", "top", "values")
_LITERALS = ("false", "inf", "infinity", "nan", "null", "true")


def escape(text: str, quote: str = "'") -> str:
    """The text with control characters, backslashes and the quote character escaped by a backslash."""
    return "".join("\\" + char if char == quote else _ESCAPES.get(char, char) for char in text)


def unescape(text: str) -> str:
    """What `escape` was given. Raises CannotParseText when a backslash has nothing after it."""

    def meant(match: re.Match[str]) -> str:
        char = match.group(1)
        if not char:
            raise CannotParseText(f"a backslash at the end of {text!r} escapes nothing")
        return _UNESCAPES.get(char, char)

    return re.sub(r"\\(.?)", meant, text, flags=re.DOTALL)


def string_literal(text: str) -> str:
    """The text in single quotes."""
    return f"'{escape(text)}'"


def backquote(name: str) -> str:
    """The name in backquotes."""
    return f"`{escape(name, quote='`')}`"


def backquote_if_needed(name: str) -> str:
    """The name as an expression shows it: bare when it is a plain identifier, else in backquotes."""
    plain = _PLAIN_IDENTIFIER.fullmatch(name) and name.lower() not in _KEYWORDS + _LITERALS
    return name if plain else backquote(name)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the nearest known name, or nothing when none is near. Case does not count."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    near = difflib.get_close_matches(name.casefold(), by_folded, n=1)
    return f" Did you mean {by_folded[near[0]]!r}?" if near else ""


def readable_size(size: int) -> str:
    """A number of bytes as messages have it: `1.50 GiB`."""
    scaled, units = float(size), iter(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
    unit = next(units)
    while scaled >= 1024 and (larger := next(units, None)):
        scaled, unit = scaled / 1024, larger
    return f"{scaled:.2f} {unit}"
