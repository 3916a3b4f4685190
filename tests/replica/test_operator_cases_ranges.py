"""What operators have met with partition commands, each as it should end."""

from __future__ import annotations

import random

import pytest

from replica.commands import (
    Action,
    DropPart,
    DropPartition,
    DropTable,
    ForgetPartition,
    InsertOptions,
    InsertStatus,
    OptimizeTable,
    ReplacePartition,
    SwitchAction,
)
from replica.errors import CannotForgetPartition, ClickHouseError
from replica.part_name import PartName
from replica.part_set import PartSet
from replica.znodes import TableZnodes
from tests.replica.cluster import ROOT, Cluster, Replica, definition, eventually, rows

TABLE = TableZnodes(ROOT)
SOURCE = "/clickhouse/tables/{shard}/s"
REPLACE = ReplacePartition("default", "t", "default", "s", partition="0")


async def started(cluster: Cluster, *names: str, merges: bool = False, **changes: object) -> Replica:
    """Replicas of t and of s."""
    for name in names:
        await cluster.start(name)
    await cluster.create_table(**changes)
    for replica in cluster.replicas.values():
        await replica.server.execute(definition(table="s", zookeeper_path=SOURCE, **changes))
        await eventually(lambda replica=replica: not replica.table("s").state.is_readonly)
        await replica.server.execute(SwitchAction(Action.MERGES, not merges))
    return cluster.replicas[names[0]]


async def insert(replica: Replica, table: str, *keys: int) -> None:
    outcome = await replica.server.insert("default", table, InsertOptions(), 0, rows(*keys))
    assert outcome.status is InsertStatus.STORED


async def keys(replica: Replica) -> list[int]:
    return sorted((await replica.server.scan("default", "t"))["k"].to_pylist())


async def registered(cluster: Cluster) -> list[list[str]]:
    session = await cluster.session()
    return [await session.children(TABLE.replica(name).parts) for name in sorted(cluster.replicas)]


async def synced(cluster: Cluster) -> None:
    """Everybody has copied the whole log and done it."""
    session = await cluster.session()
    stat = await session.exists(TABLE.log)
    assert stat is not None
    past = (stat.cversion + stat.num_children) // 2
    for name, replica in cluster.replicas.items():
        while int((await session.get(TABLE.replica(name).log_pointer))[0] or b"0") < past:
            await replica.table().state.puller().pull()
        await eventually(lambda replica=replica: len(replica.table().state.queue) == 0, 40)


# --- C1.7: a long queue of REPLACE_RANGE, and the source is gone ---------------------------------------------


async def five_replacements(cluster: Cluster) -> Replica:
    """r2 has five of them to do, and the table that they come from is dropped everywhere."""
    r1 = await started(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    await insert(r1, "t", 0)
    await eventually(lambda: len(r2.table().state.store.active_parts()) == 1)
    await r2.server.execute(SwitchAction(Action.REPLICATION_QUEUES, True))
    for key in range(10, 20, 2):
        await insert(r1, "s", key)
        await r1.server.execute(REPLACE)
    for replica in (r1, r2):
        await replica.server.execute(DropTable("default", "s"))
    await eventually(lambda: sum(each.entry.replace_range is not None for each in r2.table().state.queue) == 5)
    return r2


async def test_five_replacements_in_a_row_need_the_last_one_only(cluster: Cluster) -> None:
    r2 = await five_replacements(cluster)
    await r2.server.execute(SwitchAction(Action.REPLICATION_QUEUES, False))
    await eventually(lambda: len(r2.table().state.queue) == 0)
    assert await keys(r2) == [10, 12, 14, 16, 18]
    first, second = await registered(cluster)
    assert first == second


async def test_the_head_of_the_chain_alone_is_told_as_the_cause(cluster: Cluster) -> None:
    r2 = await five_replacements(cluster)
    await cluster.stop("r1")
    await r2.server.execute(SwitchAction(Action.REPLICATION_QUEUES, False))
    queue = r2.table().state.queue
    await eventually(lambda: any(each.last_exception for each in queue))
    (head,) = queue
    assert "No active replica has part" in head.last_exception
    assert str(head.entry.drop_range) in head.last_exception
    assert await keys(r2) == [0], "what is to be replaced stays until all of the new is there"
    await r2.server.execute(SwitchAction(Action.MERGES, False))
    r1 = await cluster.start("r1")
    await eventually(lambda: not r1.table().state.is_readonly)
    await eventually(lambda: len(queue) == 0)
    assert await keys(r2) == [10, 12, 14, 16, 18]


async def test_a_new_part_that_was_dropped_since_is_not_looked_for(cluster: Cluster) -> None:
    r1 = await started(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    await insert(r1, "t", 0)
    for key in (10, 12):
        await insert(r1, "s", key)
    await synced(cluster)
    await r2.server.execute(SwitchAction(Action.REPLICATION_QUEUES, True))
    await r1.server.execute(REPLACE)
    first = (await r1.active_parts())[0]
    await r1.server.execute(DropPart("default", "t", first))
    await eventually(lambda: not any(str(part.name) == first for part in r1.table().state.store.parts()))
    for replica in (r1, r2):
        await replica.server.execute(DropTable("default", "s"))
    await eventually(lambda: len(r2.table().state.queue) == 2)
    await r2.server.execute(SwitchAction(Action.REPLICATION_QUEUES, False))
    await synced(cluster)
    assert await keys(r1) == await keys(r2) == [12]


# --- C2.16: a partition is dropped while a replica is lost ---------------------------------------------------


@pytest.mark.parametrize("done_by_the_source", [True, False])
@pytest.mark.parametrize(
    "command", [DropPartition("default", "t", partition="0"), DropPart("default", "t", "0_1_1_0"), REPLACE]
)
async def test_a_lost_replica_comes_back_without_what_was_dropped(
    cluster: Cluster, command: DropPartition | DropPart | ReplacePartition, done_by_the_source: bool
) -> None:
    r1 = await started(cluster, "r1", "r3")
    await insert(r1, "s", 10)
    for key in range(4):
        await insert(r1, "t", key)
    await synced(cluster)
    await cluster.stop("r3")
    session = await cluster.session()
    await session.set(TABLE.replica("r3").is_lost, b"1")
    if not done_by_the_source:
        await r1.server.execute(SwitchAction(Action.REPLICATION_QUEUES, True))
    alter_sync = int(done_by_the_source)
    await r1.server.execute(type(command)(**{**_fields(command), "alter_sync": alter_sync}))  # type: ignore[arg-type]
    r3 = await cluster.start("r3")
    await eventually(lambda: not r3.table().state.is_readonly)
    await r1.server.execute(SwitchAction(Action.REPLICATION_QUEUES, False))
    await synced(cluster)
    first, third = await registered(cluster)
    assert first == third
    assert await keys(r3) == await keys(r1)
    assert (await session.get(TABLE.replica("r3").is_lost))[0] == b"0"


def _fields(command: object) -> dict[str, object]:
    return {name: getattr(command, name) for name in type(command).__slots__}  # type: ignore[attr-defined]


# --- C5.28: partitions that are dropped leave their znodes ---------------------------------------------------


async def test_daily_partitions_are_forgotten_but_the_one_that_is_inserted_into(cluster: Cluster) -> None:
    days = 30
    r1 = await started(cluster, "r1", "r2", partition_by="k")
    await insert(r1, "t", *range(days))
    await synced(cluster)
    await r1.server.execute(DropPartition("default", "t", alter_sync=2))
    session = await cluster.session()
    assert len(await session.children(TABLE.block_numbers)) == days
    assert await session.children(TABLE.deduplication_hashes) == []
    state = r1.table().state
    lock = await state.block_numbers.allocate(state.writable_session(), "7", ())
    refused = []
    for day in range(days):
        try:
            await r1.server.execute(ForgetPartition("default", "t", partition=str(day)))
        except CannotForgetPartition:
            refused.append(day)
    assert refused == [7]
    assert await session.children(TABLE.block_numbers) == ["7"]
    await lock.release()  # type: ignore[union-attr]
    await eventually(lambda: not any(each.table().state.store.parts() for each in cluster.replicas.values()))
    await insert(cluster.replicas["r2"], "t", *range(days))
    await synced(cluster)
    assert await keys(r1) == list(range(days))


# --- C6.36: DROP PART and REPLACE PARTITION among merges -----------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
async def test_active_parts_never_intersect(cluster: Cluster, seed: int) -> None:
    r1 = await started(cluster, "r1", "r2", "r3", merges=True, settings={"merge_selecting_sleep_ms": "10"})
    await insert(r1, "s", 1000)
    draw = random.Random(seed)
    for step in range(40):
        replica = cluster.replicas[draw.choice(sorted(cluster.replicas))]
        parts = [name for name in await replica.active_parts() if name.startswith("0_")]
        what = draw.choice(("insert", "insert", "insert", "drop", "merge", "replace", "hold"))
        try:
            if what == "insert":
                await insert(replica, "t", 2 * step)
            elif what == "drop" and parts:
                await replica.server.execute(DropPart("default", "t", draw.choice(parts), alter_sync=0))
            elif what == "merge":
                queues_run = not replica.table().state.blockers.is_stopped(Action.REPLICATION_QUEUES)
                if queues_run:
                    await replica.server.execute(OptimizeTable("default", "t", final=draw.random() < 0.5))
            elif what == "replace":
                await replica.server.execute(
                    ReplacePartition("default", "t", "default", "s", partition="0", alter_sync=0)
                )
            else:
                await replica.server.execute(
                    SwitchAction(Action.REPLICATION_QUEUES, draw.random() < 0.5, "default", "t")
                )
        except ClickHouseError:
            pass  # a part that is being merged, or gone: fine
        for each in cluster.replicas.values():
            state = each.table().state
            state.queue.check_invariant()
            PartSet(map(PartName.parse, await each.active_parts()))
    for replica in cluster.replicas.values():
        await replica.server.execute(SwitchAction(Action.REPLICATION_QUEUES, False))
    while True:  # merges go on meanwhile, until there is nothing left to merge
        await synced(cluster)
        first, *others = [await replica.active_parts() for _, replica in sorted(cluster.replicas.items())]
        if others == [first, first]:
            break
