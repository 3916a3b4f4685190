"""Drains a table's queue: selects what can run, gives it a slot of its pool, runs it, removes what is done.

ClickHouse: StorageReplicatedMergeTree.cpp, `scheduleDataProcessingJob` and `processQueueEntry`;
ReplicatedMergeTreeQueue.cpp, `removeProcessedEntry`.
"""

from __future__ import annotations

import asyncio
import logging

from coordinator.api import CoordinationError, NoNode, SessionLost
from replica.commands import Action
from replica.environment import drawn_factor
from replica.errors import Aborted, ClickHouseError, PartIsTemporarilyLocked
from replica.log_entry import INSERT_TYPES, MERGE_TYPES, EntryType
from replica.log_puller import insert_time_operations
from replica.merge_limits import max_bytes_to_merge, max_bytes_to_mutate
from replica.operations import execute
from replica.operations.merge_parts import becomes_fetch
from replica.operations.not_done import NotDone
from replica.pools import NoFreeSlot, Slot
from replica.queue import QueuedEntry
from replica.selection import Limits, backoff_ms, select
from replica.session import ServerSession
from replica.table_state import TableState

log = logging.getLogger(__name__)

_LONGEST_PAUSE_SECONDS = 600.0
_PASSING = (Aborted, PartIsTemporarilyLocked)
"""With these a merge has not failed: they are not shown, and do not make it wait longer."""


class Executor:
    """The executor of one table under one session."""

    def __init__(self, state: TableState, session: ServerSession) -> None:
        self._state = state
        self._session = session
        self._pools = state.server.pools

    async def run(self) -> None:
        """Run entries until cancelled; what is running then is cancelled with it."""
        with self._pools.waking_when_free(self._state.queue_changed):
            await self._drain()

    async def _drain(self) -> None:
        async with asyncio.TaskGroup() as running:
            while True:
                self._state.queue_changed.clear()
                refused: set[str] = set()
                while (queued := self._select()) is not None:
                    if queued.znode_name in refused:
                        break  # refused ones stand at the tail: all others have had their turn
                    if not self._start(queued, running):
                        refused.add(queued.znode_name)
                await self._wait_for_change()

    def _select(self) -> QueuedEntry | None:
        if self._state.blockers.is_stopped(Action.REPLICATION_QUEUES):
            return None
        return select(self._state.queue, self._state.now(), self._limits())

    def _start(self, queued: QueuedEntry, running: asyncio.TaskGroup) -> bool:
        """Begin an attempt; it counts as a try even when the pool has no slot for it."""
        self._state.queue.start(queued, self._state.now())
        pool = self._pools.fetches if self._is_fetch(queued) else self._pools.of(queued.entry.type)
        if pool.try_start():
            queued.slot = slot = Slot(pool)
            # Not at the end of the attempt itself: one that is cancelled before its first step has no end.
            running.create_task(self._run_entry(queued)).add_done_callback(lambda _: slot.give_back())
            return True
        self._state.queue.finish_attempt(queued)
        return False

    def _is_fetch(self, queued: QueuedEntry) -> bool:
        """Whether the entry would download a part now: slots are counted by what is done, not by what is wanted."""
        kind = queued.entry.type
        return kind in INSERT_TYPES or (kind is EntryType.MERGE_PARTS and becomes_fetch(self._state, queued))

    def _limits(self) -> Limits:
        settings, merges = self._state.structure.settings, self._pools.merges_mutations
        return Limits(
            is_fetch=self._is_fetch,
            fetches_executing=self._pools.fetches.running,
            max_fetches=self._pools.fetches.capacity,
            fetches_blocked=self._state.blockers.is_stopped(Action.FETCHES),
            merges_blocked=self._state.blockers.is_stopped(Action.MERGES),
            part_bytes={part.name: part.bytes_on_disk for part in self._state.store.parts()},
            max_source_parts_bytes_for_merge=max_bytes_to_merge(merges.running, merges.capacity, None, settings),
            max_source_part_bytes_for_mutation=max_bytes_to_mutate(merges.running, merges.capacity, None, settings),
            max_bytes_to_merge_at_max_space_in_pool=settings.max_bytes_to_merge_at_max_space_in_pool,
            max_postpone_time_for_failed_replicated_fetches_ms=settings.max_postpone_time_for_failed_replicated_fetches_ms,
            max_postpone_time_for_failed_replicated_merges_ms=settings.max_postpone_time_for_failed_replicated_merges_ms,
            max_postpone_time_for_failed_mutations_ms=settings.max_postpone_time_for_failed_mutations_ms,
            max_postpone_time_for_failed_replicated_tasks_ms=settings.max_postpone_time_for_failed_replicated_tasks_ms,
        )

    async def _wait_for_change(self) -> None:
        """Wait until the queue changes, a slot is freed, or the first failed entry may be tried again."""
        now, limits = self._state.now(), self._limits()
        waiting = [each for each in self._state.queue if not each.currently_executing]
        waits = [max(backoff_ms(each, now, limits) / 1000, each.paused_until - now) for each in waiting]
        try:
            async with asyncio.timeout(min((wait for wait in waits if wait > 0), default=None)):
                await self._state.queue_changed.wait()
        except TimeoutError:
            pass

    async def _run_entry(self, queued: QueuedEntry) -> None:
        queue = self._state.queue
        done = False
        try:
            await execute(self._state, self._session, queued)
            done = True
        except SessionLost:
            return  # everything starts anew under the next session
        except NoFreeSlot:
            pass  # the next selection says what it waits for
        except NotDone as end:
            log.info("%s: %s: %s", self._state.full_name, queued.znode_name, end)
            self._pause(queued)
        except (ClickHouseError, CoordinationError, OSError) as problem:
            log.info("%s: %s failed: %s", self._state.full_name, queued.znode_name, problem)
            if not (queued.entry.type in MERGE_TYPES and isinstance(problem, _PASSING)):
                queue.fail(queued, str(problem), self._state.now())
            self._pause(queued)
        except Exception as problem:
            # The edge of the pool: a bug in one operation shows on its entry and leaves the others alone.
            log.exception("%s: %s failed", self._state.full_name, queued.znode_name)
            queue.fail(queued, f"{type(problem).__name__}: {problem}", self._state.now())
            self._pause(queued)
        finally:
            queue.finish_attempt(queued)
        if done:
            await self._remove(queued)
        await self._state.note_progress()

    def _pause(self, queued: QueuedEntry) -> None:
        """Leave an entry alone for a moment if nothing else does: what did not end well is never tried hot.

        The pause is that of ClickHouse's BackgroundJobsAssignee after a job without success.
        """
        now = self._state.now()
        if not backoff_ms(queued, now, self._limits()):
            grown = min(_LONGEST_PAUSE_SECONDS, 0.1 * 1.1 ** min(queued.num_tries, 100))
            drawn = drawn_factor(self._state.environment.chance, "pause before the next attempt", 0, 1)
            queued.paused_until = now + grown + drawn

    async def _remove(self, queued: QueuedEntry) -> None:
        """First from memory, then the znode; if that is lost, the entry comes back at the next load and is done."""
        if not self._state.queue.remove(queued):
            return
        try:
            await self._session.delete(self._state.znodes.queue_entry(queued.znode_name))
            if operations := insert_time_operations(self._state):
                await self._session.multi(operations)
        except NoNode:
            pass
        except CoordinationError as problem:
            log.info("%s: cannot remove %s: %s", self._state.full_name, queued.znode_name, problem)
