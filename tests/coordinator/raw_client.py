"""ZooKeeper's protocol from the client's side, byte by byte, with nothing in between."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field

from coordinator.access import OPEN_TO_ALL, Acl
from coordinator.jute import Reader, Writer

PATIENCE_SECONDS = 10


@dataclass(frozen=True)
class RawReply:
    xid: int
    zxid: int
    error: int
    body: bytes

    @property
    def reader(self) -> Reader:
        return Reader(self.body)


@dataclass(frozen=True)
class Welcome:
    timeout_ms: int
    session_id: int
    password: bytes
    length: int


@dataclass
class RawClient:
    """One connection. Events are put aside as (kind, path), in order."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    welcome: Welcome | None = None
    xid: int = 0
    events: list[tuple[int, str]] = field(default_factory=list)

    @classmethod
    async def dial(cls, address: str) -> RawClient:
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    @classmethod
    async def connect(cls, address: str, **handshake: object) -> RawClient:
        client = await cls.dial(address)
        client.send_frame(handshake_frame(**handshake))  # type: ignore[arg-type]
        await client.receive_welcome()
        return client

    def send_frame(self, payload: bytes) -> None:
        self.writer.write(struct.pack(">i", len(payload)) + payload)

    def send(self, operation: int, body: bytes = b"", xid: int | None = None) -> int:
        if xid is None:
            self.xid += 1
            xid = self.xid
        self.send_frame(struct.pack(">ii", xid, operation) + body)
        return xid

    async def receive_frame(self) -> bytes:
        async with asyncio.timeout(PATIENCE_SECONDS):
            (length,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(length)

    async def receive_welcome(self) -> Welcome:
        frame = await self.receive_frame()
        reader = Reader(frame)
        assert reader.int32() == 0
        timeout_ms, session_id, password = reader.int32(), reader.int64(), reader.buffer()
        assert password is not None
        self.welcome = Welcome(timeout_ms, session_id, password, len(frame))
        return self.welcome

    async def receive(self) -> RawReply:
        """The next reply; events before it are put aside."""
        while True:
            frame = await self.receive_frame()
            xid, zxid, error = struct.unpack(">iqi", frame[:16])
            if xid != -1:
                return RawReply(xid, zxid, error, frame[16:])
            reader = Reader(frame, 16)
            kind, state, path = reader.int32(), reader.int32(), reader.string()
            assert (zxid, error, state) == (-1, 0, 3)
            self.events.append((kind, path))

    async def call(self, operation: int, body: bytes = b"") -> RawReply:
        xid = self.send(operation, body)
        reply = await self.receive()
        assert reply.xid == xid
        return reply

    async def hung_up(self) -> bool:
        """Whether the server closes the connection without another word."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            try:
                return await self.reader.read() == b""
            except ConnectionResetError:
                return True

    def drop(self) -> None:
        self.writer.close()


def handshake_frame(
    *, last_zxid: int = 0, timeout_ms: int = 4000, session_id: int = 0, password: bytes | None = bytes(16),
    read_only: bool | None = False, version: int = 0,
) -> bytes:  # fmt: skip
    writer = Writer().int32(version).int64(last_zxid).int32(timeout_ms).int64(session_id).buffer(password)
    if read_only is not None:
        writer.boolean(read_only)
    return writer.finish()


def create(path: str, data: bytes | None = b"", flags: int = 0, acl: tuple[Acl, ...] = OPEN_TO_ALL) -> bytes:
    return Writer().string(path).buffer(data).acl(acl).int32(flags).finish()


def versioned(path: str, version: int = -1) -> bytes:
    return Writer().string(path).int32(version).finish()


def set_data(path: str, data: bytes | None, version: int = -1) -> bytes:
    return Writer().string(path).buffer(data).int32(version).finish()


def watched(path: str, watch: bool = False) -> bytes:
    return Writer().string(path).boolean(watch).finish()


def path_only(path: str) -> bytes:
    return Writer().string(path).finish()


def multi(*operations: tuple[int, bytes]) -> bytes:
    body = b"".join(struct.pack(">i?i", kind, False, -1) + operation for kind, operation in operations)
    return body + struct.pack(">i?i", -1, True, -1)


def multi_results(body: bytes) -> list[tuple[int, int, object]]:
    """(type, error, value) of each; the value is a path, a stat, or for an error its number once more."""
    reader = Reader(body)
    results: list[tuple[int, int, object]] = []
    while True:
        kind, done, error = reader.int32(), reader.boolean(), reader.int32()
        if done:
            assert reader.at_end
            return results
        value: object = None
        if kind in (1, 15):
            value = reader.string()
        elif kind == 5:
            value = reader.stat()
        elif kind == -1:
            value = reader.int32()
        results.append((kind, error, value))


async def ask_word(address: str, word: str) -> str:
    client = await RawClient.dial(address)
    client.writer.write(word.encode())
    async with asyncio.timeout(PATIENCE_SECONDS):
        return (await client.reader.read()).decode()
