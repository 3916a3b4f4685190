"""ATTACH of partitions and parts, DROP DETACHED, system.detached_parts."""

from __future__ import annotations

import pytest

from replica.commands import (
    Action,
    AttachPartition,
    DropDetached,
    DropPart,
    DropPartition,
    InsertStatus,
    SwitchAction,
)
from replica.errors import BadDataPartName, IncorrectFileName, KeeperException, SupportIsDisabled
from replica.log_entry import EntryType, LogEntry
from replica.storage.detached import DetachedName
from replica.znodes import TableZnodes
from tests.replica.cluster import ROOT, Cluster, Replica, eventually, rows

TABLE = TableZnodes(ROOT)
DETACH = DropPartition("default", "t", partition="0", detach=True, alter_sync=2)
ATTACH = AttachPartition("default", "t", partition="0")


async def filled(cluster: Cluster, *names: str) -> Replica:
    for name in names:
        await cluster.start(name)
    await cluster.create_table()
    for replica in cluster.replicas.values():
        await replica.server.execute(SwitchAction(Action.MERGES, True))
    first = cluster.replicas[names[0]]
    for key in range(0, 6, 2):
        assert (await first.insert(rows(key))).status is InsertStatus.STORED
    await have_parts(cluster, 3)
    return first


async def have_parts(cluster: Cluster, count: int) -> None:
    for replica in cluster.replicas.values():
        await eventually(lambda replica=replica: len(replica.table().state.store.active_parts()) == count)
    await cluster.settled()


async def detached(replica: Replica) -> list[str]:
    return (await replica.server.scan("system", "detached_parts"))["name"].to_pylist()


async def last_entries(cluster: Cluster, count: int) -> list[LogEntry]:
    session = await cluster.session()
    names = (await session.children(TABLE.log))[-count:]
    answers = await session.get_many([TABLE.log_entry(name) for name in names])
    return [LogEntry.parse(answer[0].decode()) for answer in answers if answer is not None]


async def test_parts_come_back_under_new_numbers_and_nobody_downloads_them(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    await r1.server.execute(DETACH)
    before = (await r2.server.scan("system", "part_log"))["event_type"].to_pylist().count("DownloadPart")
    await r1.server.execute(ATTACH)
    await have_parts(cluster, 3)
    assert await r2.active_parts() == ["0_4_4_0", "0_5_5_0", "0_6_6_0"]
    assert sorted((await r2.server.scan("default", "t"))["k"].to_pylist()) == [0, 2, 4]
    assert (await r2.server.scan("system", "part_log"))["event_type"].to_pylist().count("DownloadPart") == before
    assert [await detached(r1), await detached(r2)] == [[], []]
    entries = await last_entries(cluster, 3)
    assert [entry.type for entry in entries] == [EntryType.ATTACH_PART] * 3
    header = r1.table().state.store.active_parts()[0].header
    assert entries[0].part_checksum == header.total


async def test_who_has_nothing_detached_downloads(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    await r1.server.execute(DropPart("default", "t", "0_1_1_0", detach=True, alter_sync=2))
    await cluster.replicas["r2"].server.execute(
        DropDetached("default", "t", part="0_1_1_0", allow_drop_detached=True)
    )
    await r1.server.execute(AttachPartition("default", "t", part="0_1_1_0"))
    await have_parts(cluster, 3)
    assert await cluster.replicas["r2"].active_parts() == ["0_0_0_0", "0_2_2_0", "0_3_3_0"]


async def test_what_is_there_already_stays_detached(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    await r1.server.execute(DETACH)
    await r2.server.execute(SwitchAction(Action.REPLICATION_QUEUES, True))
    await r1.server.execute(AttachPartition("default", "t", part="0_1_1_0"))
    await r2.server.execute(AttachPartition("default", "t", part="0_1_1_0"))
    assert "0_1_1_0" in await detached(r2), "the same content was attached by r1"
    await r2.server.execute(SwitchAction(Action.REPLICATION_QUEUES, False))
    await have_parts(cluster, 1)
    assert await detached(r2) == ["0_0_0_0", "0_2_2_0"]


async def test_a_part_that_cannot_be_committed_lies_in_detached_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    r1 = await filled(cluster, "r1")
    await r1.server.execute(DETACH)
    session = r1.table().state.writable_session()
    publish = r1.table().state.store.publish

    async def cancelled(*arguments):  # type: ignore[no-untyped-def]
        part = await publish(*arguments)
        for lock in await session.children(TABLE.partition("0")):
            await session.delete(f"{TABLE.partition('0')}/{lock}")
        return part

    monkeypatch.setattr(r1.table().state.store, "publish", cancelled)
    with pytest.raises(KeeperException, match="0_0_0_0"):
        await r1.server.execute(ATTACH)
    assert await detached(r1) == ["0_0_0_0", "0_1_1_0", "0_2_2_0"]
    monkeypatch.undo()
    await r1.server.execute(ATTACH)
    await have_parts(cluster, 3)


async def test_rotten_parts_are_not_attached(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1")
    await r1.server.execute(DETACH)
    (rotten,) = cluster.folder.glob("r1/data/default/t/detached/0_1_1_0/count.txt")
    rotten.write_text("7")
    with pytest.raises(Exception, match=r"count\.txt"):
        await r1.server.execute(ATTACH)
    assert len(await r1.active_parts()) == 1
    assert await detached(r1) == ["0_1_1_0", "0_2_2_0"]


async def test_a_part_that_another_covers_is_set_aside(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1")
    await r1.server.execute(DETACH)
    folder = cluster.folder / "r1/data/default/t/detached"
    (folder / "0_0_0_0").rename(folder / "0_0_1_1")
    await r1.server.execute(ATTACH)
    await have_parts(cluster, 2)
    assert await detached(r1) == ["inactive_0_1_1_0"]


async def test_names_in_the_table_and_what_can_be_removed(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1")
    await r1.server.execute(DETACH)
    folder = cluster.folder / "r1/data/default/t/detached"
    (folder / "0_2_2_0").rename(folder / "broken-on-start_0_2_2_0_try1")
    (folder / "something").mkdir()
    found = (await r1.server.scan("system", "detached_parts")).to_pylist()
    shown = [(row["name"], row["partition_id"], row["reason"], row["min_block_number"]) for row in found]
    assert shown == [
        ("0_0_0_0", "0", "", 0),
        ("0_1_1_0", "0", "", 1),
        ("broken-on-start_0_2_2_0_try1", "0", "broken-on-start", 2),
        ("something", None, None, None),
    ]
    assert found[0]["bytes_on_disk"] > 100
    with pytest.raises(SupportIsDisabled):
        await r1.server.execute(DropDetached("default", "t", part="0_0_0_0"))
    for part, error in (("../t", IncorrectFileName), ("0_7_7_0", BadDataPartName)):
        with pytest.raises(error):
            await r1.server.execute(DropDetached("default", "t", part=part, allow_drop_detached=True))
    await r1.server.execute(DropDetached("default", "t", partition="0", allow_drop_detached=True))
    assert await detached(r1) == ["something"]
    with pytest.raises(BadDataPartName):
        await r1.server.execute(AttachPartition("default", "t", part="0_0_0_0"))
    with pytest.raises(BadDataPartName):
        await r1.server.execute(AttachPartition("default", "t", part="something"))


def test_names_of_folders() -> None:
    assert str(DetachedName.parse("ignored_all_1_1_0").part) == "all_1_1_0"
    assert DetachedName.parse("ignored_all_1_1_0").reason == "ignored"
    assert DetachedName.parse("attaching_0_1_1_0_3").reason == "attaching"
    assert DetachedName.parse("tmp_x").part is None
