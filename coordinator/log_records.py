"""Transactions and states as the journal's bytes, and records that know whether they are whole.

A record is a payload with its length and CRC-32 before it. An empty payload is never written, so a run of zero
bytes is no record.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum

from coordinator.access import OPEN_TO_ALL, Acl
from coordinator.jute import Reader, Truncated, Writer
from coordinator.processor import SessionClosed, SessionOpened, State, Transaction
from coordinator.tree import AclSet, Change, DataSet, Node, NodeCreated, NodeDeleted

_RECORD_HEADER = struct.Struct(">II")


class _Kind(IntEnum):
    CREATED = 1
    DELETED = 2
    DATA_SET = 3
    ACL_SET = 4
    SESSION_OPENED = 5
    SESSION_CLOSED = 6


class Unreadable(ValueError):
    """A record that is whole does not say what it must."""


# --- whole records ---------------------------------------------------------------------------------------------


def record(payload: bytes) -> bytes:
    return _RECORD_HEADER.pack(len(payload), zlib.crc32(payload)) + payload


def whole_records(data: bytes, offset: int) -> tuple[list[bytes], int]:
    """The payloads from `offset` up to the first record that is not whole, and where that one starts."""
    payloads: list[bytes] = []
    while offset + _RECORD_HEADER.size <= len(data):
        length, checksum = _RECORD_HEADER.unpack_from(data, offset)
        payload = data[offset + _RECORD_HEADER.size : offset + _RECORD_HEADER.size + length]
        if not length or len(payload) < length or zlib.crc32(payload) != checksum:
            break
        payloads.append(payload)
        offset += _RECORD_HEADER.size + length
    return payloads, offset


# --- transactions ----------------------------------------------------------------------------------------------


def encode_transaction(transaction: Transaction) -> bytes:
    writer = Writer().int64(transaction.zxid).int64(transaction.time_ms).int32(len(transaction.changes))
    for change in transaction.changes:
        _write_change(writer, change)
    return writer.finish()


def decode_transaction(payload: bytes) -> Transaction:
    """Raises Unreadable."""
    reader = Reader(payload)
    try:
        return Transaction(reader.int64(), reader.int64(), reader.items(lambda: _read_change(reader)))
    except Truncated as error:
        raise Unreadable("a transaction record is malformed") from error


def _write_change(writer: Writer, change: Change | SessionOpened | SessionClosed) -> None:
    match change:
        case NodeCreated(path, data, acl, owner):
            writer.int32(_Kind.CREATED).string(path).buffer(data).acl(acl).int64(owner)
        case NodeDeleted(path):
            writer.int32(_Kind.DELETED).string(path)
        case DataSet(path, data):
            writer.int32(_Kind.DATA_SET).string(path).buffer(data)
        case AclSet(path, acl):
            writer.int32(_Kind.ACL_SET).string(path).acl(acl)
        case SessionOpened():
            writer.int32(_Kind.SESSION_OPENED)
            _write_session(writer, change)
        case SessionClosed(session_id):
            writer.int32(_Kind.SESSION_CLOSED).int64(session_id)


def _read_change(reader: Reader) -> Change | SessionOpened | SessionClosed:
    match reader.int32():
        case _Kind.CREATED:
            return NodeCreated(reader.string(), reader.buffer(), _shared_acl(reader), reader.int64())
        case _Kind.DELETED:
            return NodeDeleted(reader.string())
        case _Kind.DATA_SET:
            return DataSet(reader.string(), reader.buffer())
        case _Kind.ACL_SET:
            return AclSet(reader.string(), reader.acl())
        case _Kind.SESSION_OPENED:
            return _read_session(reader)
        case _Kind.SESSION_CLOSED:
            return SessionClosed(reader.int64())
    raise Unreadable("a transaction record holds an unknown kind of change")


# --- states ----------------------------------------------------------------------------------------------------


def encode_state(state: State, nodes_per_payload: int = 500) -> Iterator[bytes]:
    """The payloads of a snapshot, made one at a time: a head, then the nodes in portions."""
    head = Writer().int64(state.zxid).int64(len(state.nodes)).int32(len(state.sessions))
    for session in state.sessions:
        _write_session(head, session)
    yield head.finish()
    items = list(state.nodes.items())
    for start in range(0, len(items), nodes_per_payload):
        portion = items[start : start + nodes_per_payload]
        writer = Writer().int32(len(portion))
        for path, node in portion:
            _write_node(writer, path, node)
        yield writer.finish()


def decode_state(payloads: list[bytes]) -> State:
    """Raises Unreadable, also when portions are missing."""
    if not payloads:
        raise Unreadable("a snapshot without a head")
    try:
        head = Reader(payloads[0])
        zxid, expected = head.int64(), head.int64()
        sessions = head.items(lambda: _read_session(head))
        nodes: dict[str, Node] = {}
        for payload in payloads[1:]:
            reader = Reader(payload)
            nodes.update(reader.items(lambda reader=reader: _read_node(reader)))  # type: ignore[misc]
    except Truncated as error:
        raise Unreadable("a snapshot record is malformed") from error
    if len(nodes) != expected:
        raise Unreadable(f"a snapshot holds {len(nodes)} znodes instead of {expected}")
    return State(zxid, sessions, nodes)


def _write_session(writer: Writer, session: SessionOpened) -> None:
    writer.int64(session.session_id).buffer(session.password).int32(session.timeout_ms)


def _read_session(reader: Reader) -> SessionOpened:
    return SessionOpened(reader.int64(), reader.buffer() or b"", reader.int32())


def _write_node(writer: Writer, path: str, node: Node) -> None:
    writer.string(path).buffer(node.data).acl(node.acl).int64(node.owner)
    writer.int64(node.czxid).int64(node.mzxid).int64(node.pzxid).int64(node.ctime).int64(node.mtime)
    writer.int32(node.version).int32(node.aversion).int32(node.creates)


def _read_node(reader: Reader) -> tuple[str, Node]:
    return reader.string(), Node(
        reader.buffer(),
        _shared_acl(reader),
        reader.int64(),
        czxid=reader.int64(),
        mzxid=reader.int64(),
        pzxid=reader.int64(),
        ctime=reader.int64(),
        mtime=reader.int64(),
        version=reader.int32(),
        aversion=reader.int32(),
        creates=reader.int32(),
    )


def _shared_acl(reader: Reader) -> tuple[Acl, ...]:
    """Nearly every node is open to all: one tuple for all of those."""
    acl = reader.acl()
    return OPEN_TO_ALL if acl == OPEN_TO_ALL else acl
