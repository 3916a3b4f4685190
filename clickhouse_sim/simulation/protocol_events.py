"""What the messages between replicas and the coordination service mean for the table: log entries, queues, parts.

Derived from requests and their replies alone, so that it is told as it happened and not as a replica believes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clickhouse_sim.simulation.marks import Mark
from coordinator import requests as ask
from coordinator.local_client import Exchange
from coordinator.requests import ErrorCode, Reply
from replica.errors import ClickHouseError
from replica.log_entry import LogEntry
from replica.znodes import TableZnodes


@dataclass(frozen=True, slots=True)
class ProtocolEvent:
    """One event at `who` (a client of the coordination service); `entry` is its znode name where it is about one."""

    mark: Mark
    who: str
    what: str
    entry: str = ""


class ProtocolReader:
    """Reads exchanges in order and tells what they mean for one table."""

    def __init__(self, table: TableZnodes) -> None:
        self._table = table
        self._asked: dict[tuple[int, int], ask.Request] = {}
        self._entries: dict[tuple[str, str], str] = {}

    def read(self, exchange: Exchange) -> Iterator[ProtocolEvent]:
        """The events that this exchange completes."""
        key = exchange.session_id, exchange.xid
        match exchange.what, exchange.message:
            case "opened", int() as timeout_ms:
                yield _of(exchange, Mark.SESSION_OPENED, f"session s{exchange.session_id}, timeout {timeout_ms} ms")
            case "expired", _:
                yield _of(exchange, Mark.SESSION_EXPIRED, f"session s{exchange.session_id} is over")
            case "request", (ask.Multi() | ask.Delete() | ask.SetData() | ask.Create()) as request:
                self._asked[key] = request
            case "reply", Reply() as reply if key in self._asked:
                yield from self._done(exchange.client, self._asked.pop(key), reply)

    def _done(self, client: str, request: ask.Request, reply: Reply) -> Iterator[ProtocolEvent]:
        if isinstance(request, ask.Multi):
            if isinstance(reply.body, ask.MultiRefused):
                yield from self._refused(client, request, reply.body)
            elif isinstance(reply.body, ask.MultiResults):
                yield from self._applied_all(client, request.operations, reply.body.results)
        elif reply.error == ErrorCode.OK:
            yield from self._applied(client, request, reply.body)

    def _applied_all(
        self, client: str, operations: Sequence[ask.MultiOperation], results: Sequence[object]
    ) -> Iterator[ProtocolEvent]:
        """A create that the next operation undoes was a question: whether the znode is not there."""
        following = [*operations[1:], None]
        for operation, result, after in zip(operations, results, following, strict=True):
            undone = isinstance(after, ask.Delete) and isinstance(operation, ask.Create)
            if not (undone and after is not None and after.path == operation.path):
                yield from self._applied(client, operation, result)

    def _refused(self, client: str, multi: ask.Multi, refused: ask.MultiRefused) -> Iterator[ProtocolEvent]:
        operation = multi.operations[refused.index]
        if operation.path.startswith(self._table.root):
            what = f"{type(operation).__name__} {self._short(operation.path)}: {refused.code.name}"
            yield ProtocolEvent(Mark.CONFLICT, client, what)

    def _applied(self, client: str, operation: object, result: object) -> Iterator[ProtocolEvent]:
        match operation:
            case ask.Create(data=data):
                path = result.path if isinstance(result, ask.Created | ask.Path) else operation.path
                yield from self._created(client, path, data or b"")
            case ask.Delete(path=path):
                yield from self._deleted(client, path)
            case ask.SetData(path=path, data=data):
                yield from self._set(client, path, data or b"")

    def _created(self, client: str, path: str, data: bytes) -> Iterator[ProtocolEvent]:
        match self._place(path):
            case ["log", name]:
                yield ProtocolEvent(Mark.LOG_WRITTEN, client, f"{name} = {_entry(data)}", name)
            case ["block_numbers", partition, name]:
                yield ProtocolEvent(Mark.NUMBER_ALLOCATED, client, f"partition {partition}, {name}")
            case ["replicas", replica, "queue", name]:
                self._entries[replica, name] = text = _entry(data)
                yield ProtocolEvent(Mark.PULLED, replica, f"{name} = {text}", name)
            case ["replicas", replica, "parts", name]:
                yield ProtocolEvent(Mark.PART_REGISTERED, replica, name)

    def _deleted(self, client: str, path: str) -> Iterator[ProtocolEvent]:
        match self._place(path):
            case ["replicas", replica, "queue", name]:
                text = self._entries.pop((replica, name), "")
                yield ProtocolEvent(Mark.DONE, replica, f"{name} = {text}", name)
            case ["replicas", replica, "parts", name]:
                yield ProtocolEvent(Mark.PART_UNREGISTERED, replica, name)

    def _set(self, client: str, path: str, data: bytes) -> Iterator[ProtocolEvent]:
        match self._place(path), data:
            case ["replicas", replica, "is_lost"], b"1":
                yield ProtocolEvent(Mark.LOST, replica, f"marked by {client}")
            case ["replicas", replica, "is_lost"], b"0":
                yield ProtocolEvent(Mark.CLONED, replica, "is not lost any more")

    def _place(self, path: str) -> list[str]:
        """The path below the table's, in pieces; nothing for paths of others."""
        root, separator, rest = path.partition(f"{self._table.root}/")
        return rest.split("/") if separator and not root else []

    def _short(self, path: str) -> str:
        return path.removeprefix(f"{self._table.root}/")


def _of(exchange: Exchange, mark: Mark, what: str) -> ProtocolEvent:
    return ProtocolEvent(mark, exchange.client or f"s{exchange.session_id}", what)


def _entry(data: bytes) -> str:
    """A log entry in a few words."""
    try:
        entry = LogEntry.parse(data.decode())
    except (ClickHouseError, UnicodeDecodeError):
        return "an entry that cannot be read"
    made = entry.new_part or entry.drop_range or ""
    sources = f" of {', '.join(map(str, entry.source_parts))}" if entry.source_parts else ""
    return f"{entry.type} {made}{sources}".rstrip()
