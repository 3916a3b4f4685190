"""system.part_log: what happened to parts, by the log of the server that it happened on."""

from __future__ import annotations

import datetime

from replica.part_log import PartEvent, PartEventType
from replica.storage.file_names import table_folder
from replica.system_tables.asked import Asked, SystemTable
from replica.system_tables.columns import Columns, Row

_MERGES = (PartEventType.MERGE_PARTS_START, PartEventType.MERGE_PARTS)

_COLUMNS = Columns.parse("""
    hostname LowCardinality(String)
    query_id String
    event_type Enum8(NewPart, MergeParts, DownloadPart, RemovePart, MergePartsStart)
    merge_reason Enum8(NotAMerge, RegularMerge, TTLDeleteMerge, TTLRecompressMerge, TTLDropMerge)
    merge_algorithm Enum8(Undecided, Horizontal, Vertical)
    event_date Date
    event_time DateTime
    event_time_microseconds DateTime64(6)
    duration_ms UInt64
    database String
    table String
    table_uuid UUID
    part_name String
    partition_id String
    partition String
    part_type String
    disk_name String
    path_on_disk String
    rows UInt64
    size_in_bytes UInt64
    merged_from Array(String)
    bytes_uncompressed UInt64
    read_rows UInt64
    read_bytes UInt64
    peak_memory_usage UInt64
    deduplication_block_ids Array(String)
    error UInt16
    exception String
    mutation_ids String
    ProfileEvents Map(LowCardinality(String), UInt64)
    ProfileEvents.Names Array(String)
    ProfileEvents.Values Array(UInt64)
    name String
""")


async def _rows(asked: Asked) -> list[Row]:
    return [_row(event, asked.server_name) for event in asked.share.part_log]


def _row(event: PartEvent, server_name: str) -> Row:
    folder = table_folder(event.table.database, event.table.name)
    is_merge = event.type in _MERGES
    return {
        "hostname": server_name,
        "event_type": str(event.type),
        "merge_reason": "RegularMerge" if is_merge else "NotAMerge",
        "merge_algorithm": "Horizontal" if event.type is PartEventType.MERGE_PARTS else "Undecided",
        "event_date": datetime.datetime.fromtimestamp(event.time, datetime.UTC).date(),
        "event_time": int(event.time),
        "event_time_microseconds": int(event.time * 1_000_000),
        "duration_ms": max(0, int(event.duration_seconds * 1000)),
        "database": event.table.database,
        "table": event.table.name,
        "table_uuid": event.table.uuid,
        "part_name": event.part_name,
        "partition_id": event.partition_id,
        "partition": event.table.partition_key.value_of(event.partition_id),
        "part_type": "Wide",
        "disk_name": "default",
        "path_on_disk": f"{folder}/{event.part_name}/" if event.part_name else "",
        "rows": event.rows,
        "size_in_bytes": event.size_in_bytes,
        "merged_from": list(event.merged_from),
        "read_rows": event.read_rows,
        "read_bytes": event.read_bytes,
        "deduplication_block_ids": list(event.deduplication_block_ids),
        "error": event.error,
        "exception": event.exception,
        "name": event.part_name,
    }


PART_LOG = SystemTable(_COLUMNS, _rows)
