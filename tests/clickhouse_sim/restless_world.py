"""A program for `test_determinism`: replicas that do all that could betray addresses, hashes or the collector.

`python restless_world.py SEED JUNK` prints what the run of a seed came to; JUNK objects are made first, so that the
heap has another history.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from clickhouse_sim.simulation.loop import SimulatedLoop, run
from clickhouse_sim.simulation.network import Weather
from clickhouse_sim.simulation.tape import Tape
from clickhouse_sim.simulation.world import COORDINATOR, World
from coordinator.api import CoordinationError, Create, MultiFailed, NodeExists, Watch
from replica.environment import Environment, PartFiles, PartRequest
from replica.errors import NetworkError, NoSuchDataPart

NAMES = ("r1", "r2", "r3")


class RestlessServer:
    """Writes and fetches parts, watches and creates znodes, and leaves garbage in cycles."""

    def __init__(self, name: str, environment: Environment) -> None:
        self._name = name
        self._environment = environment

    async def send_part(self, request: PartRequest) -> PartFiles:
        try:
            return PartFiles((("data", await self._environment.disk.read(f"parts/{request.part_name}")),))
        except FileNotFoundError:
            raise NoSuchDataPart(f"no part {request.part_name} on {self._name}") from None

    async def run(self) -> None:
        await self._environment.disk.make_folder("parts")
        await self._environment.transfer.serve(self)
        while True:
            with suppress(CoordinationError):
                await self._session()
            await asyncio.sleep(0.2)

    async def _session(self) -> None:
        session = await self._environment.coordinator.connect()
        with suppress(NodeExists):
            await session.create("/log")
        for number in range(1000):
            watch = Watch()
            entries = await session.children("/log", watch)
            with suppress(MultiFailed):
                await session.multi([Create("/log/part-", self._name.encode(), sequential=True)])
            work = {
                asyncio.create_task(self._write(f"{self._name}-{number}")),
                asyncio.create_task(self._fetch(number)),
                asyncio.create_task(watch.wait()),
                asyncio.create_task(self._environment.workers.run("count", lambda entries=entries: len(entries))),
            }
            while work:
                done, work = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    await session.exists(f"/log/{task.get_name()}")
            await self._look_at_one_of(entries)
            await asyncio.sleep(0.2)

    async def _write(self, part: str) -> None:
        await self._environment.disk.write("tmp", part.encode())
        await self._environment.disk.fsync("tmp")
        with suppress(FileNotFoundError):
            await self._environment.disk.rename("tmp", f"parts/{part}")

    async def _fetch(self, number: int) -> None:
        other = self._environment.chance.choose("source", [name for name in NAMES if name != self._name])
        with suppress(NetworkError, NoSuchDataPart):
            await self._environment.transfer.fetch(
                f"{other}:9009", PartRequest("/t", f"{other}-{number}"), deadline_seconds=3
            )

    async def _look_at_one_of(self, entries: list[str]) -> None:
        async def one_by_one() -> AsyncIterator[str]:
            try:
                for entry in entries:
                    yield entry
            finally:
                await asyncio.sleep(0)

        generator = one_by_one()
        cycle: list[Any] = [generator]
        cycle.append(cycle)
        async for _ in generator:
            break


async def misfortune(world: World[RestlessServer], tape: Tape) -> None:
    for _ in range(10):
        await asyncio.sleep(tape.choose("pause", range(1, 20)))
        name = tape.choose("victim", NAMES)
        match tape.choose("misfortune", ("kill", "power", "cut", "storm")):
            case "kill" | "power" as how:
                world.crash(name, lose_unsynced=how == "power")
                await asyncio.sleep(1)
                world.start(name)
            case "cut":
                world.network.cut(name, COORDINATOR)
                await asyncio.sleep(15)
                world.network.heal(name, COORDINATOR)
            case "storm":
                world.network.weather = Weather(slowest_seconds=0.5, loss_permille=20)
                await asyncio.sleep(10)
                world.network.weather = Weather()


async def story(tape: Tape) -> dict[str, object]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    world = World(tape, NAMES, RestlessServer)
    for name in NAMES:
        world.start(name)
    await misfortune(world, tape)
    return {
        "trace": world.trace.digest(),
        "draws": len(tape),
        "callbacks": loop.callbacks,
        "seconds": loop.time(),
        "parts": [len(world.images[name].names("parts")) for name in NAMES],
    }


if __name__ == "__main__":
    seed, junk = map(int, sys.argv[1:])
    heap: list[Any] = [[object(), {}] for _ in range(junk)]
    del heap[::3]
    tape = Tape(seed)
    print(json.dumps(run(story(tape), tape)))
