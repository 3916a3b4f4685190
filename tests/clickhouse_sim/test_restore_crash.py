"""SYSTEM RESTORE REPLICA in the simulated world, with a loss of power at a drawn moment of it."""

from __future__ import annotations

import asyncio

import pytest

from clickhouse_sim.simulation.history import DEFINITION, TABLE, TREE_LOST, simulate
from clickhouse_sim.simulation.insert_workload import ROWS_PER_BLOCK, block_of
from clickhouse_sim.simulation.loop import run
from clickhouse_sim.simulation.operator import lose_tree
from clickhouse_sim.simulation.properties.after_healing import check_equal_parts, check_parts_on_disk
from clickhouse_sim.simulation.tape import Tape
from clickhouse_sim.simulation.world import World
from coordinator.api import Session
from coordinator.local_client import LocalCoordinator
from replica.commands import Command, InsertOptions, InsertStatus, RestoreReplica
from replica.environment import Environment
from replica.errors import ClickHouseError
from replica.server import Server, ServerConfig

NAMES = ["r1", "r2"]
BLOCKS = 4
RESTORE = RestoreReplica("default", "t")


class _Instant:
    def delay(self, label: str) -> float | None:
        return 0.001


def _server(name: str, environment: Environment) -> Server:
    return Server(environment, ServerConfig(name))


async def _try(world: World[Server], name: str, command: Command) -> bool:
    try:
        await world.life(name).server.execute(command)
        return True
    except ClickHouseError:
        return False


async def _insert(server: Server, number: int) -> None:
    while True:
        try:
            outcome = await server.insert("default", "t", InsertOptions(), 0, block_of(number))
            if outcome.status in (InsertStatus.STORED, InsertStatus.DUPLICATE):
                return
        except ClickHouseError:
            pass
        await asyncio.sleep(1)


async def _rows(world: World[Server], name: str) -> list[int]:
    try:
        return sorted((await world.life(name).server.scan("default", "t")).column("k").to_pylist())
    except ClickHouseError:
        return []  # it is starting


async def _until_restored(world: World[Server], name: str, session: Session) -> None:
    while await session.exists(TABLE.replica(name).root) is None:
        await _try(world, name, RESTORE)
        await asyncio.sleep(1)


async def _history(tape: Tape) -> str:
    """Lose the tree, restore r1, lose its power meanwhile, ask again, restore r2; how far the first try came."""
    world = World(tape, NAMES, _server)
    every_row = list(range(BLOCKS * ROWS_PER_BLOCK))
    for name in NAMES:
        world.start(name)
    for name in NAMES:
        while not await _try(world, name, DEFINITION):
            await asyncio.sleep(1)
    for number in range(BLOCKS):
        await _insert(world.life("r1").server, number)
    session = await LocalCoordinator(world.service, _Instant(), "checker").connect()
    while await _rows(world, "r2") != every_row:
        await asyncio.sleep(1)
    await lose_tree(session, TABLE.root)
    while "are gone" not in world.life("r1").server.table("default", "t").state.readonly_reason:
        await asyncio.sleep(0.1)
    restoring = asyncio.create_task(_try(world, "r1", RESTORE))
    await asyncio.sleep(tape.choose("moment of the crash", range(900)) / 1000)
    registered = await session.exists(TABLE.replica("r1").root) is not None
    how = "done" if restoring.done() else "attaching" if registered else "not registered"
    world.crash("r1", lose_unsynced=True)
    restoring.cancel()
    world.start("r1")
    await world.life("r1").server.started.wait()
    for name in NAMES:
        await _until_restored(world, name, session)
    for name in NAMES:
        await world.life(name).server.table("default", "t").state.restored.wait()
    async with asyncio.timeout(300):
        while await _rows(world, "r2") != every_row or await _rows(world, "r1") != every_row:
            await asyncio.sleep(1)
    await asyncio.sleep(60)
    for name in NAMES:
        assert await _rows(world, name) == every_row
        await check_parts_on_disk(session, name, world.life(name).server, TABLE)
    await check_equal_parts(session, TABLE)
    return how


def test_every_row_comes_back_once_whenever_the_power_was_lost() -> None:
    ends: set[str] = set()
    for seed in range(30):
        tape = Tape(seed)
        ends.add(run(_history(tape), tape))
    assert ends >= {"not registered", "attaching"}


@pytest.mark.parametrize("seed", range(1, 5))
def test_all_replicas_come_back_through_faults(seed: int) -> None:
    assert len(simulate(seed, TREE_LOST).acknowledged) == 16
