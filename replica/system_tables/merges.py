"""system.merges: the merges that run on this server at this moment."""

from __future__ import annotations

from replica.running_operations import RunningMerge
from replica.storage.file_names import table_folder
from replica.stored_table import StoredTable
from replica.system_tables.asked import Asked, SystemTable
from replica.system_tables.columns import Columns, Row

_COLUMNS = Columns.parse("""
    database String
    table String
    elapsed Float64
    progress Float64
    num_parts UInt64
    source_part_names Array(String)
    result_part_name String
    source_part_paths Array(String)
    result_part_path String
    partition_id String
    partition String
    is_mutation UInt8
    total_size_bytes_compressed UInt64
    total_size_bytes_uncompressed UInt64
    total_size_marks UInt64
    bytes_read_uncompressed UInt64
    rows_read UInt64
    bytes_written_uncompressed UInt64
    rows_written UInt64
    columns_written UInt64
    memory_usage UInt64
    thread_id UInt64
    merge_type String
    merge_algorithm String
    current_projection String
    current_projection_progress Float64
    current_projection_parts_merging UInt64
    current_projection_parts_remaining UInt64
    projections_completed Array(String)
    projections_remaining Array(String)
""")


async def _rows(asked: Asked) -> list[Row]:
    return [_row(table, merge, asked.now()) for table in asked.tables for merge in table.running.merges]


def _row(table: StoredTable, merge: RunningMerge, now: float) -> Row:
    folder = table_folder(table.database, table.name)
    return {
        "database": table.database,
        "table": table.name,
        "elapsed": now - merge.started,
        "progress": 0.0 if merge.image is None else 1.0,
        "num_parts": len(merge.sources),
        "source_part_names": [str(part.name) for part in merge.sources],
        "result_part_name": str(merge.part),
        "source_part_paths": [f"{folder}/{part.name}/" for part in merge.sources],
        "result_part_path": f"{folder}/{merge.part}/",
        "partition_id": merge.part.partition_id,
        "partition": table.structure.partition_key.value_of(merge.part.partition_id),
        "total_size_bytes_compressed": sum(part.bytes_on_disk for part in merge.sources),
        "rows_read": 0 if merge.image is None else sum(part.rows for part in merge.sources),
        "rows_written": 0 if merge.image is None else merge.image.rows,
        "columns_written": 0 if merge.image is None else len(table.structure.schema.columns),
        "merge_type": "Regular",
        "merge_algorithm": "Horizontal",
    }


MERGES = SystemTable(_COLUMNS, _rows)
