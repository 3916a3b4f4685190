"""One server: its session, its pools, its tables, and what clients and other replicas ask of it.

Runs in either world; what it touches outside comes in as an `Environment`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from coordinator.api import CoordinationError
from replica.alter_settings import altered
from replica.background.attach import take_force_flag
from replica.catalog import Catalog
from replica.commands import (
    AlterSettings,
    BlockOutcome,
    Command,
    CreateAlias,
    CreateTable,
    CreateView,
    Definition,
    Dependent,
    DescribeTable,
    DropReplica,
    DropTable,
    Engine,
    InsertOptions,
    ListTables,
    OptimizeTable,
    PartitionCommand,
    RestartReplica,
    RestoreReplica,
    ShowCreateTable,
    SwitchAction,
    SyncReplica,
)
from replica.create_dependent import create_dependent_statement, engine_of
from replica.create_statement import create_statement
from replica.dedup.tokens import SourceToken
from replica.drop import Drops
from replica.environment import Environment, PartFiles, PartRequest
from replica.errors import (
    BadArguments,
    CannotGetCreateTableQuery,
    IncorrectQuery,
    KeeperException,
    NoSuchDataPart,
    NotImplementedInModel,
    TableAlreadyExists,
    TableIsBeingRestarted,
    TableIsDropped,
    UnknownDatabase,
    UnknownTable,
)
from replica.insert.retries import KeeperRetries
from replica.plain_table import PlainTable
from replica.pools import Pools
from replica.restoration import check_restorable, put_parts_aside
from replica.session import SessionKeeper
from replica.settings import ServerSettings
from replica.stored_table import ServerShare
from replica.system_tables import SYSTEM_TABLES, Asked, scan_system_table, system_table
from replica.table import ReplicatedTable
from replica.views import Table, Views
from replica.znodes import Host
from replica.zookeeper_log import ZooKeeperLog

DEFAULT_DATABASE = "default"
SYSTEM_DATABASE = "system"
SERVER_UUID_FILE = "uuid"


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """What makes this server itself: the values of its macros, where it is reached, its settings."""

    name: str
    shard: str = "01"
    tcp_port: int = 0
    settings: ServerSettings = field(default_factory=ServerSettings)

    @property
    def macros(self) -> dict[str, str]:
        return {"shard": self.shard, "replica": self.name}


class Server:
    """A server; `run` brings it up. What it is asked before `started` is set waits or is refused."""

    def __init__(self, environment: Environment, config: ServerConfig) -> None:
        self._environment = environment
        self._config = config
        self._catalog = Catalog(environment.disk)
        self._tables: dict[tuple[str, str], Table] = {}
        self._views = Views(self._tables, environment.query_engine)
        self._one_definition_at_a_time = asyncio.Lock()
        self._share: ServerShare | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._interserver_address = ""
        self.started = asyncio.Event()

    async def run(self) -> None:
        """Load the tables, serve parts, keep a session; until cancelled."""
        environment = self._environment
        server_uuid = await self._server_uuid()
        self._identifier = f"pid: {environment.chance.choose('pid', range(1, 1 << 22))}, random: {self._draw(64)}"
        sessions = SessionKeeper(environment.coordinator, server_uuid, ZooKeeperLog(environment.clock))
        self._share = ServerShare(
            environment, self._config.settings, sessions, Pools(self._config.settings), server_uuid
        )
        self._interserver_address = await environment.transfer.serve(self)
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._tasks.create_task(sessions.run())
                self._drops = Drops(self._share, self._catalog, self._config.macros, self._tasks)
                for dropped in await self._catalog.load_dropped():
                    self._drops.begin(dropped)
                forced = await take_force_flag(environment.disk)
                tables = []
                for definition in await self._catalog.load():
                    if isinstance(definition, CreateTable):
                        tables.append(definition)
                    else:
                        self._views.add(definition)  # before the tables: no block is to pass by a view
                for table in tables:
                    await self._start(self._table_of(table), forced=forced)
                self.started.set()
        finally:
            await environment.transfer.stop()

    async def _server_uuid(self) -> str:
        """Drawn at the first start, then kept on the disk."""
        disk = self._environment.disk
        if not await disk.exists(SERVER_UUID_FILE):
            await disk.write(f"{SERVER_UUID_FILE}.tmp", self._new_uuid().encode())
            await disk.fsync(f"{SERVER_UUID_FILE}.tmp")
            await disk.rename(f"{SERVER_UUID_FILE}.tmp", SERVER_UUID_FILE)
            await disk.fsync_folder("")
        return (await disk.read(SERVER_UUID_FILE)).decode()

    def _new_uuid(self) -> str:
        return str(uuid.UUID(int=self._draw(128), version=4))

    def _draw(self, bits: int) -> int:
        value = 0
        for _ in range(bits // 32):
            value = value << 32 | self._environment.chance.choose("random bits", range(1 << 32))
        return value

    def _table_of(self, definition: CreateTable) -> Table:
        """Raises the ClickHouseError of whatever is wrong in the definition."""
        assert self._share is not None
        match definition.engine:
            case Engine.MERGE_TREE:
                return PlainTable(self._share, definition)
            case Engine.REPLICATED_MERGE_TREE:
                return ReplicatedTable(self._share, definition, self._config.macros)

    async def _start(self, table: Table, *, forced: bool = False) -> None:
        await table.load()
        assert self._tasks is not None
        definition = table.definition
        assert self._share is not None
        self._tables[definition.database, definition.table] = table
        if isinstance(table, PlainTable):
            table.begin(self._tasks)
            return
        self._share.tables[definition.database, definition.table] = table.state
        address, _, port = self._interserver_address.rpartition(":")
        host = Host(address, int(port), self._config.tcp_port, definition.database, definition.table)
        table.begin(self._tasks, host, self._identifier, forced=forced)

    # --- commands --------------------------------------------------------------------------------------------

    async def execute(self, command: Command) -> list[dict[str, Any]]:
        """Carry out a command; the rows of its answer. Raises ClickHouseError."""
        match command:
            case CreateTable():
                await self._create(command)
                return []
            case CreateView() | CreateAlias():
                await self._create_dependent(command)
                return []
            case DropTable():
                await self._drop(command)
                return []
            case AlterSettings():
                await self._alter_settings(command)
                return []
            case SwitchAction():
                for table in self._meant(command):
                    table.state.switch(command.action, stop=command.stop)
                return []
            case SyncReplica():
                await self.replicated_table(command.database, command.table).sync(command.mode)
                return []
            case DropReplica():
                await self.replicated_table(command.database, command.table).drop_replica(command.replica)
                return []
            case RestartReplica():
                await self._restart(command)
                return []
            case RestoreReplica():
                await self._restore(command)
                return []
            case DescribeTable():
                return self._describe(command)
            case ShowCreateTable():
                return [{"statement": self._create_statement(command)}]
            case OptimizeTable():
                return await self.table(command.database, command.table).optimize(command)
            case ListTables():
                return self._list_tables()
            case _ if isinstance(command, PartitionCommand):
                await self.replicated_table(command.database, command.table).alter_partition(command)
                return []
            case _:
                raise BadArguments(f"This server does not know the command {command!r}")

    async def _create(self, definition: CreateTable) -> None:
        await self.started.wait()
        await self._drops.wait(definition.database, definition.table)
        assert self._share is not None
        async with self._one_definition_at_a_time:
            if self._is_there(definition):
                return
            definition = replace(definition, if_not_exists=False, uuid=definition.uuid or self._new_uuid())
            table = self._table_of(definition)
            if isinstance(table, ReplicatedTable):
                await self._register(table)
            await self._catalog.add(definition)
            await self._start(table)

    def _is_there(self, definition: Definition) -> bool:
        """Whether it is, and that is fine. Raises TableAlreadyExists, UnknownDatabase and BadArguments."""
        name = (definition.database, definition.table)
        if definition.database != DEFAULT_DATABASE:
            raise UnknownDatabase(f"Database {definition.database} does not exist: there is {DEFAULT_DATABASE}")
        if not definition.table:
            raise BadArguments("A table needs a name")
        if (name in self._tables or name in self._views) and not definition.if_not_exists:
            raise TableAlreadyExists(f"Table {definition.database}.{definition.table} already exists")
        return name in self._tables or name in self._views

    async def _create_dependent(self, definition: Dependent) -> None:
        await self.started.wait()
        await self._drops.wait(definition.database, definition.table)
        async with self._one_definition_at_a_time:
            if not self._is_there(definition):
                checked = self._views.checked(definition)
                checked = replace(checked, if_not_exists=False, uuid=definition.uuid or self._new_uuid())
                await self._catalog.add(checked)
                self._views.add(checked)

    async def _drop(self, command: DropTable) -> None:
        await self.started.wait()
        name = (command.database, command.table)
        async with self._one_definition_at_a_time:
            dependent = self._views.get(name)
            if command.if_exists and dependent is None and name not in self._tables:
                return
            if command.only_view and not isinstance(dependent, CreateView):
                if dependent is None:
                    self.table(*name)
                raise IncorrectQuery(f"Table {command.database}.{command.table} is not a View: say DROP TABLE")
            if dependent is not None:
                await self._catalog.remove(dependent)
                self._views.remove(dependent)
                return
            table = self.table(command.database, command.table)
            await self._catalog.mark_dropped(table.definition)
            del self._tables[command.database, command.table]
            assert self._share is not None
            self._share.tables.pop((command.database, command.table), None)
            await table.shut_down(TableIsDropped(f"Table {table.state.full_name} is dropped"))
            self._drops.begin(table.definition)
        await self._drops.wait(command.database, command.table)

    async def _alter_settings(self, command: AlterSettings) -> None:
        async with self._one_definition_at_a_time:
            table = self.table(command.database, command.table)
            table.state.check_alterable()  # ClickHouse refuses any ALTER of a read-only table
            definition = altered(table.definition, command)
            await self._catalog.add(definition)
            await table.alter_settings(definition)

    async def _restart(self, command: RestartReplica) -> None:
        async with self._one_definition_at_a_time:
            table = self.replicated_table(command.database, command.table)
            await table.shut_down(TableIsBeingRestarted(f"Table {table.state.full_name} is restarting: try again"))
            assert self._share is not None
            await self._start(ReplicatedTable(self._share, table.definition, self._config.macros))

    async def _restore(self, command: RestoreReplica) -> None:
        async with self._one_definition_at_a_time:
            table = self.replicated_table(command.database, command.table)
            await check_restorable(table.state)
            await table.shut_down(TableIsBeingRestarted(f"Table {table.state.full_name} is restored: try again"))
            assert self._share is not None
            restored = ReplicatedTable(self._share, table.definition, self._config.macros)
            try:
                await put_parts_aside(table.state)
                await self._register(restored)
            finally:
                await self._start(restored)
        await restored.wait_restored()

    def _meant(self, command: SwitchAction) -> list[Table]:
        if command.table:
            return [self.table(command.database, command.table)]
        return [table for _, table in sorted(self._tables.items())]

    async def _register(self, table: ReplicatedTable) -> None:
        retries = KeeperRetries(self._config.settings)
        while True:
            try:
                await table.register()
                return
            except CoordinationError as problem:
                if not await retries.wait():
                    raise KeeperException(f"The table could not be registered: {problem}") from problem

    def _describe(self, command: DescribeTable) -> list[dict[str, Any]]:
        if command.database == SYSTEM_DATABASE:
            columns = system_table(command.table).columns.columns
            return [
                {"name": each.name, "type": each.type, "default_type": "", "default_expression": ""}
                for each in columns
            ]
        schema = self._views.schema((command.database, command.table))
        return [
            {
                "name": column.name,
                "type": column.type.text,
                "default_type": "" if column.default is None else "DEFAULT",
                "default_expression": column.default or "",
            }
            for column in schema.columns
        ]

    def _create_statement(self, command: ShowCreateTable) -> str:
        if command.database == SYSTEM_DATABASE:
            raise UnknownTable(f"There is no metadata of table {command.table} in database {SYSTEM_DATABASE}")
        dependent = self._views.get((command.database, command.table))
        if dependent is not None:
            return create_dependent_statement(dependent, self._views.columns(dependent))
        try:
            state = self.table(command.database, command.table).state
        except UnknownTable as problem:
            raise CannotGetCreateTableQuery(problem.message) from problem
        return create_statement(state.definition, state.structure)

    def _list_tables(self) -> list[dict[str, Any]]:
        own = [
            {"database": database, "name": name, "engine": str(table.definition.engine)}
            for (database, name), table in sorted(self._tables.items())
        ]
        own += [{"database": each.database, "name": each.table, "engine": engine_of(each)} for each in self._views]
        system = [{"database": "system", "name": name, "engine": "System"} for name in sorted(SYSTEM_TABLES)]
        return own + system

    # --- rows ------------------------------------------------------------------------------------------------

    async def insert(
        self, database: str, table: str, options: InsertOptions, source_number: int, block: pa.Table
    ) -> BlockOutcome:
        """Insert one block, the `source_number`-th of its INSERT, and what materialized views make of it.

        After a ClickHouseError nothing is written.
        """
        route = self._views.route((database, table))
        return await self._views.storage((database, table)).insert(options, source_number, block, route)

    async def insert_together(
        self, database: str, table: str, options: InsertOptions, tokens: Sequence[SourceToken], block: pa.Table
    ) -> BlockOutcome:
        """Insert a block that asynchronous inserts have put together, as `ReplicatedTable.insert_together`."""
        route = self._views.route((database, table))
        return await self._views.storage((database, table)).insert_together(options, tokens, block, route)

    async def scan(
        self, database: str, table: str, columns: list[str] | None = None, paths: Sequence[str] = ()
    ) -> pa.Table:
        """The rows of a table at this moment, or of a system table. Raises ClickHouseError.

        `paths` are the znodes whose children system.zookeeper is to list; no other table looks at them.
        """
        if database == SYSTEM_DATABASE:
            await self.started.wait()
            rows = await scan_system_table(table, self._asked(paths))
            return rows if columns is None else rows.select(columns)
        shown = self._views.schema((database, table)).names if columns is None else columns
        return await self._views.storage((database, table)).scan(list(shown))

    def _asked(self, paths: Sequence[str]) -> Asked:
        assert self._share is not None
        states = [each.state for _, each in sorted(self._tables.items())]
        dependents = [(each, self._views.columns(each)) for each in self._views]
        return Asked(self._config.name, self._config.macros, self._share, states, paths, dependents)

    def table(self, database: str, name: str) -> Table:
        """A table of its own. Raises UnknownTable; NotImplementedInModel for a view or an alias."""
        if (database, name) not in self._tables and (dependent := self._views.get((database, name))) is not None:
            raise NotImplementedInModel(
                f"{database}.{name} is a {engine_of(dependent)}: this is for tables only, as "
                f"{dependent.target_database}.{dependent.target_table}"
            )
        return self._views.storage((database, name))

    def replicated_table(self, database: str, name: str) -> ReplicatedTable:
        """Raises UnknownTable, and BadArguments for a table of another engine."""
        table = self.table(database, name)
        if not isinstance(table, ReplicatedTable):
            raise BadArguments(f"Table {table.state.full_name} ({table.definition.uuid}) is not replicated")
        return table

    # --- other replicas --------------------------------------------------------------------------------------

    async def send_part(self, request: PartRequest) -> PartFiles:
        """A part for another replica. Raises NoSuchDataPart, BadDataPartName."""
        for _, table in sorted(self._tables.items()):
            if isinstance(table, ReplicatedTable) and table.state.znodes.root == request.replica_path:
                return await table.send_part(request.part_name)
        raise NoSuchDataPart(f"No table of this server is {request.replica_path[:200]!r}")
