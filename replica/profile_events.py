"""What a server counts since its start, under ClickHouse's names (ProfileEvents.cpp, CurrentMetrics.cpp)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum


class ProfileEvent(StrEnum):
    """What is counted."""

    DUPLICATION_DATA_HASH_COMPUTATIONS = "DuplicationDataHashComputations"
    DUPLICATED_INSERTED_BLOCKS = "DuplicatedInsertedBlocks"


DESCRIPTIONS = {
    ProfileEvent.DUPLICATION_DATA_HASH_COMPUTATIONS: "Times that an insert's data were hashed to recognise a retry.",
    ProfileEvent.DUPLICATED_INSERTED_BLOCKS: "Deduplication ids of inserted blocks that were there already.",
}


class ProfileEvents:
    """Counters that only grow."""

    def __init__(self) -> None:
        self._counts: Counter[ProfileEvent] = Counter()

    def __getitem__(self, event: ProfileEvent) -> int:
        return self._counts[event]

    def __iter__(self) -> Iterator[tuple[ProfileEvent, int]]:
        """What has happened at all, and how often."""
        return ((event, self._counts[event]) for event in ProfileEvent if self._counts[event])

    def add(self, event: ProfileEvent, times: int = 1) -> None:
        self._counts[event] += times


class CurrentMetrics:
    """What stands at some height at this moment."""

    def __init__(self) -> None:
        self.max_allocated_ephemeral_lock_sequential_number = 0

    def allocated(self, block_number: int) -> None:
        """A block number was taken."""
        highest = max(self.max_allocated_ephemeral_lock_sequential_number, block_number)
        self.max_allocated_ephemeral_lock_sequential_number = highest
