"""Which format a file has, by the end of its name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from clickhouse_sim.formats.csv_file import read_csv
from clickhouse_sim.formats.parquet_file import read_parquet
from replica.errors import BadArguments
from replica.schema import TableSchema


def read_blocks(
    path: Path, schema: TableSchema, block_rows: int, *, header: bool = True, null_texts: Sequence[str] = ()
) -> Iterator[pa.Table]:
    """The rows of a `.csv` or `.parquet` file in typed blocks of `block_rows`.

    The same file with the same `block_rows` gives the same blocks. Raises BadArguments for another kind of file
    or for options that Parquet has no use for, and what the readers of the formats raise.
    """
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return read_csv(path, schema, block_rows, header=header, null_texts=null_texts)
    if suffix != ".parquet":
        raise BadArguments(f"{path.name}: the name of a file must end in .csv or .parquet")
    if not header or null_texts:
        raise BadArguments(f"{path.name}: --no-header and --null are for CSV files")
    return read_parquet(path, schema, block_rows)
