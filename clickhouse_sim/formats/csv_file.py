"""CSV files: comma-separated, quoted by `"`, UTF-8, one header line that names the columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv

from clickhouse_sim.formats.blocks import cut
from clickhouse_sim.formats.column_text import text_block
from clickhouse_sim.formats.csv_quotes import CheckedQuotes
from replica.errors import CannotParseText, ClickHouseError
from replica.schema import TableSchema

_NULL = "\\N"
_CHUNK_BYTES = 4 << 20
_LONGEST_RECORD = 4 << 20
_WRONG_WIDTH = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")


def read_csv(
    source: BinaryIO, schema: TableSchema, block_rows: int, *, header: bool = True, null_texts: Sequence[str] = ()
) -> Iterator[pa.Table]:
    """The file's rows in typed blocks of `block_rows`.

    Without a header the columns are all of the table's, in order. An unquoted `\\N` is NULL; for `null_texts` and
    empty fields see `column_text`. A blank line is an empty field where there is one column, else nothing. Rows are
    numbered from 1, the header not counted.

    Raises NoSuchColumnInTable, CannotParseText for a file that is not such a CSV, and for a value that does not fit
    the errors of `conform`; blocks before the one at fault have been yielded by then.
    """
    first_row = 1
    for block in cut(_batches(CheckedQuotes(source, _LONGEST_RECORD), schema, header), block_rows):
        texts = dict(zip(block.column_names, block.columns, strict=True))
        yield text_block(texts, schema, null_texts=null_texts, first_row=first_row)
        first_row += block.num_rows


def _batches(source: CheckedQuotes, schema: TableSchema, header: bool) -> Iterator[pa.RecordBatch]:
    """Batches of text columns, up to the record whose quotes are wrong, if there is one."""
    width = len(schema.names) if not header else len(next(csv.reader([source.first_line()]), []))
    rows = 0
    try:
        reader = pyarrow.csv.open_csv(
            pa.PythonFile(source, mode="r"),
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False, block_size=_CHUNK_BYTES, column_names=None if header else list(schema.names)
            ),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=width != 1),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(schema.names, pa.large_binary()),
                null_values=[_NULL],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        _check_header(reader.schema.names, schema)
        for batch in reader:
            rows += batch.num_rows
            yield batch
    except pa.ArrowInvalid as problem:
        if not source.problem or _WRONG_WIDTH.search(str(problem)):
            raise _translated(str(problem), header) from None
    if source.problem:
        is_header = header and not source.has_records
        raise CannotParseText(f"{'The header' if is_header else f'Row {rows + 1}'}: {source.problem}.")


def _check_header(names: Sequence[str], schema: TableSchema) -> None:
    for name in names:
        schema.column(name)
        if names.count(name) > 1:
            raise CannotParseText(f"the header names column {name!r} twice")


def _translated(message: str, header: bool) -> ClickHouseError:
    width = _WRONG_WIDTH.search(message)
    if width is not None:
        row, expected, found = (int(number) for number in width.groups())
        return CannotParseText(
            f"Row {row - header} has {found} field{'s' * (found != 1)} where {expected} were expected."
        )
    if "Empty CSV file" in message:
        return CannotParseText("the file is empty" + (": not even a header line" if header else ""))
    return CannotParseText(f"not a CSV file: {message.splitlines()[0]}")
