"""Clients that insert blocks and try again, on any replica, until they are told that the block is there.

A block is always tried in one way: alone, as one of an INSERT of several blocks, under a token, or together with
another block, as asynchronous inserts are. A token may change once: the same rows are then new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from clickhouse_sim.simulation.client import SimulatedClient
from replica.commands import BlockOutcome, InsertOptions, InsertStatus
from replica.dedup.tokens import SourceToken
from replica.environment import Chance
from replica.errors import ClickHouseError

ROWS_PER_BLOCK = 4
_KEYS = pa.uint64()
_KNOWN = (InsertStatus.STORED, InsertStatus.DUPLICATE)


class Way(StrEnum):
    """How a block comes in."""

    BY_DATA = "by data"
    BY_TOKEN = "by token"
    TOGETHER = "together"


_PRICES = pa.map_(pa.string(), pa.list_(pa.int64()))


@dataclass
class InsertHistory:
    """Which blocks were tried, in which way and under which tokens, and which acknowledged with which status."""

    tried: dict[int, list[SourceToken]] = field(default_factory=dict)
    ways: dict[int, Way] = field(default_factory=dict)
    acknowledged: dict[int, InsertStatus] = field(default_factory=dict)
    rewritten_parts: int = 0

    def note(self, number: int, way: Way, token: SourceToken) -> None:
        """A block is about to be tried."""
        self.ways[number] = way
        tokens = self.tried.setdefault(number, [])
        if token not in tokens:
            tokens.append(token)


def block_of(*numbers: int) -> pa.Table:
    """The rows of blocks, over both partitions of a table partitioned by `k % 2`; no two blocks share a key."""
    return rows_of(
        [key for number in numbers for key in range(number * ROWS_PER_BLOCK, (number + 1) * ROWS_PER_BLOCK)]
    )


def rows_of(keys: Sequence[int]) -> pa.Table:
    """The rows with these keys: the other columns follow from the key."""
    texts = [f"block {key // ROWS_PER_BLOCK}" for key in keys]
    prices = [[("price", [key, None])] if key % 3 else [] for key in keys]
    return pa.table({"k": pa.array(keys, _KEYS), "v": texts, "x": pa.array(prices, _PRICES)})


async def insert_blocks(
    client: SimulatedClient,
    chance: Chance,
    replicas: list[str],
    numbers: range,
    pause_seconds: int,
    history: InsertHistory,
    *,
    rows_twice: bool = True,
) -> None:
    """Insert the blocks one after another, each until it is acknowledged; now and then once more after that.

    With `rows_twice` a block may be inserted again under another token.
    """
    inserting = _Inserting(client, chance, replicas, history, rows_twice)
    left = list(numbers)
    while left:
        way = chance.choose("way to insert", tuple(Way))
        taken, left = (left[:2], left[2:]) if way is Way.TOGETHER else (left[:1], left[1:])
        await inserting.insert(way, taken)
        await asyncio.sleep(chance.choose("pause between inserts", range(1, pause_seconds * 10)) / 10)


@dataclass(frozen=True)
class _Inserting:
    client: SimulatedClient
    chance: Chance
    replicas: list[str]
    history: InsertHistory
    rows_twice: bool

    async def insert(self, way: Way, numbers: list[int]) -> None:
        """Until all are acknowledged; of several, one alone or all of them, whether some are known or not."""
        token = f"token of {numbers[0]}" if way is Way.BY_TOKEN else ""
        left = list(numbers)
        while left:
            some = self.chance.choose("blocks at a time", (left[:1], numbers)) if len(numbers) > 1 else left
            status = await self._until_known(way, some, token)
            self.history.acknowledged |= dict.fromkeys([each for each in some if each in left], status)
            left = [number for number in left if number not in some]
        if self.chance.choose("retry after success", (False, False, False, True)):
            await self._until_known(way, numbers, token)
        if (
            self.rows_twice
            and way is Way.BY_TOKEN
            and self.chance.choose("same rows, other token", (False, False, True))
        ):
            await self._until_known(way, numbers, f"other {token}")

    async def _until_known(self, way: Way, numbers: list[int], token: str) -> InsertStatus:
        tokens = [token_of(way, number, token) for number in numbers]
        for number, each in zip(numbers, tokens, strict=True):
            self.history.note(number, way, each)
        while True:
            status = InsertStatus.UNKNOWN
            with suppress(ClickHouseError):
                outcome = await self._try(way, numbers, tokens)
                status = outcome.status
                self.history.rewritten_parts += sum(part.rewrites > 0 for part in outcome.parts)
            if status in _KNOWN:
                return status
            await asyncio.sleep(1)

    async def _try(self, way: Way, numbers: list[int], tokens: list[SourceToken]) -> BlockOutcome:
        replica = self.chance.choose("replica to insert into", self.replicas)
        if way is Way.TOGETHER:
            return await self.client.insert_together(replica, "t", tokens, block_of(*numbers))
        (token,) = tokens
        options = InsertOptions(insert_deduplication_token=token.by_user)
        return await self.client.insert(replica, "t", options, block_of(*numbers), token.source_number)


def token_of(way: Way, number: int, token: str = "") -> SourceToken:
    """What a block is known by."""
    return SourceToken(ROWS_PER_BLOCK, token, 0 if way is Way.TOGETHER else number % 3)
