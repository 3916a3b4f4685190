"""The table of simulated histories: two columns, and two partitions to which every block contributes."""

from __future__ import annotations

from replica.commands import ColumnDefinition, CreateTable
from replica.znodes import TableZnodes

TABLE = TableZnodes("/clickhouse/tables/01/t")
DEFINITION = CreateTable(
    database="default",
    table="t",
    columns=(ColumnDefinition("k", "UInt64"), ColumnDefinition("v", "String")),
    zookeeper_path="/clickhouse/tables/{shard}/t",
    replica_name="{replica}",
    partition_by="k % 2",
    order_by="k",
)
