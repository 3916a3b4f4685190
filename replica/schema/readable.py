"""Blocks as people and SELECT see them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from replica.schema.table import TableSchema
from replica.schema.types import DataType
from replica.schema.types.strings import as_text

TYPE_KEY = b"ClickHouse type"


def readable(block: pa.Table, schema: TableSchema | None = None) -> pa.Table:
    """The block with its values as each type's `readable` gives them: Strings as text, moments as the time of day in
    their zone, enums as names. Each field keeps the type's text under `TYPE_KEY`. Of a block without a schema, bytes
    are text and moments in UTC."""
    for index, field in enumerate(block.schema):
        data_type = None if schema is None else schema.column(field.name).type
        shown = _readable_column(block.column(index), data_type)
        named = pa.field(field.name, shown.type)
        if data_type is not None:
            named = named.with_metadata({TYPE_KEY: data_type.text})
        block = block.set_column(index, named, shown)
    return block


def _readable_column(values: pa.ChunkedArray, data_type: DataType | None) -> pa.ChunkedArray | pa.Array:
    if data_type is not None:
        return data_type.readable(values.combine_chunks())
    if pa.types.is_large_binary(values.type):
        return as_text(values)
    if pa.types.is_timestamp(values.type) and values.type.tz is not None:
        return pc.local_timestamp(values.cast(pa.timestamp(values.type.unit, "UTC")))
    return values
