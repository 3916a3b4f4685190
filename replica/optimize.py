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


class Optimizer(Protocol):
    """Assigns merges on demand while a replica is active."""

    async def optimize(self, asked: Optimize) -> list[PartName] | str:
        """The parts that will come, or why there is nothing to do. Raises CoordinationError."""
        ...
