"""DROP TABLE in the simulated world, with a loss of power at a drawn moment of it."""

from __future__ import annotations

import asyncio

import pytest

from clickhouse_sim.simulation.history import DEFINITION, TABLE
from clickhouse_sim.simulation.insert_workload import block_of
from clickhouse_sim.simulation.loop import run
from clickhouse_sim.simulation.tape import Tape
from clickhouse_sim.simulation.world import World
from coordinator.local_client import LocalCoordinator
from replica.commands import DropTable, InsertOptions, InsertStatus
from replica.environment import Environment
from replica.errors import ClickHouseError
from replica.server import Server, ServerConfig

NAMES = ["r1", "r2"]


class _Instant:
    def delay(self, label: str) -> float | None:
        return 0.001


def _server(name: str, environment: Environment) -> Server:
    return Server(environment, ServerConfig(name))


async def _until_done(world: World[Server], name: str, command: object) -> None:
    while True:
        try:
            await world.life(name).server.execute(command)  # type: ignore[arg-type]
            return
        except ClickHouseError:
            await asyncio.sleep(1)


async def _insert(server: Server, number: int) -> None:
    while True:
        try:
            outcome = await server.insert("default", "t", InsertOptions(), 0, block_of(number))
            if outcome.status in (InsertStatus.STORED, InsertStatus.DUPLICATE):
                return
        except ClickHouseError:
            pass
        await asyncio.sleep(1)


async def _history(tape: Tape, last: bool) -> list[str]:
    """Drop on r1 (before that on r2, if r1 is to be the last), crash, start, create; how it went."""
    world = World(tape, NAMES, _server)
    for name in NAMES:
        world.start(name)
    for name in NAMES:
        await _until_done(world, name, DEFINITION)
    for number in range(3):
        await _insert(world.life("r2").server, number)
    if last:
        await world.life("r2").server.execute(DropTable("default", "t"))
    dropping = asyncio.create_task(world.life("r1").server.execute(DropTable("default", "t")))
    await asyncio.sleep(tape.choose("moment of the crash", range(400)) / 1000)
    world.crash("r1", lose_unsynced=True)
    seen = ["dropped" if dropping.done() else "interrupted"]
    dropping.cancel()
    world.start("r1")
    await world.life("r1").server.started.wait()
    disk = world.life("r1").disk
    if "t.json" in await disk.list("metadata/default"):
        seen.append("not begun")
        assert seen[0] != "dropped"
        assert await disk.list("data/default/t") != [], "as long as the table exists, its parts do"
        await _until_done(world, "r1", DropTable("default", "t", if_exists=True))
    while "t.dropped" in await disk.list("metadata/default"):
        await asyncio.sleep(1)
    session = await LocalCoordinator(world.service, _Instant(), "checker").connect()
    assert await disk.list("metadata/default") == []
    assert not await disk.exists("data/default/t")
    assert await session.exists(TABLE.replica("r1").root) is None
    assert (await session.exists(TABLE.root) is None) == last
    await _until_done(world, "r1", DEFINITION)
    await _insert(world.life("r1").server, 7)
    keys = 4 if last else 16
    while (await world.life("r1").server.scan("default", "t")).num_rows != keys:
        await asyncio.sleep(1)
    return seen


@pytest.mark.parametrize("last", [False, True])
def test_a_drop_is_finished_whenever_the_power_was_lost(last: bool) -> None:
    ends: set[str] = set()
    for seed in range(12):
        tape = Tape(seed)
        ends.update(run(_history(tape, last), tape))
    assert ends >= {"dropped", "interrupted"}
