"""What a server's sessions asked of the coordination service and what they were told: system.zookeeper_log.

ClickHouse: ZooKeeperLog.cpp. The last messages, in memory. Writing one costs little: rows are made when somebody
reads them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from coordinator.api import CoordinationError, MultiFailed, Operation, Result, SessionLost
from replica.environment import Clock

MOST_ROWS = 10_000
MOST_CHILDREN = 100


@dataclass(frozen=True, slots=True)
class Get:
    path: str
    has_watch: bool


@dataclass(frozen=True, slots=True)
class Exists:
    path: str
    has_watch: bool


@dataclass(frozen=True, slots=True)
class Children:
    path: str
    has_watch: bool


@dataclass(frozen=True, slots=True)
class Multi:
    operations: tuple[Operation, ...]


Request = Operation | Get | Exists | Children | Multi


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer that is an error; `index` is the position of the operation of a multi that failed."""

    error: type[CoordinationError]
    index: int = -1

    @classmethod
    def of(cls, problem: CoordinationError) -> Failure:
        """Without the exception itself, which would keep its whole stack alive."""
        if isinstance(problem, MultiFailed):
            return cls(type(problem.error), problem.index)
        return cls(type(problem))


Outcome = Result | Sequence[str] | Sequence[Result] | Failure
"""A result; of `Children` the names, of `Multi` one result an operation."""


class MessageType(StrEnum):
    """Which way a message went; of a request that died with its session the end is FINALIZE."""

    REQUEST = "Request"
    RESPONSE = "Response"
    FINALIZE = "Finalize"


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `time` in seconds since 1970. Of a response, `request` is what it answers.

    `xid` counts the requests of all sessions of the server. Of a listing only `MOST_CHILDREN` names are kept.
    """

    type: MessageType
    time: float
    session_id: int
    xid: int
    request: Request
    duration_seconds: float = 0.0
    outcome: Outcome = None

    @property
    def rows(self) -> int:
        """In how many rows it shows: a multi and its operations have one each."""
        return 1 + len(self.request.operations) if isinstance(self.request, Multi) else 1


class Call:
    """One request under way; whoever gets the answer puts it into `result`."""

    __slots__ = ("result",)

    def __init__(self) -> None:
        self.result: Outcome = None


class ZooKeeperLog:
    """The last messages, oldest first, as many as show in `MOST_ROWS` rows."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._messages: deque[Message] = deque()
        self._rows = 0
        self._requests = 0

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    @contextmanager
    def call(self, session_id: int, request: Request) -> Iterator[Call]:
        """Logs the request, and at the end of the `with` block the response: a result or the error raised in it.

        Of a request that nobody waits for any more, as its task was cancelled, the response is not known.
        """
        self._requests += 1
        xid, sent = self._requests, self._clock.now()
        self._add(Message(MessageType.REQUEST, sent, session_id, xid, request))
        call = Call()
        try:
            yield call
        except CoordinationError as problem:
            kind = MessageType.FINALIZE if isinstance(problem, SessionLost) else MessageType.RESPONSE
            self._answered(kind, session_id, xid, request, sent, Failure.of(problem))
            raise
        self._answered(MessageType.RESPONSE, session_id, xid, request, sent, call.result)

    def _answered(
        self, kind: MessageType, session_id: int, xid: int, request: Request, sent: float, outcome: Outcome
    ) -> None:
        if isinstance(request, Children) and isinstance(outcome, list):
            outcome = outcome[:MOST_CHILDREN]
        now = self._clock.now()
        self._add(Message(kind, now, session_id, xid, request, now - sent, outcome))

    def _add(self, message: Message) -> None:
        self._messages.append(message)
        self._rows += message.rows
        while self._rows > MOST_ROWS:
            self._rows -= self._messages.popleft().rows
