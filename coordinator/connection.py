"""One client's socket: cuts what arrives into requests, sends what the server lets go, and holds back floods."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from coordinator.four_letter import ConnectionStatus
from coordinator.processor import Peer
from coordinator.protocol import (
    Arrival,
    ConnectRequest,
    FourLetterWord,
    Inbound,
    NumberedRequest,
    ProtocolViolation,
)

_log = logging.getLogger(__name__)

_MOST_UNANSWERED_FRAMES = 1000
_MOST_UNANSWERED_BYTES = 1 << 20


class Server(Protocol):
    """What a connection asks of its server."""

    def opened(self, connection: Connection) -> None: ...

    def lost(self, connection: Connection) -> None: ...

    def shake_hands(self, connection: Connection, request: ConnectRequest) -> None:
        """Give the connection its session, or refuse it."""
        ...

    def serve(self, connection: Connection, peer: Peer, arrival: NumberedRequest) -> bool:
        """Run one request and send what comes of it. False: it was the connection's last."""
        ...

    def answer_word(self, connection: Connection, word: str) -> None: ...

    def flush(self) -> None:
        """Hand all that may leave to the sockets, one write per connection."""
        ...


class Connection(asyncio.Protocol):
    """One socket."""

    def __init__(self, server: Server) -> None:
        self.peer: Peer | None = None
        self.host = ""
        self.timeout_ms = 0
        self.unanswered = 0
        self.unanswered_bytes = 0
        self._server = server
        self._inbound = Inbound()
        self._transport: asyncio.Transport | None = None
        self._ready: list[bytes] = []
        self._ready_bytes = 0
        self._has_more = False  # requests that have arrived and wait for their turn
        self._ending = False
        self._deaf = False  # what still arrives is not listened to
        self._slow_reader = False
        self._received = self._sent = 0
        self._established_ms = 0
        self._port = 0

    # --- called by asyncio --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._established_ms = int(asyncio.get_running_loop().time() * 1000)
        self.host, self._port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.lost(self)

    def data_received(self, data: bytes) -> None:
        if not self._deaf:
            self._inbound.feed(data)
            self._work()

    def pause_writing(self) -> None:
        self._slow_reader = True
        self._throttle()

    def resume_writing(self) -> None:
        self._slow_reader = False
        self._throttle()

    # --- serving what has arrived -------------------------------------------------------------------------------

    def _work(self) -> None:
        """Serve requests until too much waits to go out; the others have their turn when it has gone."""
        if self._transport is None:
            return
        try:
            for arrival in self._inbound.arrivals():
                self._received += 1
                self._take(arrival)
                self._has_more = self._must_wait and not self._deaf
                if self._deaf or self._has_more:
                    break
        except ProtocolViolation as violation:
            _log.info("%s: %s; hanging up", self._address, violation)
            self._deaf = True
            self.abort()
        self._server.flush()
        self._throttle()

    def _take(self, arrival: Arrival) -> None:
        match arrival:
            case NumberedRequest() if self.peer is not None:
                self._deaf = not self._server.serve(self, self.peer, arrival)
            case ConnectRequest():
                self._server.shake_hands(self, arrival)
            case FourLetterWord(word):
                self._server.answer_word(self, word)
                self._deaf = True
            case _:  # a request although the handshake was refused
                self._deaf = True

    @property
    def _must_wait(self) -> bool:
        """Whether the client does not take its answers, or has too many to come."""
        waiting_bytes = self.unanswered_bytes + self._ready_bytes
        return (
            self._slow_reader or self.unanswered > _MOST_UNANSWERED_FRAMES or waiting_bytes > _MOST_UNANSWERED_BYTES
        )

    def _throttle(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._must_wait:
            self._transport.pause_reading()
            return
        self._transport.resume_reading()
        if self._has_more:
            self._has_more = False
            asyncio.get_running_loop().call_soon(self._work)

    # --- called by the server -----------------------------------------------------------------------------------

    def write(self, frame: bytes | None) -> None:
        """Have a frame sent at the next flush; None: hang up then."""
        if frame is None:
            self._ending = True
        elif not self._ending:
            self._sent += 1
            self._ready.append(frame)
            self._ready_bytes += len(frame)

    def flush(self) -> None:
        if self._transport is None:
            return
        if self._ready:
            self._transport.write(b"".join(self._ready))
            self._ready.clear()
            self._ready_bytes = 0
        if self._ending and self._slow_reader:
            self._transport.abort()
        elif self._ending:
            self._transport.close()
        else:
            self._throttle()

    def abort(self) -> None:
        """Hang up now, whatever is on its way."""
        if self._transport is not None:
            self._transport.abort()

    def status(self, now_ms: int) -> ConnectionStatus:
        return ConnectionStatus(
            address=self._address,
            session_id=0 if self.peer is None else self.peer.session_id,
            timeout_ms=self.timeout_ms,
            queued=self.unanswered,
            received=self._received,
            sent=self._sent,
            established_ms=now_ms - self._established_ms,
        )

    @property
    def _address(self) -> str:
        return f"{self.host}:{self._port}"
