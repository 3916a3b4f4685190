"""The same requests to our server and to a real ZooKeeper 3.8: the same answers."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.access import Acl, Identity
from coordinator.api import Stat
from coordinator.jute import Writer
from coordinator.server import CoordinatorServer
from tests.coordinator.raw_client import (
    RawClient,
    create,
    multi,
    multi_results,
    path_only,
    set_data,
    versioned,
    watched,
)

pytestmark = pytest.mark.real

Request = tuple[int, bytes]

_NAMES = ("a", "b", "c")
_ODD_PATHS = (
    "x",
    "x/y",
    "/a//b",
    "/a/",
    "/./a",
    "/a/../b",
    "/\x01",
    "/a\0b",
    "/\ue000",
    "/ü",
    "/\U0001f600",
    "/",
    "//",
)
_ACLS = (
    (Acl(31, Identity("world", "anyone")),),
    (Acl(1, Identity("world", "anyone")), Acl(1, Identity("world", "anyone"))),
    (Acl(31, Identity("world", "somebody")),),
    (Acl(31, Identity("digest", "me:hash")),),
    (Acl(31, Identity("digest", "nonsense")),),
    (Acl(31, Identity("ip", "127.0.0.1")), Acl(9, Identity("digest", "me:hash"))),
    (Acl(31, Identity("ip", "300.0.0.1")),),
    (Acl(31, Identity("auth", "")),),
    (),
)


class Script:
    """Random requests below one folder."""

    def __init__(self, seed: int, root: str) -> None:
        self._random = random.Random(seed)
        self._root = root

    def restricted_path(self) -> str:
        """One whose events nobody waits for: a newer ZooKeeper tells only those who may read the node."""
        return f"{self._root}/restricted/{self._random.choice(_NAMES)}"

    def path(self, watch: bool = False) -> str:
        choose = self._random.choice
        if not watch and self._random.random() < 0.2:
            return self.restricted_path()
        if self._random.random() < 0.08:
            odd = choose(_ODD_PATHS)
            return self._root + odd if odd.startswith("/") else odd
        path = f"{self._root}/{choose(_NAMES)}"
        return f"{path}/{choose(_NAMES)}" if self._random.random() < 0.6 else path

    def version(self) -> int:
        return self._random.choice((-1, -1, 0, 1, 2))

    def data(self) -> bytes | None:
        return self._random.choice((None, b"", b"x", b"data"))

    def write(self) -> Request:
        match self._random.randrange(8):
            case 0 | 1 | 2:
                flags = self._random.choice((0, 0, 0, 1, 2, 3, 8))
                return 1, create(self.path(), self.data(), flags)
            case 3 | 4:
                return 2, versioned(self.path(), self.version())
            case 5:
                return 5, set_data(self.path(), self.data(), self.version())
            case 6:
                acl = self._random.choice(_ACLS)
                return 1, create(self.restricted_path(), self.data(), 0, acl)
        return 13, versioned(self.path(), self.version())

    def request(self) -> Request:
        watch = self._random.random() < 0.4
        match self._random.randrange(14):
            case 0:
                return 3, watched(self.path(watch), watch)
            case 1:
                return 4, watched(self.path(watch), watch)
            case 2:
                return 12, watched(self.path(watch), watch)
            case 3:
                return 14, multi(*(self.write() for _ in range(self._random.randrange(5))))
            case 4:
                return 15, create(self.path(), self.data(), self._random.randrange(-1, 4))
            case 5:
                return 6, path_only(self.path())
            case 6:
                acl = self._random.choice(_ACLS)
                return 7, Writer().string(self.restricted_path()).acl(acl).int32(self.version()).finish()
            case 7:
                return 104, path_only(self.path())
            case 8:
                return self._random.choice((1, 2, 3, 4, 5, 8, 12, 14)), b"\0\0"
        write = self.write()
        return write if write[0] != 13 else (9, path_only("/"))  # a bare check breaks a real ZooKeeper's log


def normal_stat(stat: Stat, first_zxids: dict[int, int]) -> Stat:
    """Without what cannot be equal: zxids by order of first sight, no times, owner yes or no."""

    def number(zxid: int) -> int:
        return first_zxids.setdefault(zxid, len(first_zxids))

    return replace(
        stat,
        czxid=number(stat.czxid),
        mzxid=number(stat.mzxid),
        pzxid=number(stat.pzxid),
        ctime=0,
        mtime=0,
        ephemeral_owner=bool(stat.ephemeral_owner),
    )


async def answer(client: RawClient, request: Request, zxids: dict[int, int]) -> object:
    operation, body = request
    client.events.clear()
    reply = await client.call(operation, body)
    value: object = None
    reader = reply.reader
    if reply.error == 0:
        match operation:
            case 1 | 9:
                value = reader.string()
            case 15:
                value = reader.string(), normal_stat(reader.stat(), zxids)
            case 3 | 5 | 7:
                value = normal_stat(reader.stat(), zxids)
            case 4:
                value = reader.buffer(), normal_stat(reader.stat(), zxids)
            case 6:
                value = sorted(map(repr, reader.acl())), normal_stat(reader.stat(), zxids)
            case 12:
                value = sorted(reader.strings()), normal_stat(reader.stat(), zxids)
            case 104:
                value = reader.int32()
            case 14:
                value = [
                    (kind, error, normal_stat(result, zxids) if isinstance(result, Stat) else result)
                    for kind, error, result in multi_results(reply.body)
                ]
            case _:
                value = reply.body
    return reply.error, value, list(client.events)


@pytest.fixture
async def ours(tmp_path: Path) -> AsyncIterator[str]:
    server = CoordinatorServer("127.0.0.1:0", tmp_path, tick_ms=200)
    await server.start()
    yield server.address
    await server.stop()


@pytest.mark.parametrize("seed", range(12))
async def test_random_requests_get_the_same_answers(ours: str, real_zookeeper: str, seed: int) -> None:
    root = f"/random-{seed}"
    script = Script(seed, root)
    clients = [await RawClient.connect(address) for address in (ours, real_zookeeper)]
    zxids: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for client in clients:
        assert (await client.call(1, create(root))).error == 0
        assert (await client.call(1, create(root + "/restricted"))).error == 0
    for step in range(600):
        request = script.request()
        got, expected = [await answer(client, request, seen) for client, seen in zip(clients, zxids, strict=True)]
        assert got == expected, f"step {step}: {request}"
    for client in clients:
        assert (await client.call(-11)).error == 0
        client.drop()
