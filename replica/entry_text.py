"""The small words that log entries are written in: lines with a label, numbers, escaped and quoted strings."""

from __future__ import annotations

import re

from replica.errors import CannotParseText, LogicalError
from replica.part_name import PartName

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0", "\b": "\\b", "\f": "\\f", "'": "\\'"}
_UNESCAPES = {escape[1]: character for character, escape in _ESCAPES.items()}
_TO_ESCAPE = re.compile(r"[\\\n\t\r\0\b\f']")
_ESCAPED = re.compile(r"(?:[^\\\n\t]|\\[\\ntr0bf'])*")
_QUOTED = re.compile(r"'((?:[^\\\n\t']|\\[\\ntr0bf'])*)'")
_RAW = re.compile(r"[^\n\t]*")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MAX_UINT64 = 2**64 - 1


def raw(value: str) -> str:
    """A value that is written as it is. Raises LogicalError if it would break the line."""
    if not _RAW.fullmatch(value):
        raise LogicalError(f"Cannot write {value!r} into a log entry: it has a tab or a line feed")
    return value


def escaped(value: str) -> str:
    return _TO_ESCAPE.sub(lambda match: _ESCAPES[match[0]], value)


def quoted(value: str) -> str:
    return f"'{escaped(value)}'"


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _UNESCAPES[match[1]], text)


class EntryReader:
    """Reads a text from its start. Every method raises CannotParseText when something else stands there.

    A `label` is what the line must begin with; the value is the rest of the line.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def at(self, start: str) -> bool:
        """Whether the next characters are these."""
        return self._text.startswith(start, self._position)

    def skip(self, line: str) -> None:
        """A line of exactly this text."""
        self._take(f"{line}\n")

    def line(self, label: str = "") -> str:
        """A value that stands there as it is: anything without a tab."""
        return self._value(label, _RAW, "text without a tab")[0]

    def escaped_line(self, label: str = "") -> str:
        return _unescaped(self._value(label, _ESCAPED, "text with backslash escapes")[0])

    def number(self, label: str = "") -> int:
        """An unsigned 64-bit number."""
        number = int(self._value(label, re.compile(r"[0-9]{1,20}"), "a number")[0])
        if number > _MAX_UINT64:
            raise self._unexpected("a number of 64 bits")
        return number

    def signed_number(self, label: str = "") -> int:
        """A number of at most 18 digits, with its sign."""
        return int(self._value(label, re.compile(r"-?[0-9]{1,18}"), "a number")[0])

    def flag(self, label: str = "") -> bool:
        return self._value(label, re.compile(r"[01]"), "0 or 1")[0] == "1"

    def uuid(self, label: str = "") -> str:
        return self._value(label, _UUID, "a UUID")[0]

    def part(self, label: str = "") -> PartName:
        """A part's name; BadDataPartName if it is none."""
        return PartName.parse(self.line(label))

    def quoted_names(self, label: str) -> tuple[str, ...]:
        """One or more quoted strings, with commas between them."""
        names = re.compile(rf"{_QUOTED.pattern}(?:,{_QUOTED.pattern})*")
        return _strings(self._value(label, names, "quoted names")[0])

    def quoted_array(self, label: str) -> tuple[str, ...]:
        """Quoted strings in brackets, with commas between them."""
        array = re.compile(rf"\[(?:{_QUOTED.pattern}(?:,{_QUOTED.pattern})*)?\]")
        return _strings(self._value(label, array, "an array of quoted strings")[0])

    def payload(self, size: int) -> str:
        """So many bytes of UTF-8, whatever they are, and the line feed behind them."""
        try:
            chunk = self._text[self._position :].encode()[:size].decode()
        except UnicodeError:
            raise self._unexpected(f"{size} bytes of UTF-8") from None
        if len(chunk.encode()) < size:
            raise self._unexpected(f"{size} bytes")
        self._position += len(chunk)
        self._take("\n")
        return chunk

    def end(self) -> None:
        if self._position < len(self._text):
            raise self._unexpected("the end")

    def _value(self, label: str, pattern: re.Pattern[str], wanted: str) -> re.Match[str]:
        self._take(label)
        match = pattern.match(self._text, self._position)
        if match is None:
            raise self._unexpected(wanted)
        self._position = match.end()
        self._take("\n")
        return match

    def _take(self, literal: str) -> None:
        if not self.at(literal):
            raise self._unexpected(repr(literal))
        self._position += len(literal)

    def _unexpected(self, wanted: str) -> CannotParseText:
        found = self._text[self._position : self._position + 40]
        return CannotParseText(
            f"Cannot parse log entry: expected {wanted} at character {self._position}, found {found!r}"
        )


def _strings(text: str) -> tuple[str, ...]:
    return tuple(_unescaped(match[1]) for match in _QUOTED.finditer(text))
