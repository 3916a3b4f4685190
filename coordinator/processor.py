"""The request processor: tree, sessions and watches as one pure state machine.

Requests in; replies, events and transactions (what a journal must keep) out. The TCP server and the in-process
service both run it, so the simulation exercises what the processes run. Two clocks come in as arguments:
`now_ms`, which only goes forward and measures sessions, and `time_ms` since 1970, which stands in stats.

Failed writes take no zxid: no client can tell, and nothing needs to be logged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from coordinator import requests as ask
from coordinator.access import Identity, digest_identity
from coordinator.api import Stat
from coordinator.requests import ErrorCode, Event, EventKind, Refused, Reply
from coordinator.sessions import ServiceSession, SessionTable
from coordinator.tree import Caller, Change, Node, OperationRefused, Tree
from coordinator.watches import Notification, Watches, WatchTable


@dataclass(frozen=True, slots=True)
class SessionOpened:
    session_id: int
    password: bytes
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class SessionClosed:
    session_id: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """Everything one zxid did, in order: enough to do it again after a crash."""

    zxid: int
    time_ms: int
    changes: tuple[Change | SessionOpened | SessionClosed, ...]


@dataclass(frozen=True, slots=True)
class State:
    """The whole durable state at one zxid; `nodes` are shared, immutable values."""

    zxid: int
    sessions: tuple[SessionOpened, ...]
    nodes: Mapping[str, Node]


@dataclass(slots=True)
class Peer:
    """One connection of one session; `number` is its identity as a watcher and is never used again."""

    number: int
    session_id: int
    identities: tuple[Identity, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """What one request led to. The events go out before the reply; the transaction is durable before both."""

    reply: Reply
    events: Sequence[Notification] = ()
    transaction: Transaction | None = None
    ends_connection: bool = False


@dataclass(frozen=True, slots=True)
class Attached:
    """A connection got its session. `displaced` is the connection that had it before."""

    peer: Peer
    session: ServiceSession
    transaction: Transaction | None = None
    displaced: Peer | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A session is over; `peer` is the connection it had, if any."""

    session_id: int
    peer: Peer | None
    events: Sequence[Notification] = field(default=())
    transaction: Transaction | None = None


class Processor:
    """One service's state. Not thread-safe, never waits."""

    def __init__(self, tick_ms: int, *, first_zxid: int = 0, first_session_id: int = 1) -> None:
        """A service with nothing in it; zxids and session ids start above and at the given ones."""
        self.tree = Tree()
        self.sessions = SessionTable(tick_ms)
        self.watches = Watches()
        self.zxid = first_zxid
        self._next_session_id = first_session_id
        self._next_peer_number = 1
        self._attached: dict[int, Peer] = {}

    # --- sessions and connections -------------------------------------------------------------------------------

    def open_session(self, timeout_ms: int, password: bytes, address: str, now_ms: int, time_ms: int) -> Attached:
        """A new session with a new connection."""
        session_id = self._next_session_id
        self._next_session_id += 1
        session = self.sessions.open(session_id, password, self.sessions.negotiate(timeout_ms), now_ms)
        self.zxid += 1
        transaction = Transaction(self.zxid, time_ms, (SessionOpened(session_id, password, session.timeout_ms),))
        return Attached(self._attach(session_id, address), session, transaction)

    def reattach(
        self, session_id: int, password: bytes, timeout_ms: int, address: str, now_ms: int
    ) -> Attached | None:
        """A living session goes on over a new connection, with a timeout newly negotiated; None is a refusal.

        Watches and authentication of the old connection are gone.
        """
        session = self.sessions.get(session_id)
        if session is None or session.password != password:
            return None
        displaced = self._attached.get(session_id)
        if displaced is not None:
            self.detach(displaced)
        session.timeout_ms = self.sessions.negotiate(timeout_ms)
        session.heard_ms = now_ms
        return Attached(self._attach(session_id, address), session, displaced=displaced)

    def detach(self, peer: Peer) -> None:
        """The connection is gone; its session waits for another one."""
        self.watches.forget(peer.number)
        if self._attached.get(peer.session_id) is peer:
            del self._attached[peer.session_id]

    def end_session(self, session_id: int, time_ms: int) -> Ended:
        """Close or expire a living session: its ephemerals go in one transaction."""
        self.sessions.end(session_id)
        changes = self.tree.deletions_at_end(session_id)
        self.zxid += 1
        for change in changes:
            self.tree.apply(change, self.zxid, time_ms)
        peer = self._attached.get(session_id)
        if peer is not None:
            self.detach(peer)
        return Ended(
            session_id,
            peer,
            self.watches.fire(changes),
            Transaction(self.zxid, time_ms, (*changes, SessionClosed(session_id))),
        )

    def expire(self, now_ms: int, time_ms: int) -> list[Ended]:
        """End all sessions that were not heard of for too long."""
        return [self.end_session(session_id, time_ms) for session_id in self.sessions.overdue(now_ms)]

    def _attach(self, session_id: int, address: str) -> Peer:
        peer = Peer(self._next_peer_number, session_id, (Identity("ip", address), Identity("world", "anyone")))
        self._next_peer_number += 1
        self._attached[session_id] = peer
        return peer

    # --- requests -----------------------------------------------------------------------------------------------

    def handle(self, peer: Peer, request: ask.Request, now_ms: int, time_ms: int) -> Step:
        """Serve one request of a connection. Anything sent proves that its client lives."""
        if self.sessions.get(peer.session_id) is None:
            return Step(Reply(self.zxid, ErrorCode.SESSION_EXPIRED), ends_connection=True)
        self.sessions.touch(peer.session_id, now_ms)
        caller = Caller(peer.session_id, peer.identities)
        try:
            match request:
                case ask.Create() | ask.Delete() | ask.SetData() | ask.SetAcl() | ask.Check() | ask.CheckNotExists():
                    return self._write(request, caller, time_ms)
                case ask.Multi(operations):
                    return self._multi(operations, caller, time_ms)
                case ask.SetWatches():
                    return Step(Reply(self.zxid), self._set_watches(peer, request))
                case ask.CloseSession():
                    ended = self.end_session(peer.session_id, time_ms)
                    return Step(Reply(self.zxid), ended.events, ended.transaction, ends_connection=True)
                case ask.Auth():
                    return self._authenticate(peer, request)
                case ask.Unimplemented(known):
                    return Step(Reply(self.zxid, ErrorCode.UNIMPLEMENTED), ends_connection=not known)
                case ask.Malformed():
                    return Step(Reply(self.zxid, ErrorCode.MARSHALLING))
                case _:
                    return Step(Reply(self.zxid, body=self._read(peer, request, caller)))
        except Refused as refusal:
            return Step(Reply(self.zxid, refusal.code))

    def _write(self, request: ask.WriteOperation, caller: Caller, time_ms: int) -> Step:
        try:
            results, changes = self.tree.perform((request,), caller, self.zxid + 1, time_ms)
        except OperationRefused as refused:
            raise refused.refusal from None
        body = None if isinstance(results[0], ask.Done) else results[0]
        return self._committed(body, changes, time_ms)

    def _multi(self, operations: Sequence[ask.MultiOperation], caller: Caller, time_ms: int) -> Step:
        try:
            results, changes = self.tree.perform(operations, caller, self.zxid + 1, time_ms)
        except OperationRefused as refused:
            body = ask.MultiRefused(len(operations), refused.index, refused.refusal.code)
            return Step(Reply(self.zxid, body=body))
        return self._committed(ask.MultiResults(tuple(results)), changes, time_ms)

    def _committed(self, body: ask.Body | None, changes: Sequence[Change], time_ms: int) -> Step:
        if not changes:
            return Step(Reply(self.zxid, body=body))
        self.zxid += 1
        transaction = Transaction(self.zxid, time_ms, tuple(changes))
        return Step(Reply(self.zxid, body=body), self.watches.fire(changes), transaction)

    def _read(self, peer: Peer, request: ask.Request, caller: Caller) -> ask.Body | None:
        match request:
            case ask.Exists(path, watch):
                if watch and "\0" not in path:
                    self.watches.data.add(peer.number, path)
                return self.tree.stat(path)
            case ask.GetData(path, watch):
                data, stat = self.tree.data(path, caller)
                if watch:
                    self.watches.data.add(peer.number, path)
                return ask.Data(data, stat)
            case ask.GetChildren(path, watch, with_stat):
                names, stat = self.tree.children(path, caller)
                if watch:
                    self.watches.child.add(peer.number, path)
                return ask.Children(names, stat, with_stat)
            case ask.GetAcl(path):
                return ask.AclList(*self.tree.acl(path, caller))
            case ask.GetEphemerals(prefix):
                own = self.tree.ephemerals(peer.session_id)
                return ask.Paths(tuple(path for path in own if path.startswith(prefix)))
            case ask.GetAllChildrenNumber(path):
                return ask.Number(self.tree.descendants_number(path, caller))
            case ask.Sync(path):
                return ask.Path(path)
            case ask.WhoAmI():
                return ask.Identities(tuple(who for who in peer.identities if who.scheme != "world"))
            case ask.RemoveWatches():
                self._remove_watches(peer, request)
        return None

    def _authenticate(self, peer: Peer, request: ask.Auth) -> Step:
        match request.scheme:
            case "digest":
                identity = digest_identity(request.credentials)
                if identity not in peer.identities:
                    peer.identities += (identity,)
            case "ip" | "world":
                pass
            case _:
                return Step(Reply(0, ErrorCode.AUTH_FAILED), ends_connection=True)
        return Step(Reply(0))

    def _set_watches(self, peer: Peer, request: ask.SetWatches) -> list[Notification]:
        """Arm the watches of a client that came back; events for those that it missed meanwhile."""
        missed: list[Event] = []

        def arm(paths: Iterable[str], table: WatchTable, overtaken: Callable[[str], EventKind | None]) -> None:
            for path in paths:
                kind = overtaken(path)
                if kind is None:
                    table.add(peer.number, path)
                else:
                    missed.append(Event(kind, path))

        def data_change(path: str) -> EventKind | None:
            node = self._stat_or_none(path)
            if node is None:
                return EventKind.DELETED
            return EventKind.DATA_CHANGED if node.mzxid > request.relative_zxid else None

        def child_change(path: str) -> EventKind | None:
            node = self._stat_or_none(path)
            if node is None:
                return EventKind.DELETED
            return EventKind.CHILDREN_CHANGED if node.pzxid > request.relative_zxid else None

        def creation(path: str) -> EventKind | None:
            return None if self._stat_or_none(path) is None else EventKind.CREATED

        arm(request.data, self.watches.data, data_change)
        arm(request.exist, self.watches.data, creation)
        arm(request.child, self.watches.child, child_change)
        return [(peer.number, event) for event in missed]

    def _stat_or_none(self, path: str) -> Stat | None:
        try:
            return self.tree.stat(path)
        except Refused:
            return None

    def _remove_watches(self, peer: Peer, request: ask.RemoveWatches) -> None:
        tables = {1: [self.watches.child], 2: [self.watches.data], 3: [self.watches.child, self.watches.data]}
        if request.kind not in tables:
            raise Refused(ErrorCode.MARSHALLING, request.path)
        holding = [table for table in tables[request.kind] if table.holds(peer.number, request.path)]
        if not holding:
            raise Refused(ErrorCode.NO_WATCHER, request.path)
        if not request.only_check:
            for table in holding:
                table.remove(peer.number, request.path)

    # --- durable state ------------------------------------------------------------------------------------------

    def state(self) -> State:
        """All that must survive a restart, as it is now; later changes do not show in it."""
        sessions = tuple(SessionOpened(s.session_id, s.password, s.timeout_ms) for s in self.sessions.all())
        return State(self.zxid, sessions, self.tree.nodes())

    def restore(self, state: State, now_ms: int) -> None:
        """Become what `state()` described. Sessions have their whole timeout before them."""
        self.zxid = state.zxid
        self.tree = Tree.from_nodes(state.nodes)
        for opened in state.sessions:
            self._reopen(opened, now_ms)

    def replay(self, transaction: Transaction, now_ms: int) -> None:
        """Do again what a transaction did that came after the restored state."""
        self.zxid = transaction.zxid
        for change in transaction.changes:
            match change:
                case SessionOpened():
                    self._reopen(change, now_ms)
                case SessionClosed(session_id):
                    self.sessions.end(session_id)
                case _:
                    self.tree.apply(change, transaction.zxid, transaction.time_ms)

    def _reopen(self, opened: SessionOpened, now_ms: int) -> None:
        self.sessions.open(opened.session_id, opened.password, opened.timeout_ms, now_ms)
        self._next_session_id = max(self._next_session_id, opened.session_id + 1)
