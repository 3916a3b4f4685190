"""What is kept of a history that is to be looked at: events, messages, client operations, and the life of entries.

A recording only listens: a history with one and the same history without one are equal in every draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from clickhouse_sim.simulation.marks import Mark
from clickhouse_sim.simulation.protocol_events import ProtocolEvent, ProtocolReader
from clickhouse_sim.simulation.trace import Trace
from coordinator.local_client import Exchange
from replica.log_entry import EntryType
from replica.queue import QueuedEntry
from replica.znodes import TableZnodes

Queues = Callable[[], Mapping[str, Iterable[QueuedEntry]]]
"""Tells what stands in the queue of each living replica at this moment."""


class Event(NamedTuple):
    """At virtual `seconds`, at `who`; `entry` is the queue or log znode that it is about, if it is about one."""

    seconds: float
    mark: Mark
    who: str
    what: str
    entry: str = ""

    def __str__(self) -> str:
        return f"{self.seconds:12.6f}  {self.mark.value}  {self.who:<12}  {self.what}"


@dataclass(slots=True)
class Operation:
    """What a client asked of a replica; `ended` is None, and `outcome` empty, until it is answered.

    `outcome` is `ok`, `fail` (it is known that nothing was done) or `unknown`.
    """

    number: int
    client: str
    replica: str
    asked: dict[str, Any]
    began: float
    ended: float | None = None
    outcome: str = ""
    answer: str = ""


@dataclass(slots=True)
class EntryLife:
    """An entry in one replica's queue: seconds of its pull, its attempts (begin, end), its reasons, its removal."""

    replica: str
    znode: str
    text: str
    pulled: float
    type: EntryType | None = None
    attempts: list[tuple[float, float | None]] = field(default_factory=list)
    reasons: list[tuple[float, str]] = field(default_factory=list)
    removed: float | None = None


class Recording:
    """Listens to one history. `now` tells virtual seconds, `trace_hash` the hash of the whole trace so far."""

    def __init__(self, table: TableZnodes) -> None:
        self.now: Callable[[], float] = float
        self.trace_hash: Callable[[], str] = str
        self.events: list[Event] = []
        self.exchanges: list[tuple[float, Exchange]] = []
        self.operations: list[Operation] = []
        self.entries: list[EntryLife] = []
        self._reader = ProtocolReader(table)
        self._queues: Queues = dict
        self._living: dict[tuple[str, str], EntryLife] = {}
        self._seen: dict[tuple[str, str], tuple[bool, int, str]] = {}

    def attach(self, now: Callable[[], float], trace: Trace, queues: Queues) -> None:
        """Begin to listen, to a world that has just begun."""
        self.now = now
        self.trace_hash = trace.digest
        self._queues = queues
        trace.listener = self._note

    # --- what the world tells --------------------------------------------------------------------------------

    def hear(self, exchange: Exchange) -> None:
        """Fits `World.listen`."""
        self.exchanges.append((self.now(), exchange))
        for event in self._reader.read(exchange):
            self._add(event)

    def _note(self, who: str, what: str, mark: Mark | None) -> None:
        if mark is not None:
            self.events.append(Event(self.now(), mark, who, what))
            if mark is Mark.CRASH:
                self._end_attempts(who)
        for replica, queue in self._queues().items():
            self._look_at(replica, queue)

    def begin(self, client: str, replica: str, asked: dict[str, Any]) -> Operation:
        """A client asks; the caller says later how that `end`ed."""
        operation = Operation(len(self.operations), client, replica, asked, self.now())
        self.operations.append(operation)
        self.events.append(Event(self.now(), Mark.ASKED, client, f"#{operation.number} {replica}: {_short(asked)}"))
        return operation

    def end(self, operation: Operation, outcome: str, answer: str) -> None:
        """`outcome` is ok, fail or unknown."""
        operation.ended, operation.outcome, operation.answer = self.now(), outcome, answer
        mark = {"ok": Mark.ANSWERED, "fail": Mark.FAILED, "unknown": Mark.UNKNOWN}[outcome]
        self.events.append(Event(self.now(), mark, operation.client, f"#{operation.number} {outcome}: {answer}"))

    def break_property(self, name: str, message: str) -> None:
        """The property does not hold."""
        self.events.append(Event(self.now(), Mark.BROKEN, "checker", f"{name}: {message}"))

    # --- the life of entries ---------------------------------------------------------------------------------

    def _add(self, event: ProtocolEvent) -> None:
        now, key = self.now(), (event.who, event.entry)
        self.events.append(Event(now, event.mark, event.who, event.what, event.entry))
        if event.mark is Mark.PULLED:
            self._living[key] = life = EntryLife(event.who, event.entry, event.what.partition(" = ")[2], now)
            self.entries.append(life)
        elif event.mark is Mark.DONE and key in self._living:
            life = self._living.pop(key)
            self._close(life)
            life.removed = now

    def _look_at(self, replica: str, queue: Iterable[QueuedEntry]) -> None:
        for queued in queue:
            key = replica, queued.znode_name
            life = self._living.get(key)
            if life is None:
                continue
            life.type = queued.entry.type
            executing, postponed, reason = self._seen.get(key, (False, 0, ""))
            if queued.currently_executing != executing:
                self._switch(life, queued)
            if queued.num_postponed != postponed and queued.postpone_reason != reason:
                life.reasons.append((self.now(), queued.postpone_reason))
                self._tell(Mark.POSTPONED, life, queued.postpone_reason)
            self._seen[key] = queued.currently_executing, queued.num_postponed, queued.postpone_reason

    def _switch(self, life: EntryLife, queued: QueuedEntry) -> None:
        if queued.currently_executing:
            life.attempts.append((self.now(), None))
            self._tell(Mark.STARTED, life, f"attempt {queued.num_tries}")
        else:
            self._close(life)
            self._tell(Mark.ENDED, life, queued.last_exception)

    def _end_attempts(self, replica: str) -> None:
        for (of, _), life in self._living.items():
            if of == replica:
                self._close(life)
        self._seen = {key: seen for key, seen in self._seen.items() if key[0] != replica}

    def _close(self, life: EntryLife) -> None:
        if life.attempts and life.attempts[-1][1] is None:
            life.attempts[-1] = life.attempts[-1][0], self.now()

    def _tell(self, mark: Mark, life: EntryLife, what: str) -> None:
        self.events.append(Event(self.now(), mark, life.replica, f"{life.znode} {what}".rstrip(), life.znode))


def _short(asked: dict[str, Any]) -> str:
    return " ".join(str(value) for value in asked.values())
