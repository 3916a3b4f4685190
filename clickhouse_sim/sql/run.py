"""Statements run on replicas: each function does one of them over an `EndpointClient`."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import BinaryIO

import pyarrow as pa

from clickhouse_sim.cluster.endpoint_client import EndpointClient
from clickhouse_sim.formats.blocks import MAX_INSERT_BLOCK_SIZE
from clickhouse_sim.formats.files import Reading, read_data
from clickhouse_sim.sql.insert import FORMATS, InsertFormat, InsertSelect, InsertStatement, InsertValues
from clickhouse_sim.sql.optimize import Optimization
from clickhouse_sim.sql.select import Answer, Query, TableName, scanned
from clickhouse_sim.sql.selected import selected_blocks
from clickhouse_sim.sql.show import ExistsTable
from replica.commands import (
    AlterSettings,
    ColumnDefinition,
    Definition,
    DescribeTable,
    DropTable,
    ListTables,
    ShowCreateTable,
)
from replica.errors import ClickHouseError, TableIsReadOnly
from replica.schema import TableSchema

SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class DdlOutcome:
    """What became of CREATE, DROP or ALTER TABLE on one replica: `error` is None where it worked."""

    replica: str
    error: ClickHouseError | None


def create(statement: Definition, clients: Mapping[str, EndpointClient]) -> list[DdlOutcome]:
    """Create it on each of the replicas, as ON CLUSTER does: with one UUID, and on all in spite of errors."""
    shared = statement if statement.uuid else replace(statement, uuid=str(uuid.uuid4()))
    return [DdlOutcome(name, _error_of(client, shared)) for name, client in clients.items()]


def run_on_each(statement: DropTable | AlterSettings, clients: Mapping[str, EndpointClient]) -> list[DdlOutcome]:
    """Run it on each of the replicas, one after another, on all in spite of errors."""
    return [DdlOutcome(name, _error_of(client, statement)) for name, client in clients.items()]


def _error_of(client: EndpointClient, statement: Definition | DropTable | AlterSettings) -> ClickHouseError | None:
    try:
        client.execute(statement)
    except ClickHouseError as error:
        return error
    return None


def schema_of(client: EndpointClient, database: str, table: str) -> TableSchema:
    """The columns of a table. Raises UnknownTable; TableIsReadOnly for a system table."""
    if database == SYSTEM:
        raise TableIsReadOnly(f"system.{table} is for reading: it tells about the server")
    rows = client.execute(DescribeTable(database, table))
    return TableSchema.from_definitions(
        ColumnDefinition(row["name"], row["type"], row["default_expression"] or None) for row in rows
    )


def blocks_of(statement: InsertStatement, client: EndpointClient, stdin: BinaryIO) -> Iterator[pa.Table]:
    """The rows that are to be inserted, in blocks; a SELECT is run on the same replica.

    Raises what is wrong with the statement at once, and on the way the errors of a value that does not fit.
    """
    schema = schema_of(client, statement.database, statement.table)
    match statement:
        case InsertValues():
            return iter([statement.block(schema)])
        case InsertSelect():
            tables = {name: _scan(statement.query, name, client) for name in statement.query.tables}
            return selected_blocks(statement.query.rows(tables), statement.columns, schema)
        case InsertFormat():
            listed = [schema.column(name) for name in statement.columns or schema.names]
            source = stdin if statement.data is None else io.BytesIO(statement.data.encode())
            header = statement.format != "CSV"
            reading = Reading(MAX_INSERT_BLOCK_SIZE, FORMATS[statement.format], header)
            return read_data(source, TableSchema(tuple(listed)), reading)


def answer(query: Query, client: EndpointClient) -> Answer:
    """What a query gives over the tables of one replica."""
    return query.run({name: _scan(query, name, client) for name in query.tables})


def _scan(query: Query, name: TableName, client: EndpointClient) -> pa.Table:
    if name.database == SYSTEM:
        return scanned(client.scan(name.database, name.table, paths=query.znode_paths))
    schema = schema_of(client, name.database, name.table)
    return scanned(client.scan(name.database, name.table, query.needed(schema)), schema)


def optimize(statement: Optimization, client: EndpointClient) -> Answer:
    """Assign the merges on one replica and wait until it has done them: the new parts, or why there are none."""
    command = statement.command
    if statement.all_but is not None:
        command = statement.over(schema_of(client, command.database, command.table))
    columns = ("partition_id", "new_part", "reason")
    return Answer(columns, tuple(tuple(row[column] for column in columns) for row in client.execute(command)))


def show_tables(database: str, client: EndpointClient) -> Answer:
    """The names of a database's tables."""
    names = sorted(row["name"] for row in client.execute(ListTables()) if row["database"] == database)
    return Answer(("name",), tuple((name,) for name in names))


def exists(statement: ExistsTable, client: EndpointClient) -> Answer:
    """Whether the server has the table: 1 or 0."""
    wanted = (statement.database, statement.table)
    found = any((row["database"], row["name"]) == wanted for row in client.execute(ListTables()))
    return Answer(("result",), ((int(found),),))


def describe(statement: DescribeTable | ShowCreateTable, client: EndpointClient) -> Answer:
    """The columns of a table, one a row; or the one row of SHOW CREATE TABLE."""
    rows = client.execute(statement)
    return Answer(tuple(rows[0]), tuple(tuple(row.values()) for row in rows))
