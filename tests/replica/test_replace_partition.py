"""REPLACE PARTITION FROM, ATTACH PARTITION FROM, MOVE PARTITION TO TABLE."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.api import Create, Delete, Operation, Set
from replica.commands import (
    Action,
    ColumnDefinition,
    DropTable,
    InsertOptions,
    InsertStatus,
    MovePartition,
    ReplacePartition,
    SwitchAction,
)
from replica.errors import BadArguments, CannotAssignAlter, IncompatibleColumns, UnknownTable
from replica.log_entry import EntryType, LogEntry
from replica.part_name import PartName
from replica.partition_commands import move_partition as move_partition_module
from replica.znodes import TableZnodes
from tests.replica.cluster import ROOT, Cluster, Replica, definition, eventually, rows
from tests.replica.zookeeper_cluster import ANYWHERE

TABLE = TableZnodes(ROOT)


@pytest.fixture(params=ANYWHERE)
def service(request: pytest.FixtureRequest) -> str:
    return str(request.param)


SOURCE = "/clickhouse/tables/{shard}/s"
REPLACE = ReplacePartition("default", "t", "default", "s", partition="0", alter_sync=2)
ATTACH = ReplacePartition("default", "t", "default", "s", partition="0", replace=False, alter_sync=2)
MOVE = MovePartition("default", "t", "default", "s", partition="0", alter_sync=2)


async def filled(cluster: Cluster, *names: str) -> Replica:
    """Table t has 0 and 2 in partition 0 and 1 in partition 1, table s 10 and 12 in partition 0."""
    for name in names:
        await cluster.start(name)
    await cluster.create_table()
    for replica in cluster.replicas.values():
        await replica.server.execute(definition(table="s", zookeeper_path=SOURCE))
        await eventually(lambda replica=replica: not replica.table("s").state.is_readonly)
        await replica.server.execute(SwitchAction(Action.MERGES, True))
    first = cluster.replicas[names[0]]
    for key in range(3):
        await first.insert(rows(key))
    for key in (10, 12):
        await insert_into_source(first, key)
    for replica in cluster.replicas.values():
        await eventually(lambda replica=replica: len(replica.table().state.store.active_parts()) == 3)
        await eventually(lambda replica=replica: len(replica.table("s").state.store.active_parts()) == 2)
    return first


async def insert_into_source(replica: Replica, key: int) -> None:
    outcome = await replica.server.insert("default", "s", InsertOptions(), 0, rows(key))
    assert outcome.status is InsertStatus.STORED


async def keys(replica: Replica, table: str = "t") -> list[int]:
    return sorted((await replica.server.scan("default", table))["k"].to_pylist())


async def keys_everywhere(cluster: Cluster, table: str = "t") -> list[list[int]]:
    return [await keys(replica, table) for _, replica in sorted(cluster.replicas.items())]


async def log(cluster: Cluster) -> list[LogEntry]:
    session = await cluster.session()
    names = await session.children(TABLE.log)
    answers = await session.get_many([TABLE.log_entry(name) for name in names])
    return [LogEntry.parse(answer[0].decode()) for answer in answers if answer is not None]


async def downloads(replica: Replica) -> int:
    return (await replica.server.scan("system", "part_log"))["event_type"].to_pylist().count("DownloadPart")


async def test_the_partition_is_what_the_other_table_has_and_nobody_downloads(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    before = await downloads(cluster.replicas["r2"])
    await r1.server.execute(REPLACE)
    assert await keys_everywhere(cluster) == [[1, 10, 12]] * 2
    assert await keys_everywhere(cluster, "s") == [[10, 12]] * 2
    assert await downloads(cluster.replicas["r2"]) == before
    entry = (await log(cluster))[-1].replace_range
    assert entry is not None
    assert str(entry.drop_range) == "0_0_2_999999999_999999999", "the number itself is in the range"
    assert [str(part.new) for part in entry.parts] == ["0_3_3_0", "0_4_4_0"]
    assert entry.parts[0].checksum == r1.table("s").state.store.active_parts()[0].header.total
    session = await cluster.session()
    for name in ("r1", "r2"):
        assert await session.children(TABLE.replica(name).parts) == ["0_3_3_0", "0_4_4_0", "1_0_0_0"]
    assert (await r1.insert(rows(0))).status is InsertStatus.STORED, "the id of what was replaced is forgotten"
    assert (await r1.insert(rows(1))).status is InsertStatus.DUPLICATE


async def test_the_multi_has_the_entry_last(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1")
    session = r1.table().state.writable_session()
    seen: list[list[Operation]] = []
    real = session.multi

    async def multi(operations: list[Operation]) -> object:
        seen.append(list(operations))
        return await real(operations)

    session.multi = multi  # type: ignore[method-assign]
    await r1.server.execute(REPLACE)
    (commit,) = [each for each in seen if any(getattr(op, "path", "") == f"{TABLE.log}/log-" for op in each)]
    parts = TABLE.replica("r1").parts
    assert [(type(op), op.path) for op in commit[:-1]] == [
        (Create, f"{parts}/0_3_3_0"),
        (Delete, f"{TABLE.partition('0')}/block-0000000003"),
        (Create, f"{parts}/0_4_4_0"),
        (Delete, f"{TABLE.partition('0')}/block-0000000004"),
        (Delete, f"{TABLE.partition('0')}/block-0000000002"),
        (Set, TABLE.alter_partition_version),
        (Set, TABLE.log),
        (Create, f"{TABLE.log}/log-"),
    ]
    assert await session.children(TABLE.partition("0")) == []


async def test_attach_from_adds_each_content_once(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    await r1.server.execute(ATTACH)
    assert await keys_everywhere(cluster) == [[0, 1, 2, 10, 12]] * 2
    await insert_into_source(r1, 14)
    await r1.server.execute(ATTACH)
    assert await keys_everywhere(cluster) == [[0, 1, 2, 10, 12, 14]] * 2
    last = (await log(cluster))[-1].replace_range
    assert last is not None
    assert [str(last.drop_range), *(str(part.new) for part in last.parts)] == ["0_0_0_0", "0_6_6_0"]
    names = await (await cluster.session()).children(f"{ROOT}/blocks")
    assert names == sorted(f"0_replace_from_{p.header.total}" for p in r1.table("s").state.store.active_parts())


async def test_replace_from_nothing_drops_and_into_nothing_adds(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    await r1.server.execute(ReplacePartition("default", "t", "default", "s", partition="1", alter_sync=2))
    assert await keys_everywhere(cluster) == [[0, 2]] * 2
    await r1.server.execute(ReplacePartition("default", "s", "default", "t", partition="0", alter_sync=2))
    assert await keys_everywhere(cluster, "s") == [[0, 2]] * 2


async def test_who_lacks_the_source_downloads(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    await r2.server.execute(DropTable("default", "s"))
    before = await downloads(r2)
    await r1.server.execute(REPLACE)
    assert await keys_everywhere(cluster) == [[1, 10, 12]] * 2
    assert await downloads(r2) == before + 2


async def test_a_merged_part_is_taken_for_its_sources(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    await r2.server.execute(SwitchAction(Action.REPLICATION_QUEUES, True))
    await r1.server.execute(ReplacePartition("default", "t", "default", "s", partition="0"))
    sources = [PartName.parse("0_3_3_0"), PartName.parse("0_4_4_0")]
    entry = LogEntry(EntryType.MERGE_PARTS, 1, "r1", source_parts=tuple(sources), new_part=PartName.merged(sources))
    session = await cluster.session()
    await r1.server.execute(SwitchAction(Action.MERGES, False))
    await session.create(f"{TABLE.log}/log-", entry.to_text().encode(), sequential=True)
    await eventually(lambda: r1.table().state.store.active_containing(PartName.merged(sources)) is not None)
    for part in sources:
        await session.delete(TABLE.replica("r1").part(str(part)))
    await r2.server.execute(DropTable("default", "s"))
    await eventually(lambda: len(r2.table().state.queue) == 2)
    await r2.server.execute(SwitchAction(Action.REPLICATION_QUEUES, False))
    await r2.server.execute(SwitchAction(Action.MERGES, False))
    await eventually(lambda: len(r2.table().state.queue) == 0)
    assert await r2.active_parts() == ["0_3_4_1", "1_0_0_0"]
    assert await keys(r2) == [1, 10, 12]


async def test_tables_that_do_not_fit_are_refused(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1")
    others: tuple[tuple[str, dict[str, object], type[Exception]], ...] = (
        (
            "a",
            {"columns": (ColumnDefinition("k", "UInt64"), ColumnDefinition("v", "Nullable(String)"))},
            IncompatibleColumns,
        ),
        ("b", {"order_by": "v"}, BadArguments),
        ("c", {"partition_by": "k % 3"}, BadArguments),
    )
    for name, changes, error in others:
        await r1.server.execute(
            definition(table=name, zookeeper_path="/clickhouse/tables/{shard}/" + name, **changes)
        )
        with pytest.raises(error, match="different"):
            await r1.server.execute(ReplacePartition("default", "t", "default", name, partition="0"))
    with pytest.raises(UnknownTable):
        await r1.server.execute(ReplacePartition("default", "t", "default", "nope", partition="0"))
    with pytest.raises(BadArguments):
        await r1.server.execute(MovePartition("default", "t", "default", "t", partition="0"))
    assert await keys(r1) == [0, 1, 2]


async def test_move_brings_the_rows_over_on_every_replica(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    await r1.server.execute(MOVE)
    assert await keys_everywhere(cluster) == [[1]] * 2
    assert await keys_everywhere(cluster, "s") == [[0, 2, 10, 12]] * 2
    assert (await r1.insert(rows(0))).status is InsertStatus.STORED
    session = await cluster.session()
    assert await session.children(TABLE.partition("0")) == []


async def test_move_gives_way_to_another_change_of_partitions(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    r1 = await filled(cluster, "r1")
    session = await cluster.session()
    real = move_partition_module._announce

    async def disturbed(*arguments: object) -> None:
        await session.set(TABLE.alter_partition_version, b"")
        await real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(move_partition_module, "_announce", disturbed)
    with pytest.raises(CannotAssignAlter):
        await r1.server.execute(MOVE)
    assert await keys(r1) == [0, 1, 2]
    assert r1.table().state.queue.drop_replace_intents == ()
    assert await session.children(TABLE.partition("0")) == []


async def test_an_intent_holds_the_queue_back_until_the_entry_is_known(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    r1 = await filled(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    state = r1.table().state
    taken, go_on = asyncio.Event(), asyncio.Event()
    copy = state.store.copy

    async def slow(*arguments):  # type: ignore[no-untyped-def]
        taken.set()
        await go_on.wait()
        return await copy(*arguments)

    monkeypatch.setattr(state.store, "copy", slow)
    replacing = asyncio.create_task(r1.server.execute(REPLACE))
    await taken.wait()
    sources = [PartName.parse("0_0_0_0"), PartName.parse("0_1_1_0")]
    merge = LogEntry(EntryType.MERGE_PARTS, 1, "r2", source_parts=tuple(sources), new_part=PartName.merged(sources))
    session = await cluster.session()
    await r1.server.execute(SwitchAction(Action.MERGES, False))
    await session.create(f"{TABLE.log}/log-", merge.to_text().encode(), sequential=True)
    await eventually(lambda: any("intent" in queued.postpone_reason for queued in state.queue))
    go_on.set()
    await replacing
    assert await keys_everywhere(cluster) == [[1, 10, 12]] * 2
    assert await r2.active_parts() == ["0_3_3_0", "0_4_4_0", "1_0_0_0"]
