"""A small cluster in one process on real time: a coordination service, real disks, direct transfer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from coordinator.api import Coordinator, Session
from coordinator.kazoo_client import KazooCoordinator
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
from tests.coordinator.relay import Relay

ROOT = "/clickhouse/tables/01/t"

PATIENT = ServerSettings(insert_keeper_max_retries=30, insert_keeper_retry_initial_backoff_ms=10)
IMPATIENT = ServerSettings(
    insert_keeper_max_retries=1, insert_keeper_retry_initial_backoff_ms=1, insert_keeper_retry_max_backoff_ms=1
)


SESSION_TIMEOUT_SECONDS = 2.0


class Link(Protocol):
    """One client's way to the coordination service."""

    coordinator: Coordinator

    def sever(self) -> None:
        """The client is cut off for ever; the service keeps its session until it expires."""
        ...

    def lose_session(self) -> None:
        """The session is over; the client may make another one."""
        ...


class Service(Protocol):
    """The coordination service, and the network to it."""

    async def link(self, client: str) -> Link: ...

    def close(self) -> None: ...


@dataclass
class Delivery:
    """Every message arrives at once, but those that `loses` picks out by their label."""

    loses: Callable[[str], bool] = lambda label: False

    def delay(self, label: str) -> float | None:
        return None if self.loses(label) else 0.0


class InProcessService:
    """The service in this process; `delivery` loses what it is told to lose."""

    def __init__(self) -> None:
        self.service = LocalService(time.time, tick_seconds=0.5)
        self.delivery = Delivery()

    async def link(self, client: str) -> Link:
        return _LocalLink(self, client)

    def close(self) -> None:
        pass


class _LocalLink:
    def __init__(self, world: InProcessService, client: str) -> None:
        self._service = world.service
        self._others = set(world.service.session_ids())
        self.coordinator = LocalCoordinator(
            world.service,
            world.delivery,
            client,
            session_timeout_seconds=SESSION_TIMEOUT_SECONDS,
            operation_timeout_seconds=0.4,
        )
        self.sever = self.coordinator.sever

    def lose_session(self) -> None:
        for session_id in set(self._service.session_ids()) - self._others:
            self._service.expire(session_id)


class ZooKeeperService:
    """A real ZooKeeper, below a root that nobody else uses; a relay of its own for every client."""

    _roots = itertools.count(1)

    def __init__(self, address: str, root: str) -> None:
        self._address = address
        self._root = root
        self._relays: list[Relay] = []

    @staticmethod
    async def below_a_new_root(address: str) -> ZooKeeperService:
        root = f"/cluster-{next(ZooKeeperService._roots)}"
        session = await KazooCoordinator(address).connect()
        await session.create(root)
        await session.close()
        return ZooKeeperService(address, root)

    async def link(self, client: str) -> Link:
        relay = Relay(self._address)
        link = _RelayedLink(relay, await relay.start() + self._root)
        self._relays.append(relay)
        return link

    def close(self) -> None:
        for relay in self._relays:
            relay.cut()


class _RelayedLink:
    def __init__(self, relay: Relay, hosts: str) -> None:
        self.coordinator = KazooCoordinator(hosts, session_timeout_seconds=SESSION_TIMEOUT_SECONDS)
        self.sever = relay.cut
        self.lose_session = relay.break_connections


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
    link: Link
    task: asyncio.Task[None]

    def table(self, name: str = "t") -> ReplicatedTable:
        return self.server._table("default", name)

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
    service: Service
    replicas: dict[str, Replica] = field(default_factory=dict)
    sources: dict[str, PartSource] = field(default_factory=dict)
    settings: ServerSettings = PATIENT
    sessions: list[Session] = field(default_factory=list)

    @property
    def delivery(self) -> Delivery:
        """Only of the service in this process (see `LOSSES` in test_insert.py)."""
        assert isinstance(self.service, InProcessService)
        return self.service.delivery

    async def session(self) -> Session:
        session = await (await self.service.link("test")).coordinator.connect()
        self.sessions.append(session)
        return session

    async def start(self, name: str) -> Replica:
        link = await self.service.link(name)
        environment = Environment(
            coordinator=link.coordinator,
            disk=LocalDisk(self.folder / name),
            transfer=DirectTransfer(name, self.sources),
            codec=ArrowCodec(),
            workers=ThreadWorkers(2),
            clock=WallClock(),
            chance=SystemChance(),
        )
        server = Server(environment, ServerConfig(name, settings=self.settings))
        replica = Replica(server, link, asyncio.create_task(server.run()))
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
        self.replicas[name].link.sever()
        await self.stop(name)

    async def close(self) -> None:
        for name in sorted(self.replicas):
            await self.stop(name)
        for session in self.sessions:
            await session.close()
        self.service.close()

    async def create_table(self, **changes: object) -> None:
        for name in sorted(self.replicas):
            await self.replicas[name].server.execute(definition(**changes))
        await self.writable()

    async def writable(self) -> None:
        for replica in self.replicas.values():
            await eventually(lambda replica=replica: not replica.table().state.is_readonly)

    async def settled(self) -> None:
        """All queues are empty and everybody has copied the whole log."""
        for replica in self.replicas.values():
            state = replica.table().state
            await eventually(lambda state=state: len(state.queue) == 0 and not state.is_readonly)


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
