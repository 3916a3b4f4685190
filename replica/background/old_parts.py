"""Deletes the parts of a table that is not replicated once a merge has covered them for long enough.

ClickHouse: StorageMergeTree.cpp, `scheduleDataProcessingJob`, and MergeTreeData.cpp, `clearOldPartsFromFilesystem`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from replica.stored_table import StoredTable

log = logging.getLogger(__name__)


async def delete_old_parts(table: StoredTable) -> None:
    """Look at once and every `cleanup_delay_period` seconds; other settings begin it anew."""
    while True:
        table.settings_changed.clear()
        settings = table.structure.settings
        try:
            for part in table.store.outdated_before(table.now() - settings.old_parts_lifetime):
                await table.delete(part)
        except OSError as problem:
            log.warning("%s: cannot delete old parts: %s", table.full_name, problem)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(1, settings.cleanup_delay_period)):
                await table.settings_changed.wait()
