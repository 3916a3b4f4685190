"""CSV files: comma-separated, quoted by `"`, UTF-8, one header line that names the columns."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv

from clickhouse_sim.formats.blocks import cut
from clickhouse_sim.formats.column_text import text_block
from replica.errors import CannotParseText, ClickHouseError
from replica.schema import TableSchema

_NULL = "\\N"
_CHUNK_BYTES = 4 << 20
_WRONG_WIDTH = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")


def read_csv(
    source: BinaryIO, schema: TableSchema, block_rows: int, *, header: bool = True, null_texts: Sequence[str] = ()
) -> Iterator[pa.Table]:
    """The file's rows in typed blocks of `block_rows`.

    Without a header the columns are all of the table's, in order. An unquoted `\\N` is NULL; for `null_texts` and
    empty fields see `column_text`. Rows are numbered from 1, the header not counted.

    Raises NoSuchColumnInTable, DuplicateColumn, CannotParseText for a file that is not such a CSV, and for a value
    that does not fit the errors of `conform`; blocks before the one at fault have been yielded by then.
    """
    first_row = 1
    for block in cut(_batches(_QuoteCounter(source), schema, header), block_rows):
        texts = dict(zip(block.column_names, block.columns, strict=True))
        yield text_block(texts, schema, null_texts=null_texts, first_row=first_row)
        first_row += block.num_rows


class _QuoteCounter(io.RawIOBase):
    """The file, and how many quotes it had so far: Arrow takes a last quote that is never closed for closed."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self.quotes = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._raw.read(size)
        self.quotes += data.count(b'"')
        return data


def _batches(source: _QuoteCounter, schema: TableSchema, header: bool) -> Iterator[pa.RecordBatch]:
    """Batches of text columns. The last one comes only when the file is known to end well."""
    try:
        reader = pyarrow.csv.open_csv(
            pa.PythonFile(source, mode="r"),
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False, block_size=_CHUNK_BYTES, column_names=None if header else list(schema.names)
            ),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(schema.names, pa.large_binary()),
                null_values=[_NULL],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        _check_header(reader.schema.names, schema)
        held: pa.RecordBatch | None = None
        for batch in reader:
            if held is not None:
                yield held
            held = batch
    except pa.ArrowInvalid as problem:
        raise _translated(str(problem), header) from None
    if source.quotes % 2:
        raise CannotParseText('a quote (") is opened and never closed')
    if held is not None:
        yield held


def _check_header(names: Sequence[str], schema: TableSchema) -> None:
    for name in names:
        schema.column(name)
        if names.count(name) > 1:
            raise CannotParseText(f"the header names column {name!r} twice")


def _translated(message: str, header: bool) -> ClickHouseError:
    width = _WRONG_WIDTH.search(message)
    if width is not None:
        row, expected, found = (int(number) for number in width.groups())
        return CannotParseText(f"Row {row - header} has {found} fields where {expected} were expected.")
    if "Empty CSV file" in message:
        return CannotParseText("the file is empty" + (": not even a header line" if header else ""))
    return CannotParseText(f"not a CSV file: {message.splitlines()[0]}")
