"""DROP and DETACH of partitions and parts: what is written, what goes on every replica, what stays."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.api import Create, Delete, Operation, Set
from replica.commands import Action, DropPart, DropPartition, InsertStatus, OptimizeTable, SwitchAction
from replica.errors import (
    BadArguments,
    BadDataPartName,
    CannotAssignAlter,
    InvalidPartitionValue,
    NoSuchDataPart,
    PartIsTemporarilyLocked,
    Unfinished,
)
from replica.log_entry import EntryType, LogEntry
from replica.part_name import PartName
from replica.partition_commands import drop_partition as drop_partition_module
from replica.settings import ServerSettings
from replica.storage.part_store import StoredPart
from replica.znodes import TableZnodes
from tests.replica.cluster import ROOT, Cluster, Replica, eventually, rows

TABLE = TableZnodes(ROOT)
EVEN = DropPartition("default", "t", partition="0", alter_sync=2)


async def filled(cluster: Cluster, *names: str) -> Replica:
    """Three parts in each of the partitions 0 and 1, on every replica; the first of these."""
    for name in names:
        await cluster.start(name)
    await cluster.create_table(settings={"max_parts_to_merge_at_once": "2"})
    for replica in cluster.replicas.values():
        await replica.server.execute(SwitchAction(Action.MERGES, True))
    first = cluster.replicas[names[0]]
    for key in range(6):
        assert (await first.insert(rows(key))).status is InsertStatus.STORED
    for replica in cluster.replicas.values():
        await eventually(lambda replica=replica: len(replica.table().state.store.active_parts()) == 6)
    await cluster.settled()
    return first


async def parts_everywhere(cluster: Cluster) -> list[list[str]]:
    """Active and registered parts of each replica: twice the same list where all is well."""
    session = await cluster.session()
    found = []
    for name, replica in sorted(cluster.replicas.items()):
        found.append(await replica.active_parts())
        found.append(await session.children(TABLE.replica(name).parts))
    return found


async def ids(cluster: Cluster) -> list[str]:
    """The parts that the deduplication ids point to."""
    session = await cluster.session()
    names = await session.children(TABLE.deduplication_hashes)
    answers = await session.get_many([TABLE.deduplication_hash(name) for name in names])
    return sorted(answer[0].decode() for answer in answers if answer is not None)


async def log(cluster: Cluster) -> list[LogEntry]:
    session = await cluster.session()
    names = await session.children(TABLE.log)
    answers = await session.get_many([TABLE.log_entry(name) for name in names])
    return [LogEntry.parse(answer[0].decode()) for answer in answers if answer is not None]


async def test_a_partition_goes_from_every_replica_and_its_ids_with_it(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    await r1.server.execute(EVEN)
    odd = ["1_0_0_0", "1_1_1_0", "1_2_2_0"]
    assert await parts_everywhere(cluster) == [odd] * 4
    assert await ids(cluster) == odd
    assert str((await log(cluster))[-1].new_part) == "0_0_2_999999999_999999999"
    assert (await r1.insert(rows(0))).status is InsertStatus.STORED, "the very block that was dropped"
    assert (await r1.insert(rows(1))).status is InsertStatus.DUPLICATE
    await cluster.settled()
    assert await ids(cluster) == ["0_4_4_0", *odd]


async def test_the_multi_frees_the_number_and_raises_both_versions(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1")
    session = r1.table().state.writable_session()
    seen: list[list[Operation]] = []
    real = session.multi

    async def multi(operations: list[Operation]) -> object:
        seen.append(list(operations))
        return await real(operations)

    session.multi = multi  # type: ignore[method-assign]
    _, before = await session.get(TABLE.log)
    await r1.server.execute(EVEN)
    (commit,) = [each for each in seen if any(getattr(op, "path", "") == f"{TABLE.log}/log-" for op in each)]
    kinds = [(type(op), op.path) for op in commit[:-1]]
    assert kinds == [
        (Create, f"{TABLE.log}/log-"),
        (Delete, f"{TABLE.partition('0')}/block-0000000003"),
        (Set, TABLE.alter_partition_version),
        (Set, TABLE.log),
    ]
    assert isinstance(commit[2], Set)
    assert commit[2].version == 0
    assert (await session.get(TABLE.log))[1].version == before.version + 1


async def test_a_partition_that_never_was_writes_no_entry(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1")
    before = await log(cluster)
    await r1.server.execute(DropPartition("default", "t", partition_id="7"))
    assert await log(cluster) == before
    session = await cluster.session()
    assert await session.children(TABLE.partition("7")) == []


async def test_truncate_drops_every_partition_in_one_multi(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    await r1.server.execute(DropPartition("default", "t", alter_sync=2))
    assert await parts_everywhere(cluster) == [[]] * 4
    assert await ids(cluster) == []
    assert [entry.type for entry in (await log(cluster))[-2:]] == [EntryType.DROP_RANGE] * 2


async def test_detached_parts_lie_in_the_folder_of_every_replica(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    await r1.server.execute(DropPartition("default", "t", partition="0", detach=True, alter_sync=2))
    assert await ids(cluster) == ["1_0_0_0", "1_1_1_0", "1_2_2_0"]
    for replica in cluster.replicas.values():
        store = replica.table().state.store
        assert [each.folder for each in await store.detached.names()] == ["0_0_0_0", "0_1_1_0", "0_2_2_0"]
        assert store.decode(await store.detached.files("0_1_1_0"))["k"].to_pylist() == [2]


async def test_one_part_goes_and_only_its_id(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    await r1.server.execute(DropPart("default", "t", "0_1_1_0", alter_sync=2))
    left = ["0_0_0_0", "0_2_2_0", "1_0_0_0", "1_1_1_0", "1_2_2_0"]
    assert await parts_everywhere(cluster) == [left] * 4
    assert await ids(cluster) == left
    for replica in cluster.replicas.values():
        await replica.server.execute(SwitchAction(Action.MERGES, False))
    await r1.server.execute(OptimizeTable("default", "t", partition="0", final=True))
    assert (await r1.active_parts())[0] == "0_0_2_1", "a merge may pass over the gap"


async def test_a_merged_part_takes_the_ids_of_all_its_blocks(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1")
    await r1.server.execute(SwitchAction(Action.MERGES, False))
    await r1.server.execute(OptimizeTable("default", "t", partition="0", final=True))
    (merged,) = [name for name in await r1.active_parts() if name.startswith("0_")]
    with pytest.raises(NoSuchDataPart):
        await r1.server.execute(DropPart("default", "t", "0_1_1_0"))
    await r1.server.execute(DropPart("default", "t", merged))
    assert await ids(cluster) == ["1_0_0_0", "1_1_1_0", "1_2_2_0"]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (DropPart("default", "t", "nonsense"), BadDataPartName),
        (DropPart("default", "t", "0_9_9_0"), NoSuchDataPart),
        (DropPartition("default", "t", partition_id="a_b"), InvalidPartitionValue),
        (DropPartition("default", "t", partition="1, 2"), BadArguments),
        (DropPartition("default", "t", partition="1", alter_sync=3), BadArguments),
    ],
)
async def test_what_cannot_be_dropped_is_refused(
    cluster: Cluster, command: DropPart | DropPartition, error: type[Exception]
) -> None:
    r1 = await filled(cluster, "r1")
    with pytest.raises(error):
        await r1.server.execute(command)
    assert len(await r1.active_parts()) == 6


async def test_a_part_that_is_being_merged_is_locked(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1")
    sources = [PartName.parse("0_0_0_0"), PartName.parse("0_1_1_0")]
    merged = PartName.merged(sources)
    entry = LogEntry(EntryType.MERGE_PARTS, 1, "r1", source_parts=tuple(sources), new_part=merged)
    session = await cluster.session()
    await session.create(f"{TABLE.log}/log-", entry.to_text().encode(), sequential=True)
    with pytest.raises(PartIsTemporarilyLocked, match="0_0_1_1"):
        await r1.server.execute(DropPart("default", "t", "0_0_0_0"))


async def test_an_insert_with_a_number_in_the_range_is_cancelled_and_its_retry_is_stored(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    session = r1.table().state.writable_session()
    real = session.multi_checked
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(operations: list[Operation]) -> object:
        if any(isinstance(op, Create) and op.path == f"{TABLE.log}/log-" for op in operations):
            reached.set()
            await go_on.wait()
        return await real(operations)

    session.multi_checked = slow  # type: ignore[method-assign]
    for options in ({}, {"insert_deduplicate": False}):
        reached.clear()
        go_on.clear()
        inserting = asyncio.create_task(r1.insert(rows(8), **options))
        await reached.wait()
        await r2.server.execute(DropPartition("default", "t", partition="0"))
        go_on.set()
        (part,) = (await inserting).parts
        assert part.status is InsertStatus.NOT_STORED
        assert "cancelled" in part.error
    assert (await r1.insert(rows(8))).status is InsertStatus.STORED
    await eventually(lambda: len(r2.table().state.store.active_parts()) == 4)


async def test_a_part_whose_insert_has_not_heard_yet_goes_with_the_others(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    session = r1.table().state.writable_session()
    real = session.multi_checked
    committed, go_on = asyncio.Event(), asyncio.Event()

    async def slow_answer(operations: list[Operation]) -> object:
        answer = await real(operations)
        if any(isinstance(op, Create) and op.path == f"{TABLE.log}/log-" for op in operations):
            committed.set()
            await go_on.wait()
        return answer

    session.multi_checked = slow_answer  # type: ignore[method-assign]
    inserting = asyncio.create_task(r1.insert(rows(8)))
    await committed.wait()
    await cluster.replicas["r2"].server.execute(DropPartition("default", "t", partition="0"))
    queue = r1.table().state.queue
    await eventually(lambda: any("whether part 0_3_3_0 was committed" in each.last_exception for each in queue))
    go_on.set()
    assert (await inserting).status is InsertStatus.STORED
    await eventually(lambda: len(queue) == 0)
    assert await parts_everywhere(cluster) == [["1_0_0_0", "1_1_1_0", "1_2_2_0"]] * 4


async def test_a_merge_in_the_range_is_given_up(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1")
    state = r1.table().state
    merging, go_on = asyncio.Event(), asyncio.Event()
    run = state.environment.workers.run

    async def slow(label, job):  # type: ignore[no-untyped-def]
        if label.startswith("merge into 0_"):
            merging.set()
            await go_on.wait()
        return await run(label, job)

    state.environment.workers.run = slow  # type: ignore[method-assign]
    await r1.server.execute(SwitchAction(Action.MERGES, False))
    optimizing = asyncio.create_task(r1.server.execute(OptimizeTable("default", "t", partition="0", final=True)))
    await merging.wait()
    dropping = asyncio.create_task(r1.server.execute(DropPartition("default", "t", partition="0")))
    await eventually(lambda: any(each.entry.type is EntryType.DROP_RANGE for each in state.queue))
    await eventually(lambda: not any(each.entry.type is EntryType.MERGE_PARTS for each in state.queue))
    go_on.set()
    await dropping
    optimizing.cancel()
    assert "0" not in {part.name.partition_id for part in state.store.active_parts()}
    merges = [
        row for row in (await r1.server.scan("system", "part_log")).to_pylist() if row["event_type"] == "MergeParts"
    ]
    assert "Cancelled merging parts" in merges[0]["exception"]


async def test_whoever_is_second_begins_anew_with_a_new_number(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    r1 = await filled(cluster, "r1")
    session = await cluster.session()
    real = drop_partition_module.clear_range
    disturbances = 1

    async def disturbed(*arguments: object) -> None:
        nonlocal disturbances
        if disturbances:
            disturbances -= 1
            await session.set(TABLE.alter_partition_version, b"")
        await real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(drop_partition_module, "clear_range", disturbed)
    await r1.server.execute(EVEN)
    assert str((await log(cluster))[-1].new_part) == "0_0_3_999999999_999999999", "the first number is a gap"
    disturbances = 10**6
    monkeypatch.setattr(drop_partition_module, "TRIES", 3)
    with pytest.raises(CannotAssignAlter):
        await r1.server.execute(DropPartition("default", "t", partition="1"))
    assert await session.children(TABLE.partition("1")) == []


async def test_alter_sync_2_names_who_is_away_and_0_waits_for_nobody(cluster: Cluster) -> None:
    cluster.settings = ServerSettings(replication_wait_for_inactive_replica_timeout=0.2)
    r1 = await filled(cluster, "r1", "r2")
    await cluster.stop("r2")
    with pytest.raises(Unfinished, match="r2"):
        await r1.server.execute(EVEN)
    await r1.server.execute(SwitchAction(Action.REPLICATION_QUEUES, True))
    await r1.server.execute(DropPartition("default", "t", partition="1", alter_sync=0))
    assert len(await r1.active_parts()) == 3
    await r1.server.execute(SwitchAction(Action.REPLICATION_QUEUES, False))
    r2 = await cluster.start("r2")
    await eventually(lambda: not r2.table().state.is_readonly)
    await cluster.settled()
    assert await parts_everywhere(cluster) == [[]] * 4


async def test_what_waits_in_the_queue_for_the_range_goes_with_it(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    await r2.server.execute(SwitchAction(Action.FETCHES, True))
    await r1.insert(rows(10))
    await eventually(lambda: len(r2.table().state.queue) == 1)
    await r1.server.execute(EVEN)
    assert len(r2.table().state.queue) == 0
    r2.table().state.queue.check_invariant()
    assert await parts_everywhere(cluster) == [["1_0_0_0", "1_1_1_0", "1_2_2_0"]] * 4


async def test_what_is_dropped_has_left_the_disk_when_its_entry_is_done(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1")
    await r1.server.execute(EVEN)
    odd = ["1_0_0_0", "1_1_1_0", "1_2_2_0"]
    assert [str(part.name) for part in r1.table().state.store.parts()] == odd
    await cluster.stop("r1")
    r1 = await cluster.start("r1")
    await eventually(lambda: not r1.table().state.is_readonly)
    assert await r1.active_parts() == odd


@pytest.mark.parametrize("detach", [False, True])
async def test_a_server_that_dies_in_the_middle_of_a_drop_starts_again_and_drops_the_rest(
    cluster: Cluster, detach: bool
) -> None:
    """Everything is unregistered and still on the disk: that is no disk of another table."""
    r1 = await filled(cluster, "r1")
    deleting = asyncio.Event()

    async def die(drop_range: PartName) -> list[StoredPart]:
        deleting.set()
        return await asyncio.Event().wait()  # type: ignore[return-value]

    r1.table().state.store.delete_dropped = die  # type: ignore[method-assign]
    await r1.server.execute(DropPartition("default", "t", detach=detach, alter_sync=0))
    await deleting.wait()
    await cluster.kill("r1")
    r1 = await cluster.start("r1")
    await eventually(lambda: not r1.table().state.is_readonly)
    await cluster.settled()
    assert await parts_everywhere(cluster) == [[], []]
    assert r1.table().state.store.parts() == []
    detached = [each.folder for each in await r1.table().state.store.detached.names()]
    assert detached == ([f"{p}_{n}_{n}_0" for p in range(2) for n in range(3)] if detach else [])
