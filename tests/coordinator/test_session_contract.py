"""Every promise of `coordinator.api`, held against each adapter (and, marked `real`, Apache ZooKeeper)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from coordinator.api import (
    BadArguments,
    BadVersion,
    Check,
    CheckNotExists,
    Create,
    Delete,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    RequestRefused,
    Session,
    SessionLost,
    Set,
    Stat,
    Watch,
    WatchOutcome,
)

PATIENCE_SECONDS = 20


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():
            await asyncio.sleep(0.02)


async def outcome(watch: Watch) -> WatchOutcome:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await watch.wait()


async def still_waits(watch: Watch) -> bool:
    try:
        async with asyncio.timeout(0.15):
            await watch.wait()
    except TimeoutError:
        return True
    return False


# --- znodes ----------------------------------------------------------------------------------------------------


async def test_a_created_node_has_its_data_and_a_fresh_stat(session: Session) -> None:
    assert await session.create("/a", b"one") == "/a"
    data, stat = await session.get("/a")
    assert data == b"one"
    assert (stat.version, stat.cversion, stat.aversion, stat.num_children) == (0, 0, 0, 0)
    assert stat.data_length == 3
    assert stat.czxid == stat.mzxid == stat.pzxid > 0
    assert stat.ctime == stat.mtime > 0
    assert stat.ephemeral_owner == 0


async def test_data_may_be_empty(session: Session) -> None:
    await session.create("/a")
    assert (await session.get("/a"))[0] == b""
    await session.set("/a", b"x")
    await session.set("/a", b"")
    assert (await session.get("/a"))[0] == b""


async def test_the_four_create_modes(session: Session) -> None:
    await session.create("/q")
    assert await session.create("/q/plain") == "/q/plain"
    assert await session.create("/q/eph", ephemeral=True) == "/q/eph"
    assert await session.create("/q/seq-", sequential=True) == "/q/seq-0000000002"
    assert await session.create("/q/both-", ephemeral=True, sequential=True) == "/q/both-0000000003"
    for name, owner in (("plain", 0), ("eph", session.session_id), ("seq-0000000002", 0)):
        assert (await session.get(f"/q/{name}"))[1].ephemeral_owner == owner
    assert (await session.get("/q/both-0000000003"))[1].ephemeral_owner == session.session_id


async def test_a_sequence_counts_the_creates_of_its_parent_whatever_was_deleted(session: Session) -> None:
    await session.create("/q")
    assert await session.create("/q/a-", sequential=True) == "/q/a-0000000000"
    await session.delete("/q/a-0000000000")
    assert await session.create("/q/b-", sequential=True) == "/q/b-0000000001"
    await session.create("/q/plain")
    await session.set("/q/plain", b"no create")
    with pytest.raises(NodeExists):
        await session.create("/q/plain")
    assert await session.create("/q/", sequential=True) == "/q/0000000003"
    for name in await session.children("/q"):
        await session.delete(f"/q/{name}")
    await session.delete("/q")
    await session.create("/q")
    assert await session.create("/q/a-", sequential=True) == "/q/a-0000000000"


async def test_what_a_create_is_refused_for(session: Session) -> None:
    await session.create("/a")
    with pytest.raises(NodeExists) as exists:
        await session.create("/a")
    assert exists.value.path == "/a"
    with pytest.raises(NoNode):
        await session.create("/absent/b")
    await session.create("/a/eph", ephemeral=True)
    with pytest.raises(NoChildrenForEphemerals):
        await session.create("/a/eph/child")
    with pytest.raises(NoChildrenForEphemerals):
        await session.create("/a/eph/child-", ephemeral=True, sequential=True)


async def test_versions_guard_sets_and_deletes(session: Session) -> None:
    await session.create("/a")
    stat = await session.set("/a", b"1", version=0)
    assert stat.version == 1
    assert stat.mzxid > stat.czxid
    with pytest.raises(BadVersion) as refused:
        await session.set("/a", b"2", version=0)
    assert refused.value.path == "/a"
    with pytest.raises(BadVersion):
        await session.delete("/a", version=0)
    assert (await session.set("/a", b"3")).version == 2
    await session.delete("/a", version=2)
    assert await session.exists("/a") is None


async def test_a_delete_needs_a_node_without_children(session: Session) -> None:
    await session.create("/a")
    await session.create("/a/b")
    with pytest.raises(NotEmpty):
        await session.delete("/a")
    await session.delete("/a/b")
    await session.delete("/a")
    with pytest.raises(NoNode):
        await session.delete("/a")


async def test_a_parent_counts_creates_and_deletes_of_children_and_nothing_else(session: Session) -> None:
    await session.create("/p", b"parent")
    before = await session.exists("/p")
    await session.create("/p/a")
    await session.create("/p/b")
    await session.set("/p/a", b"x")
    await session.create("/p/a/grandchild")
    await session.delete("/p/b")
    after = await session.exists("/p")
    assert before is not None
    assert after is not None
    assert (after.cversion, after.num_children, after.version) == (3, 1, 0)
    assert after.mzxid == before.mzxid
    assert after.pzxid > before.pzxid


async def test_reads_of_what_is_not_there(session: Session) -> None:
    for read in (session.get, session.children):
        with pytest.raises(NoNode) as refused:
            await read("/absent")
        assert refused.value.path == "/absent"
    with pytest.raises(NoNode):
        await session.set("/absent", b"")
    assert await session.exists("/absent") is None


async def test_children_come_sorted(session: Session) -> None:
    await session.create("/p")
    for name in ("b", "c", "a"):
        await session.create(f"/p/{name}")
    assert await session.children("/p") == ["a", "b", "c"]


async def test_get_many_answers_in_order_and_none_for_what_is_absent(session: Session) -> None:
    for name in ("a", "b"):
        await session.create(f"/{name}", name.encode())
    answers = await session.get_many(["/b", "/absent", "/a", "/b"])
    assert [answer and answer[0] for answer in answers] == [b"b", None, b"a", b"b"]
    assert await session.get_many([]) == []


@pytest.mark.parametrize(
    "path", ["", "a", "/a/", "//a", "/a//b", "/a/./b", "/../a", "/a\0b", "/\x01", "/\ud7ff\ue000"]
)
async def test_a_malformed_path_is_refused_whatever_is_asked(session: Session, path: str) -> None:
    await session.create("/a")
    for attempt in (
        session.create(path),
        session.delete(path),
        session.set(path, b""),
        session.get(path),
        session.exists(path),
        session.children(path),
    ):
        with pytest.raises(BadArguments):
            await attempt
    with pytest.raises(MultiFailed) as failed:
        await session.multi([Create("/fine"), Create(path)])
    assert failed.value.index == 1
    assert isinstance(failed.value.error, BadArguments)
    assert await session.exists("/fine") is None


async def test_names_are_unicode(session: Session) -> None:
    await session.create("/größe")
    assert await session.create("/größe/Ω-", "straße".encode(), sequential=True) == "/größe/Ω-0000000000"
    assert await session.children("/größe") == ["Ω-0000000000"]


async def test_many_requests_at_once_are_done_in_the_order_in_which_they_were_made(session: Session) -> None:
    await session.create("/q")
    paths = await asyncio.gather(*(session.create("/q/n-", str(n).encode(), sequential=True) for n in range(50)))
    assert paths == [f"/q/n-{n:010d}" for n in range(50)]
    assert [found and found[0] for found in await session.get_many(paths)] == [str(n).encode() for n in range(50)]


# --- multis ----------------------------------------------------------------------------------------------------


async def test_a_multi_gives_one_result_per_operation(session: Session) -> None:
    await session.create("/a", b"old")
    results = await session.multi(
        [
            Check("/a", 0),
            Set("/a", b"new", 0),
            Create("/a/n-", sequential=True),
            CheckNotExists("/b"),
            Create("/b", b"data", ephemeral=True),
            Delete("/b"),
        ]
    )
    check, stat, sequential, not_exists, created, deleted = results
    assert check is None
    assert isinstance(stat, Stat)
    assert (stat.version, stat.data_length, stat.num_children) == (1, 3, 0)
    assert (sequential, not_exists, created, deleted) == ("/a/n-0000000000", None, "/b", None)
    assert await session.multi([]) == []


async def test_all_operations_of_a_multi_share_one_transaction(session: Session) -> None:
    await session.multi([Create("/a"), Create("/a/b"), Set("/a/b", b"x")])
    parent, child = await session.exists("/a"), await session.exists("/a/b")
    assert parent is not None
    assert child is not None
    assert parent.czxid == child.czxid == child.mzxid == parent.pzxid
    assert child.version == 1


async def test_each_operation_of_a_multi_sees_those_before_it(session: Session) -> None:
    await session.multi([Create("/a"), Create("/a/b"), Delete("/a/b"), Delete("/a"), Create("/a", b"second")])
    assert (await session.get("/a"))[0] == b"second"
    await session.multi([Set("/a", b"3", 0), Set("/a", b"4", 1), Check("/a", 2), CheckNotExists("/a/x")])
    assert await session.multi(
        [Create("/q"), Create("/q/s-", sequential=True), Create("/q/s-", sequential=True)]
    ) == ["/q", "/q/s-0000000000", "/q/s-0000000001"]


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (Create("/a"), NodeExists),
        (Create("/absent/x"), NoNode),
        (Create("/e/x"), NoChildrenForEphemerals),
        (Delete("/absent"), NoNode),
        (Delete("/a", 7), BadVersion),
        (Delete("/a"), NotEmpty),
        (Set("/a", b"", 7), BadVersion),
        (Set("/absent", b""), NoNode),
        (Check("/a", 7), BadVersion),
        (Check("/absent"), NoNode),
        (CheckNotExists("/a"), NodeExists),
    ],
)
@pytest.mark.parametrize("position", range(4))
async def test_a_refused_multi_names_the_operation_and_does_nothing(
    session: Session, bad: Create, error: type[RequestRefused], position: int
) -> None:
    await session.multi([Create("/a"), Create("/a/child"), Create("/e", ephemeral=True)])
    before = await session.get("/a")
    fine = [CheckNotExists("/free"), Create("/new"), Set("/a", b"changed")]
    operations = [*fine[:position], bad, *fine[position:]]
    with pytest.raises(MultiFailed) as failed:
        await session.multi(operations)
    assert failed.value.index == position
    assert type(failed.value.error) is error
    assert failed.value.error.path == bad.path
    assert await session.get("/a") == before
    assert await session.exists("/new") is None
    assert await session.exists("/free") is None


async def test_not_exists_checks_keep_their_positions(session: Session) -> None:
    await session.create("/taken")
    for position in range(5):
        paths = [f"/free{n}" for n in range(5)]
        paths[position] = "/taken"
        with pytest.raises(MultiFailed) as failed:
            await session.multi([*(CheckNotExists(path) for path in paths), Create("/new")])
        assert (failed.value.index, failed.value.error.path) == (position, "/taken")
    results = await session.multi([CheckNotExists("/free"), Create("/new"), CheckNotExists("/other"), Check("/new")])
    assert results == [None, "/new", None, None]
    assert {"free", "other"}.isdisjoint(await session.children("/"))


async def test_an_undone_multi_gives_its_sequence_numbers_back(session: Session) -> None:
    await session.create("/q")
    with pytest.raises(MultiFailed):
        await session.multi([Create("/q/n-", sequential=True), Check("/absent")])
    assert await session.create("/q/n-", sequential=True) == "/q/n-0000000000"
    stat = await session.exists("/q")
    assert stat is not None
    assert stat.cversion == 1


# --- watches ---------------------------------------------------------------------------------------------------


async def test_a_data_watch_fires_at_a_set_and_at_a_delete(session: Session) -> None:
    await session.create("/a")
    for change in (session.set("/a", b"x"), session.delete("/a")):
        watch = Watch()
        await session.get("/a", watch)
        assert await still_waits(watch)
        await change
        assert await outcome(watch) is WatchOutcome.CHANGED


async def test_an_existence_watch_fires_at_creation_set_and_delete(session: Session) -> None:
    for change in (session.create("/a"), session.set("/a", b""), session.delete("/a")):
        watch = Watch()
        await session.exists("/a", watch)
        await change
        assert await outcome(watch) is WatchOutcome.CHANGED


async def test_a_child_watch_fires_when_children_come_or_go_and_when_the_node_goes(session: Session) -> None:
    await session.create("/p")
    for change in (session.create("/p/a"), session.delete("/p/a"), session.delete("/p")):
        watch = Watch()
        await session.children("/p", watch)
        await change
        assert await outcome(watch) is WatchOutcome.CHANGED


async def test_a_watch_does_not_fire_for_other_changes(session: Session) -> None:
    await session.create("/p")
    await session.create("/p/a")
    data, child = Watch(), Watch()
    await session.get("/p", data)
    await session.children("/p", child)
    await session.set("/p/a", b"x")
    await session.create("/p/a/b")
    assert await still_waits(data)
    await session.set("/p", b"x")
    assert await outcome(data) is WatchOutcome.CHANGED
    assert await still_waits(child)


async def test_a_watch_on_a_refused_read_is_not_set(session: Session) -> None:
    data, child = Watch(), Watch()
    with pytest.raises(NoNode):
        await session.get("/a", data)
    with pytest.raises(NoNode):
        await session.children("/a", child)
    await session.create("/a")
    await session.create("/a/b")
    await session.set("/a", b"x")
    assert await still_waits(data)
    assert await still_waits(child)


async def test_watches_fire_on_other_sessions_too_and_each_once(world, session: Session) -> None:  # type: ignore[no-untyped-def]
    await session.create("/a")
    other = await world.connect()
    mine, others, another = Watch(), Watch(), Watch()
    await session.get("/a", mine)
    await other.get("/a", others)
    await other.exists("/a", another)
    await session.set("/a", b"x")
    for watch in (mine, others, another):
        assert await outcome(watch) is WatchOutcome.CHANGED
    again = Watch()
    await other.get("/a", again)
    assert await still_waits(again)
    await other.close()


async def test_a_failed_multi_fires_nothing(session: Session) -> None:
    await session.create("/a")
    watch = Watch()
    await session.get("/a", watch)
    with pytest.raises(MultiFailed):
        await session.multi([Set("/a", b"x"), Check("/absent")])
    assert await still_waits(watch)


async def test_a_watch_is_lost_with_its_session(world) -> None:  # type: ignore[no-untyped-def]
    session = await world.connect()
    await session.create("/a")
    data, exist, child = Watch(), Watch(), Watch()
    await session.get("/a", data)
    await session.exists("/absent", exist)
    await session.children("/a", child)
    await world.cut(session)
    for watch in (data, exist, child):
        assert await outcome(watch) is WatchOutcome.LOST


async def test_a_watch_is_lost_when_its_session_is_closed(world) -> None:  # type: ignore[no-untyped-def]
    session = await world.connect()
    watch = Watch()
    await session.exists("/absent", watch)
    await session.close()
    assert await outcome(watch) is WatchOutcome.LOST


# --- sessions --------------------------------------------------------------------------------------------------


async def test_a_closed_session_takes_its_ephemerals_along_at_once(world, session: Session) -> None:  # type: ignore[no-untyped-def]
    await session.create("/p")
    other = await world.connect()
    await other.create("/p/eph", ephemeral=True)
    await other.create("/p/seq-", ephemeral=True, sequential=True)
    await other.create("/p/stays")
    children = Watch()
    await session.children("/p", children)
    await other.close()
    assert await session.children("/p") == ["stays"]
    assert await outcome(children) is WatchOutcome.CHANGED


async def test_after_close_a_session_is_dead_and_close_is_harmless(world) -> None:  # type: ignore[no-untyped-def]
    session = await world.connect()
    assert session.alive
    await session.close()
    assert not session.alive
    await asyncio.wait_for(session.wait_dead(), PATIENCE_SECONDS)
    await session.close()
    for attempt in (
        session.create("/a"),
        session.delete("/a"),
        session.set("/a", b""),
        session.get("/a"),
        session.get_many(["/a"]),
        session.exists("/a"),
        session.children("/a"),
        session.multi([Create("/a")]),
    ):
        with pytest.raises(SessionLost):
            await attempt


async def test_sessions_have_ids_of_their_own(world) -> None:  # type: ignore[no-untyped-def]
    sessions = [await world.connect() for _ in range(3)]
    assert len({session.session_id for session in sessions}) == 3
    for session in sessions:
        await session.close()


async def test_a_cut_session_is_dead_for_ever_and_its_ephemerals_go_at_expiry(world, session: Session) -> None:  # type: ignore[no-untyped-def]
    other = await world.connect()
    await other.create("/eph", ephemeral=True)
    await world.cut(other)
    await asyncio.wait_for(other.wait_dead(), PATIENCE_SECONDS)
    assert not other.alive
    assert await session.exists("/eph") is not None  # the service waits for its timeout
    with pytest.raises(SessionLost):
        await other.get("/eph")

    gone = Watch()
    await session.exists("/eph", gone)
    assert await outcome(gone) is WatchOutcome.CHANGED
    assert await session.exists("/eph") is None
    assert not other.alive
    with pytest.raises(SessionLost):
        await other.create("/eph")
    await other.close()


async def test_an_idle_session_lives_on(session: Session) -> None:
    await session.create("/eph", ephemeral=True)
    await asyncio.sleep(3)
    assert session.alive
    assert await session.exists("/eph") is not None


async def test_a_request_pending_at_the_loss_is_lost(world) -> None:  # type: ignore[no-untyped-def]
    session = await world.connect()
    await world.silence(session)
    attempts = [asyncio.ensure_future(session.create("/a")), asyncio.ensure_future(session.multi([Create("/b")]))]
    attempts += [asyncio.ensure_future(session.get_many(["/", "/"]))]
    for attempt in attempts:
        with pytest.raises(SessionLost):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await attempt
    assert not session.alive
    await session.close()


async def test_an_idle_session_without_a_network_notices(world, session: Session) -> None:  # type: ignore[no-untyped-def]
    other = await world.connect()
    await other.create("/eph", ephemeral=True)
    await world.silence(other)
    await asyncio.wait_for(other.wait_dead(), PATIENCE_SECONDS)

    async def gone() -> bool:
        return await session.exists("/eph") is None

    await eventually(gone)


async def test_closing_without_a_network_ends_soon_and_without_an_error(world) -> None:  # type: ignore[no-untyped-def]
    session = await world.connect()
    await world.silence(session)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await session.close()
    assert not session.alive


async def test_a_caller_may_give_up_waiting(session: Session) -> None:
    await session.create("/a")
    for _ in range(5):
        attempt = asyncio.ensure_future(session.get("/a"))
        await asyncio.sleep(0)
        attempt.cancel()
    assert (await session.get("/a"))[0] == b""
