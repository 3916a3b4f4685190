"""Decides which parts become one, and writes that into the log for all replicas.

Every replica is a leader. What keeps two of them from assigning overlapping merges is the version of the log znode:
it is read by the pull that the decision rests on, and checked by the multi that writes the entry. ClickHouse:
StorageReplicatedMergeTree.cpp, `mergeSelectingTask`, `createLogEntryToMergeParts`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from enum import Enum

from coordinator.api import BadVersion, CoordinationError, Create, MultiFailed, NoNode, SessionLost, Set
from replica.commands import Action
from replica.entry_znode import entry_bytes
from replica.environment import drawn_factor
from replica.errors import ClickHouseError, LogicalError
from replica.log_entry import MERGE_TYPES, EntryType, LogEntry
from replica.log_puller import LogPuller
from replica.merge_choice import Choice, by_itself, choices
from replica.merge_limits import max_bytes_to_merge
from replica.merge_predicate import KeeperMergePredicate, LocalMergePredicate, parse_block_number_locks
from replica.optimize import Assigned, Optimize
from replica.part_name import PartName
from replica.session import ServerSession
from replica.table_state import TableState

log = logging.getLogger(__name__)

_FACTOR = 1.2
_OPTIMIZE_TRIES = 10


class Assignment(Enum):
    """How one look for a merge ended."""

    CREATED = "entry created"
    RETRY = "the log moved on: try again"
    NOTHING = "nothing to merge"
    LIMITED = "enough merges are queued"


class MergeAssigner:
    """The assigner of one table under one session."""

    def __init__(self, state: TableState, session: ServerSession, puller: LogPuller) -> None:
        self._state = state
        self._session = session
        self._puller = puller
        self._one_at_a_time = asyncio.Lock()

    # --- by itself -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look for merges whenever parts appeared, and after a while, until the session is lost."""
        sleep_ms = 0.0
        while True:
            settings = self._state.structure.settings
            shortest, longest = settings.merge_selecting_sleep_ms, settings.max_merge_selecting_sleep_ms
            sleep_ms = max(sleep_ms, shortest)
            self._state.parts_changed.clear()
            try:
                assignment = await self._look_for_merge()
            except SessionLost:
                return
            except LogicalError:
                raise
            except (ClickHouseError, CoordinationError) as problem:
                log.warning("%s: cannot assign a merge: %s", self._state.full_name, problem)
                assignment = Assignment.NOTHING
            if assignment is Assignment.CREATED:
                sleep_ms = max(shortest, sleep_ms / _FACTOR)
                continue
            sleep_ms *= {Assignment.RETRY: 1 / _FACTOR, Assignment.NOTHING: _FACTOR}.get(assignment, 1)
            sleep_ms *= drawn_factor(self._state.environment.chance, "merge selecting sleep", 1.0, 1.1)
            sleep_ms = min(max(sleep_ms, shortest), longest)
            await self._sleep(sleep_ms / 1000)

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._state.parts_changed.wait()
        except TimeoutError:
            pass

    async def _look_for_merge(self) -> Assignment:
        settings = self._state.structure.settings
        if self._state.blockers.is_stopped(Action.MERGES):
            return Assignment.NOTHING
        async with self._one_at_a_time:
            queued = sum(each.entry.type in MERGE_TYPES for each in self._state.queue)
            if queued >= settings.max_replicated_merges_in_queue:
                return Assignment.LIMITED
            max_bytes = max_bytes_to_merge(queued, settings.max_replicated_merges_in_queue, None, settings)
            assignment, _ = await self._assign(by_itself(self._state, max_bytes), Optimize())
            return assignment

    # --- because somebody asks -------------------------------------------------------------------------------

    async def optimize(self, asked: Optimize) -> list[Assigned]:
        """Assign what OPTIMIZE asks for; for each partition the part that will come, or why none does.

        Raises Aborted while merges or the pulling of the log are stopped, and CoordinationError.
        """
        self._state.blockers.check(Action.MERGES)
        await self._puller.pull()  # an insert that was acknowledged just now is to count
        return [await self._assign_one(partition, choose, asked) for partition, choose in choices(self._state, asked)]

    async def _assign_one(self, partition_id: str, choose: Choice, asked: Optimize) -> Assigned:
        for _ in range(_OPTIMIZE_TRIES):
            async with self._one_at_a_time:
                assignment, told = await self._assign(choose, asked)
            if assignment is not Assignment.RETRY:
                break
        if isinstance(told, PartName):
            return Assigned(told.partition_id, told)
        return Assigned(partition_id, None, told)

    # --- one assignment --------------------------------------------------------------------------------------

    async def _assign(self, choose: Choice, asked: Optimize) -> tuple[Assignment, PartName | str]:
        """Choose by the queue alone; if there is something, choose again by what all replicas know, and write it."""
        candidates = choose(LocalMergePredicate(self._state.queue.virtual_parts))
        if isinstance(candidates, str):
            return Assignment.NOTHING, candidates
        predicate, log_version = await self._keeper_predicate([candidates[0].name.partition_id])
        chosen = choose(predicate)
        if isinstance(chosen, str):
            return Assignment.NOTHING, chosen
        return await self._write_entry([part.name for part in chosen], asked, log_version)

    async def _keeper_predicate(self, partitions: list[str]) -> tuple[KeeperMergePredicate, int]:
        """The order of these steps is the proof that no block can be missed: see KeeperMergePredicate."""
        table = self._state.znodes.table
        previous = self._state.queue.virtual_parts.copy()
        committing: dict[str, Sequence[int]] = {}
        for partition in partitions:
            try:
                names = await self._session.children(table.partition(partition))
            except NoNode:
                continue
            committing[partition] = parse_block_number_locks(names)
        log_version = await self._puller.pull()
        return KeeperMergePredicate(previous, committing, self._state.queue.virtual_parts), log_version

    async def _write_entry(
        self, sources: list[PartName], asked: Optimize, log_version: int
    ) -> tuple[Assignment, PartName | str]:
        znodes = self._state.znodes
        registered = await self._session.get_many([znodes.part(str(name)) for name in sources])
        if None in registered:
            return Assignment.RETRY, "a source part is not registered any more"
        entry = LogEntry(
            type=EntryType.MERGE_PARTS,
            create_time=int(self._state.now()),
            source_replica=znodes.name,
            source_parts=tuple(sources),
            new_part=PartName.merged(sources),
            deduplicate=asked.deduplicate,
            deduplicate_by_columns=asked.deduplicate_by,
        )
        create = Create(
            f"{znodes.table.log}/log-", entry_bytes(entry, self._state.structure.settings), sequential=True
        )
        try:
            await self._session.multi_checked([create, Set(znodes.table.log, b"", log_version)])
        except MultiFailed as failure:
            if isinstance(failure.error, BadVersion):
                return Assignment.RETRY, "the log moved on"
            raise failure.error from failure
        assert entry.new_part is not None
        return Assignment.CREATED, entry.new_part
