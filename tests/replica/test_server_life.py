"""A server: what CREATE leaves behind when it fails, what it answers to others, how it starts and stops."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from replica.commands import ColumnDefinition, ListTables
from replica.environment import PartRequest
from replica.errors import (
    BadArguments,
    BadDataPartName,
    ClickHouseError,
    IncompatibleColumns,
    KeeperException,
    NoSuchDataPart,
    ReplicaAlreadyExists,
    TableAlreadyExists,
    UnknownSetting,
)
from replica.server import Server, ServerConfig
from replica.session import SESSIONS_PATH
from replica.settings import MergeTreeSettings, ServerSettings
from replica.table_structure import TableStructure
from tests.replica.cluster import IMPATIENT, ROOT, Cluster, Replica, definition, eventually, rows


async def own_tables(replica: Replica) -> list[str]:
    return [row["name"] for row in await replica.server.execute(ListTables()) if row["database"] == "default"]


def definitions_on_disk(cluster: Cluster, name: str = "r1") -> list[str]:
    folder = cluster.folder / name / "metadata" / "default"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


# --- CREATE --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"order_by": "nothing"},
        {"partition_by": "k %"},
        {"settings": {"index_granularitty": "1"}},
        {"table": ""},
        {"zookeeper_path": "no/slash"},
        {"replica_name": "a/b"},
        {"zookeeper_path": "/{nobody}/t"},
        {"columns": ()},
    ],
    ids=str,
)
async def test_a_wrong_definition_leaves_nothing_anywhere(cluster: Cluster, wrong: dict[str, object]) -> None:
    r1 = await cluster.start("r1")
    with pytest.raises(ClickHouseError):
        await r1.server.execute(definition(**wrong))
    assert await own_tables(r1) == definitions_on_disk(cluster) == []
    session = await cluster.session()
    assert await session.exists("/clickhouse/tables") is None


async def test_a_table_that_cannot_be_registered_leaves_nothing_on_the_server(cluster: Cluster) -> None:
    cluster.settings = IMPATIENT
    r1 = await cluster.start("r1")
    await r1.server._share.sessions.live()  # type: ignore[union-attr]
    cluster.delivery.loses = lambda label: "Create" in label
    with pytest.raises(KeeperException, match="could not be registered"):
        await r1.server.execute(definition())
    assert await own_tables(r1) == definitions_on_disk(cluster) == []
    cluster.delivery.loses = lambda label: False
    await cluster.create_table()
    assert definitions_on_disk(cluster) == ["t.json"]


async def test_a_registration_whose_answer_is_lost_is_repeated_and_found(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await r1.server._share.sessions.live()  # type: ignore[union-attr]
    lost: list[str] = []

    def reply_to_the_multi(label: str) -> bool:
        hit = not lost and label.startswith("r1") and "reply" in label and label.endswith("Multi")
        lost.extend([label] * hit)
        return hit

    cluster.delivery.loses = reply_to_the_multi
    await cluster.create_table()
    assert lost
    assert await own_tables(r1) == ["t"]


async def test_two_servers_cannot_be_the_same_replica(cluster: Cluster) -> None:
    r1, r2 = await cluster.start("r1"), await cluster.start("r2")
    await r1.server.execute(definition(replica_name="same"))
    with pytest.raises(ReplicaAlreadyExists):
        await r2.server.execute(definition(replica_name="same"))
    assert await own_tables(r2) == definitions_on_disk(cluster, "r2") == []


async def test_of_two_creates_at_once_one_wins(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    results = await asyncio.gather(*(r1.server.execute(definition()) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in results if each != []] == [TableAlreadyExists] * 2
    results = await asyncio.gather(
        *(r1.server.execute(definition(table="u", zookeeper_path="/u", if_not_exists=True)) for _ in range(3))
    )
    assert results == [[], [], []]
    assert await own_tables(r1) == ["t", "u"]


async def test_a_table_has_a_uuid_that_the_znodes_know(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table(if_not_exists=True)
    session = await cluster.session()
    table_uuid, _, server_uuid = (await session.get(f"{ROOT}/replicas/r1/creator_info"))[0].decode().partition("|")
    assert r1.table().definition.uuid == table_uuid != ""
    assert (await session.get(f"{ROOT}/table_shared_id"))[0].decode() == table_uuid
    assert await session.children(SESSIONS_PATH) == [server_uuid]
    assert (cluster.folder / "r1" / "uuid").read_text() == server_uuid
    await cluster.stop("r1")
    r1 = await cluster.start("r1")
    assert r1.table().definition.uuid == table_uuid
    assert not r1.table().definition.if_not_exists


# --- starting and stopping -----------------------------------------------------------------------------------


async def test_a_create_waits_for_the_start(cluster: Cluster) -> None:
    coordinator = cluster.coordinator("r1")
    server = Server(cluster.environment("r1", coordinator), ServerConfig("r1", settings=cluster.settings))
    creating = asyncio.create_task(server.execute(definition()))
    await asyncio.sleep(0)
    running = asyncio.create_task(server.run())
    await creating
    assert server.started.is_set()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_a_server_that_stops_ends_its_session_and_serves_no_parts(cluster: Cluster) -> None:
    await cluster.start("r1")
    await cluster.create_table()
    await cluster.stop("r1")
    assert cluster.service.session_ids() == []
    assert cluster.sources == {}


async def test_a_server_starts_while_the_coordination_service_is_out_of_reach(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table()
    await r1.insert(rows(2))
    await cluster.stop("r1")
    lost: list[str] = []

    def the_first_connects(label: str) -> bool:
        hit = len(lost) < 2 and "connect" in label
        lost.extend([label] * hit)
        return hit

    cluster.delivery.loses = the_first_connects
    r1 = await cluster.start("r1")
    assert await r1.count() == 1, "what is on the disk can be read"
    await eventually(lambda: "no answer" in r1.server._share.sessions.last_error)  # type: ignore[union-attr]
    cluster.delivery.loses = lambda label: False
    await cluster.writable()


async def test_each_process_has_an_identifier_of_its_own(cluster: Cluster) -> None:
    await cluster.start("r1")
    await cluster.create_table()
    session = await cluster.session()
    identifiers = [(await session.get(f"{ROOT}/replicas/r1/is_active"))[0]]
    await cluster.stop("r1")
    await cluster.start("r1")
    await cluster.writable()
    identifiers.append((await session.get(f"{ROOT}/replicas/r1/is_active"))[0])
    assert identifiers[0] != identifiers[1]
    assert all(each.startswith(b"pid: ") and b", random: " in each for each in identifiers)


# --- what other replicas ask ---------------------------------------------------------------------------------


async def test_a_part_is_sent_of_the_table_that_was_asked_for(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await r1.server.execute(definition(table="a", zookeeper_path="/a"))
    await cluster.create_table()
    await r1.insert(rows(2))
    files = await r1.server.send_part(PartRequest(f"{ROOT}/replicas/r1", "0_0_0_0"))
    assert len(files.files) == 4
    for path, part in ((f"{ROOT}/replicas/r1", "0_1_1_0"), ("/a/replicas/r1", "0_0_0_0"), ("/x", "0_0_0_0")):
        with pytest.raises(NoSuchDataPart):
            await r1.server.send_part(PartRequest(path, part))
    with pytest.raises(BadDataPartName):
        await r1.server.send_part(PartRequest(f"{ROOT}/replicas/r1", "../../uuid"))


async def test_what_a_replica_tells_of_log_and_parts(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    r2 = await cluster.start("r2")
    await cluster.create_table()
    for key in (2, 4, 6):
        await r1.insert(rows(key))
    await eventually(lambda: len(r2.table().state.store.active_parts()) == 3)
    await cluster.settled()
    await cluster.stop("r2")
    session = await cluster.session()
    await session.delete(f"{ROOT}/log/log-0000000000")
    (row,) = (await r1.server.scan("system", "replicas")).to_pylist()
    assert (row["log_max_index"], row["log_pointer"]) == (2, 3)
    assert (row["total_replicas"], row["active_replicas"]) == (2, 1)
    await session.create(f"{ROOT}/log/zebra")
    (row,) = (await r1.server.scan("system", "replicas")).to_pylist()
    assert "zebra" in row["zookeeper_exception"]
    await session.delete(f"{ROOT}/replicas/r1/log_pointer")
    await session.delete(f"{ROOT}/log/zebra")
    (row,) = (await r1.server.scan("system", "replicas")).to_pylist()
    assert "log_pointer" in row["zookeeper_exception"]


async def test_a_part_that_is_not_decided_is_not_active_in_system_parts(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table()
    seen: list[list[int]] = []
    session = r1.server._share.sessions.current  # type: ignore[union-attr]
    assert session is not None
    multi_checked = session.multi_checked

    async def look(operations):  # type: ignore[no-untyped-def]
        seen.append((await r1.server.scan("system", "parts"))["active"].to_pylist())
        return await multi_checked(operations)

    session.multi_checked = look  # type: ignore[method-assign]
    await r1.insert(rows(2))
    assert seen[0] == [0]
    assert (await r1.server.scan("system", "parts"))["active"].to_pylist() == [1]


# --- settings and structure ----------------------------------------------------------------------------------


def test_settings_have_clickhouses_defaults() -> None:
    settings, server = MergeTreeSettings(), ServerSettings()
    assert (settings.index_granularity, settings.replicated_deduplication_window) == (8192, 10000)
    assert server.insert_keeper_max_retries == 20
    assert MergeTreeSettings.from_text({"replicated_deduplication_window": "0"}).replicated_deduplication_window == 0


def test_unknown_settings_and_wrong_values_are_refused() -> None:
    with pytest.raises(UnknownSetting, match="replicated_deduplication_window"):
        MergeTreeSettings.from_text({"replicated_deduplication_windw": "1"})
    for value in ("-1", "1.5", "", "ten", "١"):
        with pytest.raises(BadArguments, match="whole number"):
            MergeTreeSettings.from_text({"index_granularity": value})
    with pytest.raises(BadArguments):
        MergeTreeSettings.from_text({"index_granularity": "0"})
    for value in ("-0.5", "half", "", "1e3", ".5", "1."):
        with pytest.raises(BadArguments, match="takes a number like"):
            MergeTreeSettings.from_text({"replicated_max_ratio_of_wrong_parts": value})
    ratios = [MergeTreeSettings.from_text({"replicated_max_ratio_of_wrong_parts": each}) for each in ("1", "0.25")]
    assert [each.replicated_max_ratio_of_wrong_parts for each in ratios] == [1.0, 0.25]


def test_a_sorting_key_has_a_line_of_its_own_only_beside_another_primary_key() -> None:
    same = TableStructure.from_definition(definition(order_by="(k, v)", primary_key="(k, v)"))
    assert "primary key: k, v\n" in same.metadata_text
    assert "sorting key" not in same.metadata_text
    other = TableStructure.from_definition(definition(order_by="(k, v)", primary_key="k"))
    assert "primary key: k\n" in other.metadata_text
    assert "sorting key: k, v\n" in other.metadata_text
    with pytest.raises(ClickHouseError):
        TableStructure.from_definition(definition(order_by="k", primary_key="v"))


@pytest.mark.parametrize(
    ("theirs", "part"),
    [
        ([("k", "UInt64"), ("v", "String"), ("w", "UInt8")], "it has also `w` UInt8, which the statement lacks"),
        ([("k", "UInt64")], "it has no `v` String, which the statement has"),
        ([("k", "Int8"), ("v", "String")], "it has `k` Int8, the statement `k` UInt64"),
        (
            [("v", "String"), ("k", "UInt64")],
            "another order: `v` String, `k` UInt64 there, `k` UInt64, `v` String",
        ),
    ],
)
def test_the_columns_that_differ_are_named(theirs: list[tuple[str, str]], part: str) -> None:
    def structure(columns: list[tuple[str, str]]) -> TableStructure:
        columns_of = tuple(ColumnDefinition(*column) for column in columns)
        return TableStructure.from_definition(definition(columns=columns_of, order_by="k", partition_by=""))

    ours = structure([("k", "UInt64"), ("v", "String")])
    with pytest.raises(IncompatibleColumns) as caught:
        ours.check_same(ours.metadata_text, structure(theirs).columns_text, "/t")
    assert part in caught.value.message


def test_the_first_difference_is_named() -> None:
    structure = TableStructure.from_definition(definition())
    with pytest.raises(ClickHouseError, match="13 lines"):
        structure.check_same(structure.metadata_text + "a\nb\n", structure.columns_text, "/t")
