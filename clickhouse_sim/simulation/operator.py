"""An operator who now and again asks a replica for merges, in every way that OPTIMIZE knows."""

from __future__ import annotations

import asyncio

from clickhouse_sim.simulation.client import SimulatedClient
from replica.commands import OptimizeTable
from replica.environment import Chance
from replica.errors import ClickHouseError
from replica.server import DEFAULT_DATABASE

_WAYS = (
    OptimizeTable(DEFAULT_DATABASE, "t"),
    OptimizeTable(DEFAULT_DATABASE, "t", partition="1"),
    OptimizeTable(DEFAULT_DATABASE, "t", final=True),
    OptimizeTable(DEFAULT_DATABASE, "t", partition_id="0", final=True, deduplicate=True),
    OptimizeTable(DEFAULT_DATABASE, "t", deduplicate=True, deduplicate_by=("k",)),
)


async def optimize_now_and_again(
    client: SimulatedClient, chance: Chance, replicas: list[str], times: int, pause_seconds: int
) -> None:
    """So many OPTIMIZEs; that one fails, or its answer is lost, is nothing to worry about."""
    for _ in range(times):
        await asyncio.sleep(chance.choose("pause before OPTIMIZE", range(1, pause_seconds * 10)) / 10)
        command = chance.choose("way to OPTIMIZE", _WAYS)
        try:
            await client.execute(chance.choose("replica to OPTIMIZE", replicas), command)
        except ClickHouseError:
            continue
