"""SYSTEM RESTORE REPLICA: the znodes are gone, the parts are not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coordinator.api import Session
from replica.commands import OptimizeTable, RestartReplica, RestoreReplica
from replica.errors import BadArguments, KeeperException, TableIsReadOnly
from replica.restoration import put_parts_aside
from tests.replica.cluster import ROOT, Cluster, Replica, eventually, rows

RESTORE = RestoreReplica("default", "t")
CALM = {
    "merge_selecting_sleep_ms": "3600000",
    "max_merge_selecting_sleep_ms": "3600000",
    "merge_selector_base": "1000",
}


async def wipe(session: Session, path: str) -> None:
    for name in await session.children(path):
        await wipe(session, f"{path}/{name}")
    await session.delete(path)


async def two_with_parts(cluster: Cluster, *blocks: tuple[int, ...]) -> tuple[Replica, Replica, Session]:
    r1, r2 = await cluster.start("r1"), await cluster.start("r2")
    await cluster.create_table(settings=CALM)
    for block in blocks:
        await r1.insert(rows(*block))
    await eventually(lambda: len(r2.table().state.store.active_parts()) == len(r1.table().state.store.active_parts()))
    await cluster.settled()
    return r1, r2, await cluster.session()


async def told_gone(replica: Replica) -> str:
    """Wait until the replica knows; why it says that it is read-only."""
    await eventually(lambda: "are gone" in replica.table().state.readonly_reason)
    (row,) = (await replica.server.scan("system", "replicas")).to_pylist()
    assert (row["is_readonly"], row["is_session_expired"]) == (1, 0)
    return str(row["zookeeper_exception"])


def detached(cluster: Cluster, name: str) -> list[str]:
    folder = cluster.folder / name / "data/default/t/detached"
    return sorted(each.name for each in folder.iterdir()) if folder.exists() else []


# --- why it is read-only -------------------------------------------------------------------------------------


async def test_an_empty_tree_is_told_from_a_lost_session(cluster: Cluster) -> None:
    r1, r2, session = await two_with_parts(cluster, (2, 4))
    await wipe(session, ROOT)
    for replica in (r1, r2):
        reason = await told_gone(replica)
        assert reason == (
            f"the znodes of the table are gone from {ROOT}: SYSTEM RESTORE REPLICA default.t makes them again"
        )
    assert await r1.count() == 2  # what is here can still be read
    cluster.delivery.loses = lambda label: True
    await eventually(lambda: r1.server.table("default", "t").state.server.sessions.current is None)
    (row,) = (await r1.server.scan("system", "replicas")).to_pylist()
    assert row["is_session_expired"] == 1


async def test_a_start_with_an_empty_tree_says_so(cluster: Cluster) -> None:
    _, _, session = await two_with_parts(cluster, (2, 4))
    await cluster.stop("r1")
    await wipe(session, ROOT)
    r1 = await cluster.start("r1")
    assert "SYSTEM RESTORE REPLICA default.t" in await told_gone(r1)
    assert await r1.count() == 2


async def test_one_replica_may_be_gone_alone(cluster: Cluster) -> None:
    r1, r2, session = await two_with_parts(cluster, (2, 4))
    await wipe(session, f"{ROOT}/replicas/r2")
    await r1.insert(rows(6))  # r2 looks at its znodes when the log changes, or when it restarts
    assert "the znodes of replica r2 are gone" in await told_gone(r2)


# --- restoring -----------------------------------------------------------------------------------------------


async def test_the_first_attaches_its_parts_and_the_others_join(cluster: Cluster) -> None:
    r1, r2, session = await two_with_parts(cluster, (2, 4), (6,), (1, 3))
    await wipe(session, ROOT)
    await told_gone(r1)
    with pytest.raises(TableIsReadOnly):
        r1.table().state.writable_session()
    await r1.server.execute(RESTORE)
    assert await r1.active_parts() == ["0_0_0_0", "0_1_1_0", "1_0_0_0"]
    assert (await r1.count(), detached(cluster, "r1")) == (5, [])
    await told_gone(r2)
    await r2.server.execute(RESTORE)
    await cluster.settled()
    assert await r2.active_parts() == await r1.active_parts()
    assert (await r2.count(), detached(cluster, "r2")) == (5, ["0_0_0_0", "0_1_1_0", "1_0_0_0"])
    await r2.insert(rows(8))
    await eventually(lambda: len(r1.table().state.store.active_parts()) == 4)


async def test_merged_parts_come_back_once(cluster: Cluster) -> None:
    r1, _, session = await two_with_parts(cluster, (2,), (4,))
    await r1.server.execute(OptimizeTable("default", "t", final=True))
    await r1.insert(rows(6))
    assert len(r1.table().state.store.parts()) == 4  # two of them outdated
    await wipe(session, ROOT)
    await told_gone(r1)
    await r1.server.execute(RESTORE)
    assert sorted((await r1.server.scan("default", "t"))["k"].to_pylist()) == [2, 4, 6]
    assert [name.partition("_")[0] for name in detached(cluster, "r1")] == ["ignored", "ignored"]


async def test_a_replica_that_joins_takes_what_the_others_have(cluster: Cluster) -> None:
    r1, r2, session = await two_with_parts(cluster, (2, 4))
    await wipe(session, f"{ROOT}/replicas/r2")
    await r2.server.execute(RestartReplica("default", "t"))
    await told_gone(r2)
    await r1.insert(rows(6))
    await r2.server.execute(RESTORE)
    await cluster.settled()
    await eventually(lambda: len(r2.table().state.store.active_parts()) == 2)
    assert (await r2.count(), await r1.count()) == (3, 3)


async def test_everything_may_be_gone_the_sessions_too(cluster: Cluster) -> None:
    r1, _, session = await two_with_parts(cluster, (2, 4))
    for name in await session.children("/clickhouse"):
        await wipe(session, f"/clickhouse/{name}")
    await told_gone(r1)
    await r1.server.execute(RESTORE)
    assert await r1.count() == 2
    await r1.insert(rows(6))
    assert await r1.count() == 3


async def test_known_blocks_are_not_known_any_more(cluster: Cluster) -> None:
    """As in ClickHouse: the deduplication ids were in the tree."""
    r1, _, session = await two_with_parts(cluster, (2, 4))
    await wipe(session, ROOT)
    await told_gone(r1)
    await r1.server.execute(RESTORE)
    await r1.insert(rows(2, 4))
    assert await r1.count() == 4


# --- interruptions -------------------------------------------------------------------------------------------


async def test_an_interrupted_one_can_be_asked_for_again(cluster: Cluster) -> None:
    r1, _, session = await two_with_parts(cluster, (2, 4), (1,))
    await wipe(session, ROOT)
    await told_gone(r1)
    await put_parts_aside(r1.table().state)
    await cluster.stop("r1")
    r1 = await cluster.start("r1")
    await told_gone(r1)
    assert await r1.count() == 0
    await r1.server.execute(RESTORE)
    assert await r1.count() == 3


async def test_a_part_that_is_still_put_aside_is_not_attached_twice(cluster: Cluster) -> None:
    r1, _, session = await two_with_parts(cluster, (2, 4), (1,))
    await wipe(session, ROOT)
    await told_gone(r1)
    kept = cluster.folder / "kept"
    shutil.copytree(_folder(cluster) / "0_0_0_0", kept / "0_0_0_0")
    await r1.server.execute(RESTORE)
    await cluster.stop("r1")
    shutil.copytree(kept / "0_0_0_0", _folder(cluster) / "detached/restoring_0_0_0_0")
    r1 = await cluster.start("r1")
    await eventually(r1.table().state.restored.is_set)
    assert (await r1.count(), detached(cluster, "r1")) == (3, [])


async def test_what_one_that_joined_has_put_aside_stays_detached(cluster: Cluster) -> None:
    r1, r2, session = await two_with_parts(cluster, (2, 4))
    await wipe(session, ROOT)
    await told_gone(r1)
    await told_gone(r2)
    await put_parts_aside(r2.table().state)
    await r1.server.execute(RESTORE)
    await r2.server.execute(RESTORE)
    await cluster.settled()
    await eventually(lambda: len(r2.table().state.store.active_parts()) == 1)
    assert (await r1.count(), await r2.count(), detached(cluster, "r2")) == (2, 2, ["0_0_0_0"])


async def test_a_broken_part_does_not_hold_the_others_up(cluster: Cluster) -> None:
    r1, _, session = await two_with_parts(cluster, (2, 4), (1,))
    await wipe(session, ROOT)
    await told_gone(r1)
    (_folder(cluster) / "0_0_0_0" / "count.txt").write_bytes(b"7")
    await r1.server.execute(RESTORE)
    assert (await r1.count(), detached(cluster, "r1")) == (1, ["broken_0_0_0_0"])


# --- refusals ------------------------------------------------------------------------------------------------


async def test_there_must_be_something_to_restore(cluster: Cluster) -> None:
    r1, _, _ = await two_with_parts(cluster, (2, 4))
    with pytest.raises(BadArguments, match="must be readonly"):
        await r1.server.execute(RESTORE)
    r1.table().state.become_readonly("a test says so")
    with pytest.raises(BadArguments, match=f"{ROOT}/replicas/r1 is present, there is nothing to restore"):
        await r1.server.execute(RESTORE)
    assert (await r1.count(), detached(cluster, "r1")) == (2, [])


async def test_nobody_knows_without_a_session(cluster: Cluster) -> None:
    r1, _, _ = await two_with_parts(cluster, (2, 4))
    cluster.delivery.loses = lambda label: True
    await eventually(lambda: r1.table().state.server.sessions.current is None)
    with pytest.raises(KeeperException, match="cannot be restored"):
        await r1.server.execute(RESTORE)
    assert (await r1.count(), detached(cluster, "r1")) == (2, [])


def _folder(cluster: Cluster) -> Path:
    return cluster.folder / "r1" / "data/default/t"
