"""How an attempt ends that has neither done its work nor failed.

ClickHouse: StorageReplicatedMergeTree.cpp, where `executeLogEntry` and `fetchPart` return false.
"""

from __future__ import annotations


class NotDone(Exception):
    """The entry stays where it is, at the tail, shows no error for this attempt, and is tried again later.

    The message is for the server's log.
    """
