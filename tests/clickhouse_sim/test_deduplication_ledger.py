"""The ledger tells an id that left the window from one that was taken out of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from clickhouse_sim.simulation.deduplication_ledger import DeduplicationLedger
from clickhouse_sim.simulation.properties.after_healing import check_forgotten
from clickhouse_sim.simulation.properties.broken import PropertyBroken
from coordinator.api import Session
from replica.session import ensure_path
from replica.settings import MergeTreeSettings
from replica.znodes import TableZnodes
from tests.replica.cluster import Cluster

TABLE = TableZnodes("/t")


@dataclass
class Ids:
    """A ledger of a window of two ids and an hour."""

    session: Session
    ledger: DeduplicationLedger

    async def make(self, *names: str) -> None:
        for name in names:
            await self.session.create(TABLE.deduplication_hash(name))
            await asyncio.sleep(0.002)
        await self.ledger.look(self.session)

    async def remove(self, *names: str) -> None:
        for name in names:
            await self.session.delete(TABLE.deduplication_hash(name))
        await self.ledger.look(self.session)


@pytest.fixture
async def ids(tmp_path: Path) -> AsyncIterator[Ids]:
    session = await Cluster(tmp_path).session()
    await ensure_path(session, TABLE.deduplication_hashes)
    yield Ids(session, DeduplicationLedger(TABLE, MergeTreeSettings(replicated_deduplication_window=2)))
    await session.close()


async def test_an_id_outside_of_the_window_may_go(ids: Ids) -> None:
    await ids.make("a", "b", "c", "d")
    assert ids.ledger.outside() == ["a", "b"]
    await ids.remove("a", "b")
    check_forgotten(ids.ledger)
    assert ids.ledger.outside() == []
    assert ids.ledger.forgotten == {"a": 1, "b": 1}


async def test_an_id_inside_of_the_window_may_not_go(ids: Ids) -> None:
    await ids.make("a", "b", "c")
    await ids.remove("b")
    with pytest.raises(PropertyBroken, match="b"):
        check_forgotten(ids.ledger)


async def test_an_id_that_is_made_again_between_two_looks_was_forgotten(ids: Ids) -> None:
    await ids.make("a", "b", "c")
    await ids.session.delete(TABLE.deduplication_hash("a"))
    await ids.make("a")
    check_forgotten(ids.ledger)
    assert ids.ledger.forgotten == {"a": 1}
    assert ids.ledger.made_again == 1
    await ids.make("d")
    await ids.remove("a", "b")
    assert ids.ledger.made_again == 1


async def test_changes_are_followed(ids: Ids) -> None:
    keeping = asyncio.create_task(ids.ledger.keep(ids.session))
    for name in "abcd":
        await ids.session.create(TABLE.deduplication_hash(name))
        await asyncio.sleep(0.005)
    await ids.session.delete(TABLE.deduplication_hash("a"))
    async with asyncio.timeout(10):
        while not ids.ledger.forgotten:
            await asyncio.sleep(0.01)
    keeping.cancel()
    check_forgotten(ids.ledger)
