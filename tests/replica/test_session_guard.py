"""What a dead session still has on its way is refused once the server has a later one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from coordinator.api import Create, MultiFailed, NodeExists, SessionLost
from replica.background.attach import fetch_missing_parts
from replica.background.lost_replica import clone_if_lost
from replica.background.restart import _announce
from replica.clock import WallClock
from replica.commands import InsertStatus
from replica.insert.commit import PartCommit
from replica.log_puller import LogPuller
from replica.operations.commit_part import commit_part
from replica.part_name import PartName
from replica.session import SESSIONS_PATH, open_server_session
from replica.table import ReplicatedTable
from replica.zookeeper_log import ZooKeeperLog
from tests.replica.cluster import IMPATIENT, ROOT, Cluster, definition
from tests.replica.idle import HOST, IdleReplica, activate, fetch_of, idle_replica, piece_of

Act = Callable[[IdleReplica], Awaitable[object]]


async def test_only_the_latest_session_of_a_server_gets_its_multis_applied(cluster: Cluster) -> None:
    coordinator = cluster.coordinator("r1")
    first = await open_server_session(coordinator, "uuid", ZooKeeperLog(WallClock()))
    assert await first.multi_checked([Create("/a")]) == ["/a"]
    second = await open_server_session(coordinator, "uuid", ZooKeeperLog(WallClock()))
    assert first.alive
    with pytest.raises(SessionLost):
        await first.multi_checked([Create("/b")])
    assert await second.exists("/b") is None
    assert await second.multi_checked([Create("/b")]) == ["/b"]
    with pytest.raises(MultiFailed) as refused:
        await second.multi_checked([Create("/c"), Create("/b")])
    assert (refused.value.index, type(refused.value.error)) == (1, NodeExists)


async def test_a_session_of_another_server_outdates_nothing(cluster: Cluster) -> None:
    coordinator = cluster.coordinator("r1")
    session = await open_server_session(coordinator, "uuid", ZooKeeperLog(WallClock()))
    await open_server_session(coordinator, "another", ZooKeeperLog(WallClock()))
    assert await session.multi_checked([Create("/a")]) == ["/a"]
    assert await session.children(SESSIONS_PATH) == ["another", "uuid"]


async def commit_an_insert(replica: IdleReplica) -> None:
    state = replica.state
    activate(state, replica.session)
    piece = piece_of(state, 2)
    outcome = await PartCommit(state, piece, await state.store.write_temporary("tmp_insert_", piece.image)).run()
    assert outcome.status is InsertStatus.NOT_STORED
    raise SessionLost(outcome.error)


async def commit_a_fetch(replica: IdleReplica) -> None:
    temporary = await replica.state.store.write_temporary("tmp-fetch_", piece_of(replica.state, 2).image)
    await commit_part(replica.state, replica.session, temporary, PartName.parse("0_9_9_0"))


async def pull(replica: IdleReplica) -> None:
    await replica.session.create(f"{ROOT}/log/log-", fetch_of("0_9_9_0").to_text().encode(), sequential=True)
    await LogPuller(replica.state, replica.session).pull()


async def check_up(replica: IdleReplica) -> None:
    await replica.session.create(f"{ROOT}/replicas/r2/parts/0_9_9_0")
    await fetch_missing_parts(replica.state, replica.session)


async def announce(replica: IdleReplica) -> None:
    await _announce(replica.state, replica.session, HOST, "me")


async def clone(replica: IdleReplica) -> None:
    await replica.session.set(f"{ROOT}/replicas/r1/log_pointer", b"3")
    await replica.session.create(f"{ROOT}/replicas/r1/parts/0_9_9_0")
    await clone_if_lost(replica.state, replica.session)


AT_ONCE = ""
ACTS: dict[str, tuple[Act, str]] = {
    "the commit of an insert": (commit_an_insert, "multi"),
    "the commit of a fetch": (commit_a_fetch, AT_ONCE),
    "the pull": (pull, AT_ONCE),
    "the queue entry for a missing part": (check_up, AT_ONCE),
    "becoming active": (announce, AT_ONCE),
    "the pointer of a clone": (clone, AT_ONCE),
    "the queue of a clone": (clone, "multi"),
}


@pytest.mark.parametrize("what", ACTS)
async def test_it_is_refused_once_a_later_session_exists(cluster: Cluster, what: str) -> None:
    cluster.settings = IMPATIENT
    act, last_call_in_time = ACTS[what]
    async with idle_replica(cluster, "r1"), idle_replica(cluster, "r2") as r2:
        await r2.session.create(f"{ROOT}/block_numbers/0")
        if last_call_in_time:
            r2.after(last_call_in_time, r2.later_session)
        else:
            await r2.later_session()
        with pytest.raises(SessionLost):
            await act(r2)
        session = await cluster.session()
        znodes = r2.state.znodes
        assert await session.children(znodes.queue) == []
        assert await session.children(znodes.parts) == (["0_9_9_0"] if act is check_up else [])
        assert await session.exists(znodes.is_active) is None
        pointer = {"the pull": b"0", "the queue of a clone": b"3"}.get(what, b"")
        assert (await session.get(znodes.log_pointer))[0] == pointer


@pytest.mark.parametrize("changes", [{"zookeeper_path": "/clickhouse/other"}, {"replica_name": "r2"}])
async def test_registration_is_refused_once_a_later_session_exists(cluster: Cluster, changes: dict[str, str]) -> None:
    async with idle_replica(cluster, "r1") as r1:
        table = ReplicatedTable(r1.state.server, definition(**changes), {"shard": "01", "replica": "r1"})
        await r1.later_session()
        with pytest.raises(SessionLost):
            await table.register()
        assert await r1.session.exists(table.state.znodes.root) is None
