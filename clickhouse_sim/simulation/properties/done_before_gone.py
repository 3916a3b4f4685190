"""An entry leaves a replica's queue only when its part, or one that contains it, is registered there.

Unless the part is dropped: then nobody needs it any more. Or a part that contains it is broken, and the queue has an
entry that fetches that one again. The same holds of every part that a REPLACE_RANGE brings. And an entry that drops
something leaves only when nothing of it is registered there, unless a wider one that still waits is to drop it.
"""

from __future__ import annotations

from clickhouse_sim.simulation.properties.broken import PropertyBroken
from clickhouse_sim.simulation.properties.places import entry_of, place
from coordinator.processor import Transaction
from coordinator.tree import DataSet, NodeCreated, NodeDeleted
from replica.log_entry import LogEntry
from replica.part_name import PartName
from replica.znodes import TableZnodes

NAME = "an entry is done before it is gone"


class DoneBeforeGone:
    """A replica that is lost throws its queue away; that is no breach."""

    def __init__(self, table: TableZnodes) -> None:
        self._table = table
        self._queued: dict[tuple[str, str], LogEntry | None] = {}
        self._parts: dict[str, set[PartName]] = {}
        self._clones: set[str] = set()
        self._dropped: list[PartName] = []

    def follow(self, transaction: Transaction) -> None:
        gone: list[tuple[str, LogEntry]] = []
        for change in transaction.changes:
            match place(self._table, getattr(change, "path", "")), change:
                case ["log", _], NodeCreated(data=data):
                    entry = entry_of(data)
                    if entry is not None and entry.drop_range is not None:
                        self._dropped.append(entry.drop_range)
                case ["replicas", replica, "is_lost"], NodeCreated(data=data) | DataSet(data=data):
                    (self._clones.add if data == b"1" else self._clones.discard)(replica)
                case ["replicas", replica, "parts", name], NodeCreated():
                    self._parts.setdefault(replica, set()).add(PartName.parse(name))
                case ["replicas", replica, "parts", name], NodeDeleted():
                    self._parts[replica].discard(PartName.parse(name))
                case ["replicas", replica, "queue", name], NodeCreated(data=data):
                    self._queued[replica, name] = entry_of(data)
                case ["replicas", replica, "queue", name], NodeDeleted():
                    entry = self._queued.pop((replica, name), None)
                    if entry is not None and replica not in self._clones:
                        gone.append((replica, entry))
                case ["replicas", replica], NodeDeleted():
                    self._parts.pop(replica, None)
        for replica, entry in gone:
            self._check(replica, entry)

    def _check(self, replica: str, entry: LogEntry) -> None:
        waiting = [other for (of, _), other in self._queued.items() if of == replica and other is not None]
        registered = self._parts.get(replica, set())
        fetched_again = [other.new_part for other in waiting if other.new_part and not other.source_replica]
        for part in _made(entry):
            if not any(other.contains(part) for other in [*registered, *self._dropped, *fetched_again]):
                raise PropertyBroken(NAME, f"{replica} threw {entry.type} {part} away without having the part")
        dropped = entry.drop_range
        wider = [other.drop_range for other in waiting if other.drop_range is not None]
        if dropped is None or any(other.contains(dropped) for other in wider):
            return
        if left := sorted(part for part in registered if dropped.contains(part)):
            raise PropertyBroken(NAME, f"{replica} threw {entry.type} {dropped} away and has {left[0]} still")


def _made(entry: LogEntry) -> list[PartName]:
    """The parts that are there when it is done."""
    return [part for part in entry.virtual_parts if not part.is_fake_drop_range]
