"""Three worlds with one face, for the contract suite: in process, our server, a real ZooKeeper."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from coordinator.api import Session
from coordinator.local_client import LocalCoordinator, LocalService

TICK_SECONDS = 0.2
SESSION_TIMEOUT_SECONDS = 1.0


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


@pytest.fixture(params=["local"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    yield LocalWorld()


@pytest.fixture
async def session(world: World) -> AsyncIterator[Session]:
    session = await world.connect()
    yield session
    await session.close()
