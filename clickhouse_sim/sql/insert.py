"""INSERT: what the rows are and where they come from; VALUES as one block of the table's types."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation

import pyarrow as pa
from sqlglot import TokenType

from clickhouse_sim.formats.column_text import text_block
from clickhouse_sim.sql.select import Query, is_stable, parse_select
from clickhouse_sim.sql.settings import insert_options, parse_settings
from clickhouse_sim.sql.tokens import Cursor, string_literal
from replica.commands import InsertOptions, RowSource
from replica.errors import DuplicateColumn, NotImplementedInModel, SqlSyntaxError, UnknownFormat
from replica.quoting import did_you_mean
from replica.schema import Kind, TableSchema

FORMATS = {
    "CSV": "csv",
    "CSVWithNames": "csv",
    "JSONEachRow": "jsonl",
    "JSONLines": "jsonl",
    "NDJSON": "jsonl",
    "Parquet": "parquet",
    "Arrow": "arrow",
    "ArrowStream": "arrow",
}
"""ClickHouse's formats that the model reads, by the names that `clickhouse_sim.formats` has for them."""

Value = bytes | None
"""A literal as the text that spells it; None is NULL."""

_FLOATS = ("NAN", "INF", "INFINITY")
_NESTED = (Kind.ARRAY, Kind.TUPLE, Kind.MAP)


class _NestedText(bytes):
    """The text of an array, a tuple or a map that stands in no quotes."""


@dataclass(frozen=True, slots=True)
class InsertValues:
    """INSERT INTO database.table (columns) VALUES rows; no columns means all of the table's, in order."""

    database: str
    table: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    options: InsertOptions

    def block(self, schema: TableSchema) -> pa.Table:
        """The rows, in the listed columns' types.

        Raises SqlSyntaxError for a row of another width, NoSuchColumnInTable, and for a value that does not
        fit the errors of `replica.schema.conform`, which name row and column.
        """
        names = self.columns or schema.names
        for number, row in enumerate(self.rows, start=1):
            if len(row) != len(names):
                raise SqlSyntaxError(
                    f"Row {number} has {len(row)} values for {len(names)} columns ({', '.join(names)})."
                )
        columns = {
            name: _spelled_for(schema, name, [row[index] for row in self.rows]) for index, name in enumerate(names)
        }
        return text_block(
            {name: pa.chunked_array([pa.array(values, pa.large_binary())]) for name, values in columns.items()},
            schema,
        )


@dataclass(frozen=True, slots=True)
class InsertSelect:
    """INSERT INTO database.table (columns) SELECT: the columns take the query's, one after the other."""

    database: str
    table: str
    columns: tuple[str, ...]
    query: Query
    options: InsertOptions


@dataclass(frozen=True, slots=True)
class InsertFormat:
    """INSERT INTO database.table (columns) FORMAT: `data` as the statement has them, None: from standard input."""

    database: str
    table: str
    columns: tuple[str, ...]
    format: str
    options: InsertOptions
    data: str | None = None


InsertStatement = InsertValues | InsertSelect | InsertFormat


def parse_insert(cursor: Cursor) -> InsertStatement:
    """What an INSERT statement brings; the data of a FORMAT are not in the cursor.

    Raises SqlSyntaxError, UnknownSetting, UnknownFormat, what `parse_select` raises, and NotImplementedInModel for
    values that are not literals.
    """
    cursor.expect_words("INSERT")
    cursor.expect_words("INTO")
    cursor.take_words("TABLE")
    if cursor.words() == ("FUNCTION",):
        raise NotImplementedInModel("INSERT INTO FUNCTION is not in the model")
    database, table = cursor.table_name()
    columns = _column_list(cursor)
    options = insert_options(parse_settings(cursor)) if cursor.take_words("SETTINGS") else InsertOptions()
    if cursor.words() in (("SELECT",), ("WITH",)):
        return _select(cursor, database, table, columns, options)
    if cursor.take_words("FORMAT") and cursor.words() != ("VALUES",):
        return InsertFormat(database, table, columns, _format_name(cursor), options)
    cursor.expect_words("VALUES")
    return InsertValues(database, table, columns, _rows(cursor), options)


def _select(
    cursor: Cursor, database: str, table: str, columns: tuple[str, ...], options: InsertOptions
) -> InsertSelect:
    text = _up_to_settings(cursor)
    if cursor.take_words("SETTINGS"):
        if options != InsertOptions():
            raise SqlSyntaxError("SETTINGS are given twice: before and after the SELECT")
        options = insert_options(parse_settings(cursor))
    source = RowSource.STABLE_SELECT if is_stable(text) else RowSource.UNSTABLE_SELECT
    return InsertSelect(database, table, columns, parse_select(text), replace(options, row_source=source))


def _up_to_settings(cursor: Cursor) -> str:
    """Step over a SELECT, up to its SETTINGS or the end; the text stepped over."""
    first = cursor.position
    while not cursor.at_end:
        cursor.skip_balanced(("SETTINGS",))
        assigned = cursor.tokens[cursor.position + 2 : cursor.position + 3]
        if cursor.words() == ("SETTINGS",) and assigned and assigned[0].token_type is TokenType.EQ:
            break
        cursor.position += 1
    return cursor.text_between(first, min(cursor.position, len(cursor.tokens)))


def _format_name(cursor: Cursor) -> str:
    name = cursor.name("the name of a format")
    if name not in FORMATS:
        raise UnknownFormat(
            f"Unknown format {name}.{did_you_mean(name, FORMATS)} The model reads {', '.join(FORMATS)}."
        )
    if not cursor.at_end:
        raise cursor.error("the end of the statement")
    return name


def _column_list(cursor: Cursor) -> tuple[str, ...]:
    if not cursor.take(TokenType.L_PAREN):
        return ()
    columns = [cursor.name("the name of a column")]
    while cursor.take(TokenType.COMMA):
        columns.append(cursor.name("the name of a column"))
    cursor.expect(TokenType.R_PAREN, "a comma or the end of the column list")
    for name in columns:
        if columns.count(name) > 1:
            raise DuplicateColumn(f"column {name} is listed twice")
    return tuple(columns)


def _rows(cursor: Cursor) -> tuple[tuple[Value, ...], ...]:
    rows: list[tuple[Value, ...]] = []
    while not cursor.at_end:
        cursor.expect(TokenType.L_PAREN, "a row of values in parentheses")
        row = [_literal(cursor)]
        while cursor.take(TokenType.COMMA):
            row.append(_literal(cursor))
        cursor.expect(TokenType.R_PAREN, "a comma or the end of the row")
        rows.append(tuple(row))
        if not cursor.take(TokenType.COMMA) and not cursor.at_end:
            raise cursor.error("a comma or the end of the statement")
    if not rows:
        raise cursor.error("a row of values")
    return tuple(rows)


def _literal(cursor: Cursor) -> Value:
    sign = b"-" if cursor.take(TokenType.DASH) else b""
    if number := cursor.take(TokenType.NUMBER) or cursor.take(TokenType.HEX_STRING):
        return sign + cursor.text[number.start : number.end + 1].encode()
    if cursor.words() and cursor.words()[0] in _FLOATS:
        return sign + cursor.name("a number").lower().encode()
    if sign:
        raise cursor.error("a number")
    if text := cursor.take(TokenType.STRING):
        return string_literal(cursor.text[text.start : text.end + 1])
    if nested := _nested(cursor):
        return nested
    word = cursor.words()
    if cursor.take_words("NULL"):
        return None
    if cursor.take_words("TRUE") or cursor.take_words("FALSE"):
        return word[0].lower().encode()
    if cursor.at_end or not word:
        raise cursor.error("a value")
    raise NotImplementedInModel(
        f"{cursor.error('a literal').message}: VALUES takes numbers, strings, NULL, true, false, arrays, tuples, maps"
    )


_BRACKETS = {
    TokenType.L_BRACKET: TokenType.R_BRACKET,
    TokenType.L_PAREN: TokenType.R_PAREN,
    TokenType.L_BRACE: TokenType.R_BRACE,
}


def _nested(cursor: Cursor) -> Value:
    """The text of an array, a tuple or a map, as it is written; None where none comes."""
    first = cursor.position
    depth = 0
    while not cursor.at_end:
        kind = cursor.tokens[cursor.position].token_type
        if kind not in _BRACKETS and depth == 0:
            break
        depth += (kind in _BRACKETS) - (kind in _BRACKETS.values())
        cursor.position += 1
        if depth == 0:
            start, end = cursor.tokens[first].start, cursor.tokens[cursor.position - 1].end
            return _NestedText(cursor.text[start : end + 1].encode("utf-8", "surrogateescape"))
    cursor.position = first
    return None


def _spelled_for(schema: TableSchema, name: str, values: list[Value]) -> list[Value]:
    """The literals in the spelling that the column's type reads: 0x10, 1e2 and true are whole numbers too."""
    data_type = schema.column(name).type
    for value in values if data_type.kind not in _NESTED else ():
        if isinstance(value, _NestedText):
            raise NotImplementedInModel(
                f"{value.decode('utf-8', 'replace')} for column {name!r}, which is {data_type}: VALUES takes literals"
            )
    if data_type.kind not in (Kind.UNSIGNED, Kind.SIGNED, Kind.WIDE):
        return values
    return [_whole_number(value) if value is not None else None for value in values]


def _whole_number(value: bytes) -> bytes:
    """The decimal spelling of a whole number; anything else as it is, for `conform` to refuse."""
    if value in (b"true", b"false"):
        return b"1" if value == b"true" else b"0"
    text = value.decode("utf-8", "replace")
    try:
        if text.lower().lstrip("-").startswith("0x"):
            return str(int(text, 16)).encode()
        number = Decimal(text)
    except (ValueError, InvalidOperation):
        return value
    is_whole = number.is_finite() and number.copy_abs() < Decimal(2) ** 256 and number == number.to_integral_value()
    return str(int(number)).encode() if is_whole else value
