"""The text of arrays, tuples and maps, as ClickHouse writes them: `[1,2]`, `(1,'a')`, `{'k':[NULL]}`.

It is cut into the texts of its leaves; what those spell is the business of their types.
"""

from __future__ import annotations

import re

_SPACE = re.compile(r"\s*")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.|'')*+)'", re.DOTALL)
_BARE = re.compile(r"[^\s,:\[\](){}']+(?::[^\s,\[\](){}']+)*")
_ESCAPED = re.compile(r"\\x([0-9A-Fa-f]{2})|\\(.)|''", re.DOTALL)
_ESCAPES = {"b": "\b", "f": "\f", "r": "\r", "n": "\n", "t": "\t", "0": "\0", "a": "\a", "v": "\v", "e": "\x1b"}


class NestedText:
    """A place in such a text. All that is not as it should be raises ValueError."""

    def __init__(self, text: bytes) -> None:
        self._text = text.decode("utf-8", "surrogateescape")
        self._at = 0

    def take(self, token: str) -> bool:
        """Step over the token, and space before it, if it comes next."""
        self._skip_space()
        if not self._text.startswith(token, self._at):
            return False
        self._at += len(token)
        return True

    def expect(self, token: str) -> None:
        if not self.take(token):
            raise ValueError(f"{token!r} is missing at character {self._at} of {self._text!r}")

    def end(self) -> None:
        """Nothing but space may come any more."""
        self._skip_space()
        if self._at < len(self._text):
            raise ValueError(f"{self._text[self._at :]!r} is left over")

    def leaf(self, quoted: bool) -> bytes | None:
        """The text of one leaf, which must stand in quotes if `quoted`; None of a NULL."""
        self._skip_space()
        match = _QUOTED.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
            return _ESCAPED.sub(_meant, match[1]).encode("utf-8", "surrogateescape")
        match = _BARE.match(self._text, self._at)
        if match is None:
            raise ValueError(f"a value is missing at character {self._at} of {self._text!r}")
        self._at = match.end()
        if match[0].upper() == "NULL":
            return None
        if quoted:
            raise ValueError(f"{match[0]!r} stands in no quotes")
        return match[0].encode("utf-8", "surrogateescape")

    def _skip_space(self) -> None:
        space = _SPACE.match(self._text, self._at)
        assert space is not None, "it matches nothing at least"
        self._at = space.end()


def _meant(match: re.Match[str]) -> str:
    if match[1]:
        byte = int(match[1], 16)
        return chr(byte) if byte < 0x80 else chr(0xDC00 + byte)
    return "'" if match[0] == "''" else _ESCAPES.get(match[2], match[2])
