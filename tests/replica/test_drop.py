"""DROP TABLE and SYSTEM DROP REPLICA: what goes, in which order, and what a crash in the middle leaves."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path

import pytest

from coordinator.api import Create, Delete, Operation, Session
from replica.commands import DropReplica, DropTable, InsertStatus, ListTables, SyncReplica
from replica.errors import (
    Aborted,
    BadArguments,
    TableIsDropped,
    TableWasNotDropped,
    UnknownTable,
)
from replica.registration import add_later_znodes
from replica.session import SessionKeeper
from replica.unregistration import unregister_replica
from replica.znodes import TableZnodes
from tests.replica.cluster import ROOT, Cluster, Replica, definition, eventually, rows
from tests.replica.idle import fetch_of, idle_replica

DROP = DropTable("default", "t")
TABLE = TableZnodes(ROOT)


async def filled(cluster: Cluster, *names: str) -> None:
    for name in names:
        await cluster.start(name)
    await cluster.create_table()
    for key in range(3):
        await cluster.replicas[names[0]].insert(rows(2 * key))
    for replica in cluster.replicas.values():
        await eventually(lambda replica=replica: len(replica.table().state.store.active_parts()) == 3)
    await cluster.settled()


def left_on_disk(cluster: Cluster, name: str) -> list[Path]:
    root = cluster.folder / name
    return [path for folder in ("metadata/default", "data/default") for path in (root / folder).glob("*")]


async def own_tables(replica: Replica) -> list[str]:
    return [row["name"] for row in await replica.server.execute(ListTables()) if row["database"] == "default"]


async def test_the_table_goes_from_one_server_and_the_others_keep_it(cluster: Cluster) -> None:
    await filled(cluster, "r1", "r2")
    r1, r2 = cluster.replicas["r1"], cluster.replicas["r2"]
    await r1.server.execute(DROP)
    assert left_on_disk(cluster, "r1") == []
    session = await cluster.session()
    assert await session.children(TABLE.replicas) == ["r2"]
    assert await own_tables(r1) == []
    with pytest.raises(UnknownTable):
        await r1.count()
    assert await r2.count() == 3
    assert (await r2.insert(rows(10))).status is InsertStatus.STORED


async def test_the_last_replica_takes_the_table_with_it_and_create_makes_a_new_one(cluster: Cluster) -> None:
    await filled(cluster, "r1", "r2")
    for name in ("r1", "r2"):
        await cluster.replicas[name].server.execute(DROP)
    session = await cluster.session()
    assert await session.exists(ROOT) is None
    await cluster.create_table()
    await cluster.replicas["r1"].insert(rows(0))
    assert await cluster.replicas["r1"].count() == 1, "its earlier insert is forgotten, it is no duplicate"


async def test_a_dropped_replica_can_be_made_again_and_clones_what_it_had(cluster: Cluster) -> None:
    await filled(cluster, "r1", "r2")
    r1 = cluster.replicas["r1"]
    await r1.server.execute(DROP)
    await r1.server.execute(definition())
    await cluster.writable()
    await eventually(lambda: len(r1.table().state.queue) == 0)
    assert await r1.count() == 3


async def test_if_exists(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await r1.server.execute(DropTable("default", "t", if_exists=True))
    with pytest.raises(UnknownTable):
        await r1.server.execute(DROP)


async def test_an_insert_that_has_begun_ends_as_not_stored_or_complete(cluster: Cluster) -> None:
    await filled(cluster, "r1", "r2")
    r1, r2 = cluster.replicas["r1"], cluster.replicas["r2"]
    inserts = [asyncio.create_task(r1.insert(rows(100 + 2 * key))) for key in range(8)]
    await asyncio.sleep(0.01)
    await r1.server.execute(DROP)
    outcomes = [await insert for insert in inserts]
    assert {each.status for each in outcomes} <= {InsertStatus.STORED, InsertStatus.NOT_STORED}
    assert left_on_disk(cluster, "r1") == []
    session = await cluster.session()
    assert await session.children(TABLE.partition("0")) == []
    assert (await r2.insert(rows(50))).status is InsertStatus.STORED


async def test_an_insert_that_waits_for_the_coordination_service_is_told_of_the_drop(cluster: Cluster) -> None:
    await filled(cluster, "r1", "r2")
    r1 = cluster.replicas["r1"]
    table = r1.table()
    table.state.become_readonly("a test says so")
    insert = asyncio.create_task(r1.insert(rows(100)))
    await asyncio.sleep(0.05)
    await r1.server.execute(DROP)
    (part,) = (await insert).parts
    assert (part.status, part.error) == (InsertStatus.NOT_STORED, "Table default.t is dropped")
    with pytest.raises(TableIsDropped):
        await table.insert(None, 0, rows(1))  # type: ignore[arg-type]


async def test_who_waits_for_the_queue_is_told_that_the_table_went(cluster: Cluster) -> None:
    await filled(cluster, "r1", "r2")
    r1 = cluster.replicas["r1"]
    r1.table().state.queue.insert("queue-9999999999", fetch_of("9_0_0_0"))
    waiting = asyncio.create_task(r1.server.execute(SyncReplica("default", "t")))
    await asyncio.sleep(0.05)
    await r1.server.execute(DROP)
    with pytest.raises(Aborted, match="is dropped"):
        await waiting


# --- the order of the znodes ---------------------------------------------------------------------------------


def deleted_paths(multis: list[list[Operation]]) -> list[str]:
    return [each.path for multi in multis for each in multi if isinstance(each, Delete)]


async def test_the_znodes_go_in_clickhouses_order(cluster: Cluster) -> None:
    async with idle_replica(cluster, "r1") as r1:
        znodes = r1.state.znodes
        await add_later_znodes(r1.session, znodes, "u")
        await r1.session.create(f"{znodes.queue}/queue-", b"", sequential=True)
        await r1.session.create(f"{TABLE.log}/log-", b"", sequential=True)
        multis = r1.recorded_multis()
        await unregister_replica(r1.session, znodes)
    deleted = deleted_paths(multis)
    order = [
        znodes.host,
        f"{znodes.queue}/queue-0000000000",
        znodes.log_pointer,
        znodes.root,
        TABLE.replicas,
        f"{TABLE.log}/log-0000000000",
        TABLE.metadata,
        f"{ROOT}/quorum",
        TABLE.dropped_lock,
        TABLE.dropped,
        ROOT,
    ]
    assert [path for path in deleted if path in order] == order
    (ending,) = [multi for multi in multis if Delete(TABLE.replicas) in multi]
    assert ending[:3] == [
        Delete(TABLE.replicas),
        Create(TABLE.dropped),
        Create(TABLE.dropped_lock, ephemeral=True),
    ]
    assert [each.path for each in multis[-1][:3] if isinstance(each, Delete)] == order[-3:]
    session = await cluster.session()
    assert await session.exists(ROOT) is None


async def test_a_replica_that_joins_meanwhile_keeps_the_table(cluster: Cluster) -> None:
    async with idle_replica(cluster, "r1") as r1, contextlib.AsyncExitStack() as stack:
        real = r1.session.exists

        async def exists(path: str, watch: object = None) -> object:
            stat = await real(path)
            if path == TABLE.replicas:
                await stack.enter_async_context(idle_replica(cluster, "r2"))
            return stat

        r1.session.exists = exists  # type: ignore[method-assign, assignment]
        await unregister_replica(r1.session, r1.state.znodes)
        assert await r1.session.children(TABLE.replicas) == ["r2"]
        assert await real(TABLE.metadata) is not None


@pytest.mark.parametrize("survives", range(16))
async def test_whatever_is_left_of_a_table_the_next_create_removes_it(cluster: Cluster, survives: int) -> None:
    """The removal is cut off after so many of its multis."""
    async with idle_replica(cluster, "r1") as r1:
        real = r1.session.multi_checked
        done = 0

        async def multi_checked(operations: object) -> object:
            nonlocal done
            done += 1
            if done > survives:
                raise asyncio.CancelledError
            return await real(operations)  # type: ignore[arg-type]

        r1.session.multi_checked = multi_checked  # type: ignore[method-assign, assignment]
        with contextlib.suppress(asyncio.CancelledError):
            await unregister_replica(r1.session, r1.state.znodes)
    async with idle_replica(cluster, "r2") as r2:
        await unregister_replica(r2.session, TABLE.replica("r1"))
        assert await r2.session.children(TABLE.replicas) == ["r2"]
        for path in (TABLE.metadata, TABLE.log, f"{ROOT}/quorum/failed_parts"):
            assert await r2.session.exists(path) is not None
        assert await r2.session.exists(TABLE.dropped) is None


async def test_create_finds_a_dropped_table_and_removes_the_rest(cluster: Cluster) -> None:
    session = await cluster.session()
    await make_left_overs(session)
    async with idle_replica(cluster, "r1") as r1:
        assert await r1.session.exists(f"{ROOT}/log/log-0000000007") is None
        assert await r1.session.exists(TABLE.dropped) is None
        assert await r1.session.children(TABLE.replicas) == ["r1"]


async def test_create_waits_for_another_one_who_removes_the_table(cluster: Cluster) -> None:
    session = await cluster.session()
    await make_left_overs(session)
    await session.create(TABLE.dropped_lock, ephemeral=True)
    creating = asyncio.create_task(create_and_close(cluster))
    await asyncio.sleep(0.3)
    assert not creating.done()
    assert await session.exists(f"{ROOT}/log/log-0000000007") is not None
    await session.close()
    await creating


async def create_and_close(cluster: Cluster) -> None:
    async with idle_replica(cluster, "r1") as r1:
        assert await r1.session.children(TABLE.replicas) == ["r1"]


async def make_left_overs(session: Session) -> None:
    path = ""
    for step in [*ROOT.strip("/").split("/"), "log", "log-0000000007"]:
        path += f"/{step}"
        await session.create(path)
    await session.create(TABLE.dropped)
    await session.create(f"{ROOT}/temp")
    await session.create(f"{ROOT}/temp/abandonable_lock-insert")


# --- a crash in the middle -----------------------------------------------------------------------------------


@pytest.mark.parametrize("multis", [0, 1, 2, 5])
async def test_a_drop_that_a_crash_interrupted_is_finished_at_the_next_start(cluster: Cluster, multis: int) -> None:
    await filled(cluster, "r1", "r2")
    r1 = cluster.replicas["r1"]
    session = r1.server._share.sessions.current  # type: ignore[union-attr]
    assert session is not None
    real, reached, left = session.multi_checked, asyncio.Event(), multis

    async def multi_checked(operations: object) -> object:
        nonlocal left
        if left == 0:
            reached.set()
            await asyncio.Event().wait()
        left -= 1
        return await real(operations)  # type: ignore[arg-type]

    session.multi_checked = multi_checked  # type: ignore[method-assign, assignment]
    dropping = asyncio.create_task(r1.server.execute(DROP))
    await reached.wait()
    dropping.cancel()
    await cluster.kill("r1")
    assert [path.name for path in left_on_disk(cluster, "r1") if path.suffix] == ["t.dropped"]
    r1 = await cluster.start("r1")
    assert await own_tables(r1) == []
    await eventually(lambda: left_on_disk(cluster, "r1") == [])
    observer = await cluster.session()
    assert await observer.children(TABLE.replicas) == ["r2"]
    await r1.server.execute(definition())
    await cluster.writable()
    await eventually(lambda: len(r1.table().state.store.active_parts()) == 3)


async def test_until_then_create_says_what_is_missing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(cluster, "r1", "r2")
    r1 = cluster.replicas["r1"]
    await cluster.stop("r1")
    path = cluster.folder / "r1" / "metadata" / "default" / "t.json"
    path.rename(path.with_suffix(".dropped"))
    never = asyncio.Event()

    async def live(self: SessionKeeper) -> None:
        await never.wait()

    monkeypatch.setattr(SessionKeeper, "live", live)
    monkeypatch.setattr("replica.drop.PATIENCE_SECONDS", 0.1)
    r1 = await cluster.start("r1")
    with pytest.raises(TableIsDropped, match="not all of it is gone yet"):
        await r1.server.execute(definition())


async def test_znodes_that_another_server_made_under_the_name_stay(cluster: Cluster) -> None:
    """It was dropped for this one while it was down."""
    await filled(cluster, "r1", "r2")
    await cluster.stop("r1")
    path = cluster.folder / "r1" / "metadata" / "default" / "t.json"
    path.rename(path.with_suffix(".dropped"))
    session = await cluster.session()
    await session.set(f"{ROOT}/replicas/r1/creator_info", b"u|another-server")
    await cluster.start("r1")
    await eventually(lambda: left_on_disk(cluster, "r1") == [])
    assert await session.children(TABLE.replicas) == ["r1", "r2"]
    assert await session.exists(f"{ROOT}/replicas/r1/host") is not None


# --- SYSTEM DROP REPLICA -------------------------------------------------------------------------------------


async def test_a_replica_that_lost_its_disk_is_made_anew_under_its_name(cluster: Cluster) -> None:
    await filled(cluster, "r1", "r2")
    await cluster.stop("r2")
    shutil.rmtree(cluster.folder / "r2")
    r1 = cluster.replicas["r1"]
    await r1.server.execute(DropReplica("default", "t", "r2"))
    session = await cluster.session()
    assert await session.children(TABLE.replicas) == ["r1"]
    r2 = await cluster.start("r2")
    await r2.server.execute(definition())
    await cluster.writable()
    await eventually(lambda: len(r2.table().state.store.active_parts()) == 3)


async def test_an_active_replica_stays(cluster: Cluster) -> None:
    await filled(cluster, "r1", "r2")
    with pytest.raises(TableWasNotDropped, match="is active and stays"):
        await cluster.replicas["r1"].server.execute(DropReplica("default", "t", "r2"))
    session = await cluster.session()
    assert await session.exists(f"{ROOT}/replicas/r2/host") is not None


@pytest.mark.parametrize(("name", "complaint"), [("r1", "DROP TABLE"), ("r9", "has no replica 'r9', but r1, r2")])
async def test_the_own_replica_and_one_that_is_none_are_refused(cluster: Cluster, name: str, complaint: str) -> None:
    await filled(cluster, "r1", "r2")
    with pytest.raises(BadArguments, match=complaint):
        await cluster.replicas["r1"].server.execute(DropReplica("default", "t", name))
