"""What comes in becomes visible in one transaction: log entry, freed block number, ids, the part's znode.

A crash between two of them would leave a part that nobody fetches, or an id that refuses rows that are nowhere.
"""

from __future__ import annotations

from clickhouse_sim.simulation.properties.broken import PropertyBroken
from clickhouse_sim.simulation.properties.places import entry_of, place
from coordinator.processor import Transaction
from coordinator.tree import NodeCreated, NodeDeleted
from replica.log_entry import INSERT_TYPES, LogEntry
from replica.part_name import PartName
from replica.znodes import TableZnodes

NAME = "a commit is one transaction"


class CommitIsOne:
    """Also: no two inserts get one block number, for its lock is freed by one of them only."""

    def __init__(self, table: TableZnodes) -> None:
        self._table = table

    def follow(self, transaction: Transaction) -> None:
        created: set[str] = set()
        deleted: set[str] = set()
        inserted: list[tuple[LogEntry, PartName]] = []
        for change in transaction.changes:
            if isinstance(change, NodeCreated):
                created.add(change.path)
                if place(self._table, change.path)[:1] == ["log"]:
                    entry = entry_of(change.data)
                    if entry is not None and entry.type in INSERT_TYPES and entry.new_part is not None:
                        inserted.append((entry, entry.new_part))
            elif isinstance(change, NodeDeleted):
                deleted.add(change.path)
        for entry, part in inserted:
            self._check(entry, part, created, deleted)
        if not inserted and (ids := [path for path in created if self._is_id(path)]):
            raise PropertyBroken(NAME, f"{sorted(ids)[0]} was made without the log entry of its part")

    def _check(self, entry: LogEntry, part: PartName, created: set[str], deleted: set[str]) -> None:
        table = self._table
        lock = f"{table.partition(part.partition_id)}/block-{part.min_block:010d}"
        own = table.replica(entry.source_replica).part(str(part))
        if lock not in deleted:
            raise PropertyBroken(NAME, f"part {part} was written to the log without its block number's lock")
        if own not in created:
            raise PropertyBroken(NAME, f"part {part} was written to the log without its own znode")
        if entry.block_id and not any(map(self._is_id, created)):
            raise PropertyBroken(NAME, f"part {part} was written to the log without its deduplication ids")

    def _is_id(self, path: str) -> bool:
        return place(self._table, path)[:-1] == ["deduplication_hashes"]
