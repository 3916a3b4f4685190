"""The server on the wire: handshakes, frames, replies, watches, and everything malformed."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coordinator.jute import Reader, Writer
from coordinator.server import CoordinatorServer
from tests.coordinator.raw_client import (
    RawClient,
    ask_word,
    create,
    handshake_frame,
    multi,
    multi_results,
    path_only,
    set_data,
    versioned,
    watched,
)

TICK_MS = 200
CREATED, DELETED, CHANGED, CHILDREN = 1, 2, 3, 4


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[CoordinatorServer]:
    server = CoordinatorServer("127.0.0.1:0", tmp_path / "coordinator", tick_ms=TICK_MS)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def client(server: CoordinatorServer) -> AsyncIterator[RawClient]:
    client = await RawClient.connect(server.address)
    yield client
    client.drop()


# --- handshakes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "given"), [(1, 400), (10**9, 4000), (1234, 1234), (-5, 400)])
async def test_the_timeout_is_between_2_and_20_ticks(server: CoordinatorServer, asked: int, given: int) -> None:
    client = await RawClient.connect(server.address, timeout_ms=asked)
    assert client.welcome is not None
    assert client.welcome.timeout_ms == given
    assert client.welcome.session_id > 0
    assert len(client.welcome.password) == 16


@pytest.mark.parametrize(
    ("variant", "length"),
    [
        ({}, 37),
        ({"read_only": None}, 36),
        ({"read_only": True}, 37),
        ({"password": None}, 37),
        ({"password": b""}, 37),
        ({"version": 7}, 37),
    ],
)
async def test_variants_of_the_handshake(server: CoordinatorServer, variant: dict[str, object], length: int) -> None:
    client = await RawClient.connect(server.address, **variant)
    assert client.welcome is not None
    assert client.welcome.length == length


async def test_a_session_goes_on_over_a_new_connection(server: CoordinatorServer, client: RawClient) -> None:
    assert client.welcome is not None
    first = client.welcome
    await client.call(1, create("/eph", flags=1))
    await client.call(4, watched("/eph", watch=True))
    again = await RawClient.connect(
        server.address, session_id=first.session_id, password=first.password, timeout_ms=1000
    )
    assert again.welcome is not None
    assert (again.welcome.session_id, again.welcome.password) == (first.session_id, first.password)
    assert again.welcome.timeout_ms == 1000
    assert await client.hung_up()
    assert (await again.call(5, set_data("/eph", b"x"))).error == 0
    assert (await again.call(3, watched("/eph"))).error == 0
    assert again.events == []  # watches went with the old connection


async def test_refused_reattachment(server: CoordinatorServer, client: RawClient) -> None:
    assert client.welcome is not None
    for session_id, password in ((12345, bytes(16)), (client.welcome.session_id, b"wrong password!!")):
        stranger = await RawClient.connect(server.address, session_id=session_id, password=password)
        assert stranger.welcome is not None
        assert stranger.welcome.timeout_ms == 0
        assert stranger.welcome.session_id == 0
        assert stranger.welcome.password == bytes(16)
        assert await stranger.hung_up()
    assert (await client.call(3, watched("/"))).error == 0  # the rightful client has noticed nothing


async def test_a_client_that_saw_a_later_zxid_is_sent_away_without_a_word(server: CoordinatorServer) -> None:
    client = await RawClient.dial(server.address)
    client.send_frame(handshake_frame(last_zxid=1 << 62))
    assert await client.hung_up()


async def test_requests_may_follow_the_handshake_in_one_packet(server: CoordinatorServer) -> None:
    client = await RawClient.dial(server.address)
    client.send_frame(handshake_frame())
    client.send(1, create("/a"))
    client.send(-11)
    client.send(1, create("/too-late"))
    await client.receive_welcome()
    assert (await client.receive()).error == 0
    closed = await client.receive()
    assert (closed.xid, closed.error, closed.body) == (2, 0, b"")
    assert await client.hung_up()
    other = await RawClient.connect(server.address)
    assert (await other.call(3, watched("/a"))).error == 0
    assert (await other.call(3, watched("/too-late"))).error == -101


async def test_the_handshake_may_come_in_pieces(server: CoordinatorServer) -> None:
    client = await RawClient.dial(server.address)
    frame = handshake_frame()
    for byte in struct.pack(">i", len(frame)) + frame:
        client.writer.write(bytes([byte]))
        await asyncio.sleep(0)
    assert (await client.receive_welcome()).timeout_ms == 4000


# --- requests and replies -------------------------------------------------------------------------------------


async def test_pipelined_requests_are_answered_in_order(client: RawClient) -> None:
    sent = [client.send(1, create(f"/n{n}")) if n % 2 else client.send(3, watched(f"/n{n - 1}")) for n in range(400)]
    replies = [await client.receive() for _ in sent]
    assert [reply.xid for reply in replies] == sent
    zxids = [reply.zxid for reply in replies]
    assert zxids == sorted(zxids)


async def test_bytes_behind_a_request_are_ignored_and_a_short_one_is_refused(client: RawClient) -> None:
    assert (await client.call(3, watched("/") + b"more")).error == 0
    for operation, body in ((1, b""), (3, b"\0\0\0\1"), (4, path_only("/")), (14, b"\0"), (8, b"\xff" * 5)):
        assert (await client.call(operation, body)).error == -5
    assert (await client.call(1, create("/a")[:-2])).error == -5
    assert (await client.call(101, Writer().int64(0).int32(2**31 - 1).finish())).error == -5


async def test_unknown_operations_are_refused(server: CoordinatorServer) -> None:
    for operation in (30, 99, 500, 502, 999, 0, -1, 10):
        client = await RawClient.connect(server.address)
        client.send(operation)
        client.send(3, watched("/"))
        assert (await client.receive()).error == -6
        assert await client.hung_up()
        assert client.welcome is not None
        again = await RawClient.connect(
            server.address, session_id=client.welcome.session_id, password=client.welcome.password
        )
        assert again.welcome is not None
        assert again.welcome.session_id == client.welcome.session_id
    client = await RawClient.connect(server.address)
    for operation in (16, 102, 22, 106):
        assert (await client.call(operation)).error == -6
    assert (await client.call(3, watched("/"))).error == 0


async def test_the_results_of_each_operation(client: RawClient) -> None:
    created = await client.call(15, create("/a", b"data"))
    assert created.reader.string() == "/a"
    assert len(created.body) == 4 + 2 + 68
    assert (await client.call(1, create("/a/b", None))).reader.string() == "/a/b"
    null = (await client.call(4, watched("/a/b"))).reader
    assert null.buffer() is None
    assert null.stat().data_length == 0
    assert (await client.call(5, set_data("/a", b"x"))).reader.stat().version == 1
    assert (await client.call(8, watched("/a"))).reader.strings() == ("b",)
    listing = (await client.call(12, watched("/a"))).reader
    assert listing.strings() == ("b",)
    assert listing.stat().num_children == 1
    assert (await client.call(9, path_only("/anything"))).reader.string() == "/anything"
    assert (await client.call(104, path_only("/a"))).reader.int32() == 1
    acl = (await client.call(6, path_only("/a"))).reader
    assert [entry.identity.id for entry in acl.acl()] == ["anyone"]
    await client.call(1, create("/e", flags=1))
    assert (await client.call(103, path_only(""))).reader.strings() == ("/e",)
    who = (await client.call(107)).reader
    assert (who.int32(), who.string(), who.string()) == (1, "ip", "127.0.0.1")
    assert (await client.call(13, versioned("/a", 1))).error == 0
    assert (await client.call(13, versioned("/a", 0))).error == -103
    assert (await client.call(501, versioned("/a"))).error == -110
    deleted = await client.call(2, versioned("/a/b"))
    assert (deleted.error, deleted.body) == (0, b"")


async def test_a_ping_is_answered_as_a_ping_whatever_its_number(client: RawClient) -> None:
    for xid in (-2, 77):
        client.send(11, xid=xid)
        reply = await client.receive()
        assert (reply.xid, reply.error, reply.body) == (-2, 0, b"")


async def test_a_multi_on_the_wire(client: RawClient) -> None:
    body = multi(
        (1, create("/a")), (15, create("/b")), (5, set_data("/a", b"x")), (13, versioned("/a", 1)),
        (501, versioned("/c")), (2, versioned("/b")),
    )  # fmt: skip
    results = multi_results((await client.call(14, body)).body)
    assert [(kind, error) for kind, error, _ in results] == [(1, 0), (1, 0), (5, 0), (13, 0), (501, 0), (2, 0)]
    assert results[0][2] == "/a"
    failed = await client.call(14, multi((1, create("/d")), (13, versioned("/a", 7)), (2, versioned("/a"))))
    assert failed.error == 0
    assert multi_results(failed.body) == [(-1, 0, 0), (-1, -103, -103), (-1, -2, -2)]
    assert multi_results((await client.call(14, multi())).body) == []
    assert (await client.call(14, multi((1, create("/d")), (4, watched("/a"))))).error == -5
    assert (await client.call(3, watched("/d"))).error == -101


async def test_a_frame_may_have_the_limit_and_no_more(server: CoordinatorServer, client: RawClient) -> None:
    limit = 0xFFFFF
    overhead = 8 + len(create("/big", b""))
    assert (await client.call(1, create("/big", bytes(limit - overhead)))).error == 0
    assert len((await client.call(4, watched("/big"))).body) > limit - overhead
    client.send(1, create("/bigger", bytes(limit - overhead)))
    assert await client.hung_up()


@pytest.mark.parametrize("start", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\x10\0\0" + bytes(64)])
async def test_impossible_first_frames_end_the_connection(server: CoordinatorServer, start: bytes) -> None:
    client = await RawClient.dial(server.address)
    client.writer.write(start)
    assert await client.hung_up()


async def test_a_frame_without_a_header_ends_the_connection(client: RawClient) -> None:
    client.send_frame(b"\0\0\0\1\0")
    assert await client.hung_up()


async def test_random_bytes_never_harm_the_server(server: CoordinatorServer, client: RawClient) -> None:
    chance = random.Random(20260101)
    for attempt in range(150):
        stranger = await RawClient.dial(server.address)
        if attempt % 3:
            stranger.send_frame(handshake_frame())
            await stranger.receive_welcome()
        for _ in range(20):
            if attempt % 3 == 2:
                operation = chance.choice((*range(-1, 25), *range(100, 108), 500, 501))
                stranger.send(operation, chance.randbytes(chance.randrange(60)))
            else:
                stranger.writer.write(chance.randbytes(chance.randrange(1, 60)))
        stranger.drop()
    for length in range(60):  # every prefix of a good request
        stranger = await RawClient.connect(server.address)
        stranger.send(14, multi((1, create("/x")), (5, set_data("/x", b"y")))[:length])
        await stranger.receive()
        stranger.drop()
    assert (await client.call(3, watched("/"))).error == 0
    assert await ask_word(server.address, "ruok") == "imok"


# --- watches on the wire --------------------------------------------------------------------------------------


async def test_events_come_before_the_reply_that_caused_them_and_in_order(client: RawClient) -> None:
    await client.call(3, watched("/a", watch=True))
    await client.call(8, watched("/", watch=True))
    await client.call(1, create("/a"))
    assert client.events == [(CREATED, "/a"), (CHILDREN, "/")]
    client.events.clear()
    await client.call(4, watched("/a", watch=True))
    await client.call(12, watched("/a", watch=True))
    await client.call(8, watched("/", watch=True))
    await client.call(2, versioned("/a"))
    assert client.events == [(DELETED, "/a"), (CHILDREN, "/")]  # one event for both watches of the node


async def test_the_events_of_a_multi_come_first_in_the_order_of_its_operations(client: RawClient) -> None:
    await client.call(3, watched("/a", watch=True))
    await client.call(3, watched("/b", watch=True))
    await client.call(8, watched("/", watch=True))
    await client.call(14, multi((1, create("/b")), (1, create("/a"))))
    assert client.events == [(CREATED, "/b"), (CHILDREN, "/"), (CREATED, "/a")]


async def test_another_connection_hears_of_a_change_before_it_can_see_it(
    server: CoordinatorServer, client: RawClient
) -> None:
    other = await RawClient.connect(server.address)
    await client.call(1, create("/a"))
    for round_ in range(20):
        await other.call(4, watched("/a", watch=True))
        other.events.clear()
        client.send(5, set_data("/a", str(round_).encode()))
        while (await other.call(4, watched("/a"))).reader.buffer() != str(round_).encode():
            assert other.events == []
        assert other.events == [(CHANGED, "/a")]
        await client.receive()


async def test_watches_come_back_with_set_watches(server: CoordinatorServer, client: RawClient) -> None:
    for path in ("/same", "/changed", "/gone", "/parent", "/quiet"):
        await client.call(1, create(path))
    seen = (await client.call(3, watched("/"))).zxid
    await client.call(5, set_data("/changed", b"x"))
    await client.call(2, versioned("/gone"))
    await client.call(1, create("/parent/new"))
    await client.call(1, create("/appeared"))
    body = (
        Writer().int64(seen)
        .strings(("/same", "/changed", "/gone"))
        .strings(("/appeared", "/absent"))
        .strings(("/parent", "/quiet", "/gone"))
        .finish()
    )  # fmt: skip
    client.send(101, body, xid=-8)
    reply = await client.receive()
    assert (reply.xid, reply.error, reply.body) == (-8, 0, b"")
    assert client.events == [
        (CHANGED, "/changed"), (DELETED, "/gone"), (CREATED, "/appeared"), (CHILDREN, "/parent"), (DELETED, "/gone"),
    ]  # fmt: skip
    client.events.clear()
    await client.call(5, set_data("/same", b"x"))
    await client.call(1, create("/absent"))
    await client.call(1, create("/quiet/new"))
    assert client.events == [(CHANGED, "/same"), (CREATED, "/absent"), (CHILDREN, "/quiet")]


async def test_watches_can_be_removed(client: RawClient) -> None:
    await client.call(4, watched("/", watch=True))
    assert (await client.call(17, versioned("/", 1))).error == -121
    assert (await client.call(17, versioned("/", 2))).error == 0
    assert (await client.call(18, versioned("/", 3))).error == 0
    assert (await client.call(18, versioned("/", 3))).error == -121
    assert (await client.call(18, versioned("/", 9))).error == -5
    await client.call(5, set_data("/", b"x"))
    assert client.events == []


# --- sessions in time -----------------------------------------------------------------------------------------


async def test_a_silent_session_expires_and_the_connection_ends_without_a_word(server: CoordinatorServer) -> None:
    watcher = await RawClient.connect(server.address, timeout_ms=4000)
    silent = await RawClient.connect(server.address, timeout_ms=1)
    await silent.call(1, create("/eph", flags=1))
    await watcher.call(4, watched("/eph", watch=True))
    assert await silent.hung_up()
    assert (await watcher.call(3, watched("/eph"))).error == -101
    assert watcher.events == [(DELETED, "/eph")]


async def test_anything_sent_keeps_a_session_alive(server: CoordinatorServer) -> None:
    client = await RawClient.connect(server.address, timeout_ms=1)
    for _ in range(12):
        await asyncio.sleep(0.1)
        assert (await client.call(3, b"")).error == -5


# --- authentication -------------------------------------------------------------------------------------------


async def test_digest_authentication(server: CoordinatorServer, client: RawClient) -> None:
    client.send(100, Writer().int32(0).string("digest").buffer(b"me:secret").finish(), xid=-4)
    reply = await client.receive()
    assert (reply.xid, reply.zxid, reply.error) == (-4, 0, 0)
    who = (await client.call(107)).reader
    assert who.int32() == 2
    stranger = await RawClient.connect(server.address)
    stranger.send(100, Writer().int32(0).string("nonsense").buffer(b"x").finish(), xid=-4)
    assert (await stranger.receive()).error == -115
    assert await stranger.hung_up()


# --- four-letter words ----------------------------------------------------------------------------------------


async def test_the_words(server: CoordinatorServer, client: RawClient) -> None:
    await client.call(1, create("/eph", flags=1))
    await client.call(4, watched("/eph", watch=True))
    await client.call(8, watched("/eph", watch=True))
    assert client.welcome is not None
    session = f"{client.welcome.session_id:#x}"
    assert await ask_word(server.address, "ruok") == "imok"
    assert await ask_word(server.address, "isro") == "rw"
    server_text = await ask_word(server.address, "srvr")
    assert server_text.startswith("Zookeeper version: 3.8.0")
    assert "Mode: standalone\nNode count: 8\n" in server_text
    assert "Clients:\n /127.0.0.1:" in await ask_word(server.address, "stat")
    assert f"sid={session}" in await ask_word(server.address, "cons")
    monitored = dict(line.split("\t") for line in (await ask_word(server.address, "mntr")).splitlines())
    assert monitored["zk_server_state"] == "standalone"
    assert monitored["zk_ephemerals_count"] == "1"
    assert monitored["zk_watch_count"] == "2"
    assert f"{session}:\n\t/eph\n" in await ask_word(server.address, "dump")
    assert "zookeeper.version=3.8.0" in await ask_word(server.address, "envi")
    assert f"tickTime={TICK_MS}\n" in await ask_word(server.address, "conf")
    assert await ask_word(server.address, "wchs") == "1 connections watching 2 paths\nTotal watches:2\n"
    assert await ask_word(server.address, "what") == ""


# --- back-pressure --------------------------------------------------------------------------------------------


async def test_a_client_that_does_not_read_costs_bounded_memory_and_harms_nobody(
    server: CoordinatorServer, client: RawClient
) -> None:
    await client.call(1, create("/big", bytes(500_000)))
    greedy = await RawClient.connect(server.address)
    greedy.reader._transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(3000):
        greedy.send(4, watched("/big"))
    for _ in range(20):
        assert (await client.call(3, watched("/big"))).error == 0
        await asyncio.sleep(0.01)
    held = sum(
        connection._transport.get_write_buffer_size()
        for connection in server._open
        if connection._transport is not None
    )
    assert held < 150_000_000
    greedy.reader._transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(50):
        assert len((await greedy.receive()).body) > 500_000
    greedy.drop()


def test_strings_that_are_no_utf8_are_read_as_java_reads_them() -> None:
    assert Reader(b"\0\0\0\2\xff/").string() == "�/"
