"""The grammar of type names: `Map(String, Array(UInt8))` to a tree, nothing known of what types there are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from replica.errors import CannotParseText, UnknownType
from replica.quoting import unescape

_TOKEN = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_]\w*)|(?P<number>-?\d+)|'(?P<string>(?:[^'\\]|\\.|'')*+)'|`(?P<name>(?:[^`\\]|\\.)*+)`"
    r"|(?P<mark>[(),=]))\s*",
    re.DOTALL | re.ASCII,
)
_TWO_WORDS = {"DOUBLE": ("PRECISION",), "CHAR": ("VARYING",), "CHARACTER": ("VARYING",), "NATIONAL": ("CHAR",)}
_SIGNS = ("UNSIGNED", "SIGNED")
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class Number:
    value: int


@dataclass(frozen=True, slots=True)
class Text:
    """A string; of an element of an Enum also its number."""

    value: str
    number: int | None = None


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type as it is written: `arguments` is None without parentheses. `label` is the name before it, as elements
    of a tuple have one."""

    name: str
    arguments: tuple[Argument, ...] | None = None
    label: str | None = None


Argument: TypeAlias = Number | Text | TypeName


def parse_type_name(text: str) -> TypeName:
    """The tree of a text. Raises UnknownType when it is no name of a type."""
    reader = _Reader(text)
    name = reader.type_name(0)
    if not reader.at_end:
        raise reader.error()
    return name


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        self._at = 0
        place = 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None or match.lastgroup is None:
                raise self.error()
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            place = match.end()

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._tokens)

    def error(self) -> UnknownType:
        return UnknownType(f"{self._text!r} is not a type.")

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        return self._tokens[self._at + ahead] if self._at + ahead < len(self._tokens) else ("end", "")

    def _next(self, kind: str) -> str:
        found, value = self._peek()
        if found != kind:
            raise self.error()
        self._at += 1
        return value

    def _take(self, mark: str) -> bool:
        if self._peek() != ("mark", mark):
            return False
        self._at += 1
        return True

    def type_name(self, depth: int) -> TypeName:
        if depth > _DEEPEST:
            raise UnknownType(f"The type {self._text[:40]!r}… is nested too deeply.")
        name = self._next("word")
        while self._peek()[0] == "word" and self._continues(name):
            name = f"{name} {self._next('word')}"
        if not self._take("("):
            return TypeName(name)
        arguments: list[Argument] = []
        while not self._take(")"):
            if arguments and not self._take(","):
                raise self.error()
            if arguments and self._take(")"):
                break
            arguments.append(self._argument(depth))
        sign = self._peek()
        if sign[0] == "word" and sign[1].upper() in _SIGNS:
            name = f"{name} {self._next('word')}"
        return TypeName(name, tuple(arguments))

    def _continues(self, name: str) -> bool:
        following = self._peek()[1].upper()
        return following in _SIGNS or following in _TWO_WORDS.get(name.upper(), ())

    def _argument(self, depth: int) -> Argument:
        kind, value = self._peek()
        if kind == "number":
            self._at += 1
            return Number(int(value))
        if kind == "string":
            self._at += 1
            return Text(self._unescaped(value), int(self._next("number")) if self._take("=") else None)
        is_labelled = kind == "name" or (kind == "word" and self._peek(1)[0] == "word" and not self._two_words(value))
        if not is_labelled:
            return self.type_name(depth + 1)
        self._at += 1
        inner = self.type_name(depth + 1)
        return TypeName(inner.name, inner.arguments, self._unescaped(value) if kind == "name" else value)

    def _two_words(self, first: str) -> bool:
        following = self._peek(1)[1].upper()
        return following in _SIGNS or following in _TWO_WORDS.get(first.upper(), ())

    def _unescaped(self, text: str) -> str:
        try:
            return unescape(text.replace("''", "'"))
        except CannotParseText:
            raise self.error() from None
