"""Block ids: what an inserted block is known by in `deduplication_hashes`, one id for each partition it touches.

All partitions of a block share the hash, which is over the columns that the INSERT carried, in its order: call
this before DEFAULTs are filled in. Neither the table nor the columns' names and types go into it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyarrow as pa

from replica.dedup.column_stream import column_stream
from replica.dedup.siphash import SipHash128, siphash128
from replica.dedup.tokens import ViewStep, base_of_data, base_of_token, extension
from replica.schema.table import TableSchema


def data_hash(block: pa.Table, schema: TableSchema) -> tuple[int, int]:
    """The hash of a block's data streams, column after column. Raises NoSuchColumnInTable."""
    state = SipHash128()
    for name, values in zip(block.column_names, block.columns, strict=True):
        for buffer in column_stream(values, schema.column(name).type):
            state.update(buffer)
    return state.digest()


def insert_extension(
    block: pa.Table,
    schema: TableSchema,
    source_number: int,
    token: str = "",
    source_id: str = "empty",
    views: Sequence[ViewStep] = (),
) -> str:
    """The extension of an inserted block. With a token its data are not even looked at."""
    base = base_of_token(token) if token else base_of_data(data_hash(block, schema))
    return extension(base, source_number, source_id, views)


def block_id(partition_id: str, block_extension: str) -> str:
    """The id of a block's rows in one partition: `<partition id>_<A>_<B>`."""
    return _id(partition_id, siphash128(block_extension.encode()))


def attached_part_id(partition_id: str, content_hash: bytes) -> str:
    """The id of a part that is attached, by the 16 bytes of its total checksum (`writeExistingPart`)."""
    return _id(partition_id, struct.unpack("<QQ", content_hash))


def _id(partition_id: str, hash_halves: tuple[int, ...]) -> str:
    first, second = hash_halves
    return f"{partition_id}_{first}_{second}"
