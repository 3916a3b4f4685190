"""The port over TCP, to our own server, ZooKeeper or Keeper: one `KazooClient` per session.

Each client knows a single address, may not retry and gets a single socket, so kazoo never carries a session, or
anything queued on it, over to another connection, be it to another server of an ensemble. The first sign of trouble
(SUSPENDED, LOST, or the end of one of kazoo's threads) ends the session for ever. kazoo calls back on its own
threads; every callback only hands over to the event loop.

Where the service does not announce CheckNotExists, it is a create and a delete in the same multi: the parent's
sequence counter and its child watches feel them, and a missing parent is NoNode. ClickHouse lives with the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import select
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from kazoo.client import KazooClient
from kazoo.exceptions import ZookeeperError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.hosts import collect_hosts
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.retry import KazooRetry

from coordinator import api
from coordinator.api import ANY_VERSION, Operation, Result, SessionLost, Stat, Watch, WatchOutcome
from coordinator.features import CHECK_NOT_EXISTS, FEATURE_FLAGS_PATH, announces
from coordinator.kazoo_multi import MultiFailure, MultiRecord, as_sent
from coordinator.paths import is_valid_new_path, is_valid_path
from coordinator.requests import client_error

_IMPATIENT_SECONDS = 1.0
_SILENT = logging.Logger("coordinator.kazoo", logging.CRITICAL + 1)
_LOST_CODES = (-4, -112, -116, -118)  # connection loss, session expired, closing, session moved


class KazooCoordinator:
    """`coordinator.api.Coordinator` for a service at `host:port[,host:port...][/chroot]`.

    Paths of its sessions are below the chroot, which must exist.
    """

    def __init__(
        self, hosts: str, *, session_timeout_seconds: float = 30.0, connect_timeout_seconds: float = 10.0
    ) -> None:
        """`connect_timeout_seconds` bounds the try of one address."""
        self._servers, chroot = collect_hosts(hosts)
        self._chroot = (chroot or "").rstrip("/")
        self._session_timeout = session_timeout_seconds
        self._connect_timeout = connect_timeout_seconds
        self._next_server = 0

    async def connect(self) -> KazooSession:
        """A session with the first server that gives one; the next connect begins with the server after that.

        Of several servers each gets a second to answer before the next is tried, and its full time only when all
        were in vain: one that hangs holds nobody up. Raises CoordinatorUnreachable naming all of them.
        """
        servers = [*self._servers[self._next_server :], *self._servers[: self._next_server]]
        refusals: dict[tuple[str, int], str] = {}
        for patience in self._patience():
            slow: list[tuple[str, int]] = []
            for server in servers:
                try:
                    session = await self._connect_to(server, patience)
                except _NoAnswerInTime as error:
                    slow.append(server)
                    refusals[server] = str(error)
                except api.CoordinatorUnreachable as error:
                    refusals[server] = str(error)
                else:
                    self._next_server = (self._servers.index(server) + 1) % len(self._servers)
                    return session
            servers = slow
        raise api.CoordinatorUnreachable("no coordination service to be had; " + "; ".join(refusals.values()))

    def _patience(self) -> tuple[float, ...]:
        """For how many seconds each server is waited for, round by round."""
        if len(self._servers) == 1 or self._connect_timeout <= _IMPATIENT_SECONDS:
            return (self._connect_timeout,)
        return (_IMPATIENT_SECONDS, self._connect_timeout)

    async def _connect_to(self, server: tuple[str, int], patience: float) -> KazooSession:
        """A session with the first of the server's addresses that gives one. Raises CoordinatorUnreachable."""
        host, port = server
        refusal = api.CoordinatorUnreachable(f"{host}:{port}: the name does not resolve")
        for address in await _resolved(host, port):
            session = KazooSession(address, self._chroot, self._session_timeout)
            try:
                await session.open(patience)
            except api.CoordinatorUnreachable as error:
                refusal = error
            else:
                return session
        raise refusal


class _NoAnswerInTime(api.CoordinatorUnreachable):
    """Somebody may be there, and slow."""


class KazooSession:
    """`coordinator.api.Session` over one KazooClient."""

    def __init__(self, address: str, chroot: str, session_timeout_seconds: float) -> None:
        self._address = address
        self._chroot = chroot
        self._timeout_seconds = session_timeout_seconds
        self._loop = asyncio.get_running_loop()
        self._session_id = 0
        self._connected: asyncio.Future[None] = self._loop.create_future()
        self._dead: asyncio.Future[None] = self._loop.create_future()
        self._retired: asyncio.Future[None] | None = None
        self._knows_check_not_exists = False
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._watches: dict[int, Watch] = {}
        self._last_number = 0
        self._client = KazooClient(
            address,
            timeout=session_timeout_seconds,
            handler=_Handler(self._from_thread(self._die)),
            connection_retry=KazooRetry(max_tries=1),
            command_retry=KazooRetry(max_tries=1),
            randomize_hosts=False,
            logger=_SILENT,
        )
        self._client.add_listener(self._listen)

    async def open(self, timeout_seconds: float) -> None:
        """Connect and learn what the service offers. Raises CoordinatorUnreachable."""
        self._client.start_async()
        try:
            async with asyncio.timeout(timeout_seconds):
                await asyncio.wait([self._connected, self._dead], return_when=asyncio.FIRST_COMPLETED)
                identity = self._client.client_id
                if self._dead.done() or identity is None:
                    raise api.CoordinatorUnreachable(f"{self._address}: nobody answers, or the handshake was refused")
                self._session_id = identity[0]
                self._knows_check_not_exists = await self._ask_for_check_not_exists()
                await self._require_chroot()
        except TimeoutError:
            self._die()
            raise _NoAnswerInTime(f"{self._address}: no answer in {timeout_seconds} s") from None
        except SessionLost as error:
            self._die()
            raise api.CoordinatorUnreachable(f"{self._address}: the connection broke in the handshake") from error
        except BaseException:
            self._die()
            raise

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def alive(self) -> bool:
        return not self._dead.done()

    @property
    def timeout_seconds(self) -> float:
        """What was asked for: kazoo does not tell what was granted."""
        return self._timeout_seconds

    async def wait_dead(self) -> None:
        await asyncio.shield(self._dead)

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        if not is_valid_new_path(path, sequential):
            raise api.BadArguments(path)
        created = await self._send(
            path, self._client.create_async, self._full(path), data, ephemeral=ephemeral, sequence=sequential
        )
        return self._own(created)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._send(path, self._client.delete_async, self._checked(path), version)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return Stat(*await self._send(path, self._client.set_async, self._checked(path), data, version))

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        with self._watching(watch) as watcher:
            data, stat = await self._send(path, self._client.get_async, self._checked(path), watcher)
        return data or b"", Stat(*stat)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        full_paths = [self._checked(path) for path in paths]
        requests = [
            self._send(path, self._client.get_async, full) for path, full in zip(paths, full_paths, strict=True)
        ]
        answers = await asyncio.gather(*requests, return_exceptions=True)
        found: list[tuple[bytes, Stat] | None] = []
        for answer in answers:
            if isinstance(answer, api.NoNode):
                found.append(None)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.append((answer[0] or b"", Stat(*answer[1])))
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        with self._watching(watch) as watcher:
            stat = await self._send(path, self._client.exists_async, self._checked(path), watcher)
        return None if stat is None else Stat(*stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        with self._watching(watch) as watcher:
            names = await self._send(path, self._client.get_children_async, self._checked(path), watcher)
        return sorted(names)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        for index, operation in enumerate(operations):
            sequential = isinstance(operation, api.Create) and operation.sequential
            if not is_valid_new_path(operation.path, sequential):
                raise api.MultiFailed(index, api.BadArguments(operation.path))
        sent, origins = as_sent(operations, self._knows_check_not_exists)
        (outcome,) = await self._send("", self._send_multi, MultiRecord(sent, self._full))
        if isinstance(outcome, MultiFailure):
            index = origins[outcome.position]
            raise api.MultiFailed(index, client_error(outcome.code, operations[index].path))
        results: list[Result] = [None] * len(operations)
        for origin, result in zip(origins, outcome, strict=True):
            if not isinstance(operations[origin], api.CheckNotExists):
                results[origin] = self._own(result) if isinstance(result, str) else result
        return results

    async def close(self) -> None:
        self._die()
        assert self._retired is not None, "the dead are retired"
        await asyncio.shield(self._retired)

    # --- requests -----------------------------------------------------------------------------------------------

    def _send(self, path: str, method: Callable[..., Any], *arguments: Any, **options: Any) -> asyncio.Future[Any]:
        """Call one of kazoo's asynchronous methods; the future gets its result as the port defines it."""
        if self._dead.done():
            raise SessionLost(f"session {self._session_id:#x} is over")
        self._last_number += 1
        number = self._last_number
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._pending[number] = answer
        arrived = self._from_thread(lambda result: self._answered(number, path, result))
        method(*arguments, **options).rawlink(arrived)
        return answer

    def _answered(self, number: int, path: str, result: Any) -> None:
        answer = self._pending.pop(number, None)
        if answer is None or answer.done():
            return
        if result.successful():
            answer.set_result(result.value)
        elif isinstance(result.exception, ZookeeperError) and result.exception.code not in _LOST_CODES:
            answer.set_exception(client_error(result.exception.code, path))
        else:
            answer.set_exception(SessionLost(f"session {self._session_id:#x}: {result.exception!r}"))
            self._die()

    def _send_multi(self, multi: MultiRecord) -> Any:
        # kazoo's own transaction misreads results that it has no record for, hence this door into its queue.
        result = self._client.handler.async_result()
        self._client._call(multi, result)
        return result

    async def _ask_for_check_not_exists(self) -> bool:
        try:
            flags, _ = await self._send(FEATURE_FLAGS_PATH, self._client.get_async, FEATURE_FLAGS_PATH)
        except api.RequestRefused:
            return False
        return announces(flags or b"", CHECK_NOT_EXISTS)

    async def _require_chroot(self) -> None:
        if self._chroot and await self.exists("/") is None:
            raise api.CoordinatorUnreachable(f"{self._address}: there is no znode {self._chroot} to stay below")

    # --- paths --------------------------------------------------------------------------------------------------

    def _checked(self, path: str) -> str:
        if not is_valid_path(path):
            raise api.BadArguments(path)
        return self._full(path)

    def _full(self, path: str) -> str:
        return self._chroot + path if path != "/" else self._chroot or "/"

    def _own(self, path: str) -> str:
        return path[len(self._chroot) :] or "/"

    # --- watches ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _watching(self, watch: Watch | None) -> Iterator[Callable[[Any], None] | None]:
        """kazoo's callback for the watch; a read that is refused leaves no watch behind."""
        if watch is None:
            yield None
            return
        self._last_number += 1
        number = self._last_number
        self._watches[number] = watch
        try:
            yield self._from_thread(lambda event: self._fired(number, event))
        except api.CoordinationError:
            self._watches.pop(number, None)
            raise

    def _fired(self, number: int, event: WatchedEvent) -> None:
        watch = self._watches.pop(number, None) if event.type != EventType.NONE else None
        if watch is not None:
            watch.resolve(WatchOutcome.CHANGED)

    # --- life and death -----------------------------------------------------------------------------------------

    def _from_thread(self, callback: Callable[..., None]) -> Callable[..., None]:
        """The callback, to be called on any thread, to run on the loop."""

        def hand_over(*arguments: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is interested any more
                self._loop.call_soon_threadsafe(callback, *arguments)

        return hand_over

    def _listen(self, state: str) -> None:
        """On kazoo's connection thread."""
        self._from_thread(self._welcomed if state == KazooState.CONNECTED else self._die)()

    def _welcomed(self) -> None:
        if not self._connected.done():
            self._connected.set_result(None)

    def _die(self) -> None:
        """Everything that waits for the session is lost; kazoo's threads are sent home."""
        if self._dead.done():
            return
        self._dead.set_result(None)
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(SessionLost(f"session {self._session_id:#x} died before the answer"))
                answer.exception()  # marks it as seen: its caller may be gone
        self._pending.clear()
        for watch in self._watches.values():
            watch.resolve(WatchOutcome.LOST)
        self._watches.clear()
        self._retired = self._loop.create_future()
        threading.Thread(target=self._retire, name="coordinator kazoo retirement", daemon=True).start()

    def _retire(self) -> None:
        """On a thread of its own, as kazoo waits: end the session if it still can be, and the threads."""
        with contextlib.suppress(Exception):
            self._client.stop()
        with contextlib.suppress(Exception):
            self._client.close()
        self._from_thread(self._gone)()

    def _gone(self) -> None:
        if self._retired is not None and not self._retired.done():
            self._retired.set_result(None)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads and its only socket, with a word when one of the threads ends.

    kazoo itself tells nobody of a failed connect. Answers need no thread of their own here, as all that is done
    with them is to hand them over to the loop.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        super().__init__()
        self.completion_queue = _AtOnce()
        self._on_end = on_end
        self._has_connected = False

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _others: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As `select.select`, in one system call: kazoo's own makes and drops an epoll each time."""
        poll = select.poll()
        for each in readers:
            poll.register(each, select.POLLIN)
        for each in writers:
            poll.register(each, select.POLLOUT)
        ready = dict(poll.poll(None if timeout is None else max(0.0, timeout * 1000)))
        return (
            [each for each in readers if each.fileno() in ready],
            [each for each in writers if each.fileno() in ready],
            [],
        )

    def create_connection(self, *args: Any, **kwargs: Any) -> socket.socket:
        if self._has_connected:
            raise ConnectionRefusedError("a session has one connection")
        self._has_connected = True
        return cast(socket.socket, super().create_connection(*args, **kwargs))

    def spawn(self, func: Callable[..., None], *args: Any, **kwargs: Any) -> threading.Thread:
        def run() -> None:
            try:
                with contextlib.suppress(Exception):
                    func(*args, **kwargs)
            finally:
                self._on_end()

        return cast(threading.Thread, super().spawn(run))


class _AtOnce(queue.SimpleQueue[Any]):
    """Work put here is done at once, by whoever puts it; what is no work arrives, as the end of kazoo's thread."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if callable(item):
            item()
        else:
            super().put(item, block, timeout)

    def task_done(self) -> None:
        """Nobody joins this queue."""


async def _resolved(host: str, port: int) -> list[str]:
    """The numeric addresses of a host, in the resolver's order; none if it has no such name."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    addresses = [f"[{info[4][0]}]:{port}" if info[0] == socket.AF_INET6 else f"{info[4][0]}:{port}" for info in found]
    return list(dict.fromkeys(addresses))
