"""ZooKeeper's client protocol, the server's side, without any I/O: bytes in, requests out; replies in, bytes out.

A connection starts with a four-letter word or with a ConnectRequest; after that come frames of header and body.
Bad bytes never raise anything but `ProtocolViolation`, which means: hang up.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from coordinator import requests as ask
from coordinator.api import Stat
from coordinator.jute import Reader, Truncated, Writer
from coordinator.requests import ErrorCode, Event, Reply

MAX_FRAME_LENGTH = 0xFFFFF
_LONGEST_HANDSHAKE = 1 << 24  # anything above is four letters
_HEADER_LENGTH = 8

PING_XID = -2
EVENT_XID = -1
_CONNECTED = 3  # the state that every event carries

_LENGTH = struct.Struct(">i")


class ProtocolViolation(Exception):
    """The peer does not speak the protocol; the connection must be closed."""


@dataclass(frozen=True, slots=True)
class FourLetterWord:
    word: str


@dataclass(frozen=True, slots=True)
class ConnectRequest:
    last_zxid_seen: int
    timeout_ms: int
    session_id: int
    password: bytes
    knows_read_only: bool


@dataclass(frozen=True, slots=True)
class NumberedRequest:
    xid: int
    request: ask.Request


Arrival = FourLetterWord | ConnectRequest | NumberedRequest


class Inbound:
    """What arrives on one connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._opened = False

    def feed(self, data: bytes) -> None:
        """Some more bytes."""
        self._buffer += data

    def arrivals(self) -> Iterator[Arrival]:
        """Take out what is complete, one by one; what is not taken stays for the next time.

        Raises ProtocolViolation when its turn comes.
        """
        offset = 0
        try:
            while len(self._buffer) - offset >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(self._buffer, offset)
                if not self._opened and length >= _LONGEST_HANDSHAKE:
                    yield FourLetterWord(self._buffer[:4].decode("ascii", "replace"))
                    return
                if not 0 < length <= MAX_FRAME_LENGTH:
                    raise ProtocolViolation(f"a frame of {length} bytes")
                start, end = offset + _LENGTH.size, offset + _LENGTH.size + length
                if end > len(self._buffer):
                    return
                offset = end
                yield self._arrival(bytes(self._buffer[start:end]))
        finally:
            del self._buffer[:offset]

    def _arrival(self, frame: bytes) -> Arrival:
        if not self._opened:
            self._opened = True
            return decode_connect(frame)
        if len(frame) < _HEADER_LENGTH:
            raise ProtocolViolation(f"a request of {len(frame)} bytes")
        header = Reader(frame)
        return NumberedRequest(header.int32(), decode_request(header.int32(), header))


def decode_connect(frame: bytes) -> ConnectRequest:
    """Raises ProtocolViolation."""
    reader = Reader(frame)
    try:
        reader.int32()  # the protocol version: always 0, never looked at
        last_zxid_seen, timeout_ms, session_id = reader.int64(), reader.int32(), reader.int64()
        password = reader.buffer() or b""
    except Truncated as error:
        raise ProtocolViolation("a malformed handshake") from error
    return ConnectRequest(last_zxid_seen, timeout_ms, session_id, password, knows_read_only=not reader.at_end)


# --- requests --------------------------------------------------------------------------------------------------


def _create(reader: Reader) -> ask.Create:
    path, data, acl, flags = reader.string(), reader.buffer(), reader.acl(), reader.int32()
    return ask.Create(path, data, flags, acl)


def _create_with_stat(reader: Reader) -> ask.Create:
    path, data, acl, flags = reader.string(), reader.buffer(), reader.acl(), reader.int32()
    return ask.Create(path, data, flags, acl, with_stat=True)


def _auth(reader: Reader) -> ask.Auth:
    reader.int32()  # the type of authentication: always 0
    return ask.Auth(reader.string(), reader.buffer() or b"")


_MULTI_OPERATIONS: dict[int, Callable[[Reader], ask.MultiOperation]] = {
    1: _create,
    2: lambda reader: ask.Delete(reader.string(), reader.int32()),
    5: lambda reader: ask.SetData(reader.string(), reader.buffer(), reader.int32()),
    13: lambda reader: ask.Check(reader.string(), reader.int32()),
    15: _create,
    501: lambda reader: ask.CheckNotExists(reader.string(), reader.int32()),
}


def _multi(reader: Reader) -> ask.Request:
    operations: list[ask.MultiOperation] = []
    while True:
        kind, done, _ = reader.int32(), reader.boolean(), reader.int32()
        if done:
            return ask.Multi(tuple(operations))
        if kind not in _MULTI_OPERATIONS:
            return ask.Malformed()
        operations.append(_MULTI_OPERATIONS[kind](reader))


_REQUESTS: dict[int, Callable[[Reader], ask.Request]] = {
    **_MULTI_OPERATIONS,
    3: lambda reader: ask.Exists(reader.string(), reader.boolean()),
    4: lambda reader: ask.GetData(reader.string(), reader.boolean()),
    6: lambda reader: ask.GetAcl(reader.string()),
    7: lambda reader: ask.SetAcl(reader.string(), reader.acl(), reader.int32()),
    8: lambda reader: ask.GetChildren(reader.string(), reader.boolean()),
    9: lambda reader: ask.Sync(reader.string()),
    11: lambda reader: ask.Ping(),
    12: lambda reader: ask.GetChildren(reader.string(), reader.boolean(), with_stat=True),
    14: _multi,
    15: _create_with_stat,
    17: lambda reader: ask.RemoveWatches(reader.string(), reader.int32(), only_check=True),
    18: lambda reader: ask.RemoveWatches(reader.string(), reader.int32()),
    100: _auth,
    101: lambda reader: ask.SetWatches(reader.int64(), reader.strings(), reader.strings(), reader.strings()),
    103: lambda reader: ask.GetEphemerals(reader.string()),
    104: lambda reader: ask.GetAllChildrenNumber(reader.string()),
    107: lambda reader: ask.WhoAmI(),
    -11: lambda reader: ask.CloseSession(),
}

# ZooKeeper's own operations that this service leaves out: reconfig, container and TTL nodes, multiRead, SASL and
# persistent watches. A refusal does not cost the connection.
_KNOWN_BUT_LEFT_OUT = (16, 19, 21, 22, 102, 105, 106)


def decode_request(operation: int, body: Reader) -> ask.Request:
    """The request behind an operation number and its body; bytes after it are ignored."""
    decode = _REQUESTS.get(operation)
    if decode is None:
        return ask.Unimplemented(operation in _KNOWN_BUT_LEFT_OUT)
    try:
        return decode(body)
    except Truncated:
        return ask.Malformed()


# --- answers ---------------------------------------------------------------------------------------------------


def encode_connect_response(timeout_ms: int, session_id: int, password: bytes, *, with_read_only: bool) -> bytes:
    """The answer to a handshake that succeeded."""
    writer = Writer().int32(0).int32(timeout_ms).int64(session_id).buffer(password)
    if with_read_only:
        writer.boolean(False)
    return writer.frame()


def encode_refusal(*, with_read_only: bool) -> bytes:
    """The answer to a re-attach to a session that is over, or not the client's."""
    return encode_connect_response(0, 0, bytes(16), with_read_only=with_read_only)


def encode_event(event: Event) -> bytes:
    writer = Writer().int32(EVENT_XID).int64(-1).int32(ErrorCode.OK)
    return writer.int32(event.kind).int32(_CONNECTED).string(event.path).frame()


def encode_reply(xid: int, request: ask.Request, reply: Reply) -> bytes:
    """The answer to a request; a ping is answered as one whatever number it had."""
    writer = Writer().int32(PING_XID if isinstance(request, ask.Ping) else xid).int64(reply.zxid).int32(reply.error)
    if reply.body is not None:
        _write_body(writer, reply.body)
    return writer.frame()


def _write_body(writer: Writer, body: ask.Body) -> None:
    match body:
        case Stat():
            writer.stat(body)
        case ask.Created(path, stat, with_stat):
            writer.string(path)
            if with_stat:
                writer.stat(stat)
        case ask.Data(data, stat):
            writer.buffer(data).stat(stat)
        case ask.Children(names, stat, with_stat):
            writer.strings(names)
            if with_stat:
                writer.stat(stat)
        case ask.AclList(acl, stat):
            writer.acl(acl).stat(stat)
        case ask.Paths(paths):
            writer.strings(paths)
        case ask.Path(path):
            writer.string(path)
        case ask.Number(number):
            writer.int32(number)
        case ask.Identities(identities):
            writer.int32(len(identities))
            for identity in identities:
                writer.string(identity.scheme).string(identity.id)
        case ask.MultiResults(results):
            for result in results:
                _write_multi_result(writer, result)
            _write_multi_header(writer, -1, -1, done=True)
        case ask.MultiRefused(count, index, code):
            for position in range(count):
                error = _error_at(position, index, code)
                _write_multi_header(writer, -1, error)
                writer.int32(error)
            _write_multi_header(writer, -1, -1, done=True)


def _write_multi_result(writer: Writer, result: ask.WriteResult) -> None:
    match result:
        case ask.Created(path):
            _write_multi_header(writer, 1, 0)
            writer.string(path)
        case Stat():
            _write_multi_header(writer, 5, 0)
            writer.stat(result)
        case ask.Done(ask.Delete()):
            _write_multi_header(writer, 2, 0)
        case ask.Done(ask.Check()):
            _write_multi_header(writer, 13, 0)
        case ask.Done(ask.CheckNotExists()):
            _write_multi_header(writer, 501, 0)


def _write_multi_header(writer: Writer, kind: int, error: int, *, done: bool = False) -> None:
    writer.int32(kind).boolean(done).int32(error)


def _error_at(position: int, failed: int, code: ErrorCode) -> ErrorCode:
    """What a refused multi says of each operation: 0 before the one that failed, inconsistency after it."""
    if position == failed:
        return code
    return ErrorCode.OK if position < failed else ErrorCode.RUNTIME_INCONSISTENCY
