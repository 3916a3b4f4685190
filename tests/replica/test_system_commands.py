"""SYSTEM STOP and START, SYNC REPLICA, RESTART REPLICA."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

import replica.operations.merge_parts as merging
from replica.commands import (
    Action,
    InsertStatus,
    OptimizeTable,
    RestartReplica,
    SwitchAction,
    SyncMode,
    SyncReplica,
)
from replica.errors import (
    Aborted,
    TableIsBeingRestarted,
    TableIsReadOnly,
    TimeoutExceeded,
    UnknownTable,
)
from replica.log_entry import EntryType, LogEntry
from replica.part_name import PartName
from replica.queue import ReplicationQueue
from replica.sync import everything, those_of_now
from tests.replica.cluster import PATIENT, ROOT, Cluster, Replica, definition, eventually, rows
from tests.replica.idle import fetch_of

QUIET = {
    "merge_selecting_sleep_ms": "3600000",
    "max_merge_selecting_sleep_ms": "3600000",
    "merge_selector_base": "1000",
}


async def made(cluster: Cluster, *names: str, parts: int = 2, **settings: str) -> Replica:
    for name in names:
        await cluster.start(name)
    await cluster.create_table(partition_by="", settings={**QUIET, **settings})
    first = cluster.replicas[names[0]]
    for key in range(parts):
        await first.insert(rows(key))
    for each in cluster.replicas.values():
        await eventually(lambda each=each: len(each.table().state.store.active_parts()) == parts)
    await cluster.settled()
    return first


async def stop(replica: Replica, action: Action, table: str = "t") -> None:
    await replica.server.execute(SwitchAction(action, True, "default", table))


async def start(replica: Replica, action: Action, table: str = "t") -> None:
    await replica.server.execute(SwitchAction(action, False, "default", table))


async def sync(replica: Replica, mode: SyncMode = SyncMode.DEFAULT) -> None:
    await replica.server.execute(SyncReplica("default", "t", mode))


async def queue_rows(replica: Replica) -> list[dict[str, Any]]:
    return (await replica.server.scan("system", "replication_queue")).to_pylist()


# --- STOP and START ------------------------------------------------------------------------------------------


async def test_stopped_fetches_wait_with_their_reason_and_start_wakes_them(cluster: Cluster) -> None:
    r1 = await made(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    await stop(r2, Action.FETCHES)
    await r1.insert(rows(10))
    await sync(r2, SyncMode.PULL)
    await eventually(lambda: any(each.postpone_reason for each in r2.table().state.queue))
    (entry,) = await queue_rows(r2)
    assert entry["postpone_reason"] == (
        "Not executing fetch of part all_2_2_0 because replicated fetches are cancelled now."
    )
    await start(r2, Action.FETCHES)
    await eventually(lambda: len(r2.table().state.store.active_parts()) == 3)


async def test_a_fetch_that_was_under_way_is_given_up(cluster: Cluster) -> None:
    r1 = await made(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    asked, answer = asyncio.Event(), asyncio.Event()
    real = r1.server.send_part

    async def send_part(request: Any) -> Any:
        asked.set()
        await answer.wait()
        return await real(request)

    r1.server.send_part = send_part  # type: ignore[method-assign]
    await r1.insert(rows(10))
    await asked.wait()
    await stop(r2, Action.FETCHES)
    answer.set()
    await eventually(lambda: any(each.last_exception for each in r2.table().state.queue))
    (entry,) = await queue_rows(r2)
    assert "Replicated fetches are cancelled" in entry["last_exception"]
    assert len(r2.table().state.store.active_parts()) == 2


async def test_stopped_merges_wait_with_their_reason_and_start_wakes_them(cluster: Cluster) -> None:
    r1 = await made(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    await stop(r2, Action.MERGES)
    await r1.server.execute(OptimizeTable("default", "t", final=True))
    await sync(r2, SyncMode.PULL)
    await eventually(lambda: any(each.postpone_reason for each in r2.table().state.queue))
    (entry,) = await queue_rows(r2)
    assert "of type MERGE_PARTS for part all_0_1_1 because merges and mutations are" in entry["postpone_reason"]
    assert await r1.active_parts() == ["all_0_1_1"], "STOP is for the server that was asked"
    await start(r2, Action.MERGES)
    await eventually(lambda: len(r2.table().state.store.active_parts()) == 1)


async def test_a_merge_that_was_under_way_is_given_up_without_a_trace_and_done_later(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    r1 = await made(cluster, "r1")
    state, real = r1.table().state, merging.merged_image
    loop = asyncio.get_running_loop()

    def stopping(*arguments: Any) -> Any:
        loop.call_soon_threadsafe(state.blockers.stop, Action.MERGES)
        return real(*arguments)

    monkeypatch.setattr(merging, "merged_image", stopping)
    optimizing = asyncio.create_task(r1.server.execute(OptimizeTable("default", "t", final=True)))
    await eventually(lambda: any(each.postpone_reason for each in state.queue))
    (entry,) = await queue_rows(r1)
    assert (entry["num_tries"], entry["last_exception"]) == (1, "")
    assert await r1.active_parts() == ["all_0_0_0", "all_1_1_0"]
    monkeypatch.undo()
    await start(r1, Action.MERGES)
    assert await optimizing == [{"partition_id": "all", "new_part": "all_0_1_1", "reason": ""}]


async def test_nobody_assigns_merges_while_they_are_stopped(cluster: Cluster) -> None:
    settings = {"merge_selecting_sleep_ms": "5", "max_merge_selecting_sleep_ms": "10", "merge_selector_base": "2"}
    await cluster.start("r1")
    await cluster.create_table(partition_by="", settings=settings)
    r1 = cluster.replicas["r1"]
    await stop(r1, Action.MERGES)
    for key in range(12):
        await r1.insert(rows(key))
    with pytest.raises(Aborted, match="SYSTEM START MERGES"):
        await r1.server.execute(OptimizeTable("default", "t", final=True))
    await asyncio.sleep(0.2)
    session = await cluster.session()
    entries = await session.children(f"{ROOT}/log")
    assert len(entries) == 12
    await start(r1, Action.MERGES)
    await eventually(lambda: len(r1.table().state.store.active_parts()) < 12)


async def test_a_stopped_queue_is_not_looked_at(cluster: Cluster) -> None:
    r1 = await made(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    await stop(r2, Action.REPLICATION_QUEUES)
    await r1.insert(rows(10))
    await sync(r2, SyncMode.PULL)
    await asyncio.sleep(0.1)
    (entry,) = await queue_rows(r2)
    assert (entry["num_tries"], entry["num_postponed"]) == (0, 0)
    await start(r2, Action.REPLICATION_QUEUES)
    await eventually(lambda: len(r2.table().state.store.active_parts()) == 3)


async def test_a_stopped_log_is_not_pulled_and_who_pulls_is_told(cluster: Cluster) -> None:
    r1 = await made(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    session = await cluster.session()
    await stop(r2, Action.PULLING_REPLICATION_LOG)
    pointer, _ = await session.get(f"{ROOT}/replicas/r2/log_pointer")
    await r1.insert(rows(10))
    await asyncio.sleep(0.2)
    assert (await session.get(f"{ROOT}/replicas/r2/log_pointer"))[0] == pointer
    for command in (SyncReplica("default", "t"), OptimizeTable("default", "t")):
        with pytest.raises(Aborted, match="Log pulling is cancelled"):
            await r2.server.execute(command)
    await start(r2, Action.PULLING_REPLICATION_LOG)
    await eventually(lambda: len(r2.table().state.store.active_parts()) == 3)


async def test_without_a_table_all_of_the_server_are_meant(cluster: Cluster) -> None:
    r1 = await made(cluster, "r1")
    await r1.server.execute(definition(table="u", zookeeper_path="/clickhouse/tables/01/u"))
    await r1.server.execute(SwitchAction(Action.MERGES, stop=True))
    assert all(r1.table(name).state.blockers.is_stopped(Action.MERGES) for name in ("t", "u"))
    await start(r1, Action.MERGES, "u")
    assert r1.table("t").state.blockers.is_stopped(Action.MERGES)
    assert not r1.table("u").state.blockers.is_stopped(Action.MERGES)
    with pytest.raises(UnknownTable):
        await stop(r1, Action.MERGES, "nope")


# --- SYNC REPLICA --------------------------------------------------------------------------------------------


def queue_of(*entries: LogEntry) -> ReplicationQueue:
    queue = ReplicationQueue()
    for number, entry in enumerate(entries):
        queue.insert(f"queue-{number}", entry)
    return queue


def merge_of(part: str, *sources: str) -> LogEntry:
    names = tuple(PartName.parse(source) for source in sources)
    return LogEntry(EntryType.MERGE_PARTS, 1000, new_part=PartName.parse(part), source_parts=names)


def test_what_each_mode_waits_for() -> None:
    queue = queue_of(fetch_of("all_0_0_0"), merge_of("all_1_2_1", "all_1_1_0", "all_2_2_0"))
    default, light = those_of_now(queue, SyncMode.DEFAULT), those_of_now(queue, SyncMode.LIGHTWEIGHT)
    strict = everything(queue)
    queue.insert("queue-2", fetch_of("all_3_3_0"))
    assert (default(), light(), strict()) == (["queue-0", "queue-1"], ["queue-0"], ["queue-0", "queue-1", "queue-2"])
    queue.remove(queue["queue-0"])
    assert (default(), light(), strict()) == (["queue-1"], [], ["queue-1", "queue-2"])


async def test_sync_pulls_first_so_that_an_acknowledged_insert_is_here_afterwards(cluster: Cluster) -> None:
    r1 = await made(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    for key, mode in enumerate((SyncMode.DEFAULT, SyncMode.STRICT, SyncMode.LIGHTWEIGHT), start=100):
        await r1.insert(rows(key))
        await sync(r2, mode)
        assert await r2.count() == await r1.count()


async def test_lightweight_does_not_wait_for_a_merge_and_the_others_give_up_in_time(cluster: Cluster) -> None:
    cluster.settings = replace(PATIENT, receive_timeout=0.3)
    r1 = await made(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    await stop(r2, Action.MERGES)
    await r1.server.execute(OptimizeTable("default", "t", final=True))
    await sync(r2, SyncMode.LIGHTWEIGHT)
    for mode in (SyncMode.DEFAULT, SyncMode.STRICT):
        with pytest.raises(TimeoutExceeded, match=r"queue-\d+ not done after 0.3 s"):
            await sync(r2, mode)
    await start(r2, Action.MERGES)
    await sync(r2, SyncMode.STRICT)
    assert await r2.active_parts() == ["all_0_1_1"]


async def test_strict_waits_for_what_comes_later_too(cluster: Cluster) -> None:
    cluster.settings = replace(PATIENT, receive_timeout=1.0)
    r1 = await made(cluster, "r1", "r2")
    queue = r1.table().state.queue
    queue.insert("queue-9999999998", fetch_of("9_0_0_0"))
    for mode, later in ((SyncMode.STRICT, "9_1_1_0"), (SyncMode.DEFAULT, "9_2_2_0")):
        syncing = asyncio.create_task(sync(r1, mode))
        await asyncio.sleep(0.2)
        queue.insert(f"queue-{later}", fetch_of(later))
        with pytest.raises(TimeoutExceeded) as told:
            await syncing
        assert (f"queue-{later}" in told.value.message) == (mode is SyncMode.STRICT)


async def test_sync_returns_although_entries_never_stop_coming(cluster: Cluster) -> None:
    cluster.settings = replace(PATIENT, receive_timeout=5.0)
    r1 = await made(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    going = True

    async def insert_on() -> None:
        key = 100
        while going:
            await r1.insert(rows(key))
            key += 1

    inserting = asyncio.create_task(insert_on())
    await asyncio.sleep(0.1)
    await sync(r2)
    going = False
    await inserting


async def test_a_read_only_replica_cannot_sync(cluster: Cluster) -> None:
    r1 = await made(cluster, "r1")
    r1.table().state.become_readonly("a test says so")
    with pytest.raises(TableIsReadOnly, match="a test says so"):
        await sync(r1)


# --- RESTART REPLICA -----------------------------------------------------------------------------------------


async def test_a_restarted_replica_has_its_queue_from_the_znodes(cluster: Cluster) -> None:
    r1 = await made(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    await stop(r2, Action.FETCHES)
    await r1.insert(rows(10))
    await sync(r2, SyncMode.PULL)
    before = r2.table()
    await r2.server.execute(RestartReplica("default", "t"))
    assert r2.table() is not before
    await cluster.writable()
    await eventually(lambda: len(r2.table().state.store.active_parts()) == 3)
    assert await r2.count() == 3
    assert (await r2.insert(rows(11))).status is InsertStatus.STORED
    with pytest.raises(TableIsBeingRestarted):
        before.state.writable_session()


async def test_nothing_of_the_earlier_life_goes_on(cluster: Cluster) -> None:
    r1 = await made(cluster, "r1", "r2")
    lasting = ["Executor.run", "LogPuller.run", "MergeAssigner.run", "ReplicatedTable.run"]
    wake_ups = len(r1.server._share.pools.fetches._wake_ups)  # type: ignore[union-attr]
    for _ in range(3):
        await r1.server.execute(RestartReplica("default", "t"))
        await cluster.writable()

    def running() -> list[str]:
        names = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]  # type: ignore[union-attr]
        return sorted(name for name in names if name in lasting)

    await eventually(lambda: running() == sorted(2 * lasting))
    assert len(r1.server._share.pools.fetches._wake_ups) == wake_ups  # type: ignore[union-attr]


async def test_inserts_during_restarts_are_stored_once_or_not(cluster: Cluster) -> None:
    r1 = await made(cluster, "r1", "r2", parts=0)
    stored = 0

    async def insert(key: int) -> None:
        nonlocal stored
        while True:
            try:
                status = (await r1.insert(rows(key))).status
            except TableIsBeingRestarted:
                status = InsertStatus.NOT_STORED
            if status in (InsertStatus.STORED, InsertStatus.DUPLICATE):
                stored += 1
                return
            await asyncio.sleep(0.01)

    inserts = [asyncio.create_task(insert(key)) for key in range(20)]
    for _ in range(4):
        await r1.server.execute(RestartReplica("default", "t"))
        await asyncio.sleep(0.02)
    await asyncio.gather(*inserts)
    await cluster.writable()
    assert stored == 20
    assert sorted((await r1.server.scan("default", "t"))["k"].to_pylist()) == list(range(20))
    r1.table().state.queue.check_invariant()
    await sync(cluster.replicas["r2"])
    assert await cluster.replicas["r2"].count() == 20


async def test_a_waiting_sync_is_told_of_the_restart(cluster: Cluster) -> None:
    r1 = await made(cluster, "r1")
    await r1.server.execute(SwitchAction(Action.FETCHES, True, "default", "t"))
    r1.table().state.queue.insert("queue-9999999999", fetch_of("9_0_0_0"))
    waiting = asyncio.create_task(sync(r1))
    await asyncio.sleep(0.05)
    await r1.server.execute(RestartReplica("default", "t"))
    with pytest.raises(Aborted, match="is restarting"):
        await waiting


async def test_a_table_that_was_shut_down_is_not_active_and_takes_nothing_any_more(cluster: Cluster) -> None:
    r1 = await made(cluster, "r1")
    await r1.table().shut_down(TableIsBeingRestarted("for a test"))
    session = await cluster.session()
    assert await session.exists(f"{ROOT}/replicas/r1/is_active") is None
    with pytest.raises(TableIsBeingRestarted):
        await r1.insert(rows(10))


async def test_a_stopped_log_keeps_a_new_session_from_beginning_until_start(cluster: Cluster) -> None:
    """The first pull of a session is refused too, as in ClickHouse; the replica stays read-only meanwhile."""
    r1 = await made(cluster, "r1")
    await stop(r1, Action.PULLING_REPLICATION_LOG)
    share = r1.server._share
    assert share is not None
    assert share.sessions.current is not None
    cluster.service.expire(share.sessions.current.session_id)
    await eventually(lambda: "Log pulling is cancelled" in r1.table().state.readonly_reason)
    await start(r1, Action.PULLING_REPLICATION_LOG)
    await cluster.writable()
