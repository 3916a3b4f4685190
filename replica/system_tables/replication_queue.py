"""system.replication_queue: what each replica of this server has still to do, in order of execution."""

from __future__ import annotations

from replica.log_entry import EntryType
from replica.system_tables.asked import Asked, SystemTable
from replica.system_tables.columns import Columns, Row

_COLUMNS = Columns.parse("""
    database String
    table String
    replica_name String
    position UInt32
    node_name String
    type String
    create_time DateTime
    required_quorum UInt32
    source_replica String
    new_part_name String
    parts_to_merge Array(String)
    is_detach UInt8
    is_currently_executing UInt8
    num_tries UInt32
    last_exception String
    last_exception_time DateTime
    last_attempt_time DateTime
    num_postponed UInt32
    postpone_reason String
    last_postpone_time DateTime
    merge_type String
""")


async def _rows(asked: Asked) -> list[Row]:
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
        for state in asked.replicated
        for position, queued in enumerate(state.queue)
    ]


REPLICATION_QUEUE = SystemTable(_COLUMNS, _rows)
