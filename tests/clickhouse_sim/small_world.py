"""A few replicas in the simulated world, for tests that tell one story: virtual time, everything by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from clickhouse_sim.simulation.destruction import Destruction
from clickhouse_sim.simulation.history import DEFINITION, TABLE
from clickhouse_sim.simulation.insert_workload import block_of
from clickhouse_sim.simulation.loop import run
from clickhouse_sim.simulation.tape import Tape
from clickhouse_sim.simulation.world import World
from coordinator.api import Session
from coordinator.local_client import LocalCoordinator
from replica.commands import Action, BlockOutcome, Command, InsertOptions, InsertStatus, SwitchAction
from replica.environment import Environment
from replica.errors import ClickHouseError
from replica.server import Server, ServerConfig
from replica.storage.file_names import table_folder
from replica.table_state import TableState

T = TypeVar("T")
FOLDER = table_folder("default", "t")
SESSION_SECONDS = 30


def play(story: Callable[[SmallWorld], Awaitable[T]], seed: int = 1) -> T:
    """Run a story in a world of its own."""
    tape = Tape(seed)

    async def told() -> T:
        return await story(SmallWorld(tape))

    return run(told(), tape)


class _Instant:
    def delay(self, label: str) -> float | None:
        return 0.001


class SmallWorld:
    """Replicas by name; `create` makes the table on some of them."""

    def __init__(self, tape: Tape) -> None:
        self.world: World[Server] = World(tape, ["r1", "r2", "r3"], self._server)
        self.destruction = Destruction(self.world, TABLE)
        self.names: dict[str, str] = {}
        self._session: Session | None = None

    def _server(self, name: str, environment: Environment) -> Server:
        return Server(environment, ServerConfig(self.names.get(name, name)))

    # --- what is done ----------------------------------------------------------------------------------------

    async def start(self, *names: str) -> None:
        for name in names:
            self.world.start(name)
        for name in names:
            await self.server(name).started.wait()

    def kill(self, *names: str) -> None:
        for name in names:
            self.world.crash(name, lose_unsynced=False)

    async def create(self, *names: str, **settings: str) -> None:
        definition = replace(DEFINITION, settings=settings)
        for name in names:
            await self.execute(name, definition)
        await self.writable(*names)

    async def execute(self, name: str, command: Command) -> None:
        """Again and again until it is done."""
        while True:
            try:
                await self.server(name).execute(command)
                return
            except ClickHouseError:
                await asyncio.sleep(1)

    async def stop_action(self, name: str, action: Action) -> None:
        await self.execute(name, SwitchAction(action, True, "default", "t"))

    async def insert(self, name: str, *numbers: int) -> BlockOutcome:
        """Each block until it is acknowledged; how the last one was."""
        for number in numbers:
            while True:
                try:
                    outcome = await self.server(name).insert("default", "t", InsertOptions(), 0, block_of(number))
                    if outcome.status in (InsertStatus.STORED, InsertStatus.DUPLICATE):
                        break
                except ClickHouseError:
                    pass
                await asyncio.sleep(1)
        return outcome

    # --- what is awaited -------------------------------------------------------------------------------------

    async def until(self, holds: Callable[[], Coroutine[Any, Any, bool]], seconds: float = 120) -> None:
        """Wait for it in virtual time, `seconds` at most."""
        async with asyncio.timeout(seconds):
            while not await holds():
                await asyncio.sleep(0.5)

    async def writable(self, *names: str, seconds: float = 120) -> None:
        async def all_writable() -> bool:
            return not any(self.state(name).is_readonly for name in names)

        await self.until(all_writable, seconds)

    async def settled(self, *names: str, seconds: float = 300) -> None:
        """The replicas are writable and have nothing left to do."""

        async def quiet() -> bool:
            for name in names:
                row = await self.row(name)
                if row["is_readonly"] or row["queue_size"] or row["log_pointer"] < row["log_max_index"] + 1:
                    return False
                # The pointer may have moved since the queue was looked at.
                if await (await self.session()).children(TABLE.replica(self.names.get(name, name)).queue):
                    return False
            return True

        await self.until(quiet, seconds)

    # --- what is seen ----------------------------------------------------------------------------------------

    def server(self, name: str) -> Server:
        return self.world.life(name).server

    def state(self, name: str) -> TableState:
        return self.server(name).table("default", "t").state

    async def session(self) -> Session:
        if self._session is None or not self._session.alive:
            self._session = await LocalCoordinator(self.world.service, _Instant(), "test").connect()
        return self._session

    async def row(self, name: str) -> dict[str, Any]:
        """The replica's row of system.replicas."""
        (row,) = (await self.server(name).scan("system", "replicas")).to_pylist()
        return dict(row)

    async def keys(self, name: str) -> list[int]:
        return sorted((await self.server(name).scan("default", "t")).column("k").to_pylist())

    def parts(self, name: str) -> list[str]:
        return [str(part.name) for part in self.state(name).store.active_parts()]

    def detached(self, name: str) -> list[str]:
        image = self.world.images[name]
        return image.names(f"{FOLDER}/detached") if image.exists(f"{FOLDER}/detached") else []

    def rot(self, name: str, part: str, file: str = "data.arrow") -> None:
        self.world.images[name].rot(f"{FOLDER}/{part}/{file}", 100)

    async def registered(self, name: str) -> list[str]:
        return await (await self.session()).children(TABLE.replica(name).parts)

    async def lost_parts(self) -> int:
        return int((await (await self.session()).get(TABLE.lost_part_count))[0] or b"0")


def keys_of(*numbers: int) -> list[int]:
    """The keys of the rows of these blocks."""
    return sorted(key for number in numbers for key in block_of(number).column("k").to_pylist())
