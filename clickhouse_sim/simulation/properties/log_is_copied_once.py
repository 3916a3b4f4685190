"""A replica copies every entry of the log once, in order, in the transaction that moves its pointer.

An entry that is copied twice would be carried out twice; one that the pointer passes is never done here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from clickhouse_sim.simulation.properties.broken import PropertyBroken
from clickhouse_sim.simulation.properties.places import entry_of, place
from coordinator.processor import Transaction
from coordinator.tree import DataSet, NodeCreated, NodeDeleted
from replica.log_entry import EntryType
from replica.znodes import TableZnodes, sequence_number

NAME = "the log is copied once and in order"


@dataclass(slots=True)
class _Replica:
    pointer: int | None = None
    clones: bool = False


@dataclass(slots=True)
class _Copied:
    """What one transaction did to one replica."""

    entries: list[bytes] = field(default_factory=list)
    pointer: int | None = None


class LogIsCopiedOnce:
    """A replica that is lost gets its queue from another one; from then on the rule holds again."""

    def __init__(self, table: TableZnodes) -> None:
        self._table = table
        self._log: dict[int, bytes] = {}
        self._replicas: dict[str, _Replica] = {}

    def follow(self, transaction: Transaction) -> None:
        copied: dict[str, _Copied] = {}
        for change in transaction.changes:
            match place(self._table, getattr(change, "path", "")), change:
                case ["log", name], NodeCreated(data=data):
                    self._log[sequence_number(name)] = data or b""
                case ["log", name], NodeDeleted():
                    del self._log[sequence_number(name)]
                case ["replicas", replica], NodeDeleted():
                    self._replicas.pop(replica, None)
                case ["replicas", replica, "is_lost"], NodeCreated(data=data) | DataSet(data=data):
                    self._replica(replica).clones = data == b"1"
                case ["replicas", replica, "queue", _], NodeCreated(data=data):
                    copied.setdefault(replica, _Copied()).entries.append(data or b"")
                case ["replicas", replica, "log_pointer"], DataSet(data=data):
                    copied.setdefault(replica, _Copied()).pointer = int(data or b"0")
        for name, copy in copied.items():
            self._check(name, copy)

    def _check(self, name: str, copied: _Copied) -> None:
        replica = self._replica(name)
        before = replica.pointer
        if copied.pointer is not None:
            replica.pointer = copied.pointer
        if replica.clones:
            return
        if copied.pointer is None:
            self._check_fetches(name, copied.entries)
            return
        passed = sorted(number for number in self._log if (before or 0) <= number < copied.pointer)
        if before is None and not copied.entries:
            passed = []  # the first pointer stands before the oldest entry
        if [self._log[number] for number in passed] != copied.entries:
            raise PropertyBroken(
                NAME,
                f"{name} moved its pointer from {before} to {copied.pointer}, past {len(passed)} entries, and copied "
                f"{len(copied.entries)} others",
            )

    def _check_fetches(self, name: str, entries: list[bytes]) -> None:
        """Without the pointer only fetches of parts that the replica has lost come into its queue."""
        for data in entries:
            entry = entry_of(data)
            if entry is None or entry.type is not EntryType.GET_PART or entry.source_replica:
                raise PropertyBroken(NAME, f"{name} got an entry that the log does not give it: {data.decode()!r}")

    def _replica(self, name: str) -> _Replica:
        return self._replicas.setdefault(name, _Replica())
