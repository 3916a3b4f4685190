"""A table on several servers: made, joined, filled, read, lost and found again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from replica.commands import ColumnDefinition, DescribeTable, InsertStatus, ListTables
from replica.errors import (
    IncompatibleColumns,
    MetadataMismatch,
    NoSuchColumnInTable,
    TableAlreadyExists,
    UnknownDatabase,
    UnknownTable,
)
from tests.replica.cluster import ROOT, Cluster, definition, eventually, rows
from tests.replica.zookeeper_cluster import ANYWHERE, LOCAL

NEW_TABLES = Path(__file__).parent.parent / "data" / "clickhouse-26.9" / "new-tables"


@pytest.fixture(params=ANYWHERE)
def service(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def test_a_new_table_has_the_znodes_that_clickhouse_makes(cluster: Cluster) -> None:
    await cluster.start("r1")
    await cluster.create_table(
        partition_by="", columns=(ColumnDefinition("k", "UInt64"), ColumnDefinition("v", "String"))
    )
    session = await cluster.session()
    expected: list[dict[str, Any]] = json.loads((NEW_TABLES / "plain.json").read_text())
    # What a running replica changes: it is active, has an address and has looked at the log.
    changed = {"/replicas/r1/host", "/replicas/r1/log_pointer"}
    drawn = {"/table_shared_id", "/replicas/r1/creator_info"}
    for node in expected:
        path = node["path"].removeprefix("/clickhouse/tables/26/plain")
        value, stat = await session.get(ROOT + path)
        if path not in changed | drawn:
            assert value.decode() == node["value"], path
            assert stat.version == node["version"], path
        if path == "":
            ours = set(await session.children(ROOT))
            assert ours == {each["path"].rsplit("/", 1)[1] for each in expected if each["path"].count("/") == 5}
    order = [node["czxid"] for node in sorted(expected, key=lambda node: node["czxid"])]
    assert order == sorted(order)
    extra = set(await session.children(f"{ROOT}/replicas/r1")) - {"is_active"}
    assert extra == {each["path"].rsplit("/", 1)[1] for each in expected if "/replicas/r1/" in each["path"]}


async def test_later_znodes_are_made_in_clickhouses_order(cluster: Cluster) -> None:
    await cluster.start("r1")
    await cluster.create_table(partition_by="")
    session = await cluster.session()
    expected = sorted(json.loads((NEW_TABLES / "plain.json").read_text()), key=lambda node: node["czxid"])
    first = expected[0]["czxid"]
    later = [node["path"].removeprefix("/clickhouse/tables/26/plain") for node in expected if node["czxid"] > first]
    czxids = [(await session.get(ROOT + path))[1].czxid for path in later]
    assert czxids == sorted(czxids)
    together = [
        node["path"].removeprefix("/clickhouse/tables/26/plain") for node in expected if node["czxid"] == first
    ]
    assert len({(await session.get(ROOT + path))[1].czxid for path in together}) == 1


async def test_the_joining_replica_is_announced_and_becomes_a_copy(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table()
    await r1.insert(rows(1, 2, 3))
    r2 = await cluster.start("r2")
    await r2.server.execute(definition())
    await cluster.writable()
    await cluster.settled()
    session = await cluster.session()
    assert (await session.get(f"{ROOT}/replicas"))[0] == b"last added replica: r2"
    assert (await session.get(f"{ROOT}/replicas/r2/is_lost"))[0] == b"0"
    assert await r2.count() == 3
    assert await r1.active_parts() == await r2.active_parts() == ["0_0_0_0", "1_0_0_0"]


async def test_a_part_reaches_every_replica_and_leaves_every_queue(cluster: Cluster) -> None:
    for name in ("r1", "r2", "r3"):
        await cluster.start(name)
    await cluster.create_table()
    outcome = await cluster.replicas["r2"].insert(rows(5))
    assert outcome.status is InsertStatus.STORED
    for replica in cluster.replicas.values():
        await eventually(lambda replica=replica: replica.table().state.store.parts() != [])
    await cluster.settled()
    session = await cluster.session()
    for name, replica in cluster.replicas.items():
        assert await replica.active_parts() == ["1_0_0_0"]
        assert await session.children(f"{ROOT}/replicas/{name}/queue") == []
        assert await session.children(f"{ROOT}/replicas/{name}/parts") == ["1_0_0_0"]
        assert (await session.get(f"{ROOT}/replicas/{name}/log_pointer"))[0] == b"1"
        times = [f"{ROOT}/replicas/{name}/{each}" for each in ("min_unprocessed", "max_processed")]
        while (await session.get(f"{times[0]}_insert_time"))[0] != b"0":
            await asyncio.sleep(0.01)  # written after the entry has left the queue
        assert int((await session.get(f"{times[1]}_insert_time"))[0]) > 0


async def test_tables_and_rows_are_back_after_a_restart(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table()
    await r1.insert(rows(1, 2))
    await cluster.stop("r1")
    r1 = await cluster.start("r1")
    await cluster.writable()
    assert await r1.count() == 2
    assert (await r1.insert(rows(1, 2))).status is InsertStatus.DUPLICATE


async def test_a_replica_that_was_dead_catches_up(cluster: Cluster) -> None:
    for name in ("r1", "r2"):
        await cluster.start(name)
    await cluster.create_table()
    await cluster.kill("r2")
    for key in range(20):
        await cluster.replicas["r1"].insert(rows(key))
    r2 = await cluster.start("r2")
    await cluster.writable()
    await cluster.settled()
    assert await r2.count() == 20


async def test_a_killed_replica_waits_for_its_old_session_and_says_so(cluster: Cluster) -> None:
    await cluster.start("r1")
    await cluster.create_table()
    await cluster.kill("r1")
    r1 = await cluster.start("r1")
    await eventually(lambda: "already active" in r1.table().state.readonly_reason)
    await cluster.writable()


@LOCAL
async def test_a_replica_whose_session_died_comes_back_by_itself(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table()
    (session_id,) = cluster.service.session_ids()
    cluster.service.expire(session_id)
    await eventually(lambda: cluster.service.session_ids() not in ([], [session_id]))
    await cluster.writable()
    assert (await r1.insert(rows(9))).status is InsertStatus.STORED


async def test_another_table_at_the_path_is_refused_and_leaves_nothing(cluster: Cluster) -> None:
    await cluster.start("r1")
    await cluster.create_table()
    r2 = await cluster.start("r2")
    with pytest.raises(IncompatibleColumns, match="`v` String"):
        await r2.server.execute(definition(columns=(ColumnDefinition("k", "UInt64"), ColumnDefinition("w", "UInt8"))))
    with pytest.raises(MetadataMismatch, match="partition key"):
        await r2.server.execute(definition(partition_by="k % 3"))
    session = await cluster.session()
    assert await session.children(f"{ROOT}/replicas") == ["r1"]
    own = [row for row in await r2.server.execute(ListTables()) if row["database"] == "default"]
    assert own == []


async def test_a_table_is_made_once(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table()
    with pytest.raises(TableAlreadyExists):
        await r1.server.execute(definition())
    await r1.server.execute(definition(if_not_exists=True))
    with pytest.raises(UnknownDatabase, match="shop"):
        await r1.server.execute(definition(database="shop"))


async def test_what_is_not_there_is_refused_by_name(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table()
    with pytest.raises(UnknownTable, match="'t'"):
        await r1.server.scan("default", "tt")
    with pytest.raises(NoSuchColumnInTable):
        await r1.server.scan("default", "t", ["w"])
    with pytest.raises(UnknownTable, match="replicas"):
        await r1.server.scan("system", "replica")
    described = await r1.server.execute(DescribeTable("default", "t"))
    assert [(row["name"], row["type"]) for row in described] == [("k", "UInt64"), ("v", "String")]


async def test_a_broken_part_is_detached_and_fetched_again(cluster: Cluster) -> None:
    for name in ("r1", "r2"):
        await cluster.start(name)
    await cluster.create_table()
    await cluster.replicas["r1"].insert(rows(2))
    await eventually(lambda: len(cluster.replicas["r2"].table().state.store.active_parts()) == 1)
    await cluster.settled()
    await cluster.stop("r2")
    folder = cluster.folder / "r2" / "data" / "default" / "t"
    data = folder / "0_0_0_0" / "data.arrow"
    data.write_bytes(data.read_bytes()[:-1])
    r2 = await cluster.start("r2")
    await cluster.writable()
    await cluster.settled()
    assert await r2.count() == 1
    assert [path.name for path in (folder / "detached").iterdir()] == ["broken-on-start_0_0_0_0"]


async def test_an_unregistered_part_is_detached_not_deleted(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table(settings={"replicated_max_ratio_of_wrong_parts": "1"})
    await r1.insert(rows(2))
    await cluster.stop("r1")
    folder = cluster.folder / "r1" / "data" / "default" / "t"
    (folder / "0_0_0_0").rename(folder / "0_7_7_0")
    r1 = await cluster.start("r1")
    await eventually(lambda: [path.name for path in folder.glob("detached/*")] == ["ignored_0_7_7_0"])
