"""Arrow IPC, as a file (also called Feather) or as a stream, whatever Arrow types it holds."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.ipc

from clickhouse_sim.formats.blocks import cut, seekable
from replica.errors import CannotParseText
from replica.schema import TableSchema, conform

_MARK_OF_A_FILE = b"ARROW1"


def read_arrow(source: BinaryIO, schema: TableSchema, block_rows: int) -> Iterator[pa.Table]:
    """The rows in blocks of `block_rows`, conformed to the table's types. File or stream is told by the first bytes.

    Raises NoSuchColumnInTable, CannotParseText for what is neither or broken, and the errors of `conform` for values
    that do not fit; blocks before the one at fault have been yielded by then.
    """
    first_row = 1
    for block in cut(_batches(source, schema), block_rows):
        yield conform(block, schema, first_row=first_row)
        first_row += block.num_rows


def _batches(source: BinaryIO, schema: TableSchema) -> Iterator[pa.RecordBatch]:
    try:
        if _begins_as_a_file(source):
            file = pyarrow.ipc.open_file(seekable(source))
            _check_columns(file.schema, schema)
            for number in range(file.num_record_batches):
                yield file.get_batch(number)
        else:
            stream = pyarrow.ipc.open_stream(source)
            _check_columns(stream.schema, schema)
            yield from stream
    except (pa.ArrowInvalid, OSError) as problem:
        raise CannotParseText(
            f"not an Arrow file or stream, or a broken one: {str(problem).splitlines()[0]}"
        ) from None


def _begins_as_a_file(source: BinaryIO) -> bool:
    if not source.seekable():
        assert isinstance(source, io.BufferedReader), "a pipe is buffered"
        return source.peek(len(_MARK_OF_A_FILE)).startswith(_MARK_OF_A_FILE)
    start = source.tell()
    found = source.read(len(_MARK_OF_A_FILE))
    source.seek(start)
    return found == _MARK_OF_A_FILE


def _check_columns(found: pa.Schema, schema: TableSchema) -> None:
    for name in found.names:
        schema.column(name)
