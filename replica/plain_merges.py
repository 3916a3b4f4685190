"""Merges of a table that is not replicated: chosen and carried out by this server alone.

ClickHouse: StorageMergeTree.cpp, `selectPartsToMerge`, `merge`; MergePlainMergeTreeTask.cpp.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from replica.commands import Action
from replica.errors import Aborted, ClickHouseError
from replica.merge_choice import Choice, by_itself, choices
from replica.merge_limits import max_bytes_to_merge
from replica.merge_predicate import LocalMergePredicate
from replica.operations.merge_parts import merged_image
from replica.optimize import Assigned, Optimize
from replica.part_name import PartName
from replica.part_set import PartSet
from replica.plain_state import PlainState
from replica.pools import Pool
from replica.storage.file_names import MERGE_PREFIX
from replica.storage.part_store import PartState, StoredPart, TemporaryPart
from replica.to_the_end import to_the_end

log = logging.getLogger(__name__)


class PlainMerges:
    """The merges of one table; no part is in two of them at once."""

    def __init__(self, state: PlainState) -> None:
        self._state = state
        self._results: list[PartName] = []
        self._ended = asyncio.Event()
        self._failed = False

    # --- by itself -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Merge what is worth it while the pool has slots: whenever something has changed, and after a while."""
        state, pool = self._state, self._state.server.pools.merges_mutations
        with pool.waking_when_free(state.parts_changed):
            async with asyncio.TaskGroup() as merges:
                while True:
                    state.parts_changed.clear()
                    while (sources := self._worth_it(pool)) and pool.try_start():
                        self._begin(merges, pool, sources)
                    await self._sleep_until_changed()
                    if self._failed:  # what cannot be merged now is not tried again at once
                        self._failed = False
                        await asyncio.sleep(self._sleep_seconds)

    def _worth_it(self, pool: Pool) -> list[StoredPart]:
        state = self._state
        if state.blockers.is_stopped(Action.MERGES):
            return []
        max_bytes = max_bytes_to_merge(pool.running, pool.capacity, None, state.structure.settings)
        found = self._chosen(by_itself(state, max_bytes))
        return [] if isinstance(found, str) else found

    def _begin(self, merges: asyncio.TaskGroup, pool: Pool, sources: list[StoredPart]) -> None:
        result = self._reserve(sources)

        def end(_: asyncio.Task[None]) -> None:
            self._release(result)
            pool.finish()

        merges.create_task(self._merge_or_fail(sources, result)).add_done_callback(end)

    async def _merge_or_fail(self, sources: list[StoredPart], result: PartName) -> None:
        try:
            await self._merge(sources, result, Optimize())
        except (ClickHouseError, OSError) as problem:
            log.warning("%s: cannot merge into %s: %s", self._state.full_name, result, problem)
            self._failed = True

    async def _sleep_until_changed(self) -> None:
        try:
            async with asyncio.timeout(self._sleep_seconds):
                await self._state.parts_changed.wait()
        except TimeoutError:
            pass

    @property
    def _sleep_seconds(self) -> float:
        return self._state.structure.settings.merge_selecting_sleep_ms / 1000

    # --- because somebody asks -------------------------------------------------------------------------------

    async def optimize(self, asked: Optimize) -> list[Assigned]:
        """Merge what OPTIMIZE asks for; for each partition the part that it is now, or why there is none.

        Raises Aborted when merges are stopped or the parts are dropped meanwhile, and what reading and writing raise.
        """
        self._state.blockers.check(Action.MERGES)
        return [await self._merge_one(partition, choose, asked) for partition, choose in choices(self._state, asked)]

    async def _merge_one(self, partition_id: str, choose: Choice, asked: Optimize) -> Assigned:
        if asked.final:
            await self._wait_for_merges_in(partition_id)
        sources = self._chosen(choose)
        if isinstance(sources, str):
            return Assigned(partition_id, None, sources)
        result = self._reserve(sources)
        try:
            await self._merge(sources, result, asked)
        finally:
            self._release(result)
        return Assigned(result.partition_id, result)

    async def _wait_for_merges_in(self, partition_id: str) -> None:
        while any(result.partition_id == partition_id for result in self._results):
            self._ended.clear()
            await self._ended.wait()

    # --- one merge -------------------------------------------------------------------------------------------

    def _chosen(self, choose: Choice) -> list[StoredPart] | str:
        """Parts that are in no merge yet, and have none between them that is."""
        active = {part.name: part for part in self._state.store.active_parts()}
        found = choose(LocalMergePredicate(PartSet([*active, *self._results])))
        return found if isinstance(found, str) else [active[part.name] for part in found]

    def _reserve(self, sources: Sequence[StoredPart]) -> PartName:
        """The name of what the parts become; they are in a merge until it is released."""
        result = PartName.merged([part.name for part in sources])
        self._results.append(result)
        return result

    def _release(self, result: PartName) -> None:
        self._results.remove(result)
        self._ended.set()

    async def _merge(self, sources: Sequence[StoredPart], result: PartName, asked: Optimize) -> None:
        state = self._state
        with state.running.merge(result, sources) as merge:
            files = [await state.store.files(part.name) for part in sources]
            job = partial(
                merged_image,
                state.structure,
                state.environment.codec,
                files,
                asked.deduplicate,
                asked.deduplicate_by,
            )
            workers = state.environment.merge_workers or state.environment.workers
            merge.image = image = await workers.run(f"merge into {result}", job)
            state.blockers.check(Action.MERGES)
            temporary = await state.store.write_temporary(MERGE_PREFIX, image)
            await to_the_end(self._commit(temporary, result, sources))

    async def _commit(self, temporary: TemporaryPart, result: PartName, sources: Sequence[StoredPart]) -> None:
        state = self._state
        async with state.committing:
            try:
                for part in sources:
                    if part.state is not PartState.ACTIVE:
                        raise Aborted(f"Part {part.name} was dropped while it was merged into {result}")
                merged = await state.store.publish(temporary, result, state.now())
            except (ClickHouseError, OSError):
                await state.store.discard(temporary)
                raise
            state.activate(merged)
