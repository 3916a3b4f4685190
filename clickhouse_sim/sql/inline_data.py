"""INSERT … FORMAT: where the statement ends and its data begin.

Data are no SQL: a quote in them opens nothing and a semicolon ends nothing. So they are cut off before the text is
read as SQL. They go on to the end of the text, as in a request over HTTP.
"""

from __future__ import annotations

import re

_PIECES = re.compile(
    r"--[^\n]*|/\*.*?\*/"  # comments
    r"|'(?:[^'\\]|\\.|'')*+'|`(?:[^`\\]|\\.|``)*+`|\"(?:[^\"\\]|\\.|\"\")*+\""  # quoted
    r"|\w+|[();]|\.",
    re.DOTALL,
)
_NAMED_BEFORE = ("INTO", "TABLE", ".")
_OTHER_ROWS = ("VALUES", "SELECT", "WITH")


def without_inline_data(text: str) -> tuple[str, str | None]:
    """The text up to the format's name, and the data behind it; None when there are none."""
    words: list[str] = []
    depth = 0
    pieces = _PIECES.finditer(text)
    for piece in pieces:
        word = piece[0].upper()
        if word.startswith(("--", "/*")):
            continue
        depth += (word == "(") - (word == ")")
        if word == ";":
            words = []
        elif word == "FORMAT" and _takes_format(words, depth):
            name = next(pieces, None)
            if name is None or not name[0].isidentifier() or name[0].upper() == "VALUES":
                return text, None
            data = re.sub(r"\A[ \t\r]*\n?", "", text[name.end() :])
            return (text, None) if data.strip() in ("", ";") else (text[: name.end()], data)
        else:
            words.append(word)
    return text, None


def _takes_format(words: list[str], depth: int) -> bool:
    """Whether FORMAT after these words of a statement is the keyword of an INSERT, and not a name."""
    is_insert = words[:1] == ["INSERT"] and depth == 0 and words[-1] not in _NAMED_BEFORE
    return is_insert and not any(word in words for word in _OTHER_ROWS)
