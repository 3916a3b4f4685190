"""What a replica remembers of its queue: the entries in order of execution, and the parts they lead to.

`virtual_parts` is what will exist once every pulled entry is done, `current_parts` what the entries that are done
have made. `virtual_parts = current_parts + queue` holds between any two calls. Mutations and alters keep no state
here yet. Source of the rules: ClickHouse's `ReplicatedMergeTreeQueue`; what it does under its state mutex is here
plain code that never waits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from replica.errors import LogicalError
from replica.insert_times import InsertTimeChanges, InsertTimes
from replica.log_entry import INSERT_TYPES, MERGE_TYPES, PART_PRODUCING_TYPES, EntryType, LogEntry
from replica.part_name import PartName
from replica.part_set import PartSet, ReadablePartSet
from replica.pools import Slot


@dataclass(slots=True, eq=False)
class QueuedEntry:
    """An entry in the queue and what happened to it so far, as system.replication_queue shows it.

    Times are unix seconds, 0 for never. `num_tries` counts starts, the running one included. `postpone_reason`
    stays after the entry has run. `actual_new_parts` are the bigger parts that the running attempt fetches
    instead, `slot` where it counts, None outside of the pools. `becomes_fetch` says of a merge that it has turned out
    to be a fetch and waits for a slot as such. Until `paused_until` nobody looks at the entry. Compared by identity.
    """

    znode_name: str
    entry: LogEntry
    currently_executing: bool = False
    removed_by_other_entry: bool = False
    num_tries: int = 0
    last_exception: str = ""
    last_exception_time: float = 0
    last_attempt_time: float = 0
    num_postponed: int = 0
    postpone_reason: str = ""
    last_postpone_time: float = 0
    actual_new_parts: list[PartName] = field(default_factory=list)
    slot: Slot | None = None
    becomes_fetch: bool = False
    paused_until: float = 0

    @property
    def new_part_name(self) -> str:
        """The name as messages and system tables give it: empty for REPLACE_RANGE."""
        return "" if self.entry.new_part is None else str(self.entry.new_part)


class ReplicationQueue:
    """The queue of one table on one replica. Iterates in order of execution, which is not that of the znodes."""

    def __init__(self, parts: Iterable[PartName] = ()) -> None:
        self.initialize(parts)

    def initialize(self, parts: Iterable[PartName]) -> None:
        """Forget everything and begin with the parts that the replica's znodes name."""
        self._entries: OrderedDict[str, QueuedEntry] = OrderedDict()
        self._current_parts = PartSet(parts)
        self._virtual_parts = self._current_parts.copy()
        self._future_parts: dict[PartName, QueuedEntry] = {}
        self._pending_drop_parts: dict[str, PartName] = {}
        self._executing_drop_ranges: dict[str, PartName] = {}
        self._drop_replace_intents: list[PartName] = []
        self._insert_times = InsertTimes()

    # --- what is there ---

    def __iter__(self) -> Iterator[QueuedEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, znode_name: object) -> bool:
        return znode_name in self._entries

    def __getitem__(self, znode_name: str) -> QueuedEntry:
        return self._entries[znode_name]

    @property
    def current_parts(self) -> ReadablePartSet:
        return self._current_parts

    @property
    def virtual_parts(self) -> ReadablePartSet:
        return self._virtual_parts

    def still_to_make(self, parts: Iterable[PartName]) -> list[PartName]:
        """Those of the parts that are neither made nor, as far as this queue knows, dropped."""
        return [part for part in parts if self.current_parts.containing(part) is None and self.will_be(part)]

    def will_be(self, part: PartName) -> bool:
        """Whether the part, or one that it goes into, is there once every entry is done."""
        covering = self._virtual_parts.containing(part)
        return covering is not None and not covering.is_fake_drop_range

    @property
    def future_parts(self) -> Mapping[PartName, QueuedEntry]:
        """The parts (and ranges) that running attempts are about to make, with their entries."""
        return MappingProxyType(self._future_parts)

    @property
    def pending_drop_parts(self) -> tuple[PartName, ...]:
        """What the DROP_PART entries in the queue drop, in order of their znodes."""
        return tuple(part for _, part in sorted(self._pending_drop_parts.items()))

    @property
    def executing_drop_ranges(self) -> tuple[PartName, ...]:
        """The ranges of the running DROP_RANGE, DROP_PART and REPLACE_RANGE, in order of their znodes."""
        return tuple(part for _, part in sorted(self._executing_drop_ranges.items()))

    @property
    def drop_replace_intents(self) -> tuple[PartName, ...]:
        """Ranges that a local REPLACE or MOVE PARTITION is about to write an entry for."""
        return tuple(self._drop_replace_intents)

    @property
    def min_unprocessed_insert_time(self) -> int:
        return self._insert_times.min_unprocessed

    @property
    def max_processed_insert_time(self) -> int:
        return self._insert_times.max_processed

    def take_insert_time_changes(self) -> InsertTimeChanges:
        """The insert times that changed since the last call, for the caller to write to the replica's znodes."""
        return self._insert_times.take_changes()

    # --- entries come ---

    def expect_inserts(self, entries: Iterable[LogEntry]) -> None:
        """Lower `min_unprocessed_insert_time` for entries that the caller is about to copy from the log."""
        for entry in entries:
            if entry.type in INSERT_TYPES:
                self._insert_times.expect(entry.create_time)

    def insert(self, znode_name: str, entry: LogEntry) -> QueuedEntry:
        """Put an entry into the queue: at the front if it drops something, else at the tail.

        Raises LogicalError when its znode is in the queue already or its parts intersect virtual parts; the
        state is not to be used after the latter.
        """
        if znode_name in self._entries:
            raise LogicalError(f"Entry {znode_name} is already in the queue. It is a bug.")
        queued = QueuedEntry(znode_name, entry)
        _apply(entry, self._virtual_parts)
        if entry.type is EntryType.DROP_PART:
            self._pending_drop_parts[znode_name] = _drop_range(entry)
        self._entries[znode_name] = queued
        if entry.drop_range is not None:
            self._entries.move_to_end(znode_name, last=False)
        if entry.type in INSERT_TYPES:
            self._insert_times.add(znode_name, entry.create_time)
        return queued

    # --- entries run ---

    def start(self, queued: QueuedEntry, now: float) -> None:
        """An attempt begins. Raises LogicalError if another one makes the same part."""
        taken = [part for part in queued.entry.virtual_parts if part in self._future_parts]
        if queued.currently_executing or taken:
            raise LogicalError(
                f"Tagging already tagged future part {', '.join(map(str, taken))}. This is a bug. "
                f"It happened on attempt to execute {queued.znode_name}"
            )
        if queued.entry.drop_range is not None:
            self._executing_drop_ranges[queued.znode_name] = queued.entry.drop_range
        queued.currently_executing = True
        queued.num_tries += 1
        queued.last_attempt_time = now
        for part in queued.entry.virtual_parts:
            self._future_parts[part] = queued

    def finish_attempt(self, queued: QueuedEntry) -> None:
        """An attempt is over, however it ended; its entry may have left the queue before."""
        if not queued.currently_executing:
            raise LogicalError(f"Entry {queued.znode_name} is not executing. It is a bug.")
        self._executing_drop_ranges.pop(queued.znode_name, None)
        queued.currently_executing = False
        queued.slot = None
        for part in (*queued.entry.virtual_parts, *queued.actual_new_parts):
            del self._future_parts[part]
        queued.actual_new_parts.clear()

    def take_actual_part(self, queued: QueuedEntry, part: PartName) -> str | None:
        """Let a running attempt fetch `part`, a bigger one that a replica has, instead of its own.

        None if it may; it must then wait until none of `executing_below(queued, part)` executes any more.
        Otherwise the reason why not, and nothing changes.
        """
        if part == queued.entry.new_part:
            return None
        if self._virtual_parts.containing(part) is None:
            return f"Log entry for part {part} or covering part is not pulled from log to queue yet."
        reason = self.affected_by_drop_part(part) or self.made_by_another(queued, part)
        if reason is not None:
            return reason
        for other_part, other in self.overlapping_future_parts(part):
            if queued.znode_name < other.znode_name:
                return (
                    f"Not executing log entry {queued.znode_name} for part {part} because it is not disjoint with "
                    f"part {other_part} that is currently executing and another entry {other.znode_name} is newer."
                )
        queued.actual_new_parts.append(part)
        self._future_parts[part] = queued
        return None

    def executing_below(self, queued: QueuedEntry, part: PartName) -> list[QueuedEntry]:
        """The other running entries whose parts overlap `part`, in order of their znodes."""
        others = {other.znode_name: other for _, other in self.overlapping_future_parts(part) if other is not queued}
        return [other for _, other in sorted(others.items())]

    def overlapping_future_parts(self, part: PartName) -> Iterator[tuple[PartName, QueuedEntry]]:
        """The future parts that share a block with `part`, but not those that a range to drop covers; by name."""
        overlapping = [other for other in self._future_parts if not other.is_disjoint(part)]
        for other in sorted(overlapping, key=str):
            if not (part.is_fake_drop_range and part.contains(other)):
                yield other, self._future_parts[other]

    def made_by_another(self, queued: QueuedEntry, part: PartName) -> str | None:
        """The reason to wait if an attempt that makes exactly this part is running."""
        other = self._future_parts.get(part)
        if other is None:
            return None
        # There is no blank before "because" in ClickHouse's message either.
        return (
            f"Not executing log entry {queued.znode_name} of type {queued.entry.type} for part "
            f"{queued.new_part_name} (actual part {part})because another log entry {other.znode_name} of type "
            f"{other.entry.type} for the same part ({other.new_part_name}) is being processed."
        )

    def affected_by_drop_part(self, part: PartName) -> str | None:
        """The reason to wait if a DROP_PART in the queue overlaps this part."""
        for dropped in self.pending_drop_parts:
            if not dropped.is_disjoint(part):
                return f"Has DROP_PART affecting entry {dropped} producing part {part}. Will postpone it's execution."
        return None

    def is_going_to_be_dropped(self, part: PartName) -> PartName | None:
        """What an entry in the queue drops and the part is in: a range, or a part that covers it."""
        covering = self._virtual_parts.containing(part)
        if covering is not None and covering.is_fake_drop_range:
            return covering
        return next((dropped for dropped in self.pending_drop_parts if dropped.contains(part)), None)

    def fail(self, queued: QueuedEntry, text: str, now: float) -> None:
        """An attempt ended with an error that is to be seen and that makes the entry wait longer."""
        queued.last_exception = text
        queued.last_exception_time = now

    def postpone(self, queued: QueuedEntry, reason: str, now: float) -> None:
        """The entry was looked at and may not run yet."""
        queued.num_postponed += 1
        queued.postpone_reason = reason
        queued.last_postpone_time = now

    def move_to_tail(self, queued: QueuedEntry) -> None:
        self._entries.move_to_end(queued.znode_name)

    def move_siblings_to_tail(self, part: PartName) -> tuple[PartName, ...]:
        """After a failed fetch: put off what makes the sources of the merge that `part` goes into.

        The merged part may then be fetched first. Returns the sources of that merge or mutation, the first in
        the queue; none if there is no such entry.
        """
        before: list[QueuedEntry] = []
        for queued in self:
            if queued.entry.type in MERGE_TYPES and part in queued.entry.source_parts:
                for sibling in before:
                    if sibling.entry.new_part in queued.entry.source_parts:
                        self.move_to_tail(sibling)
                return queued.entry.source_parts
            if queued.entry.type in PART_PRODUCING_TYPES:
                before.append(queued)
        return ()

    def add_drop_replace_intent(self, drop_range: PartName) -> None:
        self._drop_replace_intents.append(drop_range)

    def remove_drop_replace_intent(self, drop_range: PartName) -> None:
        """Nothing if the queue was initialized since it was added."""
        if drop_range in self._drop_replace_intents:
            self._drop_replace_intents.remove(drop_range)

    # --- entries go ---

    def remove(self, queued: QueuedEntry, *, successful: bool = True) -> bool:
        """Take an entry out: done if `successful`, else made needless by another one.

        True if the caller is now to remove its znode; False if another entry removed both before. Raises
        LogicalError if it is not in the queue.
        """
        if queued.removed_by_other_entry:
            return False
        if self._entries.get(queued.znode_name) is not queued:
            raise LogicalError(f"Can't find {queued.znode_name} in the memory queue. It is a bug.")
        del self._entries[queued.znode_name]
        self._pending_drop_parts.pop(queued.znode_name, None)
        if queued.entry.type in INSERT_TYPES:
            self._insert_times.remove(queued.znode_name, queued.entry.create_time)
        if successful:
            self._enter_current(queued.entry)
        else:
            queued.removed_by_other_entry = True
            for part in queued.entry.virtual_parts:
                self._virtual_parts.remove(part)
        return True

    def _enter_current(self, entry: LogEntry) -> None:
        _apply(entry, self._current_parts)
        if entry.drop_range is not None and entry.type is not EntryType.DROP_PART:
            # Having evicted what it covers, the range itself has served.
            self._current_parts.remove(entry.drop_range)
            self._virtual_parts.remove(entry.drop_range)

    def entries_inside(self, drop_range: PartName, covering: LogEntry | None = None) -> list[QueuedEntry]:
        """The entries that are needless once `drop_range` is dropped, in order of execution.

        They make one part inside the range or, when a `covering` entry (DROP_RANGE, DROP_PART, REPLACE_RANGE)
        does the dropping, are another REPLACE_RANGE that lies inside it with its range and all its parts. The
        caller is to remove the znode of each, call `remove(…, successful=False)`, and wait for those executing.
        """
        return [queued for queued in self if _is_inside(queued.entry, drop_range, covering)]

    # --- the invariant ---

    def check_invariant(self) -> None:
        """Raises LogicalError unless `virtual_parts` is what `current_parts` and the queue lead to, and
        `future_parts` what the running attempts make.

        A range to drop counts only as long as its entry waits: when a wider one is done first, it is gone from
        the virtual parts and has nothing left to do.
        """
        expected = self._current_parts.copy()
        for queued in sorted(self, key=lambda queued: queued.znode_name):
            _apply(queued.entry, expected)
        _require_equal(_data_parts(self._virtual_parts), _data_parts(expected))
        waiting = {queued.entry.drop_range for queued in self}
        _require_equal([part for part in self._virtual_parts if part.is_fake_drop_range and part not in waiting], [])
        attempts = [queued for queued in (*self, *self._future_parts.values()) if queued.currently_executing]
        made = {part for queued in attempts for part in (*queued.entry.virtual_parts, *queued.actual_new_parts)}
        _require_equal(sorted(self._future_parts), sorted(made))


def _apply(entry: LogEntry, parts: PartSet) -> None:
    """What an entry makes of a set of parts; a range to drop stays in the set, in place of what it covers."""
    for part in entry.virtual_parts:
        parts.add(part)
    if entry.type is EntryType.DROP_PART:
        parts.remove_with_covered(_drop_range(entry))


def _drop_range(entry: LogEntry) -> PartName:
    if entry.drop_range is None:
        raise LogicalError(f"Log entry of type {entry.type} does not say what it drops")
    return entry.drop_range


def _is_inside(entry: LogEntry, drop_range: PartName, covering: LogEntry | None) -> bool:
    if entry.type in PART_PRODUCING_TYPES:
        return entry.new_part is not None and drop_range.contains(entry.new_part)
    replace = entry.replace_range
    return (
        replace is not None
        and covering is not None
        and covering is not entry
        and drop_range.contains(replace.drop_range)
        and all(drop_range.contains(part.new) for part in replace.parts)
    )


def _data_parts(parts: ReadablePartSet) -> list[PartName]:
    return [part for part in parts if not part.is_fake_drop_range]


def _require_equal(found: list[PartName], expected: list[PartName]) -> None:
    if found != expected:
        raise LogicalError(
            f"The queue's parts are not what its entries lead to: found {', '.join(map(str, found))}; "
            f"expected {', '.join(map(str, expected))}"
        )
