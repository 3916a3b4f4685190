"""An announcement to this replica's own queue that a range is about to be replaced: nothing new begins in it.

ClickHouse: ReplicatedMergeTreeQueue.cpp, `addDropReplaceIntent`, `waitForCurrentlyExecutingOpsInRange`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from replica.part_name import PartName
from replica.table_state import TableState


@asynccontextmanager
async def drop_replace_intent(state: TableState, drop_range: PartName) -> AsyncIterator[None]:
    """Nothing is being made in the range at the beginning of the `with` block, nor begins before its end."""
    state.queue.add_drop_replace_intent(drop_range)
    try:
        await state.wait_for_progress(lambda: all(part.is_disjoint(drop_range) for part in state.queue.future_parts))
        yield
    finally:
        state.queue.remove_drop_replace_intent(drop_range)
        state.queue_changed.set()
