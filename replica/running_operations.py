"""The merges and fetches of a table that run at this moment; each is told to the part log when it ends.

ClickHouse: MergeList.cpp, ReplicatedFetchList.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from replica.environment import Clock
from replica.part_log import PartEventType, TablePartLog, error_code
from replica.part_name import PartName
from replica.storage.part_files import PartImage
from replica.storage.part_store import StoredPart
from replica.znodes import Host, ReplicaZnodes


@dataclass(slots=True, eq=False)
class RunningMerge:
    """A merge from its start to the end of its commit; `image` is there once the rows are merged."""

    part: PartName
    started: float
    sources: tuple[StoredPart, ...]
    image: PartImage | None = None


@dataclass(slots=True, eq=False)
class RunningFetch:
    """A fetch from the request to the end of its commit; `image` is there once the files have arrived."""

    part: PartName
    started: float
    replica: ReplicaZnodes
    host: Host
    image: PartImage | None = None


class RunningOperations:
    """Those of one table, in order of their starts."""

    def __init__(self, clock: Clock, part_log: TablePartLog) -> None:
        self._clock = clock
        self._part_log = part_log
        self.merges: list[RunningMerge] = []
        self.fetches: list[RunningFetch] = []

    @contextmanager
    def merge(self, result: PartName, sources: Sequence[StoredPart]) -> Iterator[RunningMerge]:
        """A merge runs as long as the `with` block."""
        merge = RunningMerge(result, self._clock.now(), tuple(sources))
        self._part_log.add(PartEventType.MERGE_PARTS_START, str(result), result.partition_id, sources=sources)
        self.merges.append(merge)
        try:
            with self._told(PartEventType.MERGE_PARTS, merge, sources):
                yield merge
        finally:
            self.merges.remove(merge)

    @contextmanager
    def fetch(self, part: PartName, replica: ReplicaZnodes, host: Host) -> Iterator[RunningFetch]:
        """A fetch runs as long as the `with` block."""
        fetch = RunningFetch(part, self._clock.now(), replica, host)
        self.fetches.append(fetch)
        try:
            with self._told(PartEventType.DOWNLOAD_PART, fetch):
                yield fetch
        finally:
            self.fetches.remove(fetch)

    @contextmanager
    def _told(
        self, type: PartEventType, running: RunningMerge | RunningFetch, sources: Sequence[StoredPart] = ()
    ) -> Iterator[None]:
        """Tell the part log how it ended; of a cancellation nothing is told."""
        try:
            yield
        except Exception as problem:
            self._tell(type, running, sources, error_code(problem), str(problem))
            raise
        self._tell(type, running, sources)

    def _tell(
        self,
        type: PartEventType,
        running: RunningMerge | RunningFetch,
        sources: Sequence[StoredPart],
        error: int = 0,
        exception: str = "",
    ) -> None:
        image = running.image
        self._part_log.add(
            type,
            str(running.part),
            running.part.partition_id,
            started=running.started,
            rows=image.rows if image is not None else 0,
            size_in_bytes=image.size if image is not None else 0,
            sources=sources,
            error=error,
            exception=exception,
        )
