"""system.detached_parts: what lies in `detached/` of each table of this server."""

from __future__ import annotations

from replica.storage.detached import DetachedName
from replica.storage.file_names import DETACHED, table_folder
from replica.stored_table import StoredTable
from replica.system_tables.asked import Asked, SystemTable
from replica.system_tables.columns import Columns, Row

_COLUMNS = Columns.parse("""
    database String
    table String
    partition_id Nullable(String)
    name String
    bytes_on_disk UInt64
    modification_time DateTime
    disk String
    path String
    reason Nullable(String)
    min_block_number Nullable(Int64)
    max_block_number Nullable(Int64)
    level Nullable(UInt32)
""")


async def _rows(asked: Asked) -> list[Row]:
    return [await _row(state, each) for state in asked.tables for each in await state.store.detached.names()]


async def _row(state: StoredTable, each: DetachedName) -> Row:
    row: dict[str, object] = {
        "database": state.database,
        "table": state.name,
        "name": each.folder,
        "bytes_on_disk": await state.store.detached.size(each.folder),
        "disk": "default",
        "path": f"{table_folder(state.database, state.name)}/{DETACHED}/{each.folder}",
    }
    if each.part is not None:
        row |= {
            "partition_id": each.part.partition_id,
            "reason": each.reason,
            "min_block_number": each.part.min_block,
            "max_block_number": each.part.max_block,
            "level": each.part.level,
        }
    return row


DETACHED_PARTS = SystemTable(_COLUMNS, _rows)
