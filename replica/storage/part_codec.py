"""The two file formats of a part's rows: Parquet to keep, Arrow IPC for speed.

Both write a canonical form: chunks joined, schema metadata dropped, zeros under the NULLs, so that tables with
equal columns and rows give equal bytes (under one version of pyarrow).
"""

from __future__ import annotations

import base64

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from replica.errors import CorruptedData

_ROWS_PER_GROUP = 1 << 20


class ParquetCodec:
    """`data.parquet`: one zstd-compressed file with page checksums, which any Parquet reader opens."""

    @property
    def file_name(self) -> str:
        return "data.parquet"

    def encode(self, rows: pa.Table) -> bytes:
        sink = pa.BufferOutputStream()
        # Every option that shapes the bytes is pinned here, whatever the library's defaults become.
        pq.write_table(
            _canonical(rows),
            sink,
            row_group_size=_ROWS_PER_GROUP,
            version="2.6",
            data_page_version="1.0",
            data_page_size=1 << 20,
            write_batch_size=1024,
            use_dictionary=True,
            dictionary_pagesize_limit=1 << 20,
            compression="zstd",
            compression_level=1,
            write_statistics=False,
            write_page_index=False,
            write_page_checksum=True,
            store_schema=True,
        )
        return bytes(sink.getvalue())

    def decode(self, data: bytes) -> pa.Table:
        try:
            with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
                return _validated(file.read(use_threads=False).cast(_schema_as_written(file)))
        except _DECODING_PROBLEMS as problem:
            raise _corrupted(self.file_name, problem) from problem


class ArrowCodec:
    """`data.arrow`: an uncompressed Arrow IPC file, about as cheap as a copy."""

    @property
    def file_name(self) -> str:
        return "data.arrow"

    def encode(self, rows: pa.Table) -> bytes:
        canonical = _canonical(rows)
        sink = pa.BufferOutputStream()
        options = ipc.IpcWriteOptions(metadata_version=ipc.MetadataVersion.V5, compression=None, use_threads=False)
        with ipc.new_file(sink, canonical.schema, options=options) as writer:
            writer.write_table(canonical)
        return bytes(sink.getvalue())

    def decode(self, data: bytes) -> pa.Table:
        try:
            with ipc.open_file(pa.BufferReader(data)) as reader:
                return _validated(reader.read_all())
        except _DECODING_PROBLEMS as problem:
            raise _corrupted(self.file_name, problem) from problem


def _schema_as_written(file: pq.ParquetFile) -> pa.Schema:
    """The Arrow schema that the writer keeps in the file: Parquet alone has no timestamps in seconds, for one."""
    kept = (file.metadata.metadata or {}).get(b"ARROW:schema")
    if kept is None:
        raise ValueError("it does not say which Arrow types its columns had")
    return ipc.read_schema(pa.py_buffer(base64.b64decode(kept, validate=True)))


# What pyarrow raises on bytes that are not a file of the format, ArrowException being the base of its own.
_DECODING_PROBLEMS = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)


def _canonical(rows: pa.Table) -> pa.Table:
    schema = pa.schema([field.remove_metadata() for field in rows.schema])
    return pa.Table.from_arrays([_canonical_column(column) for column in rows.columns], schema=schema)


def _canonical_column(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    if joined.null_count:
        # Gathering leaves zeros where the source has a NULL over whatever bytes.
        joined = joined.take(pa.array(np.arange(len(joined))))
    return joined


def _validated(rows: pa.Table) -> pa.Table:
    rows.validate(full=True)
    return rows


def _corrupted(file_name: str, problem: Exception) -> CorruptedData:
    return CorruptedData(f"{file_name} cannot be read as the rows of a part: {problem}")
