"""Block numbers: one multi refuses known deduplication ids or takes the next number, under a lock."""

from __future__ import annotations

import pytest

from replica.errors import TableIsReadOnly
from replica.insert.block_number import BlockNumberLock, BlockNumbers, Conflict
from tests.replica.cluster import ROOT, Cluster
from tests.replica.idle import idle_replica


async def test_a_known_id_is_named_and_costs_no_number(cluster: Cluster) -> None:
    async with idle_replica(cluster, "r1") as r1:
        numbers = BlockNumbers(r1.state.znodes)
        await r1.session.create(f"{ROOT}/deduplication_hashes/b")
        a, b, c = (f"{ROOT}/deduplication_hashes/{name}" for name in "abc")
        assert await numbers.allocate(r1.session, "0", [a, b, c]) == Conflict(b)
        assert await r1.session.children(f"{ROOT}/block_numbers/0") == []
        taken = await numbers.allocate(r1.session, "0", [a, c])
        assert isinstance(taken, BlockNumberLock)
        assert (taken.number, taken.path) == (0, f"{ROOT}/block_numbers/0/block-0000000000")


async def test_every_partition_counts_for_itself_and_releases_leave_gaps(cluster: Cluster) -> None:
    async with idle_replica(cluster, "r1") as r1:
        numbers = BlockNumbers(r1.state.znodes)
        for partition, expected in (("0", 0), ("1", 0), ("0", 1), ("1", 1)):
            taken = await numbers.allocate(r1.session, partition, [])
            assert isinstance(taken, BlockNumberLock)
            assert taken.number == expected
            await taken.release()
            assert await r1.session.children(f"{ROOT}/block_numbers/{partition}") == []


async def test_a_new_partition_raises_the_version_of_block_numbers_once(cluster: Cluster) -> None:
    async with idle_replica(cluster, "r1") as r1:
        for _ in range(2):
            await BlockNumbers(r1.state.znodes).allocate(r1.session, "0", [])
        assert (await r1.session.get(f"{ROOT}/block_numbers"))[1].version == 1


async def test_a_partition_that_another_replica_makes_meanwhile_is_fine(cluster: Cluster) -> None:
    async with idle_replica(cluster, "r1") as r1:
        r1.after("exists", lambda: r1.session.create(f"{ROOT}/block_numbers/0"))
        taken = await BlockNumbers(r1.state.znodes).allocate(r1.session, "0", [])
        assert isinstance(taken, BlockNumberLock)


async def test_a_dropped_replica_makes_no_partition(cluster: Cluster) -> None:
    async with idle_replica(cluster, "r1") as r1:
        await r1.session.delete(r1.state.znodes.host)
        with pytest.raises(TableIsReadOnly, match="dropped"):
            await BlockNumbers(r1.state.znodes).allocate(r1.session, "0", [])
        assert await r1.session.children(f"{ROOT}/block_numbers") == []


async def test_a_lock_that_cannot_be_removed_is_left_to_its_session(cluster: Cluster) -> None:
    async with idle_replica(cluster, "r1") as r1:
        taken = await BlockNumbers(r1.state.znodes).allocate(r1.session, "0", [])
        assert isinstance(taken, BlockNumberLock)
        await r1.session.delete(taken.path)
        await taken.release()
        await r1.session.close()
        await taken.release()
