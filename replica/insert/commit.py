"""The commit of one part of an insert, through conflicts and lost sessions, to an end that is known.

ClickHouse: ReplicatedMergeTreeSink.cpp, `commitPart`. Two round trips when nothing conflicts: the block number,
then one multi that writes the log entry, frees the number's lock, creates the deduplication ids (the real guard:
two replicas can both have passed the first check) and the part's own znode. An id that is there already costs its
token's rows: the part is written anew without them and tried again, until nothing conflicts or nothing is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coordinator.api import CoordinationError, Create, Delete, MultiFailed, NodeExists, NoNode, Operation, SessionLost
from replica.commands import InsertStatus, PartOutcome
from replica.dedup.hashes import DeduplicationHash
from replica.errors import ClickHouseError, QueryWasCancelled, TableIsReadOnly, UnexpectedZooKeeperError
from replica.insert.block_number import BlockNumberLock, Conflict
from replica.insert.piece import Piece
from replica.insert.piece_commit import Known, PieceCommit
from replica.insert.retries import KeeperRetries
from replica.log_entry import EntryType, LogEntry
from replica.part_log import error_code
from replica.part_name import PartName
from replica.session import ServerSession
from replica.storage.part_store import StoredPart, TemporaryPart

if TYPE_CHECKING:
    from replica.table_state import TableState

# Where the ids stand among the operations of the commit.
_FIRST_ID = 2


class _TryAgain(CoordinationError):
    """Nothing of this attempt remains; another one may succeed."""


class PartCommit(PieceCommit):
    """Brings one written piece of a replicated table to its end."""

    def __init__(self, state: TableState, piece: Piece, temporary: TemporaryPart) -> None:
        super().__init__(state, piece, temporary)
        self._state = state
        self._retries = KeeperRetries(state.server.settings)
        # A part from detached/ is nowhere else, so a crash must not find it among what is temporary.
        self._folder_again = temporary.folder if piece.detached_folder else ""

    async def run(self) -> PartOutcome:
        """Try until the piece is stored, known as a duplicate, or the retries are used up.

        Whatever the outcome, nothing temporary stays behind.
        """
        while True:
            try:
                self.error_code = 0
                outcome = await self._attempt()
                if outcome is not None:
                    return outcome
            except (TableIsReadOnly, SessionLost, _TryAgain) as problem:
                self.error_code = error_code(problem)
                if not await self._retries.wait():
                    return await self._not_stored(str(problem))
            except (ClickHouseError, CoordinationError, OSError) as problem:
                self.error_code = error_code(problem)
                return await self._not_stored(str(problem))

    async def _attempt(self) -> PartOutcome | None:
        """One try: how it ended, or None when a smaller part is to be tried at once."""
        state, piece = self._state, self.piece
        session = state.writable_session()
        if known := await self._known_by_hint(session):
            return await self._without(known)
        taken = await state.block_numbers.allocate(session, piece.partition_id, self._paths(piece.hashes))
        if isinstance(taken, Conflict):
            return await self._resolve(session, self._hash_at(taken.path))
        state.server.metrics.allocated(taken.number)
        try:
            name = PartName.inserted(piece.partition_id, taken.number)
            part = await state.store.publish(self._temporary, name, state.now())
        except (ClickHouseError, OSError):
            await taken.release()
            raise
        try:
            await session.multi_checked(self._commit_operations(part, taken))
        except MultiFailed as failure:
            self._temporary = await state.store.withdraw(part, piece.image, self._folder_again)
            return await self._refused(session, taken, failure)
        except SessionLost:
            return await self._find_out(part, taken)
        return self._stored(part, taken)

    def _commit_operations(self, part: StoredPart, lock: BlockNumberLock) -> list[Operation]:
        znodes, name = self._state.znodes, str(part.name)
        attaches = bool(self.piece.detached_folder)
        entry = LogEntry(
            type=EntryType.ATTACH_PART if attaches else EntryType.GET_PART,
            create_time=int(self._state.now()),
            source_replica=znodes.name,
            block_id="" if self.piece.is_async else ",".join(self.piece.block_ids),
            new_part=part.name,
            part_checksum=part.header.total if attaches else "",
        )
        return [
            Create(f"{znodes.table.log}/log-", entry.to_text().encode(), sequential=True),
            Delete(lock.path),
            *(Create(path, name.encode()) for path in self._paths(self.piece.hashes)),
            Create(znodes.part(name), part.header.to_bytes()),
        ]

    async def _refused(
        self, session: ServerSession, lock: BlockNumberLock, failure: MultiFailed
    ) -> PartOutcome | None:
        """The commit was answered with no: the part has lost its name again, the lock is still there."""
        hashes = self.piece.hashes
        if _FIRST_ID <= failure.index < _FIRST_ID + len(hashes) and isinstance(failure.error, NodeExists):
            await lock.release()
            return await self._resolve(session, hashes[failure.index - _FIRST_ID])
        if failure.index == 1 and isinstance(failure.error, NoNode):
            raise QueryWasCancelled(
                f"Insert into partition {self.piece.partition_id} was cancelled by a DROP or REPLACE of it"
            ) from failure
        await lock.release()
        raise UnexpectedZooKeeperError(
            f"The commit of block number {lock.number} was refused: {failure}"
        ) from failure

    async def _find_out(self, part: StoredPart, lock: BlockNumberLock) -> PartOutcome:
        """The session died with the commit on its way: ask under a later one, which rules out a late arrival."""
        while True:
            session = self._state.server.sessions.current
            try:
                if session is not None:
                    applied = await session.exists(self._state.znodes.part(str(part.name))) is not None
                    break
            except SessionLost:
                pass
            if not await self._retries.wait():
                return self._unknown(part)
        if applied:
            return self._stored(part, lock)
        self._temporary = await self._state.store.withdraw(part, self.piece.image, self._folder_again)
        raise _TryAgain("the session was lost before the commit was applied")

    # --- ids that are there already ----------------------------------------------------------------------------

    def _paths(self, hashes: Sequence[DeduplicationHash]) -> list[str]:
        table = self._state.znodes.table
        return [f"{table.deduplication_directory(each.kind)}/{each.block_id}" for each in hashes]

    def _hash_at(self, path: str) -> DeduplicationHash:
        hashes = self.piece.hashes
        return hashes[self._paths(hashes).index(path)]

    async def _known_by_hint(self, session: ServerSession) -> dict[DeduplicationHash, Known]:
        """The ids that are there, if some are thought to be: one look may spare attempts that must fail.

        Only an asynchronous insert looks, as in ClickHouse: a block of it has many ids, and conflicts come singly.
        """
        if self.piece.is_async and self._state.recent_ids.known(self._paths(self.piece.hashes)):
            return await self._look(session)
        return {}

    async def _look(self, session: ServerSession) -> dict[DeduplicationHash, Known]:
        """Which of the ids are there at this moment, in one round trip."""
        hashes = self.piece.hashes
        paths = self._paths(hashes)
        known: dict[DeduplicationHash, Known] = {}
        for each, path, answer in zip(hashes, paths, await session.get_many(paths), strict=True):
            if answer is None:
                self._state.recent_ids.missed(path)
            else:
                value, stat = answer
                known[each] = Known(value.decode("utf-8", "replace"), stat.ctime)
                self._state.recent_ids.saw(path)
        return known

    async def _resolve(self, session: ServerSession, conflict: DeduplicationHash) -> PartOutcome | None:
        """An id was there when it must not be. One conflict is told at a time, so look for the others, too."""
        return await self._without({conflict: Known(), **await self._look(session)})

    # --- the ends --------------------------------------------------------------------------------------------

    def _stored(self, part: StoredPart, lock: BlockNumberLock) -> PartOutcome:
        self._state.activate(part)
        for path in self._paths(self.piece.hashes):
            self._state.recent_ids.saw(path)
        return self._outcome(InsertStatus.STORED, part_name=str(part.name), warning=lock.warning)

    async def _put_away(self) -> None:
        store, detached_folder = self._state.store, self.piece.detached_folder
        if detached_folder:
            await store.detached.take_in(self._temporary.folder, detached_folder)
        else:
            await store.discard(self._temporary)

    def _unknown(self, part: StoredPart) -> PartOutcome:
        # The only copy stays: if the commit was applied, its ids would refuse the rows for ever.
        self._state.uncertain_parts.add(part.name, only_copy=True)
        return self._outcome(
            InsertStatus.UNKNOWN,
            part_name=str(part.name),
            error="the session was lost during the commit and no later one answered; insert the same block again",
        )
