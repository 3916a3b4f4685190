"""What goes wrong in a history, one drawn fault after the other, and how it all is healed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from clickhouse_sim.simulation.destruction import Destruction
from clickhouse_sim.simulation.world import COORDINATOR, World
from replica.environment import Chance
from replica.server import Server

Fault = Callable[[str], Awaitable[None]]


class Faults:
    """Faults for the replicas of one world. Each lasts a drawn time; `heal` ends them all.

    The `spared_session` is the checker's. Data is destroyed only where there is a `destruction` to note it.
    """

    def __init__(
        self,
        world: World[Server],
        chance: Chance,
        names: list[str],
        start: Callable[[str], None],
        longest_down_seconds: int,
        spared_session: int,
        destruction: Destruction | None = None,
    ) -> None:
        self._world = world
        self._chance = chance
        self._names = names
        self._start = start
        self._longest_down_seconds = longest_down_seconds
        self._spared_session = spared_session
        self._kinds: list[Fault] = [self._crash, self._expire_session, self._lose_multi_replies, self._cut_off]
        self._destruction = destruction
        if destruction is not None:
            self._kinds += [self._lose_disk, self._rot]
        self.seen: dict[str, int] = {}

    async def inject(self, count: int, pause_seconds: int) -> None:
        """So many faults, at drawn replicas, with drawn pauses of up to `pause_seconds` before each."""
        for _ in range(count):
            await self._drawn_time("pause before fault", pause_seconds)
            fault = self._chance.choose("fault", self._kinds)
            await fault(self._chance.choose("faulty replica", self._names))

    def heal(self) -> None:
        """Every replica lives and every message arrives."""
        for name in self._names:
            self._world.network.deliver_multis(name)
            self._world.network.heal(name, COORDINATOR)
            if name not in self._world.running:
                self._start(name)

    async def _crash(self, name: str) -> None:
        if name not in self._world.running:
            return
        self._count("crash")
        await self._be_down(name)

    async def _lose_disk(self, name: str) -> None:
        if name not in self._world.running:
            return
        assert self._destruction is not None
        self._count("lose disk")
        await self._be_down(name, self._destruction.lose_disk)

    async def _rot(self, name: str) -> None:
        assert self._destruction is not None
        if self._destruction.rot(name, self._chance):
            self._count("rot")

    async def _be_down(self, name: str, meanwhile: Callable[[str], None] = lambda name: None) -> None:
        self._world.crash(name, lose_unsynced=self._chance.choose("loses unsynced writes", (False, True)))
        meanwhile(name)
        await self._drawn_time("time down", self._longest_down_seconds)
        self._start(name)

    async def _expire_session(self, name: str) -> None:
        sessions = [each for each in self._world.service.session_ids() if each != self._spared_session]
        if sessions:
            self._count("expire session")
            self._world.service.expire(self._chance.choose("expired session", sessions))

    async def _lose_multi_replies(self, name: str) -> None:
        self._count("lose multi replies")
        self._world.network.lose_multi_replies(name)
        await self._drawn_time("time without multi replies", 180)
        self._world.network.deliver_multis(name)

    async def _cut_off(self, name: str) -> None:
        self._count("cut off")
        self._world.network.cut(name, COORDINATOR)
        await self._drawn_time("time cut off", 60)
        self._world.network.heal(name, COORDINATOR)

    async def _drawn_time(self, label: str, longest_seconds: int) -> None:
        await asyncio.sleep(self._chance.choose(label, range(1, longest_seconds * 10)) / 10)

    def _count(self, kind: str) -> None:
        self.seen[kind] = self.seen.get(kind, 0) + 1
