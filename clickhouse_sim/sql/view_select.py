"""The query engine of materialized views: DuckDB, over the one block that a view is given."""

from __future__ import annotations

from functools import lru_cache

import duckdb
import pyarrow as pa

from clickhouse_sim.sql.select import SHUT_IN, TableName, parse_select, scanned
from clickhouse_sim.sql.selected import as_inserted
from replica.errors import NotImplementedInModel
from replica.schema import TableSchema


class DuckDbEngine:
    """One DuckDB for all views. A SELECT runs on a cursor of its own, on one thread so that rows keep an order."""

    def __init__(self) -> None:
        self._duckdb = duckdb.connect(config={**SHUT_IN, "threads": "1"})

    def select(self, select: str, source: tuple[str, str], rows: pa.Table, schema: TableSchema) -> pa.Table:
        """See `replica.environment.QueryEngine`."""
        query = _parsed(select)
        table = TableName(*source)
        if query.tables != (table,):
            raise NotImplementedInModel(f"the SELECT of a view reads its source, {table}, and nothing else: {select}")
        block = scanned(rows.select(query.needed(schema)), schema)
        selected = query.rows({table: block}, within=self._duckdb)
        return pa.table([as_inserted(column) for column in selected.columns], names=selected.column_names)


_parsed = lru_cache(maxsize=100)(parse_select)
"""Views are few, and their SELECTs run often."""
