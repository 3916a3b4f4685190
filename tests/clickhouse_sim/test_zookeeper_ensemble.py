"""Three real ZooKeeper servers whose leader is killed again and again while clients insert."""

from __future__ import annotations

import asyncio
import itertools
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from clickhouse_sim.cluster import zookeeper
from clickhouse_sim.cluster.processes import ProcessId, spawn
from coordinator.kazoo_client import KazooCoordinator
from replica.commands import InsertStatus
from replica.errors import ClickHouseError
from replica.settings import ServerSettings
from tests.replica.cluster import SESSION_TIMEOUT_SECONDS, Cluster, Link, rows

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

SERVERS = 3
LEADERS_TO_KILL = 4
IN_THE_END = (InsertStatus.STORED, InsertStatus.DUPLICATE)


class Ensemble:
    """ZooKeeper servers on loopback, numbered from 0, that can be killed and started."""

    def __init__(self, folder: Path) -> None:
        self._folders = [folder / f"zk{number}" for number in range(SERVERS)]
        self._ports = zookeeper.free_ports(SERVERS)
        self._processes: dict[int, ProcessId] = {}
        self.address = zookeeper.local_address(self._ports)
        zookeeper.configure(self._folders, self._ports, SESSION_TIMEOUT_SECONDS)

    def start(self, number: int) -> None:
        folder = self._folders[number]
        self._processes[number] = spawn(zookeeper.server_command(folder), folder / "log", {})

    def kill(self, number: int) -> None:
        process = self._processes.pop(number)
        process.send(signal.SIGKILL)
        assert process.wait_gone(10)

    def close(self) -> None:
        for number in sorted(self._processes):
            self.kill(number)

    async def leader(self) -> int:
        """The server that leads, once one does."""
        while True:
            for number in sorted(self._processes):
                if b"Mode: leader" in await asyncio.to_thread(self._ask, number, b"srvr"):
                    return number
            await asyncio.sleep(0.1)

    async def whole(self) -> None:
        """All serve."""
        for number in range(SERVERS):
            while await asyncio.to_thread(self._ask, number, b"isro") != b"rw":
                await asyncio.sleep(0.1)

    def _ask(self, number: int, question: bytes) -> bytes:
        try:
            with socket.create_connection((zookeeper.LOOPBACK, self._ports[number]), timeout=5) as connection:
                connection.sendall(question)
                return b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return b""


class EnsembleService:
    """The way to it: each client begins with another server."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._clients = itertools.count()

    async def link(self, client: str) -> Link:
        return _EnsembleLink(zookeeper.beginning_with(self._address, next(self._clients)))

    def close(self) -> None:
        pass


class _EnsembleLink:
    def __init__(self, address: str) -> None:
        self.coordinator = KazooCoordinator(address, session_timeout_seconds=SESSION_TIMEOUT_SECONDS)

    def sever(self) -> None:
        raise NotImplementedError("servers die here, not networks")

    lose_session = sever


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[Ensemble]:
    ensemble = Ensemble(tmp_path / "zookeeper")
    for number in range(SERVERS):
        ensemble.start(number)
    yield ensemble
    ensemble.close()


@pytest.fixture
async def cluster(tmp_path: Path, ensemble: Ensemble) -> AsyncIterator[Cluster]:
    await ensemble.whole()
    # With so few tries, inserts also end as unknown or not stored, and their clients must repeat them.
    settings = ServerSettings(insert_keeper_max_retries=4, insert_keeper_retry_initial_backoff_ms=10)
    cluster = Cluster(tmp_path, EnsembleService(ensemble.address), settings=settings)
    yield cluster
    await cluster.close()


@dataclass
class Client:
    """Inserts one block after the other, each until it is known to be there, at whichever replica is next."""

    cluster: Cluster
    first_key: int
    acknowledged: set[int] = field(default_factory=set)
    statuses: Counter[str] = field(default_factory=Counter)

    async def run(self, enough: asyncio.Event) -> None:
        replicas = itertools.cycle(self.cluster.replicas.values())
        for number in itertools.count():
            if enough.is_set():
                return
            # Every third block is also another client's.
            first = (0 if number % 3 == 0 else self.first_key) + 2 * number
            while True:
                try:
                    outcome = await next(replicas).insert(rows(first, first + 1))
                except ClickHouseError as problem:
                    self.statuses[problem.name] += 1
                    continue
                self.statuses[outcome.status.value] += 1
                if outcome.status in IN_THE_END:
                    self.acknowledged |= {first, first + 1}
                    break


async def test_no_leader_takes_rows_with_it(cluster: Cluster, ensemble: Ensemble) -> None:
    for name in ("r1", "r2", "r3"):
        await cluster.start(name)
    await cluster.create_table()
    clients = [Client(cluster, first_key) for first_key in (1_000_000, 2_000_000)]
    enough = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.run(enough))
        for _ in range(LEADERS_TO_KILL):
            leader = await ensemble.leader()
            ensemble.kill(leader)
            await asyncio.sleep(2)
            ensemble.start(leader)
            await ensemble.whole()
            await asyncio.sleep(1)
        enough.set()
    await cluster.writable()
    expected = sorted(clients[0].acknowledged | clients[1].acknowledged)
    for replica in cluster.replicas.values():

        async def keys(replica=replica) -> list[int]:  # type: ignore[no-untyped-def]
            found: list[int] = (await replica.server.scan("default", "t", ["k"]))["k"].to_pylist()
            return sorted(found)

        deadline = asyncio.get_running_loop().time() + 30
        while await keys() != expected and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.1)
        assert await keys() == expected
    await cluster.settled()
    parts = [await replica.active_parts() for replica in cluster.replicas.values()]
    assert parts[0] == parts[1] == parts[2]
    assert sum(client.statuses["stored"] for client in clients) > LEADERS_TO_KILL
    print([dict(client.statuses) for client in clients], len(expected))
