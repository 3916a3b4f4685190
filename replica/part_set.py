"""The set of active parts: no two members overlap, a part that is added replaces those it contains.

Source of the rules: ClickHouse's `ActiveDataPartSet`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Protocol

from replica.errors import LogicalError
from replica.part_name import PartName

_first_block = attrgetter("min_block")


class ReadablePartSet(Protocol):
    """What may be asked of a set of active parts by those who must not change it."""

    def __iter__(self) -> Iterator[PartName]: ...

    def __len__(self) -> int: ...

    def __contains__(self, part: object) -> bool: ...

    def containing(self, part: PartName) -> PartName | None: ...

    def covered_by(self, part: PartName) -> list[PartName]: ...

    def copy(self) -> PartSet: ...


class PartSet:
    """Active parts, sorted by partition and blocks."""

    def __init__(self, parts: Iterable[PartName] = ()) -> None:
        # Members of a partition are disjoint, so their order by first block is their order by every block.
        self._partitions: dict[str, list[PartName]] = {}
        for part in parts:
            self.add(part)

    def __iter__(self) -> Iterator[PartName]:
        for partition_id in sorted(self._partitions):
            yield from self._partitions[partition_id]

    def __len__(self) -> int:
        return sum(map(len, self._partitions.values()))

    def __contains__(self, part: object) -> bool:
        return isinstance(part, PartName) and self.containing(part) == part

    def __repr__(self) -> str:
        return f"PartSet({', '.join(map(str, self))})"

    def copy(self) -> PartSet:
        twin = PartSet()
        twin._partitions = {partition_id: list(members) for partition_id, members in self._partitions.items()}
        return twin

    def add(self, part: PartName) -> bool:
        """Put the part in, in place of the members it contains. False, and no change, if a member contains it.

        Raises LogicalError, and changes nothing, when a member overlaps it and neither contains the other.
        """
        if self.containing(part) is not None:
            return False
        members = self._partitions.setdefault(part.partition_id, [])
        start, end = _overlapping(members, part)
        for member in members[start:end]:
            if not part.contains(member):
                side = "previous" if member < part else "next"
                raise LogicalError(
                    f"Part {part} intersects {side} part {member}. "
                    "It is a bug or a result of manual intervention in the ZooKeeper data."
                )
        members[start:end] = [part]
        return True

    def containing(self, part: PartName) -> PartName | None:
        """The member that contains the part, which may be the part itself."""
        members = self._partitions.get(part.partition_id, [])
        position = bisect_right(members, part.min_block, key=_first_block) - 1
        if position >= 0 and members[position].contains(part):
            return members[position]
        return None

    def covered_by(self, part: PartName) -> list[PartName]:
        """The members that the part contains, itself among them if it is one; none if another member contains it."""
        members = self._partitions.get(part.partition_id, [])
        start, end = _overlapping(members, part)
        return [member for member in members[start:end] if part.contains(member)]

    def remove(self, part: PartName) -> bool:
        """Take out exactly this part. False if it is no member."""
        if part not in self:
            return False
        members = self._partitions[part.partition_id]
        del members[bisect_left(members, part.min_block, key=_first_block)]
        return True

    def remove_with_covered(self, part: PartName) -> None:
        """Take out the part and the members it contains; nothing if another member contains it."""
        for member in self.covered_by(part):
            self.remove(member)


def _overlapping(members: list[PartName], part: PartName) -> tuple[int, int]:
    """The slice of a partition's members that share a block number with the part."""
    start = bisect_left(members, part.min_block, key=attrgetter("max_block"))
    end = bisect_right(members, part.max_block, key=_first_block)
    return start, end
