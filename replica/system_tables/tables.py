"""system.tables: the columns that identify a table, what it is made by, and its keys, in ClickHouse's order."""

from __future__ import annotations

from replica.create_statement import create_table_query, engine_full
from replica.system_tables.asked import Asked, SystemTable
from replica.system_tables.columns import Columns, Row

_COLUMNS = Columns.parse("""
    database String
    name String
    uuid UUID
    engine String
    create_table_query String
    engine_full String
    partition_key String
    sorting_key String
    primary_key String
""")


async def _rows(asked: Asked) -> list[Row]:
    return [
        {
            "database": state.database,
            "name": state.name,
            "uuid": state.uuid,
            "engine": str(state.definition.engine),
            "create_table_query": create_table_query(state.definition, state.structure),
            "engine_full": engine_full(state.definition, state.structure),
            "partition_key": state.structure.partition_key.text,
            "sorting_key": state.structure.sorting_key.text,
            "primary_key": state.structure.primary_key.text,
        }
        for state in asked.tables
    ]


TABLES = SystemTable(_COLUMNS, _rows)
