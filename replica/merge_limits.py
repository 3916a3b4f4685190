"""How large a merge or a mutation may be at this moment.

As slots fill up, only smaller and smaller merges may begin, so that a few large ones never take all the slots from
the small ones that keep the number of parts down. Source: ClickHouse's `CompactionStatistics`.
"""

from __future__ import annotations

from replica.settings import MergeTreeSettings


def max_bytes_to_merge(busy: int, capacity: int, free_disk_bytes: int | None, settings: MergeTreeSettings) -> int:
    """The largest sum of source parts that a merge may have, in bytes; 0 when none may begin.

    `busy` of `capacity` slots are taken: those of the server's pool for an entry that is to run, those of the queue
    (`max_replicated_merges_in_queue`) for one that is to be assigned. A merge may take half of the free disk space;
    None for a disk that does not fill.
    """
    limit = _limit_of_slots(busy, capacity, settings)
    return limit if free_disk_bytes is None else min(limit, free_disk_bytes // 2)


def _limit_of_slots(busy: int, capacity: int, settings: MergeTreeSettings) -> int:
    free, lowered_below = max(0, capacity - busy), settings.number_of_free_entries_in_pool_to_lower_max_size_of_merge
    largest = settings.max_bytes_to_merge_at_max_space_in_pool
    if busy <= 1 or free >= lowered_below or not largest:
        return largest
    smallest = min(max(1, settings.max_bytes_to_merge_at_min_space_in_pool), largest)
    return int(smallest * (largest / smallest) ** (free / lowered_below))


def max_bytes_to_mutate(
    busy: int, capacity: int, free_disk_bytes: int | None, settings: MergeTreeSettings
) -> int | None:
    """The largest part that a mutation may rewrite, in bytes; 0 when none may begin, None when any may.

    The arguments are those of `max_bytes_to_merge`. A mutation leaves more slots free than a merge, and needs a
    tenth more space than its source part has.
    """
    free, most = capacity - busy, settings.max_number_of_mutations_for_replica
    if most and busy >= most:
        return 0
    if busy > 1 and free < settings.number_of_free_entries_in_pool_to_execute_mutation:
        return 0
    return None if free_disk_bytes is None else free_disk_bytes * 10 // 11
