"""The quotes of a CSV file, checked before Arrow reads it.

Arrow takes a quote that is never closed for closed by the end of the file, and what stands after a closing quote for
a part of the field; ClickHouse refuses both. A quote within a field that does not begin with one is a plain
character to all of them.
"""

from __future__ import annotations

import io
import re
from typing import BinaryIO

# Of one field: characters that are no quotes; quoted text up to its closing quote; a quote within unquoted text.
_PLAIN = rb'[^"\r\n]++'
_OPENED = rb'(?<![^,\r\n])"[^"]*+(?:""[^"]*+)*+'
_LITERAL = rb'(?<=[^,\r\n])"'
_FIELDS = rb"(?:" + _PLAIN + rb"|" + _OPENED + rb'"(?=[,\r\n])|' + _LITERAL + rb")*+"

_RECORDS = re.compile(rb"(?:" + _FIELDS + rb"[\r\n]++)*+")
_LAST_RECORD = re.compile(_FIELDS.replace(rb"(?=[,\r\n])", rb"(?=[,\r\n]|\Z)"))
_TEXT_AFTER_QUOTE = re.compile(_FIELDS + rb"(" + _OPENED + rb'")([^",\r\n]++)')


class CheckedQuotes(io.RawIOBase):
    """The file up to the first record whose quotes are wrong; `problem` says what is wrong with that, "" if nothing.

    A record, with all that its quotes hold, may be `longest_record` bytes long; a longer one is a problem too.
    """

    def __init__(self, raw: BinaryIO, longest_record: int) -> None:
        self._raw = raw
        self._longest_record = longest_record
        self._checked = b""
        self._rest = b""
        self._at_end = False
        self.problem = ""
        self.has_records = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while not self._checked and not self._at_end:
            self._check_more(size)
        if size < 0:
            size = len(self._checked)
        data, self._checked = self._checked[:size], self._checked[size:]
        return data

    def first_line(self) -> str:
        """The first line that is not blank, "" if there is none, without reading over it."""
        while not self._checked.strip() and not self._at_end:
            self._check_more(1 << 16)
        lines = self._checked.lstrip(b"\r\n").splitlines()
        return lines[0].decode("utf-8", "replace") if lines else ""

    def _check_more(self, size: int) -> None:
        more = self._raw.read(size)
        data = self._rest + more
        end = len(data) if not more and _LAST_RECORD.fullmatch(data) else _whole_records(data)
        self._checked += data[:end]
        self._rest = data[end:]
        self.has_records |= bool(self._checked.strip())
        self.problem = self._problem(ended=not more)
        self._at_end = bool(self.problem) or not more

    def _problem(self, *, ended: bool) -> str:
        wrong = _TEXT_AFTER_QUOTE.match(self._rest)
        if wrong is not None:
            quoted, after = (text[-40:].decode("utf-8", "replace") for text in wrong.groups())
            return f"after the closing quote of {quoted} comes {after!r} where a comma or the end of the line should"
        if self._rest and ended:
            return 'a quote (") is opened and never closed'
        if len(self._rest) > self._longest_record:
            return f'longer than {self._longest_record:,} bytes; is a quote (") opened and never closed?'
        return ""


def _whole_records(data: bytes) -> int:
    found = _RECORDS.match(data)
    return found.end() if found else 0
