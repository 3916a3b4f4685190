"""system.*: ClickHouse's columns, and rows that tell what happens on the server."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from coordinator.api import SessionLost
from replica.commands import AlterSettings, CreateTable, DescribeTable, OptimizeTable, ShowCreateTable
from replica.errors import BadArguments, CannotGetCreateTableQuery, ChecksumDoesntMatch, KeeperException, UnknownTable
from replica.part_log import MOST_EVENTS, PartEventType
from replica.partition import PartitionKey
from replica.schema import TableSchema
from replica.settings import SETTINGS
from replica.system_tables import SYSTEM_TABLES
from replica.zookeeper_log import MOST_CHILDREN, MOST_ROWS, Children, Get, Multi, ZooKeeperLog
from tests.replica.cluster import QUICK_CLEANUP, ROOT, Cluster, DirectTransfer, Replica, eventually, rows

DATA = Path(__file__).parent.parent / "data/clickhouse-26.9"
CLICKHOUSE = json.loads((DATA / "system_columns.json").read_text())
CLICKHOUSE_SETTINGS = json.loads((DATA / "replicated_merge_tree_settings.json").read_text())

SETTINGS_COLUMNS = (
    *("name", "value", "default", "changed", "description", "min", "max", "disallowed_values", "readonly", "type"),
    *("is_obsolete", "tier"),
)
# docs/differences.md: settings of a table here, of a server or a release there.
OF_THE_MODEL = {"insert_deduplication_version", "max_log_entry_format_version"}
OTHER_DEFAULTS = {
    "fsync_after_insert",  # docs/differences.md
    # The data come from the engine as a library, which has a pool and a disk of another kind than a server.
    "old_parts_lifetime",
    "number_of_free_entries_in_pool_to_lower_max_size_of_merge",
    "number_of_free_entries_in_pool_to_execute_mutation",
}

# Tables that the data above could not be taken from. Of an Enum only its width counts.
PART_LOG = """
    hostname LowCardinality(String) / query_id String / event_type Enum8 / merge_reason Enum8 /
    merge_algorithm Enum8 / event_date Date / event_time DateTime / event_time_microseconds DateTime64(6) /
    duration_ms UInt64 / database String / table String / table_uuid UUID / part_name String /
    partition_id String / partition String / part_type String / disk_name String / path_on_disk String /
    rows UInt64 / size_in_bytes UInt64 / merged_from Array(String) / bytes_uncompressed UInt64 /
    read_rows UInt64 / read_bytes UInt64 / peak_memory_usage UInt64 / deduplication_block_ids Array(String) /
    error UInt16 / exception String / mutation_ids String / ProfileEvents Map(LowCardinality(String), UInt64) /
    ProfileEvents.Names Array(String) / ProfileEvents.Values Array(UInt64) / name String
"""
ZOOKEEPER = """
    name String / value String / czxid Int64 / mzxid Int64 / ctime DateTime / mtime DateTime / version Int32 /
    cversion Int32 / aversion Int32 / ephemeralOwner Int64 / dataLength Int32 / numChildren Int32 / pzxid Int64 /
    path String
"""
ZOOKEEPER_LOG = """
    hostname LowCardinality(String) / type Enum8 / event_date Date / event_time DateTime64(6) / thread_id UInt64 /
    query_id String / address IPv6 / port UInt16 / session_id Int64 / duration_microseconds UInt64 / xid Int64 /
    has_watch UInt8 / op_num Enum16 / path String / data String / is_ephemeral UInt8 / is_sequential UInt8 /
    version Nullable(Int32) / requests_size UInt32 / request_idx UInt32 / zxid Int64 / error Nullable(Enum8) /
    watch_type Nullable(Enum8) / watch_state Nullable(Enum16) / path_created String / stat_czxid Int64 /
    stat_mzxid Int64 / stat_pzxid Int64 / stat_version Int32 / stat_cversion Int32 / stat_dataLength Int32 /
    stat_numChildren Int32 / children Array(String)
"""

QUIET = {
    "merge_selecting_sleep_ms": "3600000",
    "max_merge_selecting_sleep_ms": "3600000",
    "merge_selector_base": "1000",
}


async def table_of(replica: Replica, name: str, *paths: str) -> list[dict[str, Any]]:
    return (await replica.server.scan("system", name, paths=paths)).to_pylist(maps_as_pydicts="strict")


async def started(cluster: Cluster, *names: str, **changes: object) -> Replica:
    for name in names:
        await cluster.start(name)
    await cluster.create_table(**{"partition_by": "", "settings": QUIET, **changes})
    return cluster.replicas[names[0]]


# --- columns -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table", ["replicas", "replication_queue", "parts", "merges", "replicated_fetches", "detached_parts"]
)
def test_columns_are_those_of_clickhouse(table: str) -> None:
    columns = SYSTEM_TABLES[table].columns.columns
    assert [[column.name, column.type] for column in columns] == [list(each) for each in CLICKHOUSE[table]]


@pytest.mark.parametrize(
    ("table", "text"), [("part_log", PART_LOG), ("zookeeper", ZOOKEEPER), ("zookeeper_log", ZOOKEEPER_LOG)]
)
def test_columns_of_the_logs(table: str, text: str) -> None:
    columns = SYSTEM_TABLES[table].columns.columns
    shown = [f"{column.name} {re.sub('(?<=Enum8|num16)[(][^)]*[)]', '', column.type)}" for column in columns]
    assert shown == [each.strip() for each in text.split("/")]


def test_columns_and_types_of_the_settings() -> None:
    """Types as in 26.9, and its defaults but for those that docs/differences.md names."""
    theirs = {name: (default, type) for name, default, type in CLICKHOUSE_SETTINGS}
    ours = {each.name: (str(each.default), each.type) for each in SETTINGS.values() if each.name not in OF_THE_MODEL}
    assert {name for name in ours if ours[name][1] != theirs[name][1]} == set()
    assert {name for name in ours if ours[name] != theirs[name]} <= OTHER_DEFAULTS
    columns = SYSTEM_TABLES["replicated_merge_tree_settings"].columns.columns
    assert tuple(column.name for column in columns) == SETTINGS_COLUMNS


async def test_every_table_can_be_scanned_and_described(cluster: Cluster) -> None:
    r1 = await started(cluster, "r1")
    await r1.insert()
    for name, table in SYSTEM_TABLES.items():
        scanned = await r1.server.scan("system", name, paths=["/"])
        assert scanned.column_names == [column.name for column in table.columns.columns]
        described = await r1.server.execute(DescribeTable("system", name))
        assert [row["name"] for row in described] == scanned.column_names
    with pytest.raises(UnknownTable, match="Did you mean"):
        await r1.server.execute(DescribeTable("system", "part"))


# --- replicas ------------------------------------------------------------------------------------------------


async def test_replicas_shows_who_is_there_and_how_far(cluster: Cluster) -> None:
    r1 = await started(cluster, "r1", "r2")
    for key in range(2):
        await r1.insert(rows(key))
    await eventually(lambda: len(r1.table().state.queue.current_parts) == 2)
    await cluster.stop("r2")
    (row,) = await table_of(r1, "replicas")
    definition: CreateTable = r1.table().definition
    shown = ("uuid", "columns_version", "zookeeper_name", "log_max_index", "log_pointer", "is_leader", "queue_size")
    assert [row[name] for name in shown] == [definition.uuid, -1, "default", 1, 2, 1, 0]
    assert (row["total_replicas"], row["active_replicas"]) == (2, 1)
    assert row["replica_is_active"] == {"r1": 1, "r2": 0}
    assert (row["lost_part_count"], row["absolute_delay"]) == (0, 0)
    assert (row["readonly_start_time"], row["readonly_duration"]) == (None, None)
    assert row["last_queue_update"].timestamp() > 0


async def test_replicas_tells_the_oldest_work_and_the_delay(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    r1 = await started(cluster, "r1", "r2")
    gate = asyncio.Event()
    fetch = DirectTransfer.fetch

    async def waiting_fetch(*arguments: Any) -> Any:
        await gate.wait()
        return await fetch(*arguments)

    monkeypatch.setattr(DirectTransfer, "fetch", waiting_fetch)
    await r1.insert(rows(1))
    await r1.insert(rows(2))
    r2 = cluster.replicas["r2"]
    state = r2.table().state
    await eventually(lambda: len(state.running.fetches) == 2)
    (row,) = await table_of(r2, "replicas")
    assert (row["inserts_in_queue"], row["oldest_part_to_get"]) == (2, "all_0_0_0")
    assert row["queue_oldest_time"] == row["inserts_oldest_time"]
    assert row["merges_oldest_time"].timestamp() == 0
    oldest = int(row["inserts_oldest_time"].timestamp())
    monkeypatch.setattr(state.environment.clock, "now", lambda: oldest + 100.5)
    (row,) = await table_of(r2, "replicas")
    assert row["absolute_delay"] == 100

    fetches = await table_of(r2, "replicated_fetches")
    assert [each["result_part_name"] for each in fetches] == ["all_0_0_0", "all_1_1_0"]
    shown = ("progress", "source_replica_path", "source_replica_hostname", "source_replica_port", "to_detached")
    assert [fetches[0][name] for name in shown] == [0.0, f"{ROOT}/replicas/r1", "r1", 9009, 0]
    gate.set()
    await cluster.settled()
    assert await table_of(r2, "replicated_fetches") == []


async def test_replicas_knows_since_when_it_is_readonly(cluster: Cluster) -> None:
    r1 = await started(cluster, "r1")
    state = r1.table().state
    state.become_readonly("a test says so")
    since = state.readonly_since
    state.become_readonly("and again")
    assert state.readonly_since == since
    (row,) = await table_of(r1, "replicas")
    assert (row["is_readonly"], row["is_leader"], row["zookeeper_exception"]) == (1, 0, "and again")
    assert row["readonly_start_time"].timestamp() == int(since or 0)
    assert row["readonly_duration"] == 0


# --- merges, parts and what happened to them -----------------------------------------------------------------


async def test_merges_shows_a_merge_while_it_runs(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    r1 = await started(cluster, "r1")
    for key in range(2):
        await r1.insert(rows(key))
    store, gate = r1.table().state.store, asyncio.Event()
    files = store.files

    async def waiting_files(name: Any) -> Any:
        await gate.wait()
        return await files(name)

    monkeypatch.setattr(store, "files", waiting_files)
    optimizing = asyncio.create_task(r1.server.execute(OptimizeTable("default", "t", final=True)))
    await eventually(lambda: len(r1.table().state.running.merges) == 1)
    (row,) = await table_of(r1, "merges")
    assert (row["result_part_name"], row["source_part_names"]) == ("all_0_1_1", ["all_0_0_0", "all_1_1_0"])
    assert (row["num_parts"], row["progress"], row["partition"], row["is_mutation"]) == (2, 0.0, "tuple()", 0)
    sizes = [part.bytes_on_disk for part in store.active_parts()]
    assert row["total_size_bytes_compressed"] == sum(sizes)
    gate.set()
    await optimizing
    assert await table_of(r1, "merges") == []

    events = {each["event_type"]: each for each in await table_of(r1, "part_log")}
    assert list(events) == ["NewPart", "MergePartsStart", "MergeParts"]
    merged = events["MergeParts"]
    assert (merged["part_name"], merged["merged_from"], merged["error"]) == (
        "all_0_1_1",
        ["all_0_0_0", "all_1_1_0"],
        0,
    )
    assert (merged["rows"], merged["read_rows"], merged["merge_reason"]) == (2, 2, "RegularMerge")
    assert merged["path_on_disk"] == "data/default/t/all_0_1_1/"
    assert (merged["size_in_bytes"], merged["read_bytes"]) == (store.active_parts()[0].bytes_on_disk, sum(sizes))

    parts = await table_of(r1, "parts")
    assert [(each["name"], each["active"], each["visible"], each["bytes"]) for each in parts] == [
        ("all_0_0_0", 0, 0, sizes[0]),
        ("all_0_1_1", 1, 1, store.active_parts()[0].bytes_on_disk),
        ("all_1_1_0", 0, 0, sizes[1]),
    ]
    assert parts[1]["remove_time"].timestamp() == 0 < parts[0]["remove_time"].timestamp()
    assert parts[1]["path"] == "data/default/t/all_0_1_1/"


async def test_part_log_of_inserts_their_duplicates_and_fetches(cluster: Cluster) -> None:
    r1 = await started(cluster, "r1", "r2")
    outcome = await r1.insert(rows(1, 2))
    await r1.insert(rows(1, 2))
    stored, duplicate = await table_of(r1, "part_log")
    assert (stored["event_type"], stored["part_name"], stored["rows"]) == ("NewPart", "all_0_0_0", 2)
    assert (stored["error"], stored["exception"], stored["hostname"]) == (0, "", "r1")
    assert stored["deduplication_block_ids"] == duplicate["deduplication_block_ids"] == [outcome.parts[0].block_id]
    assert (duplicate["event_type"], duplicate["error"]) == ("NewPart", 389)
    assert duplicate["part_name"] in duplicate["exception"]
    await cluster.settled()
    r2 = cluster.replicas["r2"]
    await eventually(lambda: len(list(r2.table().state.server.part_log)) == 1)
    (fetched,) = await table_of(r2, "part_log")
    assert (fetched["event_type"], fetched["part_name"], fetched["rows"]) == ("DownloadPart", "all_0_0_0", 2)
    assert fetched["size_in_bytes"] == stored["size_in_bytes"]


async def test_part_log_of_failures(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    r1 = await started(cluster, "r1")
    state = r1.table().state
    running = state.running
    part = (await r1.insert(rows(1))).parts[0].part_name
    source = state.store.active_parts()
    with pytest.raises(ChecksumDoesntMatch), running.merge(source[0].name, source):
        raise ChecksumDoesntMatch("not the same")
    with pytest.raises(SessionLost), running.merge(source[0].name, source):
        raise SessionLost("gone")
    with pytest.raises(asyncio.CancelledError), running.merge(source[0].name, source):
        raise asyncio.CancelledError
    assert running.merges == []
    ends = [each for each in await table_of(r1, "part_log") if each["event_type"] == "MergeParts"]
    assert [(each["part_name"], each["error"], each["exception"]) for each in ends] == [
        (part, 40, "not the same"),
        (part, 999, "gone"),
    ]

    async def full(*_: Any) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr(state.store, "publish", full)
    await r1.insert(rows(2))
    failed = (await table_of(r1, "part_log"))[-1]
    assert (failed["event_type"], failed["part_name"], failed["error"]) == ("NewPart", "", 1001)
    assert "no space left" in failed["exception"]


async def test_part_log_of_removed_parts(cluster: Cluster) -> None:
    settings = {
        **QUIET,
        "old_parts_lifetime": "0",
        **QUICK_CLEANUP,
    }
    r1 = await started(cluster, "r1", settings=settings)
    for key in range(2):
        await r1.insert(rows(key))
    await r1.server.execute(OptimizeTable("default", "t", final=True))
    log = r1.table().state.server.part_log
    await eventually(lambda: sum(each.type is PartEventType.REMOVE_PART for each in log) == 2)
    removed = [each for each in await table_of(r1, "part_log") if each["event_type"] == "RemovePart"]
    assert [(each["part_name"], each["rows"]) for each in removed] == [("all_0_0_0", 1), ("all_1_1_0", 1)]


async def test_part_log_keeps_the_last_events(cluster: Cluster) -> None:
    r1 = await started(cluster, "r1")
    state = r1.table().state
    for number in range(MOST_EVENTS + 5):
        state.part_log.add(PartEventType.REMOVE_PART, f"all_{number}_{number}_0", "all")
    events = list(state.server.part_log)
    assert (len(events), events[0].part_name) == (MOST_EVENTS, "all_5_5_0")


@pytest.mark.parametrize(
    ("key", "partition_id", "value"),
    [
        ("", "all", "tuple()"),
        ("toYYYYMM(d)", "202401", "202401"),
        ("i", "-5", "-5"),
        ("d", "20240131", "2024-01-31"),
        ("(d, i)", "20240131-5", ""),
        ("s", "00112233445566778899aabbccddeeff", ""),
    ],
)
def test_the_value_of_a_partition_as_far_as_its_id_tells_it(key: str, partition_id: str, value: str) -> None:
    schema = TableSchema.parse("columns format version: 1\n3 columns:\n`d` Date\n`i` Int64\n`s` String\n")
    assert PartitionKey.compile(key, schema).value_of(partition_id) == value


# --- zookeeper -----------------------------------------------------------------------------------------------


async def test_zookeeper_lists_the_children_of_the_paths(cluster: Cluster) -> None:
    r1 = await started(cluster, "r1")
    block_id = (await r1.insert()).parts[0].block_id
    path = "/clickhouse/tables/{shard}/t/deduplication_hashes"
    (row,) = await table_of(r1, "zookeeper", path)
    assert (row["name"], row["value"], row["path"]) == (block_id, "all_0_0_0", path)
    assert (row["dataLength"], row["numChildren"], row["ephemeralOwner"], row["version"]) == (9, 0, 0, 0)
    assert row["ctime"].timestamp() > 0
    names = [each["name"] for each in await table_of(r1, "zookeeper", "clickhouse/", "/{no macro}", "/nowhere")]
    assert names == ["sessions", "tables"]
    active = await table_of(r1, "zookeeper", f"{ROOT}/replicas/{{replica}}")
    assert [each["name"] for each in active if each["ephemeralOwner"]] == ["is_active"]
    assert "clickhouse" in [each["name"] for each in await table_of(r1, "zookeeper", "/")]


async def test_zookeeper_needs_a_path_and_a_session(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    r1 = await started(cluster, "r1")
    with pytest.raises(BadArguments, match="path = "):
        await table_of(r1, "zookeeper")
    monkeypatch.setattr(type(r1.table().state.server.sessions), "current", None)
    with pytest.raises(KeeperException, match="no session"):
        await table_of(r1, "zookeeper", "/")


async def test_zookeeper_log_shows_the_commit_of_an_insert_with_its_operations(cluster: Cluster) -> None:
    r1 = await started(cluster, "r1")
    await r1.insert()
    log = await table_of(r1, "zookeeper_log")
    commits = [each for each in log if each["path"] == f"{ROOT}/log/log-" and each["op_num"] == "Create"]
    request, response = commits
    assert (request["type"], request["error"], request["path_created"]) == ("Request", None, "")
    assert (response["type"], response["error"], response["path_created"]) == (
        "Response",
        "ZOK",
        f"{ROOT}/log/log-0000000000",
    )
    assert (request["is_sequential"], request["is_ephemeral"], request["hostname"]) == (1, 0, "r1")
    assert request["data"].startswith("format version:")
    multi = [each for each in log if each["xid"] == request["xid"]]
    assert [each["request_idx"] for each in multi] == [*range(6), *range(6)]
    assert [each["requests_size"] for each in multi] == [5, *[0] * 5, 5, *[0] * 5]
    operations = ["Multi", "Create", "Remove", "Create", "Create", "Check"]
    assert [each["op_num"] for each in multi] == operations * 2


async def test_zookeeper_log_names_the_errors(cluster: Cluster) -> None:
    r1 = await started(cluster, "r1")
    await r1.insert()
    await r1.insert()
    log = await table_of(r1, "zookeeper_log")
    refused = next(each for each in log if each["op_num"] == "Multi" and each["error"] == "ZNODEEXISTS")
    answers = [each for each in log if each["xid"] == refused["xid"] and each["type"] == "Response"]
    by_operation = [(each["op_num"], each["error"]) for each in answers]
    assert ("CheckNotExists", "ZNODEEXISTS") in by_operation
    failed = by_operation.index(("CheckNotExists", "ZNODEEXISTS"))
    assert {error for _, error in by_operation[1:failed]} <= {"ZOK"}
    assert {error for _, error in by_operation[failed + 1 :]} == {"ZRUNTIMEINCONSISTENCY"}
    assert any(each["op_num"] == "List" and f"{ROOT}/log" == each["path"] and each["has_watch"] for each in log)
    gets = [each for each in log if each["op_num"] == "Get" and each["type"] == "Response" and each["error"] == "ZOK"]
    assert any(each["stat_czxid"] and each["stat_dataLength"] for each in gets)
    missing = [each for each in log if each["error"] == "ZNONODE"]
    assert {each["op_num"] for each in missing} & {"Get", "Exists"}


class _Clock:
    def now(self) -> float:
        return 1.5


def test_zookeeper_log_ends_a_request_that_died_with_its_session_and_forgets_a_cancelled_one() -> None:
    log = ZooKeeperLog(_Clock())
    with pytest.raises(SessionLost), log.call(7, Get("/a", False)):
        raise SessionLost("gone")
    with pytest.raises(asyncio.CancelledError), log.call(7, Get("/b", False)):
        raise asyncio.CancelledError
    assert [(each.type, each.xid, each.request.path) for each in log] == [
        ("Request", 1, "/a"),
        ("Finalize", 1, "/a"),
        ("Request", 2, "/b"),
    ]


def test_zookeeper_log_is_bounded_in_rows_and_in_children() -> None:
    log = ZooKeeperLog(_Clock())
    with log.call(7, Children("/", False)) as call:
        call.result = [str(number) for number in range(MOST_CHILDREN + 1)]
    assert len(list(log)[-1].outcome) == MOST_CHILDREN  # type: ignore[arg-type]
    multi = Multi((Get("/a", False),) * 99)  # type: ignore[arg-type]
    for _ in range(60):
        with log.call(7, multi) as call:
            call.result = [None] * 99
    assert sum(message.rows for message in log) == MOST_ROWS
    assert len(list(log)) == 100


# --- settings ------------------------------------------------------------------------------------------------


async def test_settings_tell_their_limits_and_a_table_what_it_has_altered(cluster: Cluster) -> None:
    r1 = await started(cluster, "r1")
    settings = {row["name"]: row for row in await table_of(r1, "merge_tree_settings")}
    assert list(settings) == list(SETTINGS)
    assert settings["index_granularity"]["readonly"] == 1
    shown = {name: settings["old_parts_lifetime"][name] for name in ("value", "default", "changed", "type", "min")}
    assert shown == {"value": "480", "default": "480", "changed": 0, "type": "Seconds", "min": None}
    await r1.server.execute(AlterSettings("default", "t", {"old_parts_lifetime": "7"}))
    (row,) = await table_of(r1, "tables")
    assert row["engine_full"].endswith(", old_parts_lifetime = 7, index_granularity = 8192")
    assert row["create_table_query"].startswith("CREATE TABLE default.t (`k` UInt64, `v` String) ENGINE = Repl")
    (shown,) = await r1.server.execute(ShowCreateTable("default", "t"))
    assert "old_parts_lifetime = 7" in shown["statement"]
    with pytest.raises(CannotGetCreateTableQuery, match=r"default\.u does not exist"):
        await r1.server.execute(ShowCreateTable("default", "u"))
    with pytest.raises(UnknownTable, match="no metadata"):
        await r1.server.execute(ShowCreateTable("system", "parts"))
