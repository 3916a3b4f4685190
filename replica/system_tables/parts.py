"""system.parts: the parts on this server's disk, in every state but temporary."""

from __future__ import annotations

from replica.storage.file_names import table_folder
from replica.storage.part_files import FILES_IN_A_PART
from replica.storage.part_store import PartState, StoredPart
from replica.stored_table import StoredTable
from replica.system_tables.asked import Asked, SystemTable
from replica.system_tables.columns import NO_UUID, Columns, Row

_COLUMNS = Columns.parse("""
    partition String
    name String
    uuid UUID
    part_type String
    part_storage_type String
    active UInt8
    marks UInt64
    rows UInt64
    files UInt64
    bytes_on_disk UInt64
    data_compressed_bytes UInt64
    data_uncompressed_bytes UInt64
    primary_key_size UInt64
    marks_bytes UInt64
    secondary_indices_compressed_bytes UInt64
    secondary_indices_uncompressed_bytes UInt64
    secondary_indices_marks_bytes UInt64
    modification_time DateTime
    remove_time DateTime
    refcount UInt32
    min_date Date
    max_date Date
    min_time DateTime
    max_time DateTime
    partition_id String
    min_block_number Int64
    max_block_number Int64
    level UInt32
    data_version UInt64
    primary_key_bytes_in_memory UInt64
    primary_key_bytes_in_memory_allocated UInt64
    index_granularity_bytes_in_memory UInt64
    index_granularity_bytes_in_memory_allocated UInt64
    is_frozen UInt8
    database String
    table String
    engine String
    disk_name String
    path String
    hash_of_all_files String
    hash_of_uncompressed_files String
    uncompressed_hash_of_compressed_files String
    delete_ttl_info_min DateTime
    delete_ttl_info_max DateTime
    move_ttl_info.expression Array(String)
    move_ttl_info.min Array(DateTime)
    move_ttl_info.max Array(DateTime)
    default_compression_codec String
    recompression_ttl_info.expression Array(String)
    recompression_ttl_info.min Array(DateTime)
    recompression_ttl_info.max Array(DateTime)
    group_by_ttl_info.expression Array(String)
    group_by_ttl_info.min Array(DateTime)
    group_by_ttl_info.max Array(DateTime)
    rows_where_ttl_info.expression Array(String)
    rows_where_ttl_info.min Array(DateTime)
    rows_where_ttl_info.max Array(DateTime)
    projections Array(String)
    visible UInt8
    creation_tid Tuple(UInt64, UInt64, UUID)
    removal_tid_lock UInt64
    removal_tid Tuple(UInt64, UInt64, UUID)
    creation_csn UInt64
    removal_csn UInt64
    has_lightweight_delete UInt8
    last_removal_attempt_time DateTime
    removal_state String
    bytes UInt64
    marks_size UInt64
    part_name String
""")


# Every part is visible to every transaction: there are none (ClickHouse: Tx::PrehistoricTID, PrehistoricCSN).
_NO_TRANSACTION = {"1": 1, "2": 1, "3": NO_UUID}


async def _rows(asked: Asked) -> list[Row]:
    return [_row(table, part) for table in asked.tables for part in table.store.parts()]


def _row(table: StoredTable, part: StoredPart) -> Row:
    name, header = part.name, part.header
    active = int(part.state is PartState.ACTIVE)
    return {
        "partition": table.structure.partition_key.value_of(name.partition_id),
        "name": str(name),
        "part_type": "Wide",
        "part_storage_type": "Full",
        "active": active,
        "rows": part.rows,
        "files": FILES_IN_A_PART,
        "bytes_on_disk": part.bytes_on_disk,
        "modification_time": int(part.modification_time),
        "remove_time": int(part.remove_time),
        "refcount": 1,
        "partition_id": name.partition_id,
        "min_block_number": name.min_block,
        "max_block_number": name.max_block,
        "level": name.level,
        "data_version": name.data_version,
        "database": table.database,
        "table": table.name,
        "engine": str(table.definition.engine),
        "disk_name": "default",
        "path": f"{table_folder(table.database, table.name)}/{name}/",
        "hash_of_all_files": header.hash_of_all_files.hex(),
        "hash_of_uncompressed_files": header.hash_of_uncompressed_files.hex(),
        "uncompressed_hash_of_compressed_files": header.uncompressed_hash_of_compressed_files.hex(),
        "visible": active,
        "creation_tid": _NO_TRANSACTION,
        "creation_csn": 1,
        "bytes": part.bytes_on_disk,
        "part_name": str(name),
    }


PARTS = SystemTable(_COLUMNS, _rows)
