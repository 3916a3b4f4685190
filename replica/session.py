"""The session of a server, and the check that keeps a dead one's requests from being applied.

A request of a dead session may reach the coordination service late. So each server owns one znode whose
version every new session raises before it does anything else, and every multi that must not outlive its
session carries a check of that version, as ClickHouse's session-checked multis do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack

from coordinator.api import (
    ANY_VERSION,
    Check,
    CoordinationError,
    Coordinator,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    Result,
    Session,
    SessionLost,
    Set,
    Stat,
    Watch,
)
from replica.zookeeper_log import Call, Children, Exists, Failure, Get, Multi, Request, ZooKeeperLog

SESSIONS_PATH = "/clickhouse/sessions/zookeeper"
RECONNECT_SECONDS = 0.5
_TELL_AGAIN_SECONDS = 8.0
"""With the wait for a connection on top, a server that has no session says so every ten seconds or so."""

log = logging.getLogger(__name__)


class ServerSession:
    """A live session of this server, with its check, a log of its requests and a count of the round trips made.

    Speaks the `Session` port; `multi_checked` is the addition.
    """

    def __init__(self, session: Session, guard_path: str, guard_version: int, log: ZooKeeperLog) -> None:
        self._session = session
        self._guard = Check(guard_path, guard_version)
        self._log = log
        self.round_trips: Counter[str] = Counter()

    @property
    def session_id(self) -> int:
        return self._session.session_id

    @property
    def alive(self) -> bool:
        return self._session.alive

    @property
    def timeout_seconds(self) -> float:
        return self._session.timeout_seconds

    async def wait_dead(self) -> None:
        await self._session.wait_dead()

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        with self._asking("create", Create(path, data, ephemeral, sequential)) as call:
            call.result = created = await self._session.create(path, data, ephemeral=ephemeral, sequential=sequential)
            return created

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        with self._asking("delete", Delete(path, version)):
            await self._session.delete(path, version)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        with self._asking("set", Set(path, data, version)) as call:
            call.result = stat = await self._session.set(path, data, version)
            return stat

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        with self._asking("get", Get(path, watch is not None)) as call:
            data, call.result = await self._session.get(path, watch)
            return data, call.result

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        self.round_trips["get_many"] += 1
        with ExitStack() as stack:
            calls = [stack.enter_context(self._log.call(self.session_id, Get(path, False))) for path in paths]
            answers = await self._session.get_many(paths)
            for call, answer in zip(calls, answers, strict=True):
                call.result = Failure(NoNode) if answer is None else answer[1]
            return answers

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        with self._asking("exists", Exists(path, watch is not None)) as call:
            stat = await self._session.exists(path, watch)
            call.result = Failure(NoNode) if stat is None else stat
            return stat

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        with self._asking("children", Children(path, watch is not None)) as call:
            call.result = names = await self._session.children(path, watch)
            return names

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        with self._asking("multi", Multi(tuple(operations))) as call:
            call.result = results = await self._session.multi(operations)
            return results

    def _asking(self, what: str, request: Request) -> AbstractContextManager[Call]:
        """A round trip, counted and logged."""
        self.round_trips[what] += 1
        return self._log.call(self.session_id, request)

    async def multi_checked(self, operations: Sequence[Operation]) -> list[Result]:
        """A multi that is refused, with `SessionLost`, once a later session of this server exists.

        Somebody may have removed the znode of the check, as with everything else: then the session is of no use any
        more, and ends.
        """
        try:
            results = await self.multi([*operations, self._guard])
        except MultiFailed as failure:
            if failure.index == len(operations):
                if isinstance(failure.error, NoNode):
                    await self._session.close()
                    raise SessionLost(f"{failure.error} was removed, which every session needs") from failure
                raise SessionLost("this server has a later session") from failure
            raise
        return results[:-1]

    async def close(self) -> None:
        await self._session.close()


async def ensure_path(session: Session, path: str) -> None:
    """Create the persistent znode and its missing ancestors; those that exist are fine."""
    steps = path.strip("/").split("/")
    for depth in range(1, len(steps) + 1):
        with contextlib.suppress(NodeExists):
            await session.create("/" + "/".join(steps[:depth]))


async def open_server_session(coordinator: Coordinator, server_uuid: str, requests: ZooKeeperLog) -> ServerSession:
    """A new session whose check outdates those of all earlier sessions of this server.

    This write goes first, so it also makes the session's reads safe on an ensemble, where a server may lag behind: it
    answers when the server has applied the write, and with it all that was ordered before. A checked multi of an
    earlier session either was, and is seen by every read from here on, or comes later and is refused. A change of
    leader adds nothing: what the new one does not have of the old one's proposals is never applied.
    """
    session = await coordinator.connect()
    guard = f"{SESSIONS_PATH}/{server_uuid}"
    try:
        stat = await session.set(guard, b"")
    except NoNode:
        await ensure_path(session, guard)
        stat = await session.set(guard, b"")
    return ServerSession(session, guard, stat.version, requests)


class SessionKeeper:
    """Keeps the one live session that all tables of a server share; `requests` is the log of all its sessions."""

    def __init__(self, coordinator: Coordinator, server_uuid: str, requests: ZooKeeperLog) -> None:
        self._coordinator = coordinator
        self.requests = requests
        self._server_uuid = server_uuid
        self._session: ServerSession | None = None
        self._arrived = asyncio.Event()
        self.last_error = ""
        self._told: tuple[str, float] | None = None

    @property
    def current(self) -> ServerSession | None:
        """The session, if one is alive at this moment."""
        return self._session if self._session is not None and self._session.alive else None

    async def live(self) -> ServerSession:
        """Wait for a live session."""
        while (session := self.current) is None:
            self._arrived.clear()
            await self._arrived.wait()
        return session

    async def run(self) -> None:
        """Make a session, and a new one whenever it dies; close it when cancelled."""
        try:
            while True:
                try:
                    self._session = await open_server_session(self._coordinator, self._server_uuid, self.requests)
                except CoordinationError as problem:
                    self.last_error = str(problem)
                    self._tell_failure()
                    await asyncio.sleep(RECONNECT_SECONDS)
                    continue
                self.last_error = ""
                self._told = None
                log.info("session %#x is there", self._session.session_id)
                self._arrived.set()
                await self._session.wait_dead()
                log.warning("session %#x is lost", self._session.session_id)
        finally:
            if self._session is not None:
                await self._session.close()

    def _tell_failure(self) -> None:
        """Log why there is no session: what is new at once, what is not every few seconds."""
        now = asyncio.get_running_loop().time()
        if self._told is None or self._told[0] != self.last_error or now - self._told[1] >= _TELL_AGAIN_SECONDS:
            self._told = (self.last_error, now)
            log.warning("no session with the coordination service yet, trying again: %s", self.last_error)
