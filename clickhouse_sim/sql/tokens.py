"""The tokens of SQL text, cut into statements, and a cursor to read one statement with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType
from sqlglot.errors import TokenError

from clickhouse_sim.sql.grammar import VerbatimClickHouse
from replica.errors import SqlSyntaxError

_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
_ESCAPES = {"b": b"\b", "f": b"\f", "r": b"\r", "n": b"\n", "t": b"\t", "0": b"\0", "a": b"\a", "v": b"\v"}
_ESCAPED_AS_ITSELF = "\\'\"`/="


@dataclass(slots=True)
class Cursor:
    """A place in the tokens of one statement. `text` is the whole text that the tokens point into."""

    text: str
    tokens: Sequence[Token]
    position: int = 0

    @property
    def at_end(self) -> bool:
        return self.position >= len(self.tokens)

    @property
    def statement(self) -> str:
        """The statement as it was written."""
        return self.text_between(0, len(self.tokens))

    def text_between(self, first: int, end: int) -> str:
        """The original text of the tokens `first` to `end` - 1; comments and white space between are one space."""
        words: list[str] = []
        for index in range(first, end):
            token = self.tokens[index]
            if index > first and token.start > self.tokens[index - 1].end + 1:
                words.append(" ")
            words.append(self.text[token.start : token.end + 1])
        return "".join(words)

    def words(self, count: int = 1) -> tuple[str, ...]:
        """The next words in capitals, as far as they are keywords or bare identifiers."""
        words: list[str] = []
        for token in self.tokens[self.position :]:
            if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) or not token.text[:1].isalpha():
                break
            words += token.text.upper().split()
            if len(words) >= count:
                break
        return tuple(words[:count])

    def take_words(self, *expected: str) -> bool:
        """Step over these words if they come next."""
        if self.words(len(expected)) != expected:
            return False
        remaining = len(expected)
        while remaining > 0:
            remaining -= len(self.tokens[self.position].text.split())
            self.position += 1
        return True

    def take(self, kind: TokenType) -> Token | None:
        """Step over a token of this kind if it comes next."""
        if self.at_end or self.tokens[self.position].token_type is not kind:
            return None
        self.position += 1
        return self.tokens[self.position - 1]

    def expect(self, kind: TokenType, meaning: str) -> Token:
        """The next token, which must be of this kind. Raises SqlSyntaxError."""
        token = self.take(kind)
        if token is None:
            raise self.error(meaning)
        return token

    def expect_words(self, *expected: str) -> None:
        if not self.take_words(*expected):
            raise self.error(" ".join(expected))

    def name(self, meaning: str) -> str:
        """An identifier, quoted or not."""
        if self.at_end:
            raise self.error(meaning)
        token = self.tokens[self.position]
        bare = token.text[:1].isalpha() or token.text[:1] == "_"
        if token.token_type is not TokenType.IDENTIFIER and (token.token_type is TokenType.STRING or not bare):
            raise self.error(meaning)
        self.position += 1
        return token.text

    def table_name(self) -> tuple[str, str]:
        """`[database.]table`; the database is `default` when it is not named."""
        first = self.name("the name of a table")
        if self.take(TokenType.DOT):
            return first, self.name("the name of a table")
        return "default", first

    def string(self, meaning: str) -> str:
        """A string literal, as text. Raises SqlSyntaxError for one that is not UTF-8."""
        token = self.expect(TokenType.STRING, meaning)
        try:
            return string_literal(self.text[token.start : token.end + 1]).decode()
        except UnicodeDecodeError:
            raise SqlSyntaxError(f"{meaning} is not UTF-8 text") from None

    def skip_balanced(self, *stop_words: tuple[str, ...]) -> str:
        """Step up to a comma, a closing bracket or one of the stop words at this depth; the text stepped over."""
        first = self.position
        depth = 0
        while not self.at_end:
            kind = self.tokens[self.position].token_type
            if depth == 0 and (kind is TokenType.COMMA or any(self.words(len(stop)) == stop for stop in stop_words)):
                break
            if kind in _CLOSING:
                if depth == 0:
                    break
                depth -= 1
            if kind in _OPENING:
                depth += 1
            self.position += 1
        return self.text_between(first, self.position)

    def error(self, expected: str) -> SqlSyntaxError:
        """What is wrong here, with the place."""
        if self.at_end:
            return SqlSyntaxError(f"the statement ends where {expected} should come")
        token = self.tokens[self.position]
        found = self.text[token.start : token.end + 1]
        return SqlSyntaxError(
            f"expected {expected}, found {found!r} (line {token.line}, column {self._column(token)})"
        )

    def _column(self, token: Token) -> int:
        return token.start - self.text.rfind("\n", 0, token.start)


def split_statements(text: str) -> list[Cursor]:
    """The statements of a text, separated by `;`; empty ones are dropped. Raises SqlSyntaxError."""
    try:
        tokens = VerbatimClickHouse().tokenize(text)
    except TokenError as problem:
        raise SqlSyntaxError(_open_quote(text) or f"cannot be read as SQL: {_first_line(problem)}") from None
    statements: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    return [Cursor(text, statement) for statement in statements if statement]


def string_literal(literal: str) -> bytes:
    """The bytes that a quoted literal stands for, by ClickHouse's escapes; an unknown escape stands for itself."""
    content = bytearray()
    inner = literal[1:-1]
    at = 0
    while at < len(inner):
        character, following = inner[at], inner[at + 1 : at + 2]
        if character == "\\" and following == "x" and _is_hex(inner[at + 2 : at + 4]):
            content.append(int(inner[at + 2 : at + 4], 16))
            at += 4
        elif character == "\\" and following in _ESCAPES and following:
            content += _ESCAPES[following]
            at += 2
        elif character == "\\" and following and following in _ESCAPED_AS_ITSELF:
            content += following.encode()
            at += 2
        elif character == literal[0] and following == literal[0]:
            content += character.encode()
            at += 2
        else:
            content += character.encode()
            at += 1
    return bytes(content)


_PIECES = re.compile(
    r"--[^\n]*|/\*.*?\*/"  # comments
    r"|'(?:[^'\\]|\\.|'')*+'|`(?:[^`\\]|\\.|``)*+`|\"(?:[^\"\\]|\\.|\"\")*+\""  # quoted, whole
    r"|/\*|['`\"]|.",  # opened and never closed; anything else
    re.DOTALL,
)
_UNCLOSED = {"'": "a quote (')", "`": "a quote (`)", '"': 'a quote (")', "/*": "a comment (/*)"}


def _open_quote(text: str) -> str:
    """Which quote or comment is opened and never closed, and where; "" when none is."""
    for piece in _PIECES.finditer(text):
        if piece[0] in _UNCLOSED:
            line = text.count("\n", 0, piece.start()) + 1
            column = piece.start() - text.rfind("\n", 0, piece.start())
            return f"{_UNCLOSED[piece[0]]} is opened at line {line}, column {column}, and never closed"
    return ""


def _is_hex(digits: str) -> bool:
    return len(digits) == 2 and all(digit in "0123456789abcdefABCDEF" for digit in digits)


def _first_line(problem: Exception) -> str:
    return str(problem).splitlines()[0] if str(problem) else type(problem).__name__
