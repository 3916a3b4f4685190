"""Becoming active under a session, and what a server does about its parts when it starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coordinator.api import Create
from replica.background import restart
from replica.background.attach import check_up_parts, fetch_missing_parts
from replica.background.restart import keep_active
from replica.errors import ReplicaIsAlreadyActive
from replica.log_entry import LogEntry
from replica.part_name import PartName
from tests.replica.cluster import ROOT, Cluster, eventually, rows
from tests.replica.idle import HOST, IdleReplica, fetch_of, idle_replica, piece_of, system_rows

MINE = f"{ROOT}/replicas/r1"


@pytest.fixture
async def r1(cluster: Cluster) -> AsyncIterator[IdleReplica]:
    async with idle_replica(cluster, "r1") as replica:
        yield replica


async def activate(r1: IdleReplica, identifier: str = "me") -> None:
    await restart._activate(r1.state, r1.session, HOST, identifier)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def publish(r1: IdleReplica, *names: str, active: bool = True, registered: bool = False) -> None:
    for name in names:
        temporary = await r1.state.store.write_temporary("tmp_insert_", piece_of(r1.state, 2).image)
        part = await r1.state.store.publish(temporary, PartName.parse(name), 0)
        if active:
            r1.state.store.activate(part, 0)
        if registered:
            await r1.session.create(f"{MINE}/parts/{name}")


# --- is_active -----------------------------------------------------------------------------------------------


async def test_an_active_replica_says_who_and_where_it_is_for_as_long_as_its_session(r1: IdleReplica) -> None:
    await activate(r1)
    value, stat = await r1.session.get(f"{MINE}/is_active")
    assert (value, stat.ephemeral_owner) == (b"me", r1.session.session_id)
    assert (await r1.session.get(f"{MINE}/host"))[0] == HOST.to_text().encode()


async def test_what_this_process_has_left_over_is_replaced(r1: IdleReplica, cluster: Cluster) -> None:
    other = await cluster.session()
    await other.create(f"{MINE}/is_active", b"me", ephemeral=True)
    await activate(r1)
    assert (await r1.session.get(f"{MINE}/is_active"))[1].ephemeral_owner == r1.session.session_id


async def test_what_another_process_has_is_respected(r1: IdleReplica, cluster: Cluster) -> None:
    other = await cluster.session()
    await other.create(f"{MINE}/is_active", b"another", ephemeral=True)
    with pytest.raises(ReplicaIsAlreadyActive):
        await activate(r1)
    assert (await r1.session.get(f"{MINE}/is_active"))[0] == b"another"
    assert (await r1.session.get(f"{MINE}/host"))[0] == b"", "the address is still the other's"


async def test_it_is_active_before_it_reads_queue_or_log(r1: IdleReplica) -> None:
    """Cleaners respect the log pointer of active replicas only."""
    order: list[str] = []
    for method in ("children", "multi"):
        real = getattr(r1.session, method)

        async def noted(what, *rest, real=real):  # type: ignore[no-untyped-def]
            paths = [what] if isinstance(what, str) else [each.path for each in what]
            order.extend(path.removeprefix(ROOT) for path in paths)
            return await real(what, *rest)

        setattr(r1.session, method, noted)
    await activate(r1)
    first_looks = [order.index(path) for path in ("/replicas/r1/is_active", "/replicas/r1/queue", "/log")]
    assert first_looks == sorted(first_looks)


# --- the queue -----------------------------------------------------------------------------------------------


async def test_the_queue_comes_from_the_znodes_and_not_from_the_disk(r1: IdleReplica) -> None:
    await publish(r1, "0_7_7_0")
    await publish(r1, "0_0_0_0", registered=True)
    for part in ("0_2_2_0", "0_1_1_0"):
        await r1.session.create(f"{MINE}/queue/queue-", fetch_of(part).to_text().encode(), sequential=True)
    await r1.session.create(f"{ROOT}/log/log-", fetch_of("0_3_3_0").to_text().encode(), sequential=True)
    await activate(r1)
    queue = r1.state.queue
    assert [each.new_part_name for each in queue] == ["0_2_2_0", "0_1_1_0", "0_3_3_0"]
    assert list(map(str, queue.current_parts)) == ["0_0_0_0"]
    queue.check_invariant()


async def test_a_queue_is_built_anew_under_every_session(r1: IdleReplica) -> None:
    r1.state.queue.insert("queue-0000000099", fetch_of("0_9_9_0"))
    await activate(r1)
    assert len(r1.state.queue) == 0


async def test_the_clone_comes_before_the_queue_is_loaded(cluster: Cluster, r1: IdleReplica) -> None:
    await r1.session.create(f"{MINE}/parts/0_0_0_0")
    async with idle_replica(cluster, "r2") as r2:
        await restart._activate(r2.state, r2.session, HOST, "me")
        assert [each.new_part_name for each in r2.state.queue] == ["0_0_0_0"]


async def test_an_entry_of_an_old_format_is_as_old_as_its_znode(r1: IdleReplica) -> None:
    text = b"format version: 1\nsource replica: r9\nget\n0_0_0_0\n"
    path = await r1.session.create(f"{MINE}/queue/queue-", text, sequential=True)
    stat = await r1.session.exists(path)
    await activate(r1)
    assert stat is not None
    (queued,) = r1.state.queue
    assert queued.entry.create_time == stat.ctime // 1000


@pytest.mark.parametrize(("before", "after"), [(b"", b""), (b"5", b"0"), (b"5", b"1000"), (b"1000", b"1000")])
async def test_the_oldest_insert_is_told_anew_if_it_was_told(r1: IdleReplica, before: bytes, after: bytes) -> None:
    path = f"{MINE}/min_unprocessed_insert_time"
    await r1.session.set(path, before)
    if after == b"1000":
        await r1.session.create(f"{MINE}/queue/queue-", fetch_of("0_0_0_0").to_text().encode(), sequential=True)
    await activate(r1)
    value, stat = await r1.session.get(path)
    assert value == after
    assert stat.version == (1 if before == after else 2)


# --- sessions come and go ------------------------------------------------------------------------------------


async def test_between_two_sessions_the_table_is_read_only_and_says_why(cluster: Cluster) -> None:
    async with idle_replica(cluster, "r1", operation_timeout_seconds=0.4) as r1:
        running = asyncio.create_task(keep_active(r1.state, HOST, "me"))
        await eventually(lambda: not r1.state.is_readonly)
        assert r1.state.readonly_reason == ""
        cluster.delivery.loses = lambda label: True
        cluster.service.expire(r1.session.session_id)
        r1.coordinator.sever()
        await eventually(lambda: r1.state.readonly_reason == "its session was lost")
        (row,) = await system_rows(r1, "replicas")
        assert (row["is_readonly"], row["is_session_expired"]) == (1, 1)
        assert row["zookeeper_exception"] == "its session was lost"
        cluster.delivery.loses = lambda label: False
        await eventually(lambda: not r1.state.is_readonly)
        (row,) = await system_rows(r1, "replicas")
        assert (row["is_readonly"], row["is_session_expired"], row["zookeeper_exception"]) == (0, 0, "")
        assert (row["total_replicas"], row["active_replicas"]) == (1, 1)
        running.cancel()


async def test_a_replica_that_cannot_become_active_says_why(cluster: Cluster, r1: IdleReplica) -> None:
    other = await cluster.session()
    await other.create(f"{MINE}/is_active", b"another", ephemeral=True)
    running = asyncio.create_task(keep_active(r1.state, HOST, "me"))
    await eventually(lambda: "already active" in r1.state.readonly_reason)
    running.cancel()


async def test_a_session_that_dies_under_the_question_is_told_in_its_answer(r1: IdleReplica) -> None:
    r1.before("children", r1.session.close)
    (row,) = await system_rows(r1, "replicas")
    assert (row["is_session_expired"], row["total_replicas"]) == (1, 0)
    assert "session" in row["zookeeper_exception"]


# --- parts at start ------------------------------------------------------------------------------------------


async def test_a_registered_part_that_is_missing_is_fetched_again(r1: IdleReplica) -> None:
    await publish(r1, "0_0_1_1", registered=True)
    for missing in ("0_5_5_0", "0_1_1_0"):  # the second is covered by a part that is here: its znode is stale
        await r1.session.create(f"{MINE}/parts/{missing}")
    stat = await r1.session.exists(f"{MINE}/parts/0_5_5_0")
    await fetch_missing_parts(r1.state, r1.session)
    (name,) = await r1.session.children(f"{MINE}/queue")
    entry = LogEntry.parse((await r1.session.get(f"{MINE}/queue/{name}"))[0].decode())
    assert stat is not None
    assert entry == LogEntry(entry.type, stat.ctime // 1000, new_part=PartName.parse("0_5_5_0"))
    assert await r1.session.children(f"{MINE}/parts") == ["0_0_1_1"]


async def test_a_part_whose_commit_is_not_decided_yet_is_not_missing(r1: IdleReplica) -> None:
    await publish(r1, "0_0_0_0", active=False, registered=True)
    await fetch_missing_parts(r1.state, r1.session)
    assert await r1.session.children(f"{MINE}/queue") == []


async def test_only_parts_that_nothing_registered_covers_are_detached(r1: IdleReplica, cluster: Cluster) -> None:
    await publish(r1, "0_0_0_0", "0_1_1_0", "0_5_5_0", "0_6_6_0")
    await publish(r1, "0_0_1_1", registered=True)
    await publish(r1, "0_5_6_1")
    await check_up_parts(r1.state, r1.session, forced=True)
    folder = cluster.folder / "r1" / "data" / "default" / "t"
    assert names_in(folder / "detached") == ["ignored_0_5_5_0", "ignored_0_5_6_1", "ignored_0_6_6_0"]
    assert all((path / "data.arrow").exists() for path in (folder / "detached").iterdir())
    assert [str(part.name) for part in r1.state.store.active_parts()] == ["0_0_1_1"]


async def test_a_server_that_starts_takes_care_of_its_parts(cluster: Cluster) -> None:
    for name in ("r1", "r2"):
        await cluster.start(name)
    await cluster.create_table()
    await cluster.replicas["r2"].insert(rows(2))
    await eventually(lambda: len(cluster.replicas["r1"].table().state.store.active_parts()) == 1)
    await cluster.settled()
    await cluster.stop("r1")
    folder: Path = cluster.folder / "r1" / "data" / "default" / "t"
    (folder / "0_0_0_0").rename(folder / "tmp-fetch_7")
    (folder / "tmp_insert_7").mkdir()
    session = await cluster.session()
    await session.multi([Create(f"{ROOT}/gone"), Create(f"{ROOT}/gone/x")])
    await session.delete(f"{ROOT}/lost_part_count")
    r1 = await cluster.start("r1")
    assert names_in(folder) == [], "nothing temporary survives a start"
    await cluster.writable()
    await eventually(lambda: len(r1.table().state.store.active_parts()) == 1)
    assert await r1.count() == 1
    assert await session.exists(f"{ROOT}/lost_part_count") is not None
