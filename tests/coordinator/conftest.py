"""Three worlds with one face, for the contract suite: in process, our server, a real ZooKeeper."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import pytest

from coordinator import features
from coordinator.api import Session
from coordinator.kazoo_client import KazooCoordinator
from coordinator.local_client import LocalCoordinator, LocalService
from coordinator.server import CoordinatorServer

TICK_SECONDS = 0.2
SESSION_TIMEOUT_SECONDS = 2.0


class World(Protocol):
    """A coordination service and the network to it."""

    async def connect(self) -> Session: ...

    async def cut(self, session: Session) -> None:
        """The session's connection breaks, and both ends notice."""
        ...

    async def silence(self, session: Session) -> None:
        """Nothing passes on the session's connection any more, and nobody is told."""
        ...


class RestlessDelivery:
    """Every message takes another short while; all are lost once `silent`."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.silent = False

    def delay(self, label: str) -> float | None:
        return None if self.silent else self._random.uniform(0, 0.004)


class LocalWorld:
    def __init__(self) -> None:
        self._service = LocalService(time.time, tick_seconds=TICK_SECONDS)
        self._links: dict[int, tuple[LocalCoordinator, RestlessDelivery]] = {}

    async def connect(self) -> Session:
        delivery = RestlessDelivery(len(self._links))
        coordinator = LocalCoordinator(
            self._service,
            delivery,
            f"client{len(self._links)}",
            session_timeout_seconds=SESSION_TIMEOUT_SECONDS,
            operation_timeout_seconds=SESSION_TIMEOUT_SECONDS * 2 / 3,
        )
        session = await coordinator.connect()
        self._links[session.session_id] = coordinator, delivery
        return session

    async def cut(self, session: Session) -> None:
        self._links[session.session_id][0].sever()

    async def silence(self, session: Session) -> None:
        self._links[session.session_id][1].silent = True


class Relay:
    """A TCP relay to one address, for one connection that can be cut or silenced."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._writers: list[asyncio.StreamWriter] = []
        self.silent = False

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        self._writers += [writer, far_writer]
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                if not self.silent:
                    writer.write(data)
        except OSError:
            pass
        finally:
            if not self.silent:
                writer.close()

    def cut(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()


class TcpWorld:
    """Sessions over kazoo, each through a relay of its own."""

    def __init__(self, address: str, chroot: str) -> None:
        self._address = address
        self._chroot = chroot
        self._relays: dict[int, Relay] = {}

    async def connect(self) -> Session:
        relay = Relay(self._address)
        coordinator = KazooCoordinator(
            await relay.start() + self._chroot, session_timeout_seconds=SESSION_TIMEOUT_SECONDS
        )
        session = await coordinator.connect()
        self._relays[session.session_id] = relay
        return session

    async def cut(self, session: Session) -> None:
        self._relays[session.session_id].cut()

    async def silence(self, session: Session) -> None:
        self._relays[session.session_id].silent = True

    def end(self) -> None:
        for relay in self._relays.values():
            relay.cut()


_chroots = itertools.count(1)


@pytest.fixture(
    params=[
        "local",
        "server",
        "server below a chroot",
        "server without CheckNotExists",
        pytest.param("zookeeper", marks=pytest.mark.real),
    ]
)
async def world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    if request.param == "local":
        yield LocalWorld()
        return
    if request.param == "zookeeper":
        address = request.getfixturevalue("real_zookeeper")
        tcp = TcpWorld(address, await _new_chroot(address))
        yield tcp
        tcp.end()
        return
    if request.param == "server without CheckNotExists":
        monkeypatch.setitem(features.KEEPER_NODES, features.FEATURE_FLAGS_PATH, features.feature_flags(()))
    server = CoordinatorServer("127.0.0.1:0", tmp_path / "coordinator", tick_ms=round(TICK_SECONDS * 1000))
    await server.start()
    chroot = await _new_chroot(server.address) if request.param == "server below a chroot" else ""
    tcp = TcpWorld(server.address, chroot)
    yield tcp
    tcp.end()
    await server.stop()


async def _new_chroot(address: str) -> str:
    chroot = f"/chroot-{next(_chroots)}"
    session = await KazooCoordinator(address, session_timeout_seconds=SESSION_TIMEOUT_SECONDS).connect()
    await session.create(chroot)
    await session.close()
    return chroot


@pytest.fixture
async def session(world: World) -> AsyncIterator[Session]:
    session = await world.connect()
    yield session
    await session.close()
