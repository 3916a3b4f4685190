"""What the replication log says that must be there in the end: every entry, in its order, replayed over known rows.

The log is the one order in which inserts, merges, drops, attaches and replacements happen. So when everybody has done
everything, each replica must show exactly the rows that the log leaves: neither a row that was dropped, nor one less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from clickhouse_sim.simulation.insert_workload import block_of, rows_of
from clickhouse_sim.simulation.properties.places import place
from coordinator.processor import Transaction
from coordinator.tree import NodeCreated
from replica.log_entry import EntryType, LogEntry
from replica.part_name import PartName
from replica.part_set import PartSet
from replica.schema import conform
from replica.storage.checksums import PartHeader
from replica.storage.part_codec import ArrowCodec
from replica.storage.part_files import build_part
from replica.table_structure import TableStructure
from replica.znodes import TableZnodes, sequence_number

Keys = tuple[int, ...]
"""The rows of a part, by their keys in order."""


class LogContradiction(Exception):
    """An entry that cannot be there after those before it."""


@dataclass
class Replay:
    """What is there after some entries: `alive` parts with their rows, what was `dropped`, and how often each row was
    `inserted`, by its key."""

    alive: dict[PartName, Keys] = field(default_factory=dict)
    dropped: list[PartName] = field(default_factory=list)
    ranges: list[PartName] = field(default_factory=list)
    inserted: Counter[int] = field(default_factory=Counter)

    def rows(self) -> Counter[int]:
        """How often each key is there."""
        return Counter(key for keys in self.alive.values() for key in keys)

    def holds(self, part: PartName) -> bool:
        """Whether the rows of a part that once was are still there, whatever they have been merged into."""
        gone = any(each.contains(part) for each in (*self.dropped, *self.ranges))
        return not gone and PartSet(self.alive).containing(part) is not None

    def add(self, part: PartName, keys: Keys) -> None:
        for drop_range in self.ranges:
            if drop_range.contains(part):
                raise LogContradiction(f"{part} comes after {drop_range}, which contains it")
        self.alive[part] = keys

    def drop(self, drop_range: PartName) -> None:
        for part in [part for part in self.alive if drop_range.contains(part)]:
            del self.alive[part]


class LogLedger:
    """Follows every transaction; `blocks` are the numbers of all that may be inserted, those of a client in a row."""

    def __init__(self, table: TableZnodes, structure: TableStructure, blocks: Iterable[int]) -> None:
        self._table = table
        self.structure = structure
        self._entries: dict[int, LogEntry] = {}
        self._checksums: dict[PartName, str] = {}
        self._keys_of_content: dict[str, Keys] = {}
        for number in blocks:
            for together in ((number,), (number, number + 1)):
                for _, rows in structure.partition_key.split(block_of(*together)):
                    self._remember(tuple(rows.column("k").to_pylist()))

    def follow(self, transaction: Transaction) -> None:
        """Note the log entries that are made, and what the parts hold that are registered."""
        for change in transaction.changes:
            if isinstance(change, NodeCreated) and change.data:
                match place(self._table, change.path):
                    case ["log", name]:
                        entry = LogEntry.parse(change.data.decode(), znode_ctime_ms=0)
                        self._entries[sequence_number(name)] = entry
                    case ["replicas", _, "parts", name]:
                        self._checksums.setdefault(PartName.parse(name), PartHeader.parse(change.data).total)

    def count(self, *types: EntryType) -> int:
        """How many entries of these types there have been."""
        return sum(entry.type in types for entry in self._entries.values())

    def replay(self) -> Replay:
        """Raises LogContradiction."""
        replay = Replay()
        for number in range(len(self._entries)):
            self._apply(self._entries[number], replay)
        return replay

    def _apply(self, entry: LogEntry, replay: Replay) -> None:
        part, replace = entry.new_part, entry.replace_range
        match entry.type:
            case EntryType.GET_PART if part is not None:
                keys = self._keys_of_content[self._checksums[part]]
                replay.inserted.update(keys)
                replay.add(part, keys)
            case EntryType.ATTACH_PART if part is not None:
                replay.add(part, self._keys_of_content[entry.part_checksum])
            case EntryType.MERGE_PARTS if part is not None:
                if missing := [str(source) for source in entry.source_parts if source not in replay.alive]:
                    raise LogContradiction(f"{part} is to be made of {missing}, which are not there any more")
                merged = sorted(key for source in entry.source_parts for key in replay.alive.pop(source))
                keys = tuple(sorted(set(merged)) if entry.deduplicate else merged)
                self._remember(keys)
                replay.add(part, keys)
            case EntryType.DROP_RANGE if part is not None:
                replay.drop(part)
                replay.ranges.append(part)
            case EntryType.DROP_PART if part is not None:
                if part not in replay.alive:
                    raise LogContradiction(f"{part} is to be dropped and is not there")
                del replay.alive[part]
                replay.dropped.append(part)
            case EntryType.REPLACE_RANGE if replace is not None:
                if entry.drop_range is not None:
                    replay.drop(entry.drop_range)
                    replay.ranges.append(entry.drop_range)
                for each in replace.parts:
                    replay.add(each.new, self._keys_of_content[each.checksum])
            case _:
                raise LogContradiction(f"nobody writes {entry}")

    def _remember(self, keys: Keys) -> None:
        """Know the rows again by the checksum of a part that has them."""
        image = build_part(conform(rows_of(keys), self.structure.schema), self.structure.schema, ArrowCodec())
        self._keys_of_content[image.header.total] = keys
