"""What comes in becomes visible in one transaction: log entry, freed block numbers, ids, the parts' znodes.

A crash between two of them would leave a part that nobody fetches, or an id that refuses rows that are nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from clickhouse_sim.simulation.properties.broken import PropertyBroken
from clickhouse_sim.simulation.properties.places import entry_of, place
from coordinator.processor import Transaction
from coordinator.tree import NodeCreated, NodeDeleted
from replica.dedup.hashes import HashKind
from replica.log_entry import INSERT_TYPES, LogEntry
from replica.part_name import PartName
from replica.znodes import TableZnodes

NAME = "a commit is one transaction"


class CommitIsOne:
    """Also: no two parts that come in get one block number, for its lock is freed by one of them only."""

    def __init__(self, table: TableZnodes) -> None:
        self._table = table

    def follow(self, transaction: Transaction) -> None:
        created: dict[str, bytes] = {}
        deleted: set[str] = set()
        entries: list[LogEntry] = []
        for change in transaction.changes:
            if isinstance(change, NodeCreated):
                created[change.path] = change.data or b""
                if place(self._table, change.path)[:1] == ["log"]:
                    entry = entry_of(change.data)
                    if entry is not None:
                        entries.append(entry)
            elif isinstance(change, NodeDeleted):
                deleted.add(change.path)
        ids = {path: value for path, value in sorted(created.items()) if self._is_id(path)}
        brought = [(entry, part) for entry in entries for part in _brought_in(entry)]
        for entry, part in brought:
            self._check(entry, part, set(created), deleted, list(ids.values()))
        names = {str(part).encode() for _, part in brought}
        for path, value in ids.items():
            if value not in names:
                raise PropertyBroken(NAME, f"{path} was made without the log entry of its part")

    def _check(
        self, entry: LogEntry, part: PartName, created: set[str], deleted: set[str], ids: Sequence[bytes]
    ) -> None:
        table = self._table
        lock = f"{table.partition(part.partition_id)}/block-{part.min_block:010d}"
        own = table.replica(entry.source_replica).part(str(part))
        if lock not in deleted:
            raise PropertyBroken(NAME, f"part {part} was written to the log without its block number's lock")
        if own not in created:
            raise PropertyBroken(NAME, f"part {part} was written to the log without its own znode")
        if entry.block_id and str(part).encode() not in ids:
            raise PropertyBroken(NAME, f"part {part} was written to the log without its deduplication ids")

    def _is_id(self, path: str) -> bool:
        return place(self._table, path)[:-1] in [[kind] for kind in HashKind]


def _brought_in(entry: LogEntry) -> list[PartName]:
    """The parts that an insert, an ATTACH or a REPLACE brings into the table."""
    if entry.replace_range is not None:
        return [each.new for each in entry.replace_range.parts]
    return [entry.new_part] if entry.type in INSERT_TYPES and entry.new_part is not None else []
