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
    """What rows of one partition are known by in one generation: 128 bits, as two numbers."""

    kind: HashKind
    partition_id: str
    first: int
    second: int

    @property
    def block_id(self) -> str:
        """The name of its znode: `<partition id>_<first>_<second>`."""
        return f"{self.partition_id}_{self.first}_{self.second}"
