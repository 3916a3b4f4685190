"""Three real ZooKeeper servers whose leader is killed again and again while clients insert."""

from __future__ import annotations

import asyncio
import itertools
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from clickhouse_sim.cluster import zookeeper
from clickhouse_sim.cluster.processes import ProcessId, spawn
from coordinator.api import Create, Operation, Result
from replica.commands import InsertStatus
from replica.errors import ClickHouseError
from replica.session import ServerSession
from replica.settings import ServerSettings
from tests.replica.cluster import Cluster, Replica, rows
from tests.replica.zookeeper_cluster import SESSION_TIMEOUT_SECONDS, SeverableKazooCoordinator, ZooKeeperCluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

SERVERS = 3
# One leader each: so many seconds after a commit set off it is killed, and stays away.
DEATHS = [(0.0, 2.0), (0.01, 0.5), (0.02, 2.0), (0.005, 0.5), (0.04, 2.0), (0.015, 0.5)]
# One replica each: so often it tries by itself before it gives the block back, unstored or with its fate unknown.
RETRIES = {"r1": 10, "r2": 4, "r3": 10}
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
        self._processes[number].send(signal.SIGKILL)

    def close(self) -> None:
        for number, process in self._processes.items():
            self.kill(number)
            assert process.wait_gone(10)

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


@dataclass
class EnsembleCluster(ZooKeeperCluster):
    """Each client begins with another server."""

    clients: Iterator[int] = field(default_factory=itertools.count)

    def coordinator(self, client: str, operation_timeout_seconds: float = 0.0) -> SeverableKazooCoordinator:
        return SeverableKazooCoordinator(zookeeper.beginning_with(self.address, next(self.clients)))


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
    cluster = EnsembleCluster(tmp_path, address=ensemble.address)
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


class Commits:
    """Tells when a commit of an insert sets off."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._set_off = asyncio.Event()
        multi_checked = ServerSession.multi_checked

        async def watched(session: ServerSession, operations: Sequence[Operation]) -> list[Result]:
            if isinstance(operations[0], Create) and operations[0].path.endswith("/log/log-"):
                self._set_off.set()
            return await multi_checked(session, operations)

        monkeypatch.setattr(ServerSession, "multi_checked", watched)

    async def next(self) -> None:
        self._set_off.clear()
        await self._set_off.wait()


async def test_no_leader_takes_rows_with_it(
    cluster: Cluster, ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = Commits(monkeypatch)
    for name, retries in RETRIES.items():
        cluster.settings = ServerSettings(
            insert_keeper_max_retries=retries, insert_keeper_retry_initial_backoff_ms=10
        )
        await cluster.start(name)
    await cluster.create_table()
    clients = [Client(cluster, first_key) for first_key in (1_000_000, 2_000_000)]
    enough = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.run(enough))
        for delay, absence in DEATHS:
            leader = await ensemble.leader()
            await commits.next()
            await asyncio.sleep(delay)
            ensemble.kill(leader)
            await asyncio.sleep(absence)
            ensemble.start(leader)
            await ensemble.whole()
        enough.set()
    await cluster.writable()
    expected = sorted(clients[0].acknowledged | clients[1].acknowledged)
    for name, replica in cluster.replicas.items():
        assert await keys_of(replica, len(expected)) == expected, name
    await cluster.settled()
    parts = [await replica.active_parts() for replica in cluster.replicas.values()]
    assert parts[0] == parts[1] == parts[2]
    for client in clients:
        assert client.statuses["stored"] > len(DEATHS), "they were to insert all the time"


async def keys_of(replica: Replica, count: int) -> list[int]:
    """All keys, sorted, once there are so many, or after a while."""
    try:
        async with asyncio.timeout(30):
            while await replica.count() != count:
                await asyncio.sleep(0.1)
    except TimeoutError:
        pass
    return sorted((await replica.server.scan("default", "t", ["k"]))["k"].to_pylist())
