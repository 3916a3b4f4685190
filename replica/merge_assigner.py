"""Decides which parts become one, and writes that into the log for all replicas.

Every replica is a leader. What keeps two of them from assigning overlapping merges is the version of the log znode:
it is read by the pull that the decision rests on, and checked by the multi that writes the entry. ClickHouse:
StorageReplicatedMergeTree.cpp, `mergeSelectingTask`, `createLogEntryToMergeParts`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import Enum

from coordinator.api import BadVersion, CoordinationError, Create, MultiFailed, NoNode, SessionLost, Set
from replica.commands import Action
from replica.environment import drawn_factor
from replica.errors import ClickHouseError, LogicalError
from replica.log_entry import MERGE_TYPES, EntryType, LogEntry
from replica.log_puller import LogPuller
from replica.merge_limits import max_bytes_to_merge
from replica.merge_predicate import (
    KeeperMergePredicate,
    LocalMergePredicate,
    MergePredicate,
    parse_block_number_locks,
    ranges,
    whole_partition,
)
from replica.merge_selector import PartToMerge, select_merge
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


Choice = Callable[[MergePredicate], "Sequence[PartToMerge] | str"]


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

            def choose(predicate: MergePredicate) -> Sequence[PartToMerge] | str:
                return select_merge(ranges(self._parts(), predicate), max_bytes, settings) or "nothing is worth it"

            assignment, _ = await self._assign(choose, Optimize())
            return assignment

    # --- because somebody asks -------------------------------------------------------------------------------

    async def optimize(self, asked: Optimize) -> list[Assigned]:
        """Assign what OPTIMIZE asks for; for each partition the part that will come, or why none does.

        Raises Aborted while merges or the pulling of the log are stopped, and CoordinationError.
        """
        self._state.blockers.check(Action.MERGES)
        await self._puller.pull()  # an insert that was acknowledged just now is to count
        return [await self._assign_one(partition, choose, asked) for partition, choose in self._choices(asked)]

    async def _assign_one(self, partition_id: str, choose: Choice, asked: Optimize) -> Assigned:
        for _ in range(_OPTIMIZE_TRIES):
            async with self._one_at_a_time:
                assignment, told = await self._assign(choose, asked)
            if assignment is not Assignment.RETRY:
                break
        if isinstance(told, PartName):
            return Assigned(told.partition_id, told)
        return Assigned(partition_id, None, told)

    def _choices(self, asked: Optimize) -> list[tuple[str, Choice]]:
        """Each partition to look at, with how; one for all of them together has no name.

        A partition that is named, or that is one of all for FINAL, is merged whole; only else the selector chooses.
        """
        if asked.partition_id is not None:
            return [(asked.partition_id, self._whole(asked.partition_id, asked.final))]
        if asked.final:
            partitions = sorted({part.name.partition_id for part in self._parts()})
            return [(partition, self._whole(partition, asked.final)) for partition in partitions]
        return [("", self._best)]

    def _whole(self, partition_id: str, final: bool) -> Choice:
        return lambda predicate: whole_partition(partition_id, self._parts(), predicate, final=final)

    def _best(self, predicate: MergePredicate) -> Sequence[PartToMerge] | str:
        settings = self._state.structure.settings
        max_bytes = settings.max_bytes_to_merge_at_max_space_in_pool
        found = select_merge(ranges(self._parts(), predicate), max_bytes, settings, aggressive=True)
        return found or "no two neighbouring parts may be merged now"

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
        create = Create(f"{znodes.table.log}/log-", entry.to_text().encode(), sequential=True)
        try:
            await self._session.multi_checked([create, Set(znodes.table.log, b"", log_version)])
        except MultiFailed as failure:
            if isinstance(failure.error, BadVersion):
                return Assignment.RETRY, "the log moved on"
            raise failure.error from failure
        assert entry.new_part is not None
        return Assignment.CREATED, entry.new_part

    def _parts(self) -> list[PartToMerge]:
        now = self._state.now()
        return [
            PartToMerge(part.name, part.bytes_on_disk, now - part.modification_time)
            for part in self._state.store.active_parts()
        ]
