"""system.replicated_fetches: the parts that this server is downloading at this moment."""

from __future__ import annotations

from replica.running_operations import RunningFetch
from replica.storage.file_names import table_folder
from replica.system_tables.asked import Asked, SystemTable
from replica.system_tables.columns import Columns, Row
from replica.table_state import TableState

_COLUMNS = Columns.parse("""
    database String
    table String
    elapsed Float64
    progress Float64
    result_part_name String
    result_part_path String
    partition_id String
    total_size_bytes_compressed UInt64
    bytes_read_compressed UInt64
    source_replica_path String
    source_replica_hostname String
    source_replica_port UInt16
    interserver_scheme String
    URI String
    to_detached UInt8
    thread_id UInt64
""")


async def _rows(asked: Asked) -> list[Row]:
    return [_row(state, fetch, asked.now()) for state in asked.replicated for fetch in state.running.fetches]


def _row(state: TableState, fetch: RunningFetch, now: float) -> Row:
    size = 0 if fetch.image is None else fetch.image.size
    return {
        "database": state.database,
        "table": state.name,
        "elapsed": now - fetch.started,
        "progress": 0.0 if fetch.image is None else 1.0,
        "result_part_name": str(fetch.part),
        "result_part_path": f"{table_folder(state.database, state.name)}/{fetch.part}/",
        "partition_id": fetch.part.partition_id,
        "total_size_bytes_compressed": size,
        "bytes_read_compressed": size,
        "source_replica_path": fetch.replica.root,
        "source_replica_hostname": fetch.host.host,
        "source_replica_port": fetch.host.port,
        "interserver_scheme": fetch.host.scheme,
        "URI": f"{fetch.host.scheme}://{fetch.host.interserver_address}",
    }


REPLICATED_FETCHES = SystemTable(_COLUMNS, _rows)
