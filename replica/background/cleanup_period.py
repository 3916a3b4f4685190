"""How long a table waits between two cleanups: the less there was to do, the longer.

ClickHouse: ReplicatedMergeTreeCleanupThread.cpp, `run`, `iterate`.
"""

from __future__ import annotations

from dataclasses import dataclass

from replica.settings import MergeTreeSettings

_ENTRIES_PER_BLOCK = 1.3  # a merge of four or five parts is one more log entry and one more part


@dataclass(frozen=True, slots=True)
class Cleaned:
    """How much one cleanup removed."""

    parts: int = 0
    log_entries: int = 0
    deduplication_ids: int = 0

    @property
    def points(self) -> float:
        """About how many inserted blocks that was: each leaves an id, a log entry and a part."""
        return (self.deduplication_ids / 2 + (self.log_entries + self.parts) / _ENTRIES_PER_BLOCK) / 3


class CleanupPeriod:
    """The period of one table: adjusted after each cleanup but the first, which finds what a start has left."""

    def __init__(self, settings: MergeTreeSettings) -> None:
        self.settings = settings
        self._seconds: float = settings.cleanup_delay_period
        self._is_first = True

    def after(self, cleaned: Cleaned, random_seconds: float) -> float:
        """Seconds until the next cleanup, so that it has about the preferred number of points to remove."""
        settings = self.settings
        preferred = settings.cleanup_thread_preferred_points_per_iteration
        if preferred and not self._is_first:
            longest = settings.max_cleanup_delay_period
            wished = self._seconds * preferred / cleaned.points if cleaned.points else longest
            self._seconds = min(max(wished, settings.cleanup_delay_period), longest)
        self._is_first = False
        self._seconds += random_seconds
        return self._seconds
