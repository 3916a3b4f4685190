"""What OPTIMIZE has to choose from: the partitions to look at, and how the parts of each are chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from replica.merge_predicate import MergePredicate, ranges, whole_partition
from replica.merge_selector import PartToMerge, select_merge
from replica.optimize import Optimize
from replica.stored_table import StoredTable

Choice = Callable[[MergePredicate], "Sequence[PartToMerge] | str"]
"""Parts that may become one by the predicate, in order, or the reason why there are none."""


def parts_to_merge(table: StoredTable) -> list[PartToMerge]:
    """The parts that are active now."""
    now = table.now()
    return [
        PartToMerge(part.name, part.bytes_on_disk, now - part.modification_time)
        for part in table.store.active_parts()
    ]


def choices(table: StoredTable, asked: Optimize) -> list[tuple[str, Choice]]:
    """Each partition to look at, with how; one for all of them together has no name.

    A partition that is named, or that is one of all for FINAL, is merged whole; only else the selector chooses.
    """
    if asked.partition_id is not None:
        return [(asked.partition_id, partial(_whole, table, asked.partition_id, asked.final))]
    if asked.final:
        partitions = sorted({part.name.partition_id for part in table.store.active_parts()})
        return [(partition, partial(_whole, table, partition, asked.final)) for partition in partitions]
    return [("", partial(_best, table))]


def by_itself(table: StoredTable, max_bytes: int) -> Choice:
    """What is worth merging though nobody asks."""
    return lambda predicate: (
        select_merge(ranges(parts_to_merge(table), predicate), max_bytes, table.structure.settings)
        or "nothing is worth it"
    )


def _whole(
    table: StoredTable, partition_id: str, final: bool, predicate: MergePredicate
) -> Sequence[PartToMerge] | str:
    return whole_partition(partition_id, parts_to_merge(table), predicate, final=final)


def _best(table: StoredTable, predicate: MergePredicate) -> Sequence[PartToMerge] | str:
    settings = table.structure.settings
    max_bytes = settings.max_bytes_to_merge_at_max_space_in_pool
    found = select_merge(ranges(parts_to_merge(table), predicate), max_bytes, settings, aggressive=True)
    return found or "no two neighbouring parts may be merged now"
