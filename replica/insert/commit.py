"""The commit of one part of an insert, through conflicts and lost sessions, to an end that is known.

ClickHouse: ReplicatedMergeTreeSink.cpp, `commitPart`. Two round trips when nothing conflicts: the block number,
then one multi that writes the log entry, frees the number's lock, creates the deduplication ids (the real guard:
two replicas can both have passed the first check) and the part's own znode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordinator.api import CoordinationError, Create, Delete, MultiFailed, NodeExists, NoNode, Operation, SessionLost
from replica.commands import InsertStatus, PartOutcome
from replica.errors import ClickHouseError, QueryWasCancelled, TableIsReadOnly, UnexpectedZooKeeperError
from replica.insert.block_number import BlockNumberLock, Conflict
from replica.insert.retries import KeeperRetries
from replica.log_entry import EntryType, LogEntry
from replica.part_log import error_code
from replica.part_name import PartName
from replica.session import ServerSession
from replica.storage.part_files import PartImage
from replica.storage.part_store import StoredPart, TemporaryPart

if TYPE_CHECKING:
    from replica.table_state import TableState


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows of one partition of an inserted block, as a part without a name; at most one id so far.

    A piece that lay in `detached/` goes back to `detached_folder` there unless it is stored.
    """

    partition_id: str
    image: PartImage
    block_ids: tuple[str, ...]
    detached_folder: str = ""


class _TryAgain(CoordinationError):
    """Nothing of this attempt remains; another one may succeed."""


class PartCommit:
    """Brings one written piece to its end.

    `error_code` is the number in ErrorCodes.cpp of what hindered the last attempt, 0 if nothing did.
    """

    def __init__(self, state: TableState, piece: Piece, temporary: TemporaryPart) -> None:
        self._state = state
        self._piece = piece
        self._temporary = temporary
        self._retries = KeeperRetries(state.server.settings)
        # A part from detached/ is nowhere else, so a crash must not find it among what is temporary.
        self._folder_again = temporary.folder if piece.detached_folder else ""
        self.error_code = 0

    async def run(self) -> PartOutcome:
        """Try until the piece is stored, known as a duplicate, or the retries are used up.

        Whatever the outcome, nothing temporary stays behind.
        """
        while True:
            try:
                self.error_code = 0
                return await self._attempt()
            except (TableIsReadOnly, SessionLost, _TryAgain) as problem:
                self.error_code = error_code(problem)
                if not await self._retries.wait():
                    return await self._not_stored(str(problem))
            except (ClickHouseError, CoordinationError, OSError) as problem:
                self.error_code = error_code(problem)
                return await self._not_stored(str(problem))

    async def _attempt(self) -> PartOutcome:
        state, piece = self._state, self._piece
        session = state.writable_session()
        taken = await state.block_numbers.allocate(session, piece.partition_id, piece.block_ids)
        if isinstance(taken, Conflict):
            return await self._duplicate(session, taken.block_id)
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
            return await self._find_out(part)
        return self._stored(part)

    def _commit_operations(self, part: StoredPart, lock: BlockNumberLock) -> list[Operation]:
        znodes, name = self._state.znodes, str(part.name)
        attaches = bool(self._piece.detached_folder)
        entry = LogEntry(
            type=EntryType.ATTACH_PART if attaches else EntryType.GET_PART,
            create_time=int(self._state.now()),
            source_replica=znodes.name,
            block_id=",".join(self._piece.block_ids),
            new_part=part.name,
            part_checksum=part.header.total if attaches else "",
        )
        return [
            Create(f"{znodes.table.log}/log-", entry.to_text().encode(), sequential=True),
            Delete(lock.path),
            *(Create(znodes.table.deduplication_hash(each), name.encode()) for each in self._piece.block_ids),
            Create(znodes.part(name), part.header.to_bytes()),
        ]

    async def _refused(self, session: ServerSession, lock: BlockNumberLock, failure: MultiFailed) -> PartOutcome:
        """The commit was answered with no: the part has lost its name again, the lock is still there."""
        first_id, past_ids = 2, 2 + len(self._piece.block_ids)
        if first_id <= failure.index < past_ids and isinstance(failure.error, NodeExists):
            await lock.release()
            return await self._duplicate(session, self._piece.block_ids[failure.index - first_id])
        if failure.index == 1 and isinstance(failure.error, NoNode):
            raise QueryWasCancelled(
                f"Insert into partition {self._piece.partition_id} was cancelled by a DROP or REPLACE of it"
            ) from failure
        await lock.release()
        raise UnexpectedZooKeeperError(
            f"The commit of block number {lock.number} was refused: {failure}"
        ) from failure

    async def _find_out(self, part: StoredPart) -> PartOutcome:
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
            return self._stored(part)
        self._temporary = await self._state.store.withdraw(part, self._piece.image, self._folder_again)
        raise _TryAgain("the session was lost before the commit was applied")

    # --- the four ends ---------------------------------------------------------------------------------------

    def _stored(self, part: StoredPart) -> PartOutcome:
        self._state.activate(part)
        return self._outcome(InsertStatus.STORED, part_name=str(part.name))

    async def _duplicate(self, session: ServerSession, block_id: str) -> PartOutcome:
        try:
            value, _ = await session.get(self._state.znodes.table.deduplication_hash(block_id))
            part_name = value.decode("utf-8", "replace")
        except NoNode:
            part_name = ""
        await self._put_away()
        return self._outcome(InsertStatus.DUPLICATE, part_name=part_name)

    async def _not_stored(self, error: str) -> PartOutcome:
        await self._put_away()
        return self._outcome(InsertStatus.NOT_STORED, error=error)

    async def _put_away(self) -> None:
        store, detached_folder = self._state.store, self._piece.detached_folder
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

    def _outcome(self, status: InsertStatus, *, part_name: str = "", error: str = "") -> PartOutcome:
        return PartOutcome(
            partition_id=self._piece.partition_id,
            status=status,
            rows=self._piece.image.rows,
            part_name=part_name,
            block_id="".join(self._piece.block_ids[:1]),
            error=error,
        )
