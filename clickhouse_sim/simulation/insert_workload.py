"""Clients that insert blocks and try again, on any replica, until they are told that the block is there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pyarrow as pa

from clickhouse_sim.simulation.client import SimulatedClient
from replica.commands import InsertOptions, InsertStatus
from replica.environment import Chance
from replica.errors import ClickHouseError

ROWS_PER_BLOCK = 4
_KEYS = pa.uint64()
_PRICES = pa.map_(pa.string(), pa.list_(pa.int64()))


@dataclass
class InsertHistory:
    """Which blocks were tried, and which acknowledged with which status."""

    tried: set[int] = field(default_factory=set)
    acknowledged: dict[int, InsertStatus] = field(default_factory=dict)


def block_of(number: int) -> pa.Table:
    """The rows of a block, over both partitions of a table partitioned by `k % 2`; no two blocks share a key."""
    keys = range(number * ROWS_PER_BLOCK, (number + 1) * ROWS_PER_BLOCK)
    prices = [[("price", [key, None])] if key % 3 else [] for key in keys]
    return pa.table(
        {"k": pa.array(keys, _KEYS), "v": [f"block {number}"] * ROWS_PER_BLOCK, "x": pa.array(prices, _PRICES)}
    )


async def insert_blocks(
    client: SimulatedClient,
    chance: Chance,
    replicas: list[str],
    numbers: range,
    pause_seconds: int,
    history: InsertHistory,
) -> None:
    """Insert the blocks one after another, each until it is acknowledged; now and then once more after that."""
    for number in numbers:
        history.tried.add(number)
        history.acknowledged[number] = await _insert(client, chance, replicas, number)
        if chance.choose("retry after success", (False, False, False, True)):
            await _insert(client, chance, replicas, number)
        await asyncio.sleep(chance.choose("pause between inserts", range(1, pause_seconds * 10)) / 10)


async def _insert(client: SimulatedClient, chance: Chance, replicas: list[str], number: int) -> InsertStatus:
    while True:
        replica = chance.choose("replica to insert into", replicas)
        try:
            status = (await client.insert(replica, "t", InsertOptions(), block_of(number))).status
        except ClickHouseError:
            status = InsertStatus.UNKNOWN
        if status in (InsertStatus.STORED, InsertStatus.DUPLICATE):
            return status
        await asyncio.sleep(1)
