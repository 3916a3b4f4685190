"""An entry leaves a replica's queue only when its part, or one that contains it, is registered there.

Unless the part is dropped: then nobody needs it any more.
"""

from __future__ import annotations

from clickhouse_sim.simulation.properties.broken import PropertyBroken
from clickhouse_sim.simulation.properties.places import entry_of, place
from coordinator.processor import Transaction
from coordinator.tree import DataSet, NodeCreated, NodeDeleted
from replica.log_entry import PART_PRODUCING_TYPES, LogEntry
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
        part = entry.new_part
        if entry.type not in PART_PRODUCING_TYPES or part is None:
            return
        if not any(other.contains(part) for other in [*self._parts.get(replica, ()), *self._dropped]):
            raise PropertyBroken(NAME, f"{replica} threw {entry.type} {part} away without having the part")
