"""What a server can tell about itself, as tables with ClickHouse's column names and types (`system.*`)."""

from __future__ import annotations

import pyarrow as pa

from replica.errors import UnknownTable
from replica.quoting import did_you_mean
from replica.system_tables.asked import Asked, SystemTable
from replica.system_tables.detached_parts import DETACHED_PARTS
from replica.system_tables.events import EVENTS
from replica.system_tables.merge_tree_settings import MERGE_TREE_SETTINGS
from replica.system_tables.merges import MERGES
from replica.system_tables.metrics import METRICS
from replica.system_tables.part_log import PART_LOG
from replica.system_tables.parts import PARTS
from replica.system_tables.replicas import REPLICAS
from replica.system_tables.replicated_fetches import REPLICATED_FETCHES
from replica.system_tables.replication_queue import REPLICATION_QUEUE
from replica.system_tables.tables import TABLES
from replica.system_tables.zookeeper import ZOOKEEPER
from replica.system_tables.zookeeper_log import ZOOKEEPER_LOG

__all__ = ["SYSTEM_TABLES", "Asked", "SystemTable", "scan_system_table", "system_table"]

SYSTEM_TABLES: dict[str, SystemTable] = {
    "detached_parts": DETACHED_PARTS,
    "events": EVENTS,
    "merge_tree_settings": MERGE_TREE_SETTINGS,
    "merges": MERGES,
    "metrics": METRICS,
    "part_log": PART_LOG,
    "parts": PARTS,
    "replicas": REPLICAS,
    "replicated_fetches": REPLICATED_FETCHES,
    "replicated_merge_tree_settings": MERGE_TREE_SETTINGS,
    "replication_queue": REPLICATION_QUEUE,
    "tables": TABLES,
    "zookeeper": ZOOKEEPER,
    "zookeeper_log": ZOOKEEPER_LOG,
}


def system_table(name: str) -> SystemTable:
    """The table `system.<name>`. Raises UnknownTable."""
    if name not in SYSTEM_TABLES:
        raise UnknownTable(f"Table system.{name} does not exist.{did_you_mean(name, list(SYSTEM_TABLES))}")
    return SYSTEM_TABLES[name]


async def scan_system_table(name: str, asked: Asked) -> pa.Table:
    """The rows of `system.<name>`. Raises UnknownTable, and what the table itself has to refuse."""
    table = system_table(name)
    return table.columns.table(await table.rows(asked))
