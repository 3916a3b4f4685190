"""system.replicas: the replicas on this server; a part of it is asked of the coordination service."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coordinator.api import CoordinationError, NoNode
from replica.errors import UnexpectedNodeInZooKeeper
from replica.log_entry import INSERT_TYPES, EntryType
from replica.queue import QueuedEntry
from replica.system_tables.asked import Asked, SystemTable
from replica.system_tables.columns import Columns, Row
from replica.table_state import TableState
from replica.znodes import sequence_number

_COLUMNS = Columns.parse("""
    database String
    table String
    uuid UUID
    engine String
    is_leader UInt8
    can_become_leader UInt8
    is_readonly UInt8
    readonly_start_time Nullable(DateTime)
    is_session_expired UInt8
    future_parts UInt32
    parts_to_check UInt32
    zookeeper_name String
    zookeeper_path String
    replica_name String
    replica_path String
    columns_version Int32
    queue_size UInt32
    inserts_in_queue UInt32
    merges_in_queue UInt32
    part_mutations_in_queue UInt32
    queue_oldest_time DateTime
    inserts_oldest_time DateTime
    merges_oldest_time DateTime
    part_mutations_oldest_time DateTime
    oldest_part_to_get String
    oldest_part_to_merge_to String
    oldest_part_to_mutate_to String
    log_max_index UInt64
    log_pointer UInt64
    last_queue_update DateTime
    absolute_delay UInt64
    total_replicas UInt32
    active_replicas UInt32
    lost_part_count UInt64
    last_queue_update_exception String
    zookeeper_exception String
    replica_is_active Map(String, UInt8)
    readonly_duration Nullable(UInt64)
""")


_MERGES = frozenset({EntryType.MERGE_PARTS})
_MUTATIONS = frozenset({EntryType.MUTATE_PART})


async def _rows(asked: Asked) -> list[Row]:
    return [_own(state, asked.now()) | await _asked_of_the_coordinator(state) for state in asked.replicated]


def _own(state: TableState, now: float) -> dict[str, Any]:
    inserts, merges, mutations = (
        [each for each in state.queue if each.entry.type in types] for types in (INSERT_TYPES, _MERGES, _MUTATIONS)
    )
    readonly_since = state.readonly_since if state.is_readonly else None
    return {
        "database": state.database,
        "table": state.name,
        "uuid": state.uuid,
        "engine": "ReplicatedMergeTree",
        "is_leader": int(not state.is_readonly),
        "can_become_leader": 1,
        "is_readonly": int(state.is_readonly),
        "readonly_start_time": None if readonly_since is None else int(readonly_since),
        "is_session_expired": int(state.server.sessions.current is None),
        "future_parts": len(state.queue.future_parts),
        "parts_to_check": len(state.parts_to_check) + sum(1 for _ in state.uncertain_parts),
        "zookeeper_name": "default",
        "zookeeper_path": state.znodes.table.root,
        "replica_name": state.znodes.name,
        "replica_path": state.znodes.root,
        "columns_version": -1,
        "queue_size": len(state.queue),
        "inserts_in_queue": len(inserts),
        "merges_in_queue": len(merges),
        "part_mutations_in_queue": len(mutations),
        "queue_oldest_time": _oldest_time(state.queue),
        "inserts_oldest_time": _oldest_time(inserts),
        "merges_oldest_time": _oldest_time(merges),
        "part_mutations_oldest_time": _oldest_time(mutations),
        "oldest_part_to_get": _oldest_part(inserts),
        "oldest_part_to_merge_to": _oldest_part(merges),
        "oldest_part_to_mutate_to": _oldest_part(mutations),
        "last_queue_update": int(state.last_queue_update),
        "absolute_delay": int(_absolute_delay(state, now)),
        "last_queue_update_exception": state.last_queue_update_exception,
        "zookeeper_exception": state.readonly_reason,
        "readonly_duration": None if readonly_since is None else int(max(0.0, now - readonly_since)),
    }


def _absolute_delay(state: TableState, now: float) -> float:
    """Seconds behind (`StorageReplicatedMergeTree::getAbsoluteDelay`): since the oldest insert that is not done, else
    since the begin of a pull of the log that has not ended; since 1970 if none ever ended."""
    if state.last_queue_update == 0:
        return now
    if (oldest := state.queue.min_unprocessed_insert_time) > 0:
        return max(0.0, now - oldest)
    if state.queue_update_started > state.last_queue_update:
        return max(0.0, now - state.queue_update_started)
    return 0.0


def _oldest_time(entries: Iterable[QueuedEntry]) -> int:
    return min((each.entry.create_time for each in entries), default=0)


def _oldest_part(entries: Iterable[QueuedEntry]) -> str:
    oldest = min(entries, key=lambda each: each.entry.create_time, default=None)
    return "" if oldest is None else oldest.new_part_name


async def _asked_of_the_coordinator(state: TableState) -> dict[str, Any]:
    session = state.server.sessions.current
    if session is None:
        return {}
    znodes, table = state.znodes, state.znodes.table
    try:
        log_names = await session.children(table.log)
        log_max_index = sequence_number(log_names[-1]) if log_names else 0
        pointer, _ = await session.get(znodes.log_pointer)
        (lost_parts,) = await session.get_many([table.lost_part_count])
        replicas = await session.children(table.replicas)
        active = await session.get_many([table.replica(name).is_active for name in replicas])
    except (NoNode, UnexpectedNodeInZooKeeper) as problem:
        return {"zookeeper_exception": state.readonly_reason or str(problem)}
    except CoordinationError as problem:
        return {"zookeeper_exception": str(problem), "is_session_expired": 1}
    return {
        "log_max_index": log_max_index,
        "log_pointer": int(pointer or b"0"),
        "total_replicas": len(replicas),
        "active_replicas": sum(each is not None for each in active),
        "lost_part_count": int(lost_parts[0] or b"0") if lost_parts is not None else 0,
        "replica_is_active": [(name, int(each is not None)) for name, each in zip(replicas, active, strict=True)],
    }


REPLICAS = SystemTable(_COLUMNS, _rows)
