"""The small cluster on a real ZooKeeper, for tests that are told nothing of which service they run on."""

from __future__ import annotations

import itertools
import socket
from dataclasses import dataclass, field

import pytest

from coordinator.api import Session
from coordinator.kazoo_client import KazooCoordinator, KazooSession
from tests.replica.cluster import Cluster

SESSION_TIMEOUT_SECONDS = 2.0

# The params of a module's fixture `service`, and the mark of its tests that need the first one.
ANYWHERE = ["local", pytest.param("zookeeper", marks=pytest.mark.real)]
LOCAL = pytest.mark.parametrize("service", ["local"])

_roots = itertools.count(1)


class SeverableKazooCoordinator:
    """Its client can lose its network."""

    def __init__(self, address: str) -> None:
        self._coordinator = KazooCoordinator(address, session_timeout_seconds=SESSION_TIMEOUT_SECONDS)
        self._sessions: list[KazooSession] = []

    async def connect(self) -> KazooSession:
        session = await self._coordinator.connect()
        self._sessions = [*(other for other in self._sessions if other.alive), session]
        return session

    def sever(self) -> None:
        """The sessions are dead to the client; the service keeps them until their timeout."""
        for session in self._sessions:
            if session.alive:
                session._client._connection._socket.shutdown(socket.SHUT_RDWR)
                session._die()


@dataclass
class ZooKeeperCluster(Cluster):
    """Servers whose sessions are with the ZooKeeper at `address`."""

    address: str = ""
    sessions: list[Session] = field(default_factory=list)

    @staticmethod
    async def new_root(address: str) -> str:
        """The address with a root that nobody has used."""
        root = f"/cluster-{next(_roots)}"
        session = await KazooCoordinator(address).connect()
        await session.create(root)
        await session.close()
        return address + root

    def coordinator(  # type: ignore[override]
        self, client: str, operation_timeout_seconds: float = 0.0
    ) -> SeverableKazooCoordinator:
        return SeverableKazooCoordinator(self.address)

    async def session(self) -> Session:
        self.sessions.append(await super().session())
        return self.sessions[-1]

    async def close(self) -> None:
        await super().close()
        for session in self.sessions:
            await session.close()
