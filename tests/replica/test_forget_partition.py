"""FORGET PARTITION: only what is empty everywhere, and not while somebody inserts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from replica.commands import Action, DropPartition, ForgetPartition, InsertStatus, SwitchAction
from replica.errors import BadArguments, CannotForgetPartition
from replica.part_name import PartName
from replica.znodes import TableZnodes
from tests.replica.cluster import ROOT, Cluster, Replica, eventually, rows
from tests.replica.zookeeper_cluster import ANYWHERE

TABLE = TableZnodes(ROOT)


@pytest.fixture(params=ANYWHERE)
def service(request: pytest.FixtureRequest) -> str:
    return str(request.param)


DROP = DropPartition("default", "t", partition="0", alter_sync=2)
FORGET = ForgetPartition("default", "t", partition="0")


async def emptied(cluster: Cluster, *names: str) -> Replica:
    for name in names:
        await cluster.start(name)
    await cluster.create_table()
    first = cluster.replicas[names[0]]
    await first.insert(rows(0))
    await first.insert(rows(2))
    await first.server.execute(DROP)
    for replica in cluster.replicas.values():
        await eventually(lambda replica=replica: not replica.table().state.store.parts())
    return first


async def test_its_numbers_begin_anew_on_every_replica(cluster: Cluster) -> None:
    r1 = await emptied(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    await r1.server.execute(FORGET)
    session = await cluster.session()
    assert await session.children(TABLE.block_numbers) == []
    for replica, key in ((r1, 0), (r2, 2)):
        assert (await replica.insert(rows(key))).status is InsertStatus.STORED, "r2 had remembered the znode"
    for replica in (r1, r2):
        await eventually(lambda replica=replica: len(replica.table().state.store.active_parts()) == 2)
    assert await r1.active_parts() == ["0_0_0_0", "0_1_1_0"]


async def test_unknown_partitions_and_those_with_parts_are_refused(cluster: Cluster) -> None:
    r1 = await emptied(cluster, "r1")
    await r1.insert(rows(1))
    await eventually(lambda: r1.table().state.queue.current_parts.containing(PartName.inserted("1", 0)) is not None)
    await cluster.settled()
    with pytest.raises(CannotForgetPartition, match="r1 has part 1_0_0_0"):
        await r1.server.execute(ForgetPartition("default", "t", partition="1"))
    with pytest.raises(CannotForgetPartition, match="unknown"):
        await r1.server.execute(ForgetPartition("default", "t", partition_id="7"))
    with pytest.raises(BadArguments):
        await r1.server.execute(ForgetPartition("default", "t"))


async def test_a_replica_that_has_still_to_drop_it_keeps_it_known(cluster: Cluster) -> None:
    r1 = await emptied(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    await r2.server.execute(SwitchAction(Action.REPLICATION_QUEUES, True))
    await r1.insert(rows(4))
    await r1.server.execute(DropPartition("default", "t", partition="0"))
    with pytest.raises(CannotForgetPartition, match="r2"):
        await r1.server.execute(FORGET)
    await r2.server.execute(SwitchAction(Action.REPLICATION_QUEUES, False))
    await cluster.settled()
    await eventually(lambda: not r2.table().state.store.active_parts())
    await r1.server.execute(FORGET)


async def insert_whole(r1: Replica) -> None:
    await r1.insert(rows(6))


async def take_a_number(r1: Replica) -> None:
    state = r1.table().state
    await state.block_numbers.allocate(state.writable_session(), "0", ())


@pytest.mark.parametrize("meanwhile", [insert_whole, take_a_number])
async def test_an_insert_between_the_look_and_the_end_is_not_passed_over(
    cluster: Cluster, meanwhile: Callable[[Replica], Awaitable[None]]
) -> None:
    r1 = await emptied(cluster, "r1")
    session = r1.table().state.writable_session()
    real = session.multi_checked

    async def later(operations):  # type: ignore[no-untyped-def]
        session.multi_checked = real  # type: ignore[method-assign]
        await meanwhile(r1)
        return await real(operations)

    session.multi_checked = later  # type: ignore[method-assign]
    with pytest.raises(CannotForgetPartition):
        await r1.server.execute(FORGET)
    assert await (await cluster.session()).exists(TABLE.partition("0")) is not None
