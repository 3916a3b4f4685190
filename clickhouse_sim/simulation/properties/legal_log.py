"""The log is a history that can be carried out in its order: new parts are new, merges take whole neighbours.

Two leaders that choose at once, or a merge over a block number that is still being inserted, would break it: rows
would be in two parts, or a part would be covered by one that does not have its rows. So would a part that comes after
the range that drops it: replicas would differ in whether they have it. One part is dropped only while it is there.
"""

from __future__ import annotations

from clickhouse_sim.simulation.properties.broken import PropertyBroken
from clickhouse_sim.simulation.properties.places import entry_of, place
from coordinator.processor import Transaction
from coordinator.tree import NodeCreated, NodeDeleted
from replica.errors import LogicalError
from replica.log_entry import MERGE_TYPES, EntryType, LogEntry
from replica.part_name import PartName
from replica.part_set import PartSet
from replica.znodes import TableZnodes

NAME = "the log is a legal history"


class LegalLog:
    """Keeps the parts that exist once everything in the log is done."""

    def __init__(self, table: TableZnodes) -> None:
        self._table = table
        self._parts = PartSet()
        self._ranges: list[PartName] = []

    def follow(self, transaction: Transaction) -> None:
        for change in transaction.changes:
            match place(self._table, getattr(change, "path", "")), change:
                case ["log", name], NodeCreated(data=data):
                    entry = entry_of(data)
                    if entry is None:
                        raise PropertyBroken(NAME, f"{name} cannot be read")
                    try:
                        self._add(name, entry)
                    except LogicalError as problem:
                        raise PropertyBroken(NAME, f"{name}: {problem}") from problem
                case ["block_numbers", partition_id], NodeDeleted():
                    # FORGET PARTITION: its numbers begin anew, and with them the names of its parts.
                    self._ranges = [each for each in self._ranges if each.partition_id != partition_id]

    def _add(self, znode: str, entry: LogEntry) -> None:
        if entry.type in MERGE_TYPES:
            self._check_sources(znode, entry)
        for part in entry.virtual_parts:
            if not part.is_fake_drop_range:
                self._add_part(znode, entry, part)
        if entry.type is EntryType.DROP_PART and entry.new_part not in self._parts:
            raise PropertyBroken(NAME, f"{znode} drops part {entry.new_part}, but there is no such part")
        if entry.drop_range is not None:
            self._parts.remove_with_covered(entry.drop_range)
            if entry.drop_range.is_fake_drop_range:
                self._ranges.append(entry.drop_range)

    def _add_part(self, znode: str, entry: LogEntry, part: PartName) -> None:
        containing = self._parts.containing(part)
        if containing is not None:
            raise PropertyBroken(NAME, f"{znode} makes part {part}, but {containing} covers it already")
        if any(each.contains(part) for each in self._ranges):
            raise PropertyBroken(NAME, f"{znode} makes part {part}, but what it is in was dropped before")
        self._parts.add(part)

    def _check_sources(self, znode: str, entry: LogEntry) -> None:
        """Each source exists, and whatever the new part will cover is a source."""
        assert entry.new_part is not None
        for source in entry.source_parts:
            if source not in self._parts:
                raise PropertyBroken(
                    NAME, f"{znode} merges {source} into {entry.new_part}, but there is no such part"
                )
        covered = [part for part in self._parts.covered_by(entry.new_part) if part not in entry.source_parts]
        if covered:
            raise PropertyBroken(NAME, f"{znode} makes {entry.new_part} without the rows of {covered[0]}")
