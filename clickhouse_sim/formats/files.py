"""Files and standard input into blocks: which format it is, and what all formats share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from clickhouse_sim.formats.arrow_file import read_arrow
from clickhouse_sim.formats.csv_file import read_csv
from clickhouse_sim.formats.jsonl_file import read_jsonl
from clickhouse_sim.formats.parquet_file import read_parquet
from replica.errors import BadArguments
from replica.expression import complete
from replica.schema import TableSchema

STDIN = Path("-")

_FORMAT_OF = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """How a file is read: rows of a block, its format (None: by the end of its name), and what only CSV knows."""

    block_rows: int
    format: str | None = None
    header: bool = True
    null_texts: Sequence[str] = ()


def _ignore(missing: Sequence[str]) -> None:
    """Nobody wants to know."""


def read_blocks(
    path: Path, schema: TableSchema, reading: Reading, tell_missing: Callable[[Sequence[str]], None] = _ignore
) -> Iterator[pa.Table]:
    """The rows of a file, or of standard input for `-`, in typed blocks with all columns of the table.

    As with INSERT INTO t FORMAT …, columns that the file lacks are filled with their defaults before anything is
    hashed; `tell_missing` is given their names, before the first block comes. (Every line of JSON lacks columns of
    its own, of which nobody is told.) The same rows with the same `block_rows` give the same blocks. Raises
    BadArguments for another kind of file or for options that its format has no use for, and what the readers raise.
    """
    return _blocks(path, format_of(path, reading), schema, reading, tell_missing)


def read_data(source: BinaryIO, schema: TableSchema, reading: Reading) -> Iterator[pa.Table]:
    """The same of rows that come with a statement, in the format that `reading` names."""
    assert reading.format is not None
    return (complete(block, schema) for block in _read(source, reading.format, schema, reading))


def format_of(path: Path, reading: Reading) -> str:
    """The name of the format. Raises BadArguments for an unknown one, and for options that it has no use for."""
    name = reading.format or _by_ending(path)
    if name != "csv" and (not reading.header or reading.null_texts):
        raise BadArguments("--no-header and --null are for CSV")
    return name


def _blocks(
    path: Path, name: str, schema: TableSchema, reading: Reading, tell_missing: Callable[[Sequence[str]], None]
) -> Iterator[pa.Table]:
    with _opened(path) as source:
        for number, block in enumerate(_read(source, name, schema, reading)):
            if number == 0 and (missing := [each for each in schema.names if each not in block.column_names]):
                tell_missing(missing)
            yield complete(block, schema)


def _read(source: BinaryIO, name: str, schema: TableSchema, reading: Reading) -> Iterator[pa.Table]:
    rows = reading.block_rows
    match name:
        case "csv":
            return read_csv(source, schema, rows, header=reading.header, null_texts=reading.null_texts)
        case "parquet":
            return read_parquet(source, schema, rows)
        case "jsonl":
            return read_jsonl(source, schema, rows)
        case "arrow":
            return read_arrow(source, schema, rows)
    raise BadArguments(f"there is no input format {name!r}")


def _opened(path: Path) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if path == STDIN else path.open("rb")


def _by_ending(path: Path) -> str:
    found = _FORMAT_OF.get(path.suffix.lower())
    if found is None:
        *others, last = _FORMAT_OF
        raise BadArguments(f"the name must end in {', '.join(others)} or {last}; or say --input-format")
    return found
