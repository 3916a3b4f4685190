"""Which entry of the queue may run next, and why the others may not.

Source of the rules and of every reason's text: ClickHouse's `ReplicatedMergeTreeQueue` (selectEntryToProcess,
shouldExecuteLogEntry). The checks for TTL, alters and mutations are not here yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from replica.log_entry import INSERT_TYPES, MERGE_TYPES, EntryType
from replica.part_name import PartName
from replica.queue import QueuedEntry, ReplicationQueue
from replica.quoting import readable_size

_MAX_DOUBLINGS = 63


@dataclass(frozen=True, slots=True)
class Limits:
    """What the server allows at this moment, and the settings that cap the waiting after failures (in ms).

    The largest sums of source parts come from `replica.merge_limits`, None for no limit; `part_bytes` has the size on
    the disk of the parts that are here, in whichever state. `is_fetch` says which entries would download a part now:
    it is they that the limits of fetches hold, and not those of merges.
    """

    is_fetch: Callable[[QueuedEntry], bool] = lambda queued: queued.entry.type in INSERT_TYPES
    fetches_executing: int = 0
    max_fetches: int = 16
    fetches_blocked: bool = False
    merges_blocked: bool = False
    part_bytes: Mapping[PartName, int] = field(default_factory=lambda: MappingProxyType({}))
    max_source_parts_bytes_for_merge: int = 150 << 30
    max_source_part_bytes_for_mutation: int | None = None
    max_bytes_to_merge_at_max_space_in_pool: int = 150 << 30
    max_postpone_time_for_failed_replicated_fetches_ms: int = 60_000
    max_postpone_time_for_failed_replicated_merges_ms: int = 60_000
    max_postpone_time_for_failed_mutations_ms: int = 300_000
    max_postpone_time_for_failed_replicated_tasks_ms: int = 300_000

    def max_postpone_time_ms(self, kind: EntryType) -> int:
        """The longest wait after a failure of an entry of that type; 0 for no wait at all."""
        if kind is EntryType.GET_PART:
            return self.max_postpone_time_for_failed_replicated_fetches_ms
        if kind is EntryType.MERGE_PARTS:
            return self.max_postpone_time_for_failed_replicated_merges_ms
        if kind is EntryType.MUTATE_PART:
            return self.max_postpone_time_for_failed_mutations_ms
        return self.max_postpone_time_for_failed_replicated_tasks_ms

    def max_source_parts_bytes(self, kind: EntryType) -> int | None:
        """The largest sum of source parts of an entry of that type; None for no limit.

        A merge was assigned within the largest sum there is: with all slots free it may run, whatever it has become.
        """
        if kind is EntryType.MUTATE_PART:
            return self.max_source_part_bytes_for_mutation
        if (
            kind is not EntryType.MERGE_PARTS
            or self.max_source_parts_bytes_for_merge == self.max_bytes_to_merge_at_max_space_in_pool
        ):
            return None
        return self.max_source_parts_bytes_for_merge


def select(queue: ReplicationQueue, now: float, limits: Limits) -> QueuedEntry | None:
    """The first entry that may run, moved to the tail; the caller is to `start` it before anything else happens.

    Every entry that was refused on the way is told why.
    """
    for queued in queue:
        if queued.currently_executing or queued.paused_until > now:
            continue
        reason = why_postponed(queue, queued, now, limits)
        if reason is None:
            queue.move_to_tail(queued)
            return queued
        queue.postpone(queued, reason, now)
    return None


def why_postponed(queue: ReplicationQueue, queued: QueuedEntry, now: float, limits: Limits) -> str | None:
    """Why the entry may not run now; None if it may. Changes nothing."""
    for check in _CHECKS:
        reason = check(queue, queued, now, limits)
        if reason is not None:
            return reason
    return None


def backoff_ms(queued: QueuedEntry, now: float, limits: Limits) -> int:
    """How much longer the entry has to wait because of its last failure: 2^tries ms, up to the cap of its type."""
    cap = limits.max_postpone_time_ms(queued.entry.type)
    wait = min(2 ** min(queued.num_tries, _MAX_DOUBLINGS), cap)
    return max(0, round(queued.last_exception_time * 1000) + wait - round(now * 1000)) if cap else 0


# --- the checks, in order ------------------------------------------------------------------------------------


def _recently_failed(queue: ReplicationQueue, queued: QueuedEntry, now: float, limits: Limits) -> str | None:
    wait = backoff_ms(queued, now, limits)
    if not wait:
        return None
    return (
        f"Not executing log entry {queued.znode_name} of type {queued.entry.type} because recently it has failed. "
        f"According to exponential backoff policy, put aside this log entry for {wait} ms."
    )


def _overlaps_work(queue: ReplicationQueue, queued: QueuedEntry, now: float, limits: Limits) -> str | None:
    for part in queued.entry.virtual_parts:
        reason = (
            queue.made_by_another(queued, part)
            or _overlaps_future_part(queue, queued, part)
            or _overlaps_intent(queue, queued, part)
        )
        if reason is not None:
            return reason
    return None


def _overlaps_future_part(queue: ReplicationQueue, queued: QueuedEntry, part: PartName) -> str | None:
    for other, _ in queue.overlapping_future_parts(part):
        return (
            f"Not executing log entry {queued.znode_name} for part {part} "
            f"because it is not disjoint with part {other} that is currently executing."
        )
    return None


def _overlaps_intent(queue: ReplicationQueue, queued: QueuedEntry, part: PartName) -> str | None:
    for intent in queue.drop_replace_intents:
        if not intent.is_disjoint(part):
            return (
                f"Not executing {queued.znode_name} of type {queued.entry.type} for part {queued.new_part_name} "
                f"(actual part {part})because there is a drop or replace intent with part name {intent}."
            )
    return None


def _affected_by_drop_part(queue: ReplicationQueue, queued: QueuedEntry, now: float, limits: Limits) -> str | None:
    if queued.entry.type in (EntryType.DROP_RANGE, EntryType.DROP_PART) or queued.entry.new_part is None:
        return None
    return queue.affected_by_drop_part(queued.entry.new_part)


def _going_to_be_dropped(queue: ReplicationQueue, queued: QueuedEntry, now: float, limits: Limits) -> str | None:
    part = queued.entry.new_part
    if part is None or part.is_fake_drop_range or queued.entry.type is EntryType.DROP_PART:
        return None
    covering = queue.virtual_parts.containing(part)
    if covering is None or not covering.is_fake_drop_range:
        # A DROP_PART that contains the part has already refused it one check earlier.
        return None
    return (
        f"Not executing {queued.znode_name} because it produces part {part} that is going to be dropped by {covering}"
    )


def _fetches_full(queue: ReplicationQueue, queued: QueuedEntry, now: float, limits: Limits) -> str | None:
    if limits.fetches_blocked:
        limit = "replicated fetches are cancelled now."
    elif limits.fetches_executing >= limits.max_fetches:
        limit = f"{limits.fetches_executing} fetches already executing, max {limits.max_fetches}."
    else:
        return None
    return f"Not executing fetch of part {queued.new_part_name} because {limit}" if limits.is_fetch(queued) else None


def _merges_blocked(queue: ReplicationQueue, queued: QueuedEntry, now: float, limits: Limits) -> str | None:
    if queued.entry.type in MERGE_TYPES and limits.merges_blocked:
        return f"{_not_executing(queued)} because merges and mutations are cancelled now."
    return None


def _source_not_ready(queue: ReplicationQueue, queued: QueuedEntry, now: float, limits: Limits) -> str | None:
    if queued.entry.type in MERGE_TYPES:
        for source in queued.entry.source_parts:
            if source in queue.future_parts:
                return (
                    f"{_not_executing(queued)} because part {source} is not ready yet "
                    "(log entry for that part is being processed)."
                )
    return None


def _sources_too_large(queue: ReplicationQueue, queued: QueuedEntry, now: float, limits: Limits) -> str | None:
    largest = limits.max_source_parts_bytes(queued.entry.type)
    size = sum(limits.part_bytes.get(source, 0) for source in queued.entry.source_parts)
    if largest is None or size <= largest or limits.is_fetch(queued):
        return None
    return (
        f"{_not_executing(queued)} because source parts size ({readable_size(size)}) "
        f"is greater than the current maximum ({readable_size(largest)})."
    )


def _overlaps_executing_range(queue: ReplicationQueue, queued: QueuedEntry, now: float, limits: Limits) -> str | None:
    drop_range = queued.entry.drop_range
    if drop_range is not None:
        for other in queue.executing_drop_ranges:
            if not other.is_disjoint(drop_range):
                return (
                    f"{_not_executing(queued)} because another DROP_RANGE or REPLACE_RANGE entry "
                    f"with not disjoint range {other} is currently executing."
                )
    return None


def _depends_on_replace_range(queue: ReplicationQueue, queued: QueuedEntry, now: float, limits: Limits) -> str | None:
    dropped = queued.entry.drop_range
    if queued.entry.type is EntryType.DROP_PART and dropped is not None:
        for other in queue:
            replace = other.entry.replace_range
            if replace is not None and not all(part.new.is_disjoint(dropped) for part in replace.parts):
                return f"{_not_executing(queued)} because it probably depends on {other.znode_name} (REPLACE_RANGE)."
    return None


def _not_executing(queued: QueuedEntry) -> str:
    kind, part = queued.entry.type, queued.new_part_name
    return f"Not executing log entry {queued.znode_name} of type {kind} for part {part}"


_CHECKS: tuple[Callable[[ReplicationQueue, QueuedEntry, float, Limits], str | None], ...] = (
    _recently_failed,
    _overlaps_work,
    _affected_by_drop_part,
    _going_to_be_dropped,
    _fetches_full,
    _merges_blocked,
    _source_not_ready,
    _sources_too_large,
    _overlaps_executing_range,
    _depends_on_replace_range,
)
