"""The coordination service as a server: sockets, the protocol, the processor and the journal, tied together.

Nothing leaves before it is durable: while the journal owes a sync, every reply, event and hang-up waits in one
queue, in the order in which the processor made them. That covers failures and reads which saw a write that a
crash could still take away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from coordinator import four_letter
from coordinator.connection import Connection
from coordinator.four_letter import ServerStatus
from coordinator.journal import Journal
from coordinator.processor import Ended, Peer, Processor, Transaction
from coordinator.protocol import (
    ConnectRequest,
    NumberedRequest,
    encode_connect_response,
    encode_event,
    encode_refusal,
    encode_reply,
)
from coordinator.sessions import PASSWORD_LENGTH
from coordinator.watches import Notification

_log = logging.getLogger(__name__)

_BACKLOG = 512


class CoordinatorServer:
    """One server. After `start()` it serves at `address` until `stop()`."""

    def __init__(self, listen: str, folder: Path, *, tick_ms: int = 2000, snapshot_every: int = 100_000) -> None:
        """`listen` is `host:port` (port 0: any free one); `folder` holds the journal.

        Sessions last between 2 and 20 ticks. A snapshot is written every `snapshot_every` transactions.
        """
        self.address = listen
        self.failure: asyncio.Future[None] | None = None
        self._folder = folder
        self._tick_ms = tick_ms
        self._snapshot_every = snapshot_every
        self._since_snapshot = 0
        self._connections: dict[int, Connection] = {}  # by peer number
        self._open: dict[Connection, None] = {}
        self._held: deque[tuple[int, Connection, bytes | None]] = deque()
        self._unflushed: dict[Connection, None] = {}
        self._received = self._sent = 0
        self._listener: asyncio.Server | None = None
        self._ticker: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Recover what the folder holds, then listen.

        Raises JournalInUse, JournalDamaged, and OSError when the address cannot be listened on.
        """
        loop = asyncio.get_running_loop()
        self.failure = loop.create_future()
        self._started = loop.time()
        self._journal = Journal(self._folder, self._release, self._fail)
        try:
            self._processor = self._recovered_processor()
            host, _, port = self.address.rpartition(":")
            self._listener = await loop.create_server(
                lambda: Connection(self), host.strip("[]"), int(port), backlog=_BACKLOG, start_serving=False
            )
        except BaseException:
            await self._journal.close()
            raise
        self._journal.start(self._processor.zxid)
        self._host, self._port = self._listener.sockets[0].getsockname()[:2]
        self.address = f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"
        await self._listener.start_serving()
        self._schedule_tick(loop.time())

    async def stop(self) -> None:
        """Hang up on everybody and close the journal; sessions live on in it. Harmless when not started."""
        if self._listener is None:
            return
        self._listener.close()
        self._listener = None
        if self._ticker is not None:
            self._ticker.cancel()
        for connection in list(self._open):
            connection.abort()
        await self._journal.close()

    async def wait_failed(self) -> None:
        """Wait until the journal cannot be written any more. Raises the OSError that is to blame."""
        assert self.failure is not None, "start() first"
        await asyncio.shield(self.failure)

    def _recovered_processor(self) -> Processor:
        now = time.time()
        recovered = self._journal.recover()
        # On an empty folder zxids start above those of any earlier life, and session ids always do: clients that
        # lived through the wipe would otherwise be locked out.
        processor = Processor(
            self._tick_ms,
            first_zxid=int(now) << 20,
            first_session_id=(1 << 56) | (int(now * 1000) & 0xFFFFFFFFFF) << 16,
        )
        if recovered.state is not None:
            processor.restore(recovered.state, self._now_ms())
        for transaction in recovered.transactions:
            processor.replay(transaction, self._now_ms())
        self._since_snapshot = len(recovered.transactions)
        return processor

    # --- what connections ask of the server ---------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        self._open[connection] = None

    def lost(self, connection: Connection) -> None:
        self._open.pop(connection, None)
        self._unflushed.pop(connection, None)
        if connection.peer is not None:
            self._connections.pop(connection.peer.number, None)
            self._processor.detach(connection.peer)

    def shake_hands(self, connection: Connection, request: ConnectRequest) -> None:
        """Give the connection its session, or refuse it."""
        if request.last_zxid_seen > self._processor.zxid:
            self._send(connection, None)
            return
        if request.session_id == 0:
            attached = self._processor.open_session(
                request.timeout_ms, os.urandom(PASSWORD_LENGTH), connection.host, self._now_ms(), _time_ms()
            )
        else:
            reattached = self._processor.reattach(
                request.session_id, request.password, request.timeout_ms, connection.host, self._now_ms()
            )
            if reattached is None:
                self._send(connection, encode_refusal(with_read_only=request.knows_read_only))
                self._send(connection, None)
                return
            attached = reattached
        self._keep(attached.transaction)
        if attached.displaced is not None:
            self._hang_up(attached.displaced)
        session = attached.session
        connection.peer = attached.peer
        connection.timeout_ms = session.timeout_ms
        self._connections[attached.peer.number] = connection
        self._send(
            connection,
            encode_connect_response(
                session.timeout_ms, session.session_id, session.password, with_read_only=request.knows_read_only
            ),
        )

    def serve(self, connection: Connection, peer: Peer, arrival: NumberedRequest) -> bool:
        """Run one request and send what comes of it. False: it was the connection's last."""
        self._received += 1
        step = self._processor.handle(peer, arrival.request, self._now_ms(), _time_ms())
        self._keep(step.transaction)
        self._send_events(step.events)
        self._send(connection, encode_reply(arrival.xid, arrival.request, step.reply))
        if step.ends_connection:
            self._connections.pop(peer.number, None)
            self._send(connection, None)
        return not step.ends_connection

    def answer_word(self, connection: Connection, word: str) -> None:
        text = four_letter.answer(word, self._status())
        if text is not None:
            connection.write(text.encode())
        connection.write(None)
        self._unflushed[connection] = None

    def flush(self) -> None:
        """Hand all that may leave to the sockets, one write per connection."""
        for connection in self._unflushed:
            connection.flush()
        self._unflushed.clear()

    # --- output, in the order in which it was made ---------------------------------------------------------------

    def _keep(self, transaction: Transaction | None) -> None:
        if transaction is None:
            return
        self._journal.append(transaction)
        self._since_snapshot += 1
        if self._since_snapshot >= self._snapshot_every:
            self._since_snapshot = 0
            self._journal.snapshot(self._processor.state())

    def _send_events(self, notifications: Sequence[Notification]) -> None:
        for watcher, event in notifications:
            connection = self._connections.get(watcher)
            if connection is not None:
                self._send(connection, encode_event(event))

    def _send(self, connection: Connection, frame: bytes | None) -> None:
        """Send a frame, or hang up (None), as soon as everything it may show is durable."""
        self._sent += frame is not None
        connection.unanswered_bytes += len(frame or b"")
        connection.unanswered += 1
        self._held.append((self._journal.appended, connection, frame))
        self._let_go()

    def _release(self) -> None:
        """The journal has made progress."""
        self._let_go()
        self.flush()

    def _let_go(self) -> None:
        durable = self._journal.durable
        while self._held and self._held[0][0] <= durable:
            _, connection, frame = self._held.popleft()
            connection.unanswered_bytes -= len(frame or b"")
            connection.unanswered -= 1
            connection.write(frame)
            self._unflushed[connection] = None

    def _hang_up(self, peer: Peer) -> None:
        connection = self._connections.pop(peer.number, None)
        if connection is not None:
            self._send(connection, None)

    def _fail(self, error: OSError) -> None:
        """Without a journal nothing may be acknowledged: hang up on everybody and serve no more."""
        _log.error("the journal in %s cannot be written: %s", self._folder, error)
        if self._listener is not None:
            self._listener.close()
        self._held.clear()
        for connection in list(self._open):
            connection.abort()
        if self.failure is not None and not self.failure.done():
            self.failure.set_exception(error)
            self.failure.exception()  # marks it as seen: wait_failed() is optional

    # --- time ---------------------------------------------------------------------------------------------------

    def _schedule_tick(self, planned: float) -> None:
        self._ticker = asyncio.get_running_loop().call_at(planned + self._tick_ms / 1000, self._tick)
        self._next_tick = planned + self._tick_ms / 1000

    def _tick(self) -> None:
        """Expire the overdue, unless the loop was stalled: then what clients sent meanwhile is read first."""
        now = asyncio.get_running_loop().time()
        stalled = now - self._next_tick > self._tick_ms / 1000
        if not stalled:
            for ended in self._processor.expire(self._now_ms(), _time_ms()):
                self._announce(ended)
            self.flush()
        self._schedule_tick(now)

    def _announce(self, ended: Ended) -> None:
        self._keep(ended.transaction)
        self._send_events(ended.events)
        if ended.peer is not None:
            self._hang_up(ended.peer)

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    # --- about itself -------------------------------------------------------------------------------------------

    def _status(self) -> ServerStatus:
        processor, now_ms = self._processor, self._now_ms()
        sessions = processor.sessions
        watched = processor.watches.data.paths_by_watcher()
        for watcher, paths in processor.watches.child.paths_by_watcher().items():
            watched.setdefault(watcher, []).extend(paths)
        return ServerStatus(
            host=self._host,
            port=self._port,
            folder=str(self._folder),
            tick_ms=self._tick_ms,
            uptime_ms=now_ms - int(self._started * 1000),
            zxid=processor.zxid,
            node_count=len(processor.tree),
            data_size=processor.tree.data_size(),
            received=self._received,
            sent=self._sent,
            outstanding=len(self._held),
            connections=[connection.status(now_ms) for connection in self._open],
            expiries={each.session_id: sessions.expiry_ms(each) - now_ms for each in sessions.all()},
            ephemerals=processor.tree.ephemerals_by_session(),
            watched_paths=watched,
        )


def _time_ms() -> int:
    return int(time.time() * 1000)


async def serve(
    listen: str,
    folder: Path,
    *,
    tick_ms: int = 2000,
    snapshot_every: int = 100_000,
    on_ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until SIGTERM or SIGINT. `on_ready` gets the address once it is listened on.

    Raises what `CoordinatorServer.start` raises, and OSError when the journal cannot be written any more.
    """
    server = CoordinatorServer(listen, folder, tick_ms=tick_ms, snapshot_every=snapshot_every)
    told_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told_to_stop.set)
    await server.start()
    try:
        on_ready(server.address)
        stopping = asyncio.ensure_future(told_to_stop.wait())
        failing = asyncio.ensure_future(server.wait_failed())
        done, waiting = await asyncio.wait([stopping, failing], return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for task in done:
            task.result()
    finally:
        await server.stop()
