"""The rows of a table at one moment."""

from __future__ import annotations

import pyarrow as pa

from replica.stored_table import StoredTable


async def scan_parts(table: StoredTable, columns: list[str] | None) -> pa.Table:
    """The rows of all parts that are active now, in order of part name; of all columns when none are named.

    Raises NoSuchColumnInTable, CorruptedData, ChecksumDoesntMatch and NoSuchDataPart.
    """
    schema = table.structure.schema
    names = list(schema.names) if columns is None else [schema.column(name).name for name in columns]
    parts = [part.name for part in table.store.active_parts()]
    empty = schema.arrow_schema.empty_table().select(names)
    with table.reading(*parts):
        files = [await table.store.files(part) for part in parts]
        tables = await table.environment.workers.run(
            "scan", lambda: [table.store.decode(each).select(names) for each in files]
        )
    return pa.concat_tables([empty, *tables])
