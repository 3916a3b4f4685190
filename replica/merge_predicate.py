"""Whether a part may be merged now, and two neighbours together; the ranges that follow from it.

Two parts may become one only if it is certain that no block lies or will appear between them. The queue alone cannot
know that of blocks that are being inserted elsewhere, so the decision in the end is `KeeperMergePredicate`'s; the
cheaper `LocalMergePredicate` finds the partitions worth asking it about.

Source of the rules and of every reason's text: ClickHouse's `ReplicatedMergeTreeMergePredicate` and
`DistributedMergePredicate`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from replica.merge_selector import PartToMerge
from replica.part_name import MAX_BLOCK_NUMBER, MAX_LEVEL, PartName
from replica.part_set import ReadablePartSet

_LOCK = re.compile(r"block-([0-9]+)", re.ASCII)


class MergePredicate(Protocol):
    """Says of every part, and of every pair of neighbours, why it may not be merged; None if it may."""

    def why_not_part(self, part: PartName) -> str | None: ...

    def why_not_pair(self, left: PartName, right: PartName) -> str | None: ...


@dataclass(frozen=True, slots=True)
class LocalMergePredicate:
    """What the queue of this replica alone allows.

    `mutation_numbers` are the block numbers of the known mutations by partition, ascending.
    """

    virtual_parts: ReadablePartSet
    mutation_numbers: Mapping[str, Sequence[int]] = field(default_factory=lambda: MappingProxyType({}))

    def why_not_part(self, part: PartName) -> str | None:
        return _assigned_to_another(part, self.virtual_parts)

    def why_not_pair(self, left: PartName, right: PartName) -> str | None:
        return (
            _in_two_partitions(left, right)
            or _part_between(left, right, self.virtual_parts)
            or _mutated_differently(left, right, self.mutation_numbers)
        )


@dataclass(frozen=True, slots=True)
class KeeperMergePredicate:
    """What is allowed in view of all replicas, from values that were taken in the order of the fields.

    `previous_virtual_parts` is a copy of the queue's virtual parts; then, per partition that is asked about,
    `committing_blocks` are the numbers of its `block-` znodes, ascending; then the log is pulled, and `virtual_parts`
    are the queue's after that. The order is the proof: every block below a previous virtual part is then either
    still committing or a virtual part. `quorum_part` is the part whose quorum is being waited for.
    """

    previous_virtual_parts: ReadablePartSet
    committing_blocks: Mapping[str, Sequence[int]]
    virtual_parts: ReadablePartSet
    quorum_part: PartName | None = None
    mutation_numbers: Mapping[str, Sequence[int]] = field(default_factory=lambda: MappingProxyType({}))

    def why_not_part(self, part: PartName) -> str | None:
        if part == self.quorum_part:
            return f"Quorum insert for part {part} is currently in progress"
        if self.previous_virtual_parts.containing(part) is None:
            return f"Part {part} does not contain in snapshot of previous virtual parts"
        if part.partition_id not in self.committing_blocks:
            return f"Uncommitted blocks were not loaded for partition {part.partition_id}"
        return _assigned_to_another(part, self.virtual_parts)

    def why_not_pair(self, left: PartName, right: PartName) -> str | None:
        return (
            _in_two_partitions(left, right)
            or _block_being_inserted(left, right, self.committing_blocks.get(left.partition_id, ()))
            or _part_between(left, right, self.virtual_parts)
            or _mutated_differently(left, right, self.mutation_numbers)
        )


# --- what follows from a predicate ---------------------------------------------------------------------------


def ranges(parts: Iterable[PartToMerge], predicate: MergePredicate) -> list[list[PartToMerge]]:
    """The longest runs of parts of one partition that may be merged in any consecutive number, single parts too.

    The parts are the active ones, in any order; the ranges come by partition and block.
    """
    found: list[list[PartToMerge]] = []
    previous: PartToMerge | None = None
    for part in _by_name(parts):
        if predicate.why_not_part(part.name) is not None:
            previous = None
            continue
        if previous is None or predicate.why_not_pair(previous.name, part.name) is not None:
            found.append([])
        found[-1].append(part)
        previous = part
    return found


def whole_partition(
    partition_id: str, parts: Iterable[PartToMerge], predicate: MergePredicate, *, final: bool
) -> list[PartToMerge] | str:
    """All of the active parts that are in the partition, by block, for OPTIMIZE of it; or the reason why not.

    A part that is alone is merged once more only for `final`.
    """
    inside = [part for part in _by_name(parts) if part.name.partition_id == partition_id]
    if not inside:
        return "There are no parts inside partition"
    if len(inside) == 1 and not final:
        return "There is only one part inside partition"
    for previous, part in zip([None, *inside], inside, strict=False):
        reason = predicate.why_not_part(part.name)
        if reason is None and previous is not None:
            reason = predicate.why_not_pair(previous.name, part.name)
        if reason is not None:
            return reason
    return inside


def parse_block_number_locks(names: Iterable[str]) -> tuple[int, ...]:
    """The block numbers, ascending, that are being inserted, from the children of a partition's znode.

    Children other than `block-0000000007` are no block numbers.
    """
    return tuple(sorted(int(match.group(1)) for name in names if (match := _LOCK.fullmatch(name))))


def _by_name(parts: Iterable[PartToMerge]) -> list[PartToMerge]:
    return sorted(parts, key=lambda part: part.name)


# --- the rules -----------------------------------------------------------------------------------------------


def _assigned_to_another(part: PartName, virtual_parts: ReadablePartSet) -> str | None:
    containing = virtual_parts.containing(part)
    if containing == part:
        return None
    if containing is None:
        return f"Part {part} does not contain in snapshot of virtual parts"
    return f"Part {part} has already been assigned a merge into {containing}"


def _in_two_partitions(left: PartName, right: PartName) -> str | None:
    if left.partition_id == right.partition_id:
        return None
    return f"Parts {left} and {right} belong to different partitions"


def _block_being_inserted(left: PartName, right: PartName, committing: Sequence[int]) -> str | None:
    position = bisect_right(committing, left.max_block)
    if position == len(committing) or committing[position] >= right.min_block:
        return None
    return f"Block number {committing[position]} is still being inserted between parts {left} and {right}"


def _part_between(left: PartName, right: PartName, virtual_parts: ReadablePartSet) -> str | None:
    first, last = left.max_block + 1, right.min_block - 1
    if first > last:
        return None
    between = virtual_parts.covered_by(PartName(left.partition_id, first, last, MAX_LEVEL, MAX_BLOCK_NUMBER))
    if not between:
        return None
    return (
        f"There are {len(between)} parts (from {between[0]} to {between[-1]}) that are still not present "
        f"or being processed by other background process on this replica between {left} and {right}"
    )


def _mutated_differently(left: PartName, right: PartName, numbers: Mapping[str, Sequence[int]]) -> str | None:
    known = numbers.get(left.partition_id, ())
    of_left, of_right = _mutation_version(left, known), _mutation_version(right, known)
    if of_left == of_right:
        return None
    return f"Current mutation versions of parts {left} and {right} differ: {of_left} and {of_right} respectively"


def _mutation_version(part: PartName, known: Sequence[int]) -> int:
    """The last of the known mutations that the part's data has; 0 for none."""
    position = bisect_right(known, part.data_version)
    return known[position - 1] if position else 0
