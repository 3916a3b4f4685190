"""How far behind a replica is with inserted data: the two times that it publishes in its znodes.

Counted are GET_PART and ATTACH_PART entries, by creation time in unix seconds. Source of the rules:
ClickHouse's `ReplicatedMergeTreeQueue` (insertUnlocked, updateStateOnQueueEntryRemoval).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InsertTimeChanges:
    """New values for `min_unprocessed_insert_time` and `max_processed_insert_time`; None for one that stays."""

    min_unprocessed: int | None
    max_processed: int | None

    def __bool__(self) -> bool:
        return self.min_unprocessed is not None or self.max_processed is not None


class InsertTimes:
    """`min_unprocessed` is 0 when nothing waits, `max_processed` before anything was done."""

    def __init__(self) -> None:
        self.min_unprocessed = 0
        self.max_processed = 0
        self._waiting: list[tuple[int, str]] = []
        self._told = (0, 0)

    def expect(self, create_time: int) -> None:
        """An insert of that time is about to enter the queue. A time of 0, unknown, counts for nothing."""
        if create_time and (self.min_unprocessed == 0 or create_time < self.min_unprocessed):
            self.min_unprocessed = create_time

    def add(self, znode_name: str, create_time: int) -> None:
        """An insert entered the queue."""
        insort(self._waiting, (create_time, znode_name))
        self.expect(create_time)

    def remove(self, znode_name: str, create_time: int) -> None:
        """An insert left the queue, done or dropped."""
        del self._waiting[bisect_left(self._waiting, (create_time, znode_name))]
        if not self._waiting:
            self.min_unprocessed = 0
        else:
            self.min_unprocessed = max(self.min_unprocessed, self._waiting[0][0])
        self.max_processed = max(self.max_processed, create_time)

    def take_changes(self) -> InsertTimeChanges:
        """What changed since the last call, for the caller to write."""
        told, self._told = self._told, (self.min_unprocessed, self.max_processed)
        return InsertTimeChanges(
            min_unprocessed=self.min_unprocessed if self.min_unprocessed != told[0] else None,
            max_processed=self.max_processed if self.max_processed != told[1] else None,
        )
