"""MERGE_PARTS: make one sorted part of several, or fetch it when another replica has better cards.

ClickHouse: MergeFromLogEntryTask.cpp. Rules 2, 6 and 8 of its preparation concern recompression, alters and
zero-copy, which this model does not have.
"""

from __future__ import annotations

import logging
from functools import partial

from replica.commands import Action
from replica.environment import PartCodec, PartFiles
from replica.errors import Aborted, ChecksumDoesntMatch, LogicalError
from replica.log_entry import LogEntry
from replica.operations.commit_part import commit_part
from replica.operations.get_part import get_part
from replica.part_name import PartName
from replica.queue import QueuedEntry
from replica.session import ServerSession
from replica.storage.file_names import MERGE_PREFIX
from replica.storage.merge_rows import merge_rows
from replica.storage.part_files import PartImage, build_part, read_part
from replica.storage.part_store import StoredPart
from replica.table_state import TableState
from replica.table_structure import TableStructure

log = logging.getLogger(__name__)


async def merge_parts(state: TableState, session: ServerSession, queued: QueuedEntry) -> None:
    """Merge, or fetch the result. Raises what fetching, merging and committing raise.

    Who fetches counts as a fetch, not as a merge: raises NoFreeSlot when enough of them are running.
    """
    entry = queued.entry
    _check_sources(state, entry)
    sources = None if _is_to_fetch(state, queued) else _own_sources(state, entry)
    if sources is None or await _prefers_fetch(state, session, entry, sources):
        await _fetch(state, session, queued)
        return
    try:
        await _merge(state, session, queued, sources)
    except ChecksumDoesntMatch as problem:
        # The first replica that registered the part defines its content.
        log.warning(
            "%s: the merge into %s gave other content, fetching it: %s", state.full_name, entry.new_part, problem
        )
        await _fetch(state, session, queued)


def becomes_fetch(state: TableState, queued: QueuedEntry) -> bool:
    """Whether a merge will be a fetch, as far as this replica can say without asking anybody."""
    if state.store.active_containing(result_of(queued.entry)) is not None:
        return False  # there is nothing left to do
    return _is_to_fetch(state, queued) or _own_sources(state, queued.entry) is None


def _is_to_fetch(state: TableState, queued: QueuedEntry) -> bool:
    return queued.becomes_fetch or bool(state.structure.settings.always_fetch_merged_part)


async def _fetch(state: TableState, session: ServerSession, queued: QueuedEntry) -> None:
    queued.becomes_fetch = True
    if queued.slot is not None:
        queued.slot.move_to(state.server.pools.fetches)
    queued.becomes_fetch = False  # if it fails, the next attempt looks anew
    await get_part(state, session, queued)


def result_of(entry: LogEntry) -> PartName:
    """The part that a merge makes."""
    if entry.new_part is None:
        raise LogicalError(f"A merge of {entry.source_parts} does not say what it makes")
    return entry.new_part


def _own_sources(state: TableState, entry: LogEntry) -> list[StoredPart] | None:
    """The source parts, if this replica has every one of them itself and active."""
    sources = []
    for name in entry.source_parts:
        part = state.store.active_containing(name)
        if part is None or part.name != name:
            return None
        sources.append(part)
    return sources


def _check_sources(state: TableState, entry: LogEntry) -> None:
    """Raises LogicalError when a source is part of something that the result is not part of."""
    for name in entry.source_parts:
        part = state.store.active_containing(name)
        if part is not None and part.name != name and not part.name.contains(result_of(entry)):
            raise LogicalError(f"Part {name} is covered by {part.name} but should be merged into {entry.new_part}")


async def _prefers_fetch(
    state: TableState, session: ServerSession, entry: LogEntry, sources: list[StoredPart]
) -> bool:
    settings = state.structure.settings
    is_old = entry.create_time + settings.prefer_fetch_merged_part_time_threshold <= state.now()
    is_large = sum(part.bytes_on_disk for part in sources) >= settings.prefer_fetch_merged_part_size_threshold
    return is_old and is_large and await _somebody_has(state, session, result_of(entry))


async def _somebody_has(state: TableState, session: ServerSession, name: PartName) -> bool:
    """Whether another active replica has exactly this part."""
    table = state.znodes.table
    others = [table.replica(each) for each in await session.children(table.replicas) if each != state.znodes.name]
    for replica in others:
        if await session.exists(replica.part(str(name))) and await session.exists(replica.is_active):
            return True
    return False


async def _merge(state: TableState, session: ServerSession, queued: QueuedEntry, sources: list[StoredPart]) -> None:
    entry = queued.entry
    with state.running.merge(result_of(entry), sources) as merge:
        with state.reading(*(part.name for part in sources)):
            files = [await state.store.files(part.name) for part in sources]
            job = partial(
                merged_image,
                state.structure,
                state.environment.codec,
                files,
                entry.deduplicate,
                entry.deduplicate_by_columns,
            )
            workers = state.environment.merge_workers or state.environment.workers
            merge.image = image = await workers.run(f"merge into {entry.new_part}", job)
        state.blockers.check(Action.MERGES)
        if queued.removed_by_other_entry:
            raise Aborted(f"Cancelled merging parts: {entry.new_part} is dropped")
        temporary = await state.store.write_temporary(MERGE_PREFIX, image)
        await commit_part(state, session, temporary, result_of(entry))


def merged_image(
    structure: TableStructure,
    codec: PartCodec,
    sources: list[PartFiles],
    deduplicate: bool,
    deduplicate_by: tuple[str, ...],
) -> PartImage:
    """The merged part as files: a pure job, the same on every replica."""
    tables = [read_part(files, codec) for files in sources]
    rows = merge_rows(tables, structure.sorting_key, deduplicate, deduplicate_by)
    return build_part(rows, structure.schema, codec)
