"""What OPTIMIZE asks, and of whom: the port between a table and the assigner of its merges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from replica.commands import OptimizeTable
from replica.part_name import PartName
from replica.partition_id import check_partition_id
from replica.table_structure import TableStructure


@dataclass(frozen=True, slots=True)
class Optimize:
    """Merges to assign; `partition_id` None for every partition."""

    partition_id: str | None = None
    final: bool = False
    deduplicate: bool = False
    deduplicate_by: tuple[str, ...] = ()


def asked_by(command: OptimizeTable, structure: TableStructure) -> Optimize:
    """What the command asks of a table. Raises what is wrong with it."""
    if command.deduplicate_by:
        structure.check_deduplicate_by(command.deduplicate_by)
    partition_id = structure.partition_key.id_of(command.partition) if command.partition else command.partition_id
    if partition_id:
        check_partition_id(partition_id)
    return Optimize(partition_id or None, command.final, command.deduplicate, command.deduplicate_by)


@dataclass(frozen=True, slots=True)
class Assigned:
    """What came of it in one partition: the part that will come, or the reason why none does."""

    partition_id: str
    new_part: PartName | None
    reason: str = ""

    def to_row(self) -> dict[str, str]:
        """The row that OPTIMIZE answers."""
        return {"partition_id": self.partition_id, "new_part": str(self.new_part or ""), "reason": self.reason}


class Optimizer(Protocol):
    """Assigns merges on demand while a replica is active."""

    async def optimize(self, asked: Optimize) -> list[Assigned]:
        """One answer for each partition that was looked at. Raises CoordinationError, Aborted."""
        ...
