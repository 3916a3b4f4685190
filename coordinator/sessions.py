"""Sessions: who is known to the service, and until when.

Times are milliseconds on any clock that only goes forward; the table never asks for the time. A session that was
last heard of at t expires at the first multiple of the tick after t + timeout, as in ZooKeeper.
"""

from __future__ import annotations

from dataclasses import dataclass

PASSWORD_LENGTH = 16
_SHORTEST_TIMEOUT_TICKS = 2
_LONGEST_TIMEOUT_TICKS = 20


@dataclass(slots=True)
class ServiceSession:
    """The service's side of a session. `heard_ms` is when its client last sent anything."""

    session_id: int
    password: bytes
    timeout_ms: int
    heard_ms: int


class SessionTable:
    """All sessions that have neither been closed nor expired."""

    def __init__(self, tick_ms: int) -> None:
        self.tick_ms = tick_ms
        self._sessions: dict[int, ServiceSession] = {}

    def negotiate(self, timeout_ms: int) -> int:
        """The timeout a client gets that asks for this one."""
        return min(max(timeout_ms, _SHORTEST_TIMEOUT_TICKS * self.tick_ms), _LONGEST_TIMEOUT_TICKS * self.tick_ms)

    def open(self, session_id: int, password: bytes, timeout_ms: int, now_ms: int) -> ServiceSession:
        session = ServiceSession(session_id, password, timeout_ms, now_ms)
        self._sessions[session_id] = session
        return session

    def get(self, session_id: int) -> ServiceSession | None:
        return self._sessions.get(session_id)

    def end(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def touch(self, session_id: int, now_ms: int) -> None:
        session = self._sessions.get(session_id)
        if session is not None:
            session.heard_ms = now_ms

    def expiry_ms(self, session: ServiceSession) -> int:
        return ((session.heard_ms + session.timeout_ms) // self.tick_ms + 1) * self.tick_ms

    def overdue(self, now_ms: int) -> list[int]:
        """Sessions whose time is over, in the order in which it ended."""
        due = sorted((self.expiry_ms(session), session.session_id) for session in self._sessions.values())
        return [session_id for expiry, session_id in due if expiry <= now_ms]

    def next_expiry_ms(self) -> int | None:
        """When the next session would expire if nobody were heard of again."""
        return min(map(self.expiry_ms, self._sessions.values()), default=None)

    def all(self) -> list[ServiceSession]:
        return list(self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)
