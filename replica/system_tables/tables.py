"""system.tables: the columns that identify a table, what it is made by, and its keys, in ClickHouse's order."""

from __future__ import annotations

from collections.abc import Sequence

from replica.commands import ColumnDefinition, CreateView, Dependent
from replica.create_dependent import alias_engine, create_dependent_query, engine_of
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
    as_select String
    partition_key String
    sorting_key String
    primary_key String
""")


async def _rows(asked: Asked) -> list[Row]:
    own = _tables(asked) + [_dependent(definition, columns) for definition, columns in asked.dependents]
    return sorted(own, key=lambda row: (row["database"], row["name"]))


def _tables(asked: Asked) -> list[Row]:
    return [
        {
            "database": state.database,
            "name": state.name,
            "uuid": state.uuid,
            "engine": str(state.definition.engine),
            "create_table_query": create_table_query(state.definition, state.structure),
            "engine_full": engine_full(state.definition, state.structure),
            "as_select": "",
            "partition_key": state.structure.partition_key.text,
            "sorting_key": state.structure.sorting_key.text,
            "primary_key": state.structure.primary_key.text,
        }
        for state in asked.tables
    ]


def _dependent(definition: Dependent, columns: Sequence[ColumnDefinition]) -> Row:
    return {
        "database": definition.database,
        "name": definition.table,
        "uuid": definition.uuid,
        "engine": engine_of(definition),
        "create_table_query": create_dependent_query(definition, columns),
        "engine_full": "" if isinstance(definition, CreateView) else alias_engine(definition),
        "as_select": definition.select if isinstance(definition, CreateView) else "",
        "partition_key": "",
        "sorting_key": "",
        "primary_key": "",
    }


TABLES = SystemTable(_COLUMNS, _rows)
