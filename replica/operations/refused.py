"""Entries that a replica reads, keeps and shows, but cannot carry out; they wait in the queue and hold nobody.

ClickHouse: StorageReplicatedMergeTree.cpp, `executeLogEntry`, for the two that it refuses itself.
"""

from __future__ import annotations

from replica.errors import ClickHouseError, LogicalError, NotImplementedInModel
from replica.log_entry import EntryType
from replica.queue import QueuedEntry

_DEPRECATED = (EntryType.CLEAR_COLUMN, EntryType.CLEAR_INDEX)
_REMEDY = "remove its znode from the queue, and restart the replica, if nobody needs it"


def refusal(queued: QueuedEntry) -> ClickHouseError:
    """Why an entry of this type is not carried out."""
    kind, name = queued.entry.type, queued.znode_name
    if kind in _DEPRECATED:
        return LogicalError(
            f"Unexpected log entry type: {kind} ({name}). No server since 20.3 writes it or carries it out: {_REMEDY}"
        )
    return NotImplementedInModel(f"Log entry {name} is {kind}, which this model cannot execute: {_REMEDY}")
