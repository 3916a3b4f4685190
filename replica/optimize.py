"""What OPTIMIZE asks, and of whom: the port between a table and the assigner of its merges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from replica.part_name import PartName


@dataclass(frozen=True, slots=True)
class Optimize:
    """Merges to assign; `partition_id` None for every partition."""

    partition_id: str | None = None
    final: bool = False
    deduplicate: bool = False
    deduplicate_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Assigned:
    """What came of it in one partition: the part that will come, or the reason why none does."""

    partition_id: str
    new_part: PartName | None
    reason: str = ""


class Optimizer(Protocol):
    """Assigns merges on demand while a replica is active."""

    async def optimize(self, asked: Optimize) -> list[Assigned]:
        """One answer for each partition that was looked at. Raises CoordinationError, Aborted."""
        ...
