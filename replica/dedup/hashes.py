"""Deduplication ids as znodes: three generations of them, each in its own directory of the table.

ClickHouse: InsertDeduplication.cpp, `DeduplicationHash`; the setting is the server's `insert_deduplication_version`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class HashKind(StrEnum):
    """The generation of an id; the value names the directory of its znode."""

    SYNC = "blocks"
    ASYNC = "async_blocks"
    UNIFIED = "deduplication_hashes"


class DeduplicationVersion(StrEnum):
    """Which ids an insert checks and writes."""

    OLD_SEPARATE_HASHES = "old_separate_hashes"
    COMPATIBLE_DOUBLE_HASHES = "compatible_double_hashes"
    NEW_UNIFIED_HASH = "new_unified_hash"

    @property
    def has_legacy(self) -> bool:
        return self is not DeduplicationVersion.NEW_UNIFIED_HASH

    @property
    def has_unified(self) -> bool:
        return self is not DeduplicationVersion.OLD_SEPARATE_HASHES


@dataclass(frozen=True, slots=True)
class DeduplicationHash:
    """What rows of one partition are known by in one generation; `block_id` is the name of the znode."""

    kind: HashKind
    block_id: str

    @classmethod
    def of(cls, kind: HashKind, partition_id: str, halves: tuple[int, int]) -> DeduplicationHash:
        """The id `<partition id>_<first half>_<second half>` of a hash of 128 bits."""
        return cls(kind, f"{partition_id}_{halves[0]}_{halves[1]}")
