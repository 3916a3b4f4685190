"""A small cluster in one process on real time: the in-process coordination service, real disks, direct transfer."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from clickhouse_sim.sql.view_select import DuckDbEngine
from coordinator.api import Session
from coordinator.local_client import LocalCoordinator, LocalService
from replica.chance import SystemChance
from replica.clock import WallClock
from replica.commands import BlockOutcome, ColumnDefinition, CreateTable, InsertOptions
from replica.environment import Environment, PartFiles, PartRequest, PartSource
from replica.errors import NetworkError
from replica.server import Server, ServerConfig
from replica.settings import ServerSettings
from replica.storage.disk import LocalDisk
from replica.storage.part_codec import ArrowCodec
from replica.table import ReplicatedTable
from replica.workers import ThreadWorkers
from replica.znodes import sequence_number

ROOT = "/clickhouse/tables/01/t"

PATIENT = ServerSettings(insert_keeper_max_retries=30, insert_keeper_retry_initial_backoff_ms=10)
IMPATIENT = ServerSettings(
    insert_keeper_max_retries=1, insert_keeper_retry_initial_backoff_ms=1, insert_keeper_retry_max_backoff_ms=1
)

QUICK_CLEANUP = {
    "cleanup_delay_period": "0",
    "cleanup_delay_period_random_add": "0",
    "cleanup_thread_preferred_points_per_iteration": "0",
}


@dataclass
class Delivery:
    """Every message arrives at once, but those that `loses` picks out by their label."""

    loses: Callable[[str], bool] = lambda label: False

    def delay(self, label: str) -> float | None:
        return None if self.loses(label) else 0.0


class DirectTransfer:
    """Parts from server to server by a call."""

    def __init__(self, name: str, sources: dict[str, PartSource]) -> None:
        self._address = f"{name}:9009"
        self._sources = sources

    async def serve(self, source: PartSource) -> str:
        self._sources[self._address] = source
        return self._address

    async def fetch(self, address: str, request: PartRequest, deadline_seconds: float) -> PartFiles:
        if address not in self._sources:
            raise NetworkError(f"nobody at {address}")
        return await self._sources[address].send_part(request)

    async def stop(self) -> None:
        self._sources.pop(self._address, None)


@dataclass
class Replica:
    """One running server of the cluster."""

    server: Server
    coordinator: LocalCoordinator
    task: asyncio.Task[None]

    def table(self, name: str = "t") -> ReplicatedTable:
        return self.server.replicated_table("default", name)

    async def insert(self, table: pa.Table | None = None, **options: object) -> BlockOutcome:
        block = table if table is not None else rows(1)
        return await self.server.insert("default", "t", InsertOptions(**options), 0, block)  # type: ignore[arg-type]

    async def count(self) -> int:
        return (await self.server.scan("default", "t")).num_rows

    async def active_parts(self) -> list[str]:
        return [str(part.name) for part in self.table().state.store.active_parts()]


@dataclass
class Cluster:
    """Servers by name; `folder` keeps their disks over restarts."""

    folder: Path
    service: LocalService = field(default_factory=lambda: LocalService(time.time, tick_seconds=0.5))
    delivery: Delivery = field(default_factory=Delivery)
    replicas: dict[str, Replica] = field(default_factory=dict)
    sources: dict[str, PartSource] = field(default_factory=dict)
    settings: ServerSettings = PATIENT

    def coordinator(self, client: str, operation_timeout_seconds: float = 1.0) -> LocalCoordinator:
        return LocalCoordinator(
            self.service,
            self.delivery,
            client,
            session_timeout_seconds=4.0,
            operation_timeout_seconds=operation_timeout_seconds,
        )

    async def session(self) -> Session:
        return await self.coordinator("test", operation_timeout_seconds=5.0).connect()

    def environment(self, name: str, coordinator: LocalCoordinator) -> Environment:
        return Environment(
            coordinator=coordinator,
            disk=LocalDisk(self.folder / name),
            transfer=DirectTransfer(name, self.sources),
            codec=ArrowCodec(),
            workers=ThreadWorkers(2),
            clock=WallClock(),
            chance=SystemChance(),
            query_engine=DuckDbEngine(),
        )

    async def start(self, name: str) -> Replica:
        coordinator = self.coordinator(name)
        server = Server(self.environment(name, coordinator), ServerConfig(name, settings=self.settings))
        replica = Replica(server, coordinator, asyncio.create_task(server.run()))
        self.replicas[name] = replica
        await server.started.wait()
        return replica

    async def stop(self, name: str) -> None:
        replica = self.replicas.pop(name)
        replica.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await replica.task

    async def kill(self, name: str) -> None:
        """Its session stays until the service expires it."""
        self.replicas[name].coordinator.sever()
        await self.stop(name)

    async def close(self) -> None:
        for name in sorted(self.replicas):
            await self.stop(name)

    async def create_table(self, **changes: object) -> None:
        for name in sorted(self.replicas):
            await self.replicas[name].server.execute(definition(**changes))
        await self.writable()

    async def writable(self) -> None:
        for replica in self.replicas.values():
            await eventually(lambda replica=replica: not replica.table().state.is_readonly)

    async def settled(self) -> None:
        """All queues are empty and everybody has copied the whole log."""
        session = await self.session()

        async def is_settled(replica: Replica) -> bool:
            state = replica.table().state
            if state.is_readonly or len(state.queue):
                return False
            names = await session.children(state.znodes.table.log)
            pointer, _ = await session.get(state.znodes.log_pointer)
            behind = bool(names) and int(pointer or b"0") <= sequence_number(names[-1])
            return not behind and not await session.children(state.znodes.queue)

        async with asyncio.timeout(60):
            for replica in self.replicas.values():
                while not await is_settled(replica):
                    await asyncio.sleep(0.02)
        await session.close()


def definition(**changes: object) -> CreateTable:
    fields: dict[str, object] = {
        "database": "default",
        "table": "t",
        "columns": (ColumnDefinition("k", "UInt64"), ColumnDefinition("v", "String")),
        "zookeeper_path": "/clickhouse/tables/{shard}/t",
        "replica_name": "{replica}",
        "order_by": "k",
        "partition_by": "k % 2",
    }
    return CreateTable(**{**fields, **changes})  # type: ignore[arg-type]


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.uint64()), "v": pa.array([str(key) for key in keys])})


async def eventually(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.01)
