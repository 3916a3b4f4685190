"""A cluster without its inside: real endpoints in this process, each with a toy server that keeps rows in memory."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from clickhouse_sim.cli.main import main
from clickhouse_sim.cluster.folder import COORDINATOR, ClusterFolder, Settings
from clickhouse_sim.cluster.processes import ProcessId, start_of
from coordinator.server import CoordinatorServer
from replica.alter_settings import altered
from replica.commands import (
    AlterSettings,
    BlockOutcome,
    Command,
    CreateTable,
    DescribeTable,
    DropReplica,
    DropTable,
    InsertOptions,
    InsertStatus,
    ListTables,
    OptimizeTable,
    PartOutcome,
    RestartReplica,
    RestoreReplica,
    ShowCreateTable,
    SwitchAction,
    SyncReplica,
)
from replica.create_statement import create_statement
from replica.endpoint import Endpoint
from replica.errors import TableAlreadyExists, UnknownTable
from replica.schema import TableSchema, conform
from replica.table_structure import TableStructure

_QUEUE = pa.schema(
    [
        *((name, pa.string()) for name in ("database", "table", "node_name", "type", "new_part_name")),
        *((name, pa.string()) for name in ("source_replica", "last_exception", "postpone_reason")),
        *((name, pa.uint32()) for name in ("is_currently_executing", "num_tries", "num_postponed")),
    ]
)
_REPLICAS = pa.schema(
    [
        *((name, pa.string()) for name in ("database", "table", "zookeeper_path", "replica_name")),
        ("is_readonly", pa.uint8()),
        ("queue_size", pa.uint32()),
        ("zookeeper_exception", pa.string()),
    ]
)
_PARTS = pa.schema(
    [
        *((name, pa.string()) for name in ("database", "table", "partition_id", "name")),
        *((name, pa.uint64()) for name in ("rows", "active", "level", "bytes_on_disk")),
    ]
)


@dataclass
class ToyServer:
    """Enough of a server for its clients: one part a block, duplicates by the block's bytes."""

    name: str
    tables: dict[str, CreateTable] = field(default_factory=dict)
    blocks: dict[str, list[pa.Table]] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)
    queue: list[dict[str, Any]] = field(default_factory=list)
    options: list[InsertOptions] = field(default_factory=list)
    readonly: str = ""
    delay: float = 0.0
    delay_from: tuple[int, float] | None = None
    delaying: threading.Event = field(default_factory=threading.Event)
    optimized: list[OptimizeTable] = field(default_factory=list)
    system_commands: list[Command] = field(default_factory=list)
    refuse: Callable[[int], Exception | None] = lambda source_number: None

    async def execute(self, command: Command) -> list[dict[str, Any]]:
        match command:
            case CreateTable():
                if command.table in self.tables and not command.if_not_exists:
                    raise TableAlreadyExists(f"Table {command.table} exists already")
                TableSchema.from_definitions(command.columns)
                self.tables[command.table] = command
                self.blocks.setdefault(command.table, [])
                return []
            case DescribeTable():
                return [
                    {
                        "name": column.name,
                        "type": column.type.text,
                        "default_type": "DEFAULT" if column.default else "",
                        "default_expression": column.default or "",
                    }
                    for column in self._schema(command.table).columns
                ]
            case DropTable():
                if command.table not in self.tables and not command.if_exists:
                    raise UnknownTable(f"Table default.{command.table} does not exist.")
                self.tables.pop(command.table, None)
                return []
            case AlterSettings():
                self.tables[command.table] = altered(self.tables[command.table], command)
                return []
            case DropReplica() | SwitchAction() | SyncReplica() | RestartReplica() | RestoreReplica():
                self.system_commands.append(command)
                return []
            case OptimizeTable():
                self.optimized.append(command)
                return [{"partition_id": "all", "new_part": "all_0_1_1", "reason": ""}]
            case ShowCreateTable():
                made = self.tables[command.table]
                return [{"statement": create_statement(made, TableStructure.from_definition(made))}]
            case ListTables():
                own = [{"database": "default", "name": name, "engine": "ReplicatedMergeTree"} for name in self.tables]
                return [*own, {"database": "system", "name": "parts", "engine": "System"}]

    async def insert(
        self, database: str, table: str, options: InsertOptions, source_number: int, block: pa.Table
    ) -> BlockOutcome:
        self.options.append(options)
        await asyncio.sleep(self.delay)
        if self.delay_from is not None and source_number >= self.delay_from[0]:
            self.delaying.set()
            await asyncio.sleep(self.delay_from[1])
        if (problem := self.refuse(source_number)) is not None:
            raise problem
        schema = self._schema(table)
        rows = _completed(conform(block, schema), schema)
        key = hashlib.sha256(json.dumps(rows.to_pylist(), default=str).encode()).hexdigest()
        status = InsertStatus.DUPLICATE if key in self.seen else InsertStatus.STORED
        part = self.seen.setdefault(key, f"all_{len(self.seen)}_{len(self.seen)}_0")
        if status is InsertStatus.STORED:
            self.blocks[table].append(rows)
        return BlockOutcome(source_number, rows.num_rows, (PartOutcome("all", status, rows.num_rows, part, key),))

    async def scan(self, database: str, table: str, columns: list[str] | None, paths: Sequence[str] = ()) -> pa.Table:
        if database == "system":
            return self._system(table)
        schema = self._schema(table).arrow_schema
        rows = pa.concat_tables([schema.empty_table(), *self.blocks[table]])
        return rows if columns is None else rows.select(columns)

    def _schema(self, table: str) -> TableSchema:
        if table not in self.tables:
            raise UnknownTable(f"Table default.{table} does not exist.")
        return TableSchema.from_definitions(self.tables[table].columns)

    def _system(self, table: str) -> pa.Table:
        if table == "replication_queue":
            return pa.Table.from_pylist(self.queue, _QUEUE)
        if table == "replicas":
            rows = [
                {"database": "default", "table": name, "zookeeper_path": f"/tables/{name}", "replica_name": self.name}
                | {"is_readonly": int(bool(self.readonly)), "zookeeper_exception": self.readonly}
                | {"queue_size": len(self.queue)}
                for name in self.tables
            ]
            return pa.Table.from_pylist(rows, _REPLICAS)
        if table == "parts":
            rows = [
                {"database": "default", "table": name, "name": f"all_{number}_{number}_0", "rows": block.num_rows}
                | {"partition_id": "all", "active": 1, "level": 0, "bytes_on_disk": 1}
                for name, blocks in self.blocks.items()
                for number, block in enumerate(blocks)
            ]
            return pa.Table.from_pylist(rows, _PARTS)
        raise UnknownTable(f"Table system.{table} does not exist.")


def _completed(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """With the columns that the block leaves out, at their types' defaults."""
    columns = {
        column.name: rows.column(column.name)
        if column.name in rows.column_names
        else pa.array([column.type.default.as_py()] * rows.num_rows, column.type.arrow)
        for column in schema.columns
    }
    return pa.table(columns, schema=schema.arrow_schema)


@dataclass
class ToyCluster:
    """A cluster folder whose replicas are toy servers, and `chsim` on it."""

    folder: ClusterFolder
    servers: dict[str, ToyServer]

    def chsim(self, *arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(main, list(arguments), env={"CHSIM_DIR": str(self.folder.root)}, input=stdin)

    def records(self, *arguments: str) -> list[dict[str, Any]]:
        result = self.chsim(*arguments)
        assert result.exit_code == 0, result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()]

    def bury(self, name: str) -> None:
        """The replica's process is gone, as far as the folder can tell."""
        self.folder.write_process(name, ProcessId(2**22 - 1, "long ago"))


class ToyLoop:
    """An event loop in a thread of its own, where endpoints live."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


def _write_running(folder: ClusterFolder, member: str, address: str) -> None:
    """As if this process were the member."""
    folder.write_process(member, ProcessId(os.getpid(), start_of(os.getpid()) or ""))
    folder.data(member).mkdir()
    ready = {"pid": os.getpid(), "addresses": {"endpoint": address}}
    (folder.data(member) / "ready.json").write_text(json.dumps(ready))


@pytest.fixture
def toy_loop() -> Iterator[ToyLoop]:
    loop = ToyLoop()
    yield loop
    loop.close()


@pytest.fixture
def toy_cluster(tmp_path: Path, toy_loop: ToyLoop) -> Iterator[ToyCluster]:
    """Two living replicas, r1 and r2, and a coordinator that nobody answers for."""
    folder = ClusterFolder(tmp_path / "cluster")
    with folder.locked():
        folder.write_settings(Settings(replicas=2, session_timeout=1.0, coordinator_port=1))
    servers = {name: ToyServer(name) for name in ("r1", "r2")}

    async def open_endpoint(server: ToyServer) -> Endpoint:
        return Endpoint(server)

    endpoints = {name: toy_loop.run(open_endpoint(server)) for name, server in servers.items()}
    for name, endpoint in endpoints.items():
        _write_running(folder, name, f"127.0.0.1:{endpoint.port}")
    yield ToyCluster(folder, servers)
    for endpoint in endpoints.values():
        toy_loop.run(endpoint.stop())


@pytest.fixture
def coordinated_cluster(toy_cluster: ToyCluster, toy_loop: ToyLoop, tmp_path: Path) -> Iterator[ToyCluster]:
    """The toy cluster with a real coordination service."""
    server = CoordinatorServer("127.0.0.1:0", tmp_path / "journal", tick_ms=500)
    toy_loop.run(server.start())
    _write_running(toy_cluster.folder, COORDINATOR, server.address)
    yield toy_cluster
    toy_loop.run(server.stop())


@pytest.fixture(autouse=True)
def _log_after_simulations() -> Iterator[None]:
    """`chsim simulate` switches logging off in its process; other tests want theirs."""
    yield
    logging.disable(logging.NOTSET)
