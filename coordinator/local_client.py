"""The coordination service in process, for the simulation: a service, a network that may fail, and its clients.

`LocalService` runs the same `Processor` as the TCP server. `LocalCoordinator` is one client process's way to it;
every message passes a `Delivery`, which says how long it travels or that it is lost. All time is the event
loop's; there are no threads and there is no randomness here, so a deterministic loop and `Delivery` give the
same run again.

What the network does, as one TCP connection per session would:

* Requests of a session arrive in order, and so do its replies; events overtake replies freely.
* After a lost message nothing more arrives in that direction. The client notices when an answer (to a request or
  to a heartbeat) stays out for the operation timeout, and is then dead for ever. The service keeps the session
  until its timeout, and a request that is still on its way may be applied meanwhile.
* A living client sends a heartbeat every third of the session timeout.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from coordinator import api
from coordinator import requests as ask
from coordinator.api import ANY_VERSION, Operation, Result, SessionLost, Stat, Watch, WatchOutcome
from coordinator.paths import is_valid_new_path, is_valid_path
from coordinator.processor import Attached, Ended, Peer, Processor, Transaction
from coordinator.requests import CreateFlag, ErrorCode, Event, EventKind, Reply, client_error
from coordinator.watches import Notification

T = TypeVar("T")
WallClock = Callable[[], float]

_PASSWORD = bytes(16)  # nobody re-attaches in process


class Delivery(Protocol):
    """How one message fares."""

    def delay(self, label: str) -> float | None:
        """Seconds on the way, or None: the message is lost.

        `label` is the client's name, the session (`s1`; `-` before there is one), what it is (`connect`,
        `welcome`, `request`, `reply`, `event`, `goodbye`, `heartbeat`) and, for most, of what:
        `r1 s3 request 7 Create /a`, `r1 s3 reply 7 Create`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Exchange:
    """One thing that passed between a client and the service, as the service saw it.

    `what` is `opened`, `expired`, `request`, `reply` or `event`. Requests and replies have an `xid` and, as
    `message`, the request or the reply; an event has its Event; `opened` has the session's timeout in milliseconds.
    """

    client: str
    session_id: int
    what: str
    xid: int = 0
    message: ask.Request | Reply | Event | int | None = None

    def __str__(self) -> str:
        xid = f" {self.xid}" if self.xid else ""
        message = "" if self.message is None else f" {self.message!r}"
        return f"s{self.session_id} {self.what}{xid}{message}"


Observer = Callable[[Exchange], None]
TransactionObserver = Callable[[Transaction], None]


def _unobserved(exchange: Exchange | Transaction) -> None:
    pass


class LocalService:
    """The service: one processor on the running loop's time. `wall_clock` gives seconds since 1970."""

    def __init__(
        self,
        wall_clock: WallClock,
        *,
        tick_seconds: float = 2.0,
        observer: Observer = _unobserved,
        on_transaction: TransactionObserver = _unobserved,
    ) -> None:
        """`observer` is told of every message that the service receives or sends, `on_transaction` of everything
        that changes the tree, as it happens; neither may raise."""
        self.processor = Processor(round(tick_seconds * 1000))
        self._wall_clock = wall_clock
        self._observe = observer
        self._on_transaction = on_transaction
        self._connections: dict[int, _Connection] = {}
        self._expiry: asyncio.TimerHandle | None = None

    def expire(self, session_id: int) -> None:
        """End a session by force, as if its time were over. A session that is already over stays so."""
        if self.processor.sessions.get(session_id) is not None:
            self._announce(self.processor.end_session(session_id, self._time_ms()))

    def restart(self) -> None:
        """As after a restart from its journal: every connection is gone, and every session goes on to its timeout."""
        for _, connection in sorted(self._connections.items()):
            connection.send_goodbye()
        self._connections.clear()

    def session_ids(self) -> list[int]:
        """The sessions that the service keeps at this moment, ascending."""
        return sorted(session.session_id for session in self.processor.sessions.all())

    def sessions_of(self, client: str) -> list[int]:
        """The sessions of this client that are connected at this moment, ascending."""
        return sorted(each.session_id for each in self._connections.values() if each.client == client)

    def accept(self, connection: _Connection, timeout_ms: int) -> Attached:
        """A client's handshake arrives."""
        attached = self.processor.open_session(timeout_ms, _PASSWORD, "127.0.0.1", self._now_ms(), self._time_ms())
        self._connections[attached.peer.number] = connection
        session = attached.session
        self._observe(Exchange(connection.client, session.session_id, "opened", message=session.timeout_ms))
        self._schedule_expiry()
        return attached

    def receive(self, peer: Peer, xid: int, request: ask.Request) -> None:
        """A client's request arrives. Requests of a session that is over, or a connection that is, get no answer."""
        connection = self._connections.get(peer.number)
        if connection is None or self.processor.sessions.get(peer.session_id) is None:
            return
        self._observe(Exchange(connection.client, peer.session_id, "request", xid, request))
        step = self.processor.handle(peer, request, self._now_ms(), self._time_ms())
        if step.transaction is not None:
            self._on_transaction(step.transaction)
        self._send_events(step.events)
        self._observe(Exchange(connection.client, peer.session_id, "reply", xid, step.reply))
        connection.send_reply(xid, step.reply)
        if step.ends_connection:
            del self._connections[peer.number]

    def _send_events(self, notifications: Sequence[Notification]) -> None:
        for watcher, event in notifications:
            connection = self._connections.get(watcher)
            if connection is not None:
                self._observe(Exchange(connection.client, connection.session_id, "event", message=event))
                connection.send_event(event)

    def _announce(self, ended: Ended) -> None:
        if ended.transaction is not None:
            self._on_transaction(ended.transaction)
        connection = None if ended.peer is None else self._connections.pop(ended.peer.number, None)
        self._observe(Exchange("" if connection is None else connection.client, ended.session_id, "expired"))
        self._send_events(ended.events)
        if connection is not None:
            connection.send_goodbye()

    def _schedule_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        next_ms = self.processor.sessions.next_expiry_ms()
        if next_ms is not None:
            self._expiry = asyncio.get_running_loop().call_at(next_ms / 1000, self._expire_overdue)

    def _expire_overdue(self) -> None:
        self._expiry = None
        for ended in self.processor.expire(self._now_ms(), self._time_ms()):
            self._announce(ended)
        self._schedule_expiry()

    def _now_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    def _time_ms(self) -> int:
        return round(self._wall_clock() * 1000)


class _Lane:
    """One direction of a connection: messages arrive in order, and nothing arrives after a lost one."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._waiting: deque[Callable[[], None]] = deque()
        self._last_arrival = 0.0
        self._broken = False

    def send(self, label: str, arrive: Callable[[], None]) -> None:
        delay = self._delivery.delay(label)
        if delay is None:
            self._broken = True
        if self._broken or delay is None:
            return
        loop = asyncio.get_running_loop()
        self._last_arrival = max(self._last_arrival, loop.time() + delay)
        self._waiting.append(arrive)
        loop.call_at(self._last_arrival, self._arrive)

    def send_out_of_order(self, label: str, arrive: Callable[[], None]) -> None:
        """The same for a message that may overtake others, and be overtaken."""
        delay = self._delivery.delay(label)
        if delay is None:
            self._broken = True
        elif not self._broken:
            asyncio.get_running_loop().call_later(delay, arrive)

    def _arrive(self) -> None:
        self._waiting.popleft()()


@dataclass(slots=True)
class _Pending:
    """A request without an answer; `patience` ends the session if none comes."""

    request: ask.Request
    watch: Watch | None
    answer: asyncio.Future[Reply]
    patience: asyncio.TimerHandle


class _Connection:
    """Both ends of the wire between one session and the service."""

    def __init__(self, service: LocalService, delivery: Delivery, client: str, operation_timeout: float) -> None:
        self.session_id = 0
        self.timeout_seconds = 0.0
        self.dead: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._service = service
        self.client = client
        self._operation_timeout = operation_timeout
        self._to_service = _Lane(delivery)
        self._to_client = _Lane(delivery)
        self._peer: Peer | None = None
        self._last_xid = 0
        self._pending: dict[int, _Pending] = {}
        self._data_watches: dict[str, list[Watch]] = {}
        self._child_watches: dict[str, list[Watch]] = {}
        self._heartbeat: asyncio.TimerHandle | None = None

    # --- the client's end ---------------------------------------------------------------------------------------

    async def open(self, timeout_ms: int) -> None:
        """Shake hands. Raises CoordinatorUnreachable."""
        welcome: asyncio.Future[Attached] = asyncio.get_running_loop().create_future()

        def arrive() -> None:
            attached = self._service.accept(self, timeout_ms)
            self.session_id = attached.session.session_id
            self.timeout_seconds = attached.session.timeout_ms / 1000
            self._peer = attached.peer
            self._to_client.send(self._label("welcome"), lambda: _resolve(welcome, attached))

        self._to_service.send(f"{self.client} - connect", arrive)
        try:
            async with asyncio.timeout(self._operation_timeout):
                attached = await welcome
        except TimeoutError:
            self.die()
            raise api.CoordinatorUnreachable(
                f"{self.client} got no answer from the coordination service in {self._operation_timeout} s"
            ) from None
        if self.dead.done():
            raise api.CoordinatorUnreachable(f"{self.client} lost its session in the handshake")
        self._schedule_heartbeat(attached.session.timeout_ms / 3000)

    def send(self, request: ask.Request, watch: Watch | None = None) -> asyncio.Future[Reply]:
        """Send a request; the future gets its reply, or SessionLost. Raises SessionLost."""
        if self.dead.done() or self._peer is None:
            raise SessionLost(f"session {self.session_id} is over")
        loop = asyncio.get_running_loop()
        self._last_xid += 1
        peer, xid = self._peer, self._last_xid
        answer: asyncio.Future[Reply] = loop.create_future()
        patience = loop.call_later(self._operation_timeout, self.die)
        self._pending[xid] = _Pending(request, watch, answer, patience)
        self._to_service.send(self._label(_title(xid, request)), lambda: self._service.receive(peer, xid, request))
        return answer

    def die(self) -> None:
        """The client gives the session up: everything that waits for it is lost."""
        if self.dead.done():
            return
        self.dead.set_result(None)
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        for pending in self._pending.values():
            pending.patience.cancel()
            if not pending.answer.done():
                pending.answer.set_exception(SessionLost(f"session {self.session_id} died before the answer"))
                pending.answer.exception()  # marks it as seen: its caller may be gone
            if pending.watch is not None:
                pending.watch.resolve(WatchOutcome.LOST)
        self._pending.clear()
        for table in (self._data_watches, self._child_watches):
            for watches in table.values():
                for watch in watches:
                    watch.resolve(WatchOutcome.LOST)
            table.clear()

    def _schedule_heartbeat(self, interval: float) -> None:
        def beat() -> None:
            self.send(ask.Ping())
            self._schedule_heartbeat(interval)

        self._heartbeat = asyncio.get_running_loop().call_later(interval, beat)

    def _label(self, what: str) -> str:
        return f"{self.client} s{self.session_id} {what}"

    # --- the service's end --------------------------------------------------------------------------------------

    def send_reply(self, xid: int, reply: Reply) -> None:
        if self.dead.done():
            return
        # An event may overtake the reply, so the client's side of the watch is armed with the service's.
        pending = self._pending[xid]
        self._arm(pending, reply)
        label = self._label(f"reply {xid} {type(pending.request).__name__}")
        self._to_client.send(label, lambda: self._answered(xid, reply))

    def send_event(self, event: Event) -> None:
        if self.dead.done():
            return
        tables = {
            EventKind.CREATED: [self._data_watches],
            EventKind.DATA_CHANGED: [self._data_watches],
            EventKind.DELETED: [self._data_watches, self._child_watches],
            EventKind.CHILDREN_CHANGED: [self._child_watches],
        }[event.kind]
        spent = [(table, watch) for table in tables for watch in table.get(event.path, ())]

        def arrive() -> None:
            for table, watch in spent:
                if watch in table.get(event.path, ()):
                    table[event.path].remove(watch)
                    watch.resolve(WatchOutcome.CHANGED)

        self._to_client.send_out_of_order(self._label(f"event {event.kind.name} {event.path}"), arrive)

    def send_goodbye(self) -> None:
        """The service hangs up."""
        if not self.dead.done():
            self._to_client.send(self._label("goodbye"), self.die)

    def _arm(self, pending: _Pending, reply: Reply) -> None:
        if pending.watch is None:
            return
        match pending.request:
            case ask.Exists(path) if reply.error in (ErrorCode.OK, ErrorCode.NO_NODE):
                self._data_watches.setdefault(path, []).append(pending.watch)
            case ask.GetData(path) if reply.error == ErrorCode.OK:
                self._data_watches.setdefault(path, []).append(pending.watch)
            case ask.GetChildren(path) if reply.error == ErrorCode.OK:
                self._child_watches.setdefault(path, []).append(pending.watch)

    def _answered(self, xid: int, reply: Reply) -> None:
        pending = self._pending.pop(xid, None)
        if pending is not None:
            pending.patience.cancel()
            _resolve(pending.answer, reply)


class LocalSession:
    """`coordinator.api.Session` over an in-process connection."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    @property
    def session_id(self) -> int:
        return self._connection.session_id

    @property
    def alive(self) -> bool:
        return not self._connection.dead.done()

    @property
    def timeout_seconds(self) -> float:
        return self._connection.timeout_seconds

    async def wait_dead(self) -> None:
        await asyncio.shield(self._connection.dead)

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        reply = await self._ask(_create_request(api.Create(path, data, ephemeral, sequential)), path)
        assert isinstance(reply.body, ask.Created)
        return reply.body.path

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._ask(ask.Delete(path, version), path)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        reply = await self._ask(ask.SetData(path, data, version), path)
        assert isinstance(reply.body, Stat)
        return reply.body

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        reply = await self._ask(ask.GetData(path, watch is not None), path, watch)
        return _data(reply)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        answers = [self._connection.send(ask.GetData(path, False)) for path in paths]
        replies = [await answer for answer in answers]
        for path, reply in zip(paths, replies, strict=True):
            if reply.error not in (ErrorCode.OK, ErrorCode.NO_NODE):
                raise client_error(reply.error, path)
        return [_data(reply) if reply.error == ErrorCode.OK else None for reply in replies]

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        try:
            reply = await self._ask(ask.Exists(path, watch is not None), path, watch)
        except api.NoNode:
            return None
        assert isinstance(reply.body, Stat)
        return reply.body

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        reply = await self._ask(ask.GetChildren(path, watch is not None), path, watch)
        assert isinstance(reply.body, ask.Children)
        return sorted(reply.body.names)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        for index, operation in enumerate(operations):
            if not _well_formed(operation):
                raise api.MultiFailed(index, api.BadArguments(operation.path))
        reply = await self._connection.send(ask.Multi(tuple(map(_request, operations))))
        match reply.body:
            case ask.MultiRefused(_, index, code):
                raise api.MultiFailed(index, client_error(code, operations[index].path))
            case ask.MultiResults(results):
                return [_result(result) for result in results]
        raise AssertionError("a multi is answered with results or a refusal")

    async def close(self) -> None:
        if self.alive:
            try:
                await self._connection.send(ask.CloseSession())
            except SessionLost:
                pass
            finally:
                self._connection.die()

    async def _ask(self, request: ask.Request, path: str, watch: Watch | None = None) -> Reply:
        if not _well_formed(request):
            raise api.BadArguments(path)
        reply = await self._connection.send(request, watch)
        if reply.error != ErrorCode.OK:
            raise client_error(reply.error, path)
        return reply


class LocalCoordinator:
    """`coordinator.api.Coordinator`: one client process's way to an in-process service."""

    def __init__(
        self,
        service: LocalService,
        delivery: Delivery,
        client: str,
        *,
        session_timeout_seconds: float = 30.0,
        operation_timeout_seconds: float = 10.0,
    ) -> None:
        """`client` is the process's name, for the labels of its messages."""
        self._service = service
        self._delivery = delivery
        self._client = client
        self._session_timeout_ms = round(session_timeout_seconds * 1000)
        self._operation_timeout = operation_timeout_seconds
        self._connections: list[_Connection] = []

    async def connect(self) -> LocalSession:
        connection = _Connection(self._service, self._delivery, self._client, self._operation_timeout)
        self._connections = [*(other for other in self._connections if not other.dead.done()), connection]
        await connection.open(self._session_timeout_ms)
        return LocalSession(connection)

    def sever(self) -> None:
        """The client process dies, or loses its network: its sessions are dead to it from this instant.

        What it has sent is still on its way, and the service keeps its sessions until their timeout.
        """
        for connection in self._connections:
            connection.die()


def _title(xid: int, request: ask.Request) -> str:
    match request:
        case ask.Ping():
            return "heartbeat"
        case ask.Multi(operations):
            return f"request {xid} Multi " + ",".join(type(operation).__name__ for operation in operations)
        case ask.CloseSession():
            return f"request {xid} CloseSession"
        case _:
            return f"request {xid} {type(request).__name__} {getattr(request, 'path', '')}"


def _well_formed(request: ask.Request | Operation) -> bool:
    match request:
        case api.Create(path, sequential=sequential):
            return is_valid_new_path(path, sequential)
        case ask.Create(path, flags=flags):
            return is_valid_new_path(path, bool(flags & CreateFlag.SEQUENTIAL))
        case _:
            return is_valid_path(getattr(request, "path", "/"))


def _create_request(operation: api.Create) -> ask.Create:
    flags = CreateFlag.EPHEMERAL * operation.ephemeral | CreateFlag.SEQUENTIAL * operation.sequential
    return ask.Create(operation.path, operation.data, flags)


def _request(operation: Operation) -> ask.MultiOperation:
    match operation:
        case api.Create():
            return _create_request(operation)
        case api.Delete(path, version):
            return ask.Delete(path, version)
        case api.Set(path, data, version):
            return ask.SetData(path, data, version)
        case api.Check(path, version):
            return ask.Check(path, version)
        case api.CheckNotExists(path):
            return ask.CheckNotExists(path, ANY_VERSION)


def _result(result: ask.WriteResult) -> Result:
    match result:
        case ask.Created(path):
            return path
        case Stat():
            return result
        case ask.Done():
            return None


def _data(reply: Reply) -> tuple[bytes, Stat]:
    assert isinstance(reply.body, ask.Data)
    return reply.body.data or b"", reply.body.stat


def _resolve(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)
