"""The rows of a table at one moment."""

from __future__ import annotations

import pyarrow as pa

from replica.environment import PartFiles
from replica.errors import NoSuchDataPart
from replica.part_name import PartName
from replica.stored_table import StoredTable


async def scan_parts(table: StoredTable, columns: list[str] | None) -> pa.Table:
    """The rows of all parts that are active now, in order of part name; of all columns when none are named.

    Raises NoSuchColumnInTable, CorruptedData, ChecksumDoesntMatch and NoSuchDataPart.
    """
    schema = table.structure.schema
    names = list(schema.names) if columns is None else [schema.column(name).name for name in columns]
    empty = schema.arrow_schema.empty_table().select(names)
    parts, files = await _files_of_active_parts(table)
    with table.reading(*parts):
        tables = await table.environment.workers.run(
            "scan", lambda: [table.store.decode(each).select(names) for each in files]
        )
    return pa.concat_tables([empty, *tables])


async def _files_of_active_parts(table: StoredTable) -> tuple[list[PartName], list[PartFiles]]:
    """Those of one moment. When parts are dropped and deleted on the way, it is a later moment."""
    store = table.store
    while True:
        parts = store.active_parts()
        names = [part.name for part in parts]
        try:
            return names, [await store.files(name) for name in names]
        except NoSuchDataPart:
            if store.active_parts() == parts:
                with table.reading(*names):
                    raise
