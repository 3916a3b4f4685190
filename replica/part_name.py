"""Names of data parts: `<partition_id>_<min_block>_<max_block>_<level>[_<mutation>]`.

Source of the rules: ClickHouse's `MergeTreePartInfo`. Only the grammar of tables with a partition key
(format version 1) is known; names in the old month syntax (`20180101_20180131_0_2_1`) are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from replica.errors import BadDataPartName, LogicalError

MAX_LEVEL = 999_999_999
MAX_BLOCK_NUMBER = 999_999_999
LEGACY_MAX_LEVEL = 4_294_967_295

_MAX_INT64 = 2**63 - 1
_PARTITION_ID = re.compile(r"[0-9A-Za-z-]+")
_NUMBER = r"(?:0|[1-9][0-9]{0,18})"
_NAME = re.compile(
    rf"(?P<partition_id>[0-9A-Za-z-]+)_(?P<min_block>-?{_NUMBER})_(?P<max_block>-?{_NUMBER})"
    rf"_(?P<level>{_NUMBER})(?:_(?P<mutation>[1-9][0-9]{{0,18}}))?"
)
_OLD_MONTH_SYNTAX = re.compile(r"[0-9]{8}_[0-9]{8}(?:_[0-9]+){3,4}")


@dataclass(frozen=True, slots=True, order=True)
class PartName:
    """One part's name, as a value. Sorted by partition, blocks, level, mutation; safe as a folder name.

    `mutation` 0 means none. Level 4294967295, which old servers wrote into drop ranges, counts as `MAX_LEVEL`;
    `legacy_level` remembers it for printing and takes no part in comparisons.

    Raises BadDataPartName for values that no part can have.
    """

    partition_id: str
    min_block: int
    max_block: int
    level: int
    mutation: int = 0
    legacy_level: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.level == LEGACY_MAX_LEVEL:
            object.__setattr__(self, "level", MAX_LEVEL)
            object.__setattr__(self, "legacy_level", True)
        if not (
            _PARTITION_ID.fullmatch(self.partition_id)
            and -_MAX_INT64 <= self.min_block <= self.max_block <= _MAX_INT64
            and 0 <= self.level < LEGACY_MAX_LEVEL
            and 0 <= self.mutation <= _MAX_INT64
        ):
            raise BadDataPartName(f"Unexpected part name: {self}")

    @classmethod
    def parse(cls, text: str) -> PartName:
        """The part of that name; `str()` gives the same text back. Raises BadDataPartName for any other text."""
        match = _NAME.fullmatch(text)
        if match is None:
            raise BadDataPartName(f"Unexpected part name: {text}{_why_unexpected(text)}")
        partition_id, min_block, max_block, level, mutation = match.groups(default="0")
        try:
            return cls(partition_id, int(min_block), int(max_block), int(level), int(mutation))
        except BadDataPartName:
            raise BadDataPartName(f"Unexpected part name: {text}") from None

    @classmethod
    def try_parse(cls, text: str) -> PartName | None:
        """As `parse`, with None for text that is not a part name."""
        try:
            return cls.parse(text)
        except BadDataPartName:
            return None

    @classmethod
    def inserted(cls, partition_id: str, number: int) -> PartName:
        """The part of an INSERT that was given that block number."""
        return cls(partition_id, number, number, 0)

    @classmethod
    def drop_range(cls, partition_id: str, max_block: int) -> PartName:
        """The fake part that covers everything in the partition up to and including `max_block`."""
        return cls(partition_id, 0, max_block, MAX_LEVEL, MAX_BLOCK_NUMBER)

    @classmethod
    def merged(cls, sources: Sequence[PartName]) -> PartName:
        """The result of a merge of these parts of one partition, given in the order of their blocks.

        Raises LogicalError for no parts, and for parts of two partitions or out of order.
        """
        if not sources or any(
            left.partition_id != right.partition_id or left.max_block >= right.min_block
            for left, right in pairwise(sources)
        ):
            raise LogicalError(f"Parts {', '.join(map(str, sources))} are no range to merge. It is a bug.")
        return cls(
            sources[0].partition_id,
            sources[0].min_block,
            sources[-1].max_block,
            max(part.level for part in sources) + 1,
            max(part.mutation for part in sources),
        )

    def __str__(self) -> str:
        level = LEGACY_MAX_LEVEL if self.legacy_level else self.level
        mutation = f"_{self.mutation}" if self.mutation else ""
        return f"{self.partition_id}_{self.min_block}_{self.max_block}_{level}{mutation}"

    @property
    def data_version(self) -> int:
        """The number below which every mutation is already in the data."""
        return self.mutation or self.min_block

    @property
    def blocks_count(self) -> int:
        return self.max_block - self.min_block + 1

    @property
    def is_fake_drop_range(self) -> bool:
        """Whether this stands for a range to drop rather than for data."""
        return self.level == MAX_LEVEL

    def contains(self, other: PartName) -> bool:
        """Whether this part replaces the other; every part contains itself.

        A wider part must also be of a higher level: `all_0_5_2` is no result of a merge of `all_0_4_2`.
        """
        return (
            self.partition_id == other.partition_id
            and self.min_block <= other.min_block
            and self.max_block >= other.max_block
            and self.level >= other.level
            and self.mutation >= other.mutation
            and (
                (self.min_block == other.min_block and self.max_block == other.max_block)
                or self.level > other.level
                or self.is_fake_drop_range
            )
        )

    def is_disjoint(self, other: PartName) -> bool:
        """Whether no block number lies in both; level and mutation do not matter."""
        return (
            self.partition_id != other.partition_id
            or self.max_block < other.min_block
            or other.max_block < self.min_block
        )

    def intersects(self, other: PartName) -> bool:
        """Whether they overlap and neither replaces the other."""
        return not (self.is_disjoint(other) or self.contains(other) or other.contains(self))


def _why_unexpected(text: str) -> str:
    if _OLD_MONTH_SYNTAX.fullmatch(text):
        return " (the month syntax of tables made without PARTITION BY is not supported)"
    return ""
