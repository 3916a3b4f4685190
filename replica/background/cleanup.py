"""Removes what has had its time: covered parts, log entries that everybody has copied, old deduplication ids.

ClickHouse: ReplicatedMergeTreeCleanupThread.cpp, `iterate`; StorageReplicatedMergeTree.cpp,
`clearOldPartsAndRemoveFromZK`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from coordinator.api import CoordinationError, Delete, MultiFailed, NoNode, SessionLost
from replica.background.cleanup_period import Cleaned, CleanupPeriod
from replica.background.deduplication_window import DeduplicationWindows
from replica.background.log_trimming import trim_log
from replica.environment import drawn_factor
from replica.errors import ClickHouseError, LogicalError
from replica.session import ServerSession
from replica.storage.part_store import StoredPart
from replica.table_state import TableState

log = logging.getLogger(__name__)


async def clean_up(state: TableState, session: ServerSession) -> None:
    """Clean up at once and then now and again, until the session is lost; other settings begin it anew."""
    period = CleanupPeriod(state.structure.settings)
    windows = DeduplicationWindows(state, session)
    while True:
        state.settings_changed.clear()
        settings = state.structure.settings
        if period.settings is not settings:
            period = CleanupPeriod(settings)
        try:
            cleaned = Cleaned(
                parts=await remove_old_parts(state, session),
                log_entries=await trim_log(state, session),
                deduplication_ids=await windows.forget_outside(),
            )
        except SessionLost:
            return
        except LogicalError:
            raise
        except (ClickHouseError, CoordinationError, OSError) as problem:
            log.warning("%s: cannot clean up: %s", state.full_name, problem)
            cleaned = Cleaned()
        spread = drawn_factor(state.environment.chance, "cleanup delay", 0, settings.cleanup_delay_period_random_add)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(period.after(cleaned, spread)):
                await state.settings_changed.wait()


async def remove_old_parts(state: TableState, session: ServerSession) -> int:
    """Unregister and delete the parts that are outdated for longer than `old_parts_lifetime`; how many those were."""
    old = state.store.outdated_before(state.now() - state.structure.settings.old_parts_lifetime)
    for part in old:
        await _unregister(state, session, part)
        await state.delete(part)
    return len(old)


async def _unregister(state: TableState, session: ServerSession, part: StoredPart) -> None:
    # The znode goes first: a part that is registered must be on the disk.
    try:
        await session.multi_checked([Delete(state.znodes.part(str(part.name)))])
    except MultiFailed as failure:
        if not isinstance(failure.error, NoNode):
            raise failure.error from failure
