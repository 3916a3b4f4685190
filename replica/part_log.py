"""What happened to the parts of a server's tables: the events of system.part_log, the last ones in memory.

ClickHouse: PartLog.cpp. Nothing here survives the process, and nothing decides by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from coordinator.api import CoordinationError
from replica.environment import Clock
from replica.errors import ClickHouseError, KeeperException
from replica.partition import PartitionKey
from replica.storage.part_store import StoredPart

MOST_EVENTS = 10_000

# ErrorCodes.cpp, STD_EXCEPTION: what a failure counts as that is none of ClickHouse's own.
_STD_EXCEPTION = 1001


class PartEventType(StrEnum):
    """What happened, under ClickHouse's names."""

    NEW_PART = "NewPart"
    DOWNLOAD_PART = "DownloadPart"
    MERGE_PARTS_START = "MergePartsStart"
    MERGE_PARTS = "MergeParts"
    REMOVE_PART = "RemovePart"


@dataclass(frozen=True, slots=True)
class TableOfEvents:
    """Which table; its partition key gives the values of its partitions."""

    database: str
    name: str
    uuid: str
    partition_key: PartitionKey


@dataclass(frozen=True, slots=True)
class PartEvent:
    """One event; `time` in seconds since 1970, `error` a number of ErrorCodes.cpp, 0 for none.

    `part_name` is empty when an insert failed before its part had a name; of a deduplicated insert it is the part
    that holds the rows.
    """

    type: PartEventType
    time: float
    table: TableOfEvents
    part_name: str
    partition_id: str
    duration_seconds: float
    rows: int
    size_in_bytes: int
    merged_from: tuple[str, ...]
    read_rows: int
    read_bytes: int
    deduplication_block_ids: tuple[str, ...]
    error: int
    exception: str


class PartLog:
    """The last events, oldest first."""

    def __init__(self) -> None:
        self._events: deque[PartEvent] = deque(maxlen=MOST_EVENTS)

    def __iter__(self) -> Iterator[PartEvent]:
        return iter(self._events)

    def add(self, event: PartEvent) -> None:
        self._events.append(event)


class TablePartLog:
    """The log as one table writes to it."""

    def __init__(self, log: PartLog, clock: Clock, table: TableOfEvents) -> None:
        self._log = log
        self._clock = clock
        self._table = table

    def add(
        self,
        type: PartEventType,
        part_name: str,
        partition_id: str,
        *,
        started: float | None = None,
        rows: int = 0,
        size_in_bytes: int = 0,
        sources: Sequence[StoredPart] = (),
        deduplication_block_ids: tuple[str, ...] = (),
        error: int = 0,
        exception: str = "",
    ) -> None:
        """Something happened that began at `started` (in seconds since 1970; None: it took no time) and ends now."""
        now = self._clock.now()
        self._log.add(
            PartEvent(
                type,
                now,
                self._table,
                part_name,
                partition_id,
                0.0 if started is None else now - started,
                rows,
                size_in_bytes,
                tuple(str(part.name) for part in sources),
                sum(part.rows for part in sources),
                sum(part.bytes_on_disk for part in sources),
                deduplication_block_ids,
                error,
                exception,
            )
        )


def error_code(problem: Exception) -> int:
    """The number under which ClickHouse knows such a failure."""
    if isinstance(problem, ClickHouseError):
        return problem.code
    return KeeperException.code if isinstance(problem, CoordinationError) else _STD_EXCEPTION
