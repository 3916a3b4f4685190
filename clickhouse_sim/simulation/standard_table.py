"""The table of simulated histories: one column nested, and two partitions to which every block contributes."""

from __future__ import annotations

from replica.commands import ColumnDefinition, CreateTable
from replica.znodes import TableZnodes

TABLE = TableZnodes("/clickhouse/tables/01/t")
DEFINITION = CreateTable(
    database="default",
    table="t",
    columns=(
        ColumnDefinition("k", "UInt64"),
        ColumnDefinition("v", "String"),
        ColumnDefinition("x", "Map(LowCardinality(String), Array(Nullable(Decimal(9, 2))))"),
    ),
    zookeeper_path="/clickhouse/tables/{shard}/t",
    replica_name="{replica}",
    partition_by="k % 2",
    order_by="k",
)
