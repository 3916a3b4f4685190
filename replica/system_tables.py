"""What a server can tell about itself, as tables with ClickHouse's column names and types (`system.*`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pyarrow as pa

from coordinator.api import CoordinationError, NoNode
from replica.errors import UnexpectedNodeInZooKeeper, UnknownTable
from replica.log_entry import EntryType
from replica.quoting import did_you_mean
from replica.storage.part_store import PartState
from replica.table_state import TableState
from replica.znodes import sequence_number

_TIME = pa.timestamp("s", "UTC")

Rows = list[dict[str, Any]]


async def _replication_queue(state: TableState) -> Rows:
    return [
        {
            "database": state.database,
            "table": state.name,
            "replica_name": state.znodes.name,
            "position": position,
            "node_name": queued.znode_name,
            "type": str(queued.entry.type),
            "create_time": queued.entry.create_time,
            "required_quorum": queued.entry.quorum,
            "source_replica": queued.entry.source_replica,
            "new_part_name": str(queued.entry.new_part or ""),
            "parts_to_merge": [str(part) for part in queued.entry.source_parts],
            "is_detach": int(queued.entry.is_detach),
            "is_currently_executing": int(queued.currently_executing),
            "num_tries": queued.num_tries,
            "last_exception": queued.last_exception,
            "last_exception_time": int(queued.last_exception_time),
            "last_attempt_time": int(queued.last_attempt_time),
            "num_postponed": queued.num_postponed,
            "postpone_reason": queued.postpone_reason,
            "last_postpone_time": int(queued.last_postpone_time),
            "merge_type": str(queued.entry.merge_type) if queued.entry.type is EntryType.MERGE_PARTS else "",
        }
        for position, queued in enumerate(state.queue)
    ]


_REPLICATION_QUEUE = pa.schema(
    [
        ("database", pa.string()),
        ("table", pa.string()),
        ("replica_name", pa.string()),
        ("position", pa.uint32()),
        ("node_name", pa.string()),
        ("type", pa.string()),
        ("create_time", _TIME),
        ("required_quorum", pa.uint32()),
        ("source_replica", pa.string()),
        ("new_part_name", pa.string()),
        ("parts_to_merge", pa.list_(pa.string())),
        ("is_detach", pa.uint8()),
        ("is_currently_executing", pa.uint8()),
        ("num_tries", pa.uint32()),
        ("last_exception", pa.string()),
        ("last_exception_time", _TIME),
        ("last_attempt_time", _TIME),
        ("num_postponed", pa.uint32()),
        ("postpone_reason", pa.string()),
        ("last_postpone_time", _TIME),
        ("merge_type", pa.string()),
    ]
)


async def _parts(state: TableState) -> Rows:
    return [
        {
            "partition_id": part.name.partition_id,
            "name": str(part.name),
            "active": int(part.state is PartState.ACTIVE),
            "rows": part.rows,
            "bytes_on_disk": part.bytes_on_disk,
            "modification_time": int(part.modification_time),
            "min_block_number": part.name.min_block,
            "max_block_number": part.name.max_block,
            "level": part.name.level,
            "database": state.database,
            "table": state.name,
            "hash_of_uncompressed_files": part.header.hash_of_uncompressed_files.hex(),
            "uncompressed_hash_of_compressed_files": part.header.uncompressed_hash_of_compressed_files.hex(),
        }
        for part in state.store.parts()
    ]


_PARTS = pa.schema(
    [
        ("partition_id", pa.string()),
        ("name", pa.string()),
        ("active", pa.uint8()),
        ("rows", pa.uint64()),
        ("bytes_on_disk", pa.uint64()),
        ("modification_time", _TIME),
        ("min_block_number", pa.int64()),
        ("max_block_number", pa.int64()),
        ("level", pa.uint32()),
        ("database", pa.string()),
        ("table", pa.string()),
        ("hash_of_uncompressed_files", pa.string()),
        ("uncompressed_hash_of_compressed_files", pa.string()),
    ]
)


async def _replicas(state: TableState) -> Rows:
    queue = list(state.queue)
    row: dict[str, Any] = {
        "database": state.database,
        "table": state.name,
        "engine": "ReplicatedMergeTree",
        "is_leader": 1,
        "can_become_leader": 1,
        "is_readonly": int(state.is_readonly),
        "is_session_expired": int(state.server.sessions.current is None),
        "future_parts": len(state.queue.future_parts),
        "zookeeper_path": state.znodes.table.root,
        "replica_name": state.znodes.name,
        "replica_path": state.znodes.root,
        "queue_size": len(queue),
        "inserts_in_queue": sum(each.entry.type in (EntryType.GET_PART, EntryType.ATTACH_PART) for each in queue),
        "merges_in_queue": sum(each.entry.type is EntryType.MERGE_PARTS for each in queue),
        "queue_oldest_time": min((each.entry.create_time for each in queue), default=0),
        "last_queue_update": int(state.last_queue_update),
        "last_queue_update_exception": state.last_queue_update_exception,
        "zookeeper_exception": state.readonly_reason,
        "log_max_index": 0,
        "log_pointer": 0,
        "total_replicas": 0,
        "active_replicas": 0,
    }
    return [row | await _asked_of_the_coordinator(state)]


async def _asked_of_the_coordinator(state: TableState) -> dict[str, Any]:
    session = state.server.sessions.current
    if session is None:
        return {}
    znodes = state.znodes
    try:
        log_names = await session.children(znodes.table.log)
        log_max_index = sequence_number(log_names[-1]) if log_names else 0
        pointer, _ = await session.get(znodes.log_pointer)
        replicas = await session.children(znodes.table.replicas)
        active = await session.get_many([znodes.table.replica(name).is_active for name in replicas])
    except (NoNode, UnexpectedNodeInZooKeeper) as problem:
        return {"zookeeper_exception": str(problem)}
    except CoordinationError as problem:
        return {"zookeeper_exception": str(problem), "is_session_expired": 1}
    return {
        "log_max_index": log_max_index,
        "log_pointer": int(pointer or b"0"),
        "total_replicas": len(replicas),
        "active_replicas": sum(each is not None for each in active),
    }


_REPLICAS = pa.schema(
    [
        ("database", pa.string()),
        ("table", pa.string()),
        ("engine", pa.string()),
        ("is_leader", pa.uint8()),
        ("can_become_leader", pa.uint8()),
        ("is_readonly", pa.uint8()),
        ("is_session_expired", pa.uint8()),
        ("future_parts", pa.uint32()),
        ("zookeeper_path", pa.string()),
        ("replica_name", pa.string()),
        ("replica_path", pa.string()),
        ("queue_size", pa.uint32()),
        ("inserts_in_queue", pa.uint32()),
        ("merges_in_queue", pa.uint32()),
        ("queue_oldest_time", _TIME),
        ("log_max_index", pa.uint64()),
        ("log_pointer", pa.uint64()),
        ("last_queue_update", _TIME),
        ("total_replicas", pa.uint32()),
        ("active_replicas", pa.uint32()),
        ("last_queue_update_exception", pa.string()),
        ("zookeeper_exception", pa.string()),
    ]
)


async def _tables(state: TableState) -> Rows:
    structure = state.structure
    return [
        {
            "database": state.database,
            "name": state.name,
            "engine": "ReplicatedMergeTree",
            "partition_key": structure.partition_key.text,
            "sorting_key": structure.sorting_key.text,
            "primary_key": structure.primary_key.text,
        }
    ]


_TABLES = pa.schema(
    [(name, pa.string()) for name in ("database", "name", "engine", "partition_key", "sorting_key", "primary_key")]
)

SYSTEM_TABLES: dict[str, tuple[pa.Schema, Callable[[TableState], Awaitable[Rows]]]] = {
    "parts": (_PARTS, _parts),
    "replicas": (_REPLICAS, _replicas),
    "replication_queue": (_REPLICATION_QUEUE, _replication_queue),
    "tables": (_TABLES, _tables),
}


async def system_table(name: str, states: Sequence[TableState]) -> pa.Table:
    """The rows of `system.<name>` over all tables of the server. Raises UnknownTable."""
    if name not in SYSTEM_TABLES:
        raise UnknownTable(f"Table system.{name} does not exist.{did_you_mean(name, list(SYSTEM_TABLES))}")
    schema, rows_of = SYSTEM_TABLES[name]
    rows = [row for state in states for row in await rows_of(state)]
    return pa.Table.from_pylist(rows, schema=schema)
