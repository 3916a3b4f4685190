"""The adapter over kazoo, and kazoo itself, against our server."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, RolledBackError, RuntimeInconsistency
from kazoo.security import make_digest_acl

from coordinator.api import CheckNotExists, CoordinatorUnreachable, Create, MultiFailed, SessionLost, Watch
from coordinator.kazoo_client import KazooCoordinator, KazooSession
from coordinator.server import CoordinatorServer


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[CoordinatorServer]:
    server = CoordinatorServer("127.0.0.1:0", tmp_path / "coordinator", tick_ms=200)
    await server.start()
    yield server
    await server.stop()


def threads() -> list[str]:
    """All but the event loop's own pool, which resolves names."""
    return sorted(thread.name for thread in threading.enumerate() if not thread.name.startswith("asyncio_"))


async def test_an_address_where_nobody_listens_is_reported_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        before = threads()
        async with asyncio.timeout(5):
            with pytest.raises(CoordinatorUnreachable, match=address):
                await KazooCoordinator(address, connect_timeout_seconds=60).connect()
        await settled(before)


async def settled(before: list[str]) -> None:
    async with asyncio.timeout(20):
        while len(threads()) > len(before):
            await asyncio.sleep(0.01)


async def test_a_server_that_says_nothing_is_given_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(CoordinatorUnreachable, match=r"no answer in 0\.2 s"):
            await KazooCoordinator(address, session_timeout_seconds=2, connect_timeout_seconds=0.2).connect()


async def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    with pytest.raises(CoordinatorUnreachable, match="does not resolve"):
        await KazooCoordinator("no-such-host.invalid:2181").connect()


async def test_the_first_address_that_answers_is_taken(server: CoordinatorServer) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{taken.getsockname()[1]}"
        session = await KazooCoordinator(f"{dead},{server.address}").connect()
        assert session.alive
        await session.close()


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[list[CoordinatorServer]]:
    """Three that know nothing of each other: a znode tells whose session one has."""
    servers = [CoordinatorServer("127.0.0.1:0", tmp_path / f"server{number}", tick_ms=200) for number in range(3)]
    for number, server in enumerate(servers):
        await server.start()
        session = await KazooCoordinator(server.address).connect()
        await session.create(f"/server{number}")
        await session.close()
    yield servers
    for server in servers:
        await server.stop()


async def server_of(session: KazooSession) -> str:
    (name,) = [name for name in await session.children("/") if name.startswith("server")]
    return name


async def test_each_connect_begins_with_the_next_server(servers: list[CoordinatorServer]) -> None:
    coordinator = KazooCoordinator(",".join(server.address for server in servers))
    sessions = [await coordinator.connect() for _ in range(4)]
    assert [await server_of(session) for session in sessions] == ["server0", "server1", "server2", "server0"]
    for session in sessions:
        await session.close()


async def test_a_session_dies_with_its_server_and_the_next_connect_finds_another(
    servers: list[CoordinatorServer],
) -> None:
    coordinator = KazooCoordinator(",".join(server.address for server in servers))
    session = await coordinator.connect()
    await servers[0].stop()
    await asyncio.wait_for(session.wait_dead(), 10)
    await servers[1].stop()
    later = await coordinator.connect()
    assert await server_of(later) == "server2"
    assert not session.alive
    again = await coordinator.connect()
    assert await server_of(again) == "server2", "those that are down are passed over"
    for each in (session, later, again):
        await each.close()


async def test_a_server_that_hangs_holds_nobody_up(server: CoordinatorServer) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        hosts = f"127.0.0.1:{silent.getsockname()[1]},{server.address}"
        async with asyncio.timeout(20):
            session = await KazooCoordinator(hosts, connect_timeout_seconds=600).connect()
        assert session.alive
        await session.close()


async def test_a_slow_server_gets_its_full_time_when_no_other_answers(server: CoordinatorServer) -> None:
    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1.5)
        far_reader, far_writer = await asyncio.open_connection(*server.address.split(":"))
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))

    slow = await asyncio.start_server(slowly, "127.0.0.1", 0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        hosts = f"127.0.0.1:{taken.getsockname()[1]},127.0.0.1:{slow.sockets[0].getsockname()[1]}"
        session = await KazooCoordinator(hosts, connect_timeout_seconds=60).connect()
    assert session.alive
    await session.close()
    slow.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


async def test_a_chroot_that_does_not_exist_is_named(server: CoordinatorServer) -> None:
    with pytest.raises(CoordinatorUnreachable, match="no znode /not/there"):
        await KazooCoordinator(f"{server.address}/not/there").connect()


async def test_no_thread_outlives_its_session(server: CoordinatorServer) -> None:
    before = threads()
    for _ in range(3):
        sessions = [await KazooCoordinator(server.address, session_timeout_seconds=2).connect() for _ in range(3)]
        await asyncio.gather(*(session.close() for session in sessions))
    await settled(before)


async def test_a_stopped_server_ends_the_session_and_a_new_one_needs_a_new_connect(
    server: CoordinatorServer, tmp_path: Path
) -> None:
    before = threads()
    coordinator = KazooCoordinator(server.address, session_timeout_seconds=4)
    session = await coordinator.connect()
    await session.create("/eph", ephemeral=True)
    await server.stop()
    await asyncio.wait_for(session.wait_dead(), 10)
    again = CoordinatorServer(server.address, tmp_path / "coordinator", tick_ms=200)
    await again.start()
    await asyncio.sleep(0.5)
    assert not session.alive
    with pytest.raises(SessionLost):
        await session.exists("/eph")
    new = await coordinator.connect()
    assert new.session_id != session.session_id
    assert await new.exists("/eph") is not None  # the old session has its timeout anew
    await new.close()
    await session.close()
    await again.stop()
    await settled(before)


async def test_kazoo_is_silent(server: CoordinatorServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        session = await KazooCoordinator(server.address, session_timeout_seconds=2).connect()
        await session.create("/a")
        await server.stop()
        await session.wait_dead()
        await session.close()
        with pytest.raises(CoordinatorUnreachable):
            await KazooCoordinator(server.address).connect()
    assert [record for record in caplog.records if record.name.startswith(("kazoo", "coordinator.kazoo"))] == []


async def test_not_exists_checks_change_nothing_where_they_are_announced(server: CoordinatorServer) -> None:
    session = await KazooCoordinator(server.address).connect()
    await session.create("/p")
    children = Watch()
    await session.children("/p", children)
    assert await session.multi([CheckNotExists("/p/x"), CheckNotExists("/absent/x")]) == [None, None]
    stat = await session.exists("/p")
    assert stat is not None
    assert stat.cversion == 0
    assert await session.create("/p/n-", sequential=True) == "/p/n-0000000000"
    await session.close()


async def test_what_is_refused_below_a_chroot_is_named_as_the_caller_named_it(server: CoordinatorServer) -> None:
    root = await KazooCoordinator(server.address).connect()
    await root.create("/deep")
    await root.create("/deep/er")
    session = await KazooCoordinator(f"{server.address}/deep/er/").connect()
    assert await session.create("/a") == "/a"
    assert await root.exists("/deep/er/a") is not None
    assert await session.children("/") == ["a"]
    with pytest.raises(MultiFailed) as failed:
        await session.multi([CheckNotExists("/b"), Create("/a")])
    assert (failed.value.index, failed.value.error.path) == (1, "/a")
    await session.close()
    await root.close()


# --- kazoo itself ----------------------------------------------------------------------------------------------


async def test_kazoo_and_its_recipes(server: CoordinatorServer) -> None:
    def use() -> None:
        client = KazooClient(server.address, timeout=2)
        client.start()
        assert client.server_version() == (3, 8, 0)
        client.ensure_path("/deep/path")
        client.create("/deep/path/seq-", b"x", sequence=True, ephemeral=True)
        path, stat = client.create("/with-stat", b"abc", include_data=True)
        assert (path, stat.dataLength) == ("/with-stat", 3)
        children, stat = client.get_children("/deep/path", include_data=True)
        assert children == ["seq-0000000000"]
        assert client.get_acls("/deep")[0][0].perms == 31
        client.add_auth("digest", "me:secret")
        client.create("/mine", b"", acl=[make_digest_acl("me", "secret", all=True)])
        client.set_acls("/deep", [make_digest_acl("me", "secret", all=True)])
        assert client.sync("/") == "/"
        transaction = client.transaction()
        transaction.create("/t", b"1")
        transaction.check("/with-stat", 7)
        transaction.set_data("/with-stat", b"2")
        rolled_back, bad_version, inconsistent = transaction.commit()
        assert isinstance(rolled_back, RolledBackError)
        assert isinstance(bad_version, BadVersionError)
        assert isinstance(inconsistent, RuntimeInconsistency)
        seen: list[bytes] = []
        changed = threading.Event()

        @client.DataWatch("/with-stat")  # type: ignore[misc]
        def watch(data: bytes, stat: object) -> None:
            seen.append(data)
            if data == b"new":
                changed.set()

        client.set("/with-stat", b"new")
        assert changed.wait(10)
        with client.Lock("/lock", "me"):
            assert client.Lock("/lock", "other").acquire(blocking=False) is False
        queue = client.Queue("/queue")
        queue.put(b"a")
        queue.put(b"b")
        assert (queue.get(), queue.get()) == (b"a", b"b")
        client.delete("/deep", recursive=True)
        assert client.command(b"ruok").encode() == b"imok"
        client.stop()
        client.close()

    await asyncio.to_thread(use)
