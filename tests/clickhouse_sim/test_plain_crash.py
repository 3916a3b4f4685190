"""A table that is not replicated, in the simulated world: power is lost at any moment of an insert, merges go on."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from clickhouse_sim.simulation.history import DEFINITION
from clickhouse_sim.simulation.insert_workload import ROWS_PER_BLOCK, block_of
from clickhouse_sim.simulation.loop import run
from clickhouse_sim.simulation.tape import Tape
from clickhouse_sim.simulation.world import World
from replica.commands import Engine, InsertOptions, InsertStatus
from replica.environment import Environment
from replica.server import Server, ServerConfig

WINDOW = 5
PLAIN = replace(
    DEFINITION,
    engine=Engine.MERGE_TREE,
    zookeeper_path="",
    replica_name="",
    settings={
        "non_replicated_deduplication_window": str(2 * WINDOW),  # a block has two parts
        "old_parts_lifetime": "1",
        "cleanup_delay_period": "1",
        "merge_selector_base": "1",
        "merge_selecting_sleep_ms": "10",
    },
)
KNOWN = (InsertStatus.STORED, InsertStatus.DUPLICATE)


def _server(name: str, environment: Environment) -> Server:
    return Server(environment, ServerConfig(name))


class _Play:
    """One server; every now and then it dies in the middle of an insert, and the client tries again."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._broken_off: Counter[int] = Counter()
        self.seen: Counter[str] = Counter()

    async def run(self, blocks: int, *, lose_power: bool) -> Counter[str]:
        self._world: World[Server] = World(self._tape, ["r1"], _server)
        await self._start()
        await self._server.execute(PLAIN)
        for number in range(blocks):
            while not await self._try(number, lose_power):
                await self._start()
            if self._tape.choose("dies between inserts", (False, False, True)):
                self._world.crash("r1", lose_unsynced=lose_power)
                await self._start()
            await self._check_known(number)
            await asyncio.sleep(self._tape.choose("pause", range(30)) / 10)
        await self._check_rows(blocks)
        return self.seen

    @property
    def _server(self) -> Server:
        return self._world.life("r1").server

    async def _start(self) -> None:
        self._world.start("r1")
        await self._server.started.wait()

    async def _try(self, number: int, lose_power: bool) -> bool:
        """Whether the block is acknowledged; if not, the server is dead."""
        inserting = asyncio.create_task(self._server.insert("default", "t", InsertOptions(), 0, block_of(number)))
        if self._tape.choose("dies in the insert", (True, False)):
            await asyncio.wait([inserting], timeout=self._tape.choose("moment of the crash", range(80)) / 1000)
            if not inserting.done():
                self._world.crash("r1", lose_unsynced=lose_power)
                self._broken_off[number] += 1
                inserting.cancel()
                return False
        outcome = await inserting
        assert outcome.status in KNOWN
        when = "after a crash" if self._broken_off[number] else "at once"
        self.seen.update(f"{part.status} {when}" for part in outcome.parts)
        return True

    async def _check_known(self, number: int) -> None:
        """A block that was acknowledged is a duplicate while it is in the window, whatever died meanwhile."""
        for earlier in range(max(0, number - WINDOW + 1), number + 1):
            outcome = await self._server.insert("default", "t", InsertOptions(), 0, block_of(earlier))
            assert outcome.status is InsertStatus.DUPLICATE, earlier

    async def _check_rows(self, blocks: int) -> None:
        """Every block is there; a try that broke off may have left a part whose id was not written yet."""
        keys = Counter((await self._server.scan("default", "t", ["k"]))["k"].to_pylist())
        assert set(keys) == set(range(blocks * ROWS_PER_BLOCK))
        for key, times in keys.items():
            number = key // ROWS_PER_BLOCK
            assert times <= 1 + self._broken_off[number], (number, times)
            self.seen["there once more"] += times - 1


@pytest.mark.parametrize("lose_power", [False, True])
def test_what_was_acknowledged_is_neither_lost_nor_doubled_by_a_retry(lose_power: bool) -> None:
    seen: Counter[str] = Counter()
    for seed in range(10):
        tape = Tape(seed)
        seen += run(_Play(tape).run(10, lose_power=lose_power), tape)
    assert {"stored at once", "stored after a crash", "duplicate after a crash"} <= set(seen), seen
