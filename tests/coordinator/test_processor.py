"""The request processor by itself: sessions and connections, zxids, and what it hands to a journal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator import requests as ask
from coordinator.features import ANNOUNCED, CHECK_NOT_EXISTS, announces, feature_flags
from coordinator.processor import Attached, Processor, SessionClosed, SessionOpened
from coordinator.protocol import Inbound, ProtocolViolation
from coordinator.requests import ErrorCode, Event, EventKind
from coordinator.sessions import SessionTable
from coordinator.tree import NodeDeleted

PASSWORD = b"p" * 16


def opened(processor: Processor, now_ms: int = 0) -> Attached:
    return processor.open_session(4000, PASSWORD, "127.0.0.1", now_ms, 0)


def test_a_reattached_session_has_left_watches_and_identities_behind() -> None:
    processor = Processor(2000)
    first = opened(processor)
    processor.handle(first.peer, ask.Exists("/a", True), 0, 0)
    processor.handle(first.peer, ask.Auth("digest", b"me:secret"), 0, 0)
    again = processor.reattach(first.session.session_id, PASSWORD, 8000, "127.0.0.1", 0)
    assert again is not None
    assert again.displaced is first.peer
    assert again.transaction is None
    assert again.session.timeout_ms == 8000
    assert [identity.scheme for identity in again.peer.identities] == ["ip", "world"]
    assert processor.handle(again.peer, ask.Create("/a", b""), 0, 0).events == []
    processor.detach(first.peer)  # the old connection is noticed to be gone: nothing happens to the new one
    assert processor.reattach(first.session.session_id, b"wrong", 8000, "127.0.0.1", 0) is None


def test_only_what_changes_something_takes_a_zxid_and_makes_a_transaction() -> None:
    processor = Processor(2000)
    peer = opened(processor).peer
    assert processor.zxid == 1
    for request in (
        ask.Exists("/", False),
        ask.Ping(),
        ask.Sync("/"),
        ask.Delete("/absent", -1),
        ask.Check("/", -1),
        ask.Multi((ask.Check("/", -1), ask.CheckNotExists("/absent", -1))),
        ask.Multi((ask.Create("/a", b""), ask.Delete("/absent", -1))),
        ask.Malformed(),
    ):
        step = processor.handle(peer, request, 0, 0)
        assert (step.transaction, step.reply.zxid, processor.zxid) == (None, 1, 1)
    step = processor.handle(peer, ask.Create("/a", b"", 1), 0, 7)
    assert step.transaction is not None
    assert (step.transaction.zxid, step.transaction.time_ms, step.reply.zxid) == (2, 7, 2)


def test_the_end_of_a_session_is_one_transaction_and_tells_the_others() -> None:
    processor = Processor(2000)
    ending, other = opened(processor), opened(processor)
    for path in ("/a", "/b"):
        processor.handle(ending.peer, ask.Create(path, b"", 1), 0, 0)
    processor.handle(other.peer, ask.Exists("/b", True), 0, 0)
    processor.handle(other.peer, ask.GetChildren("/", True), 0, 0)
    processor.sessions.touch(other.session.session_id, 5000)
    (ended,) = processor.expire(6000, 0)
    session_id = ending.session.session_id
    assert ended.peer is ending.peer
    assert ended.transaction is not None
    assert ended.transaction.changes == (NodeDeleted("/a"), NodeDeleted("/b"), SessionClosed(session_id))
    number = other.peer.number
    assert ended.events == [
        (number, Event(EventKind.CHILDREN_CHANGED, "/")),
        (number, Event(EventKind.DELETED, "/b")),
    ]
    late = processor.handle(ending.peer, ask.Create("/late", b""), 6000, 0)
    assert (late.reply.error, late.ends_connection) == (ErrorCode.SESSION_EXPIRED, True)


def test_a_new_session_is_a_transaction() -> None:
    attached = opened(Processor(2000, first_zxid=100, first_session_id=7))
    assert attached.transaction is not None
    assert attached.transaction.zxid == 101
    assert attached.transaction.changes == (SessionOpened(7, PASSWORD, 4000),)


@given(st.integers(0, 10**6), st.integers(4000, 40_000))
def test_a_session_expires_with_the_tick_after_its_timeout(heard_ms: int, timeout_ms: int) -> None:
    table = SessionTable(2000)
    session = table.open(1, PASSWORD, timeout_ms, heard_ms)
    expiry = table.expiry_ms(session)
    assert expiry % 2000 == 0
    assert heard_ms + timeout_ms < expiry <= heard_ms + timeout_ms + 2000
    assert table.overdue(expiry - 1) == []
    assert table.overdue(expiry) == [1]
    assert table.next_expiry_ms() == expiry


def test_feature_flags_are_bits_from_the_left() -> None:
    assert feature_flags((0, 1)) == b"\xc0"
    assert feature_flags(tuple(range(11))) == b"\xff\xe0"
    assert feature_flags(ANNOUNCED) == b"\x20"
    assert announces(b"\xff\xe0", 10)
    assert not announces(b"\xff\xe0", 11)
    assert not announces(b"", CHECK_NOT_EXISTS)
    assert not announces(b"\x10", CHECK_NOT_EXISTS)


@given(st.binary(max_size=200), st.lists(st.integers(1, 20)))
def test_any_bytes_in_any_pieces_are_read_or_refused(data: bytes, pieces: list[int]) -> None:
    whole, piecemeal = Inbound(), Inbound()
    whole.feed(data)
    expected = _arrivals(whole)
    found: list[object] = []
    offset = 0
    for piece in [*pieces, len(data)]:
        piecemeal.feed(data[offset : offset + piece])
        offset += piece
        found += _arrivals(piecemeal)
        if found and found[-1] == "violation":
            break
    assert found == expected or "FourLetterWord" in repr(expected)


def _arrivals(inbound: Inbound) -> list[object]:
    found: list[object] = []
    try:
        found.extend(inbound.arrivals())
    except ProtocolViolation:
        found.append("violation")
    return found
