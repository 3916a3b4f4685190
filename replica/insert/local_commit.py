"""The commit of one part of an insert into a table that is not replicated.

ClickHouse: MergeTreeSink.cpp. A number is taken first, so a block that turns out to be a duplicate leaves a gap. The
part counts before its ids are in the log: of a crash in between, a retry is not recognised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.commands import InsertStatus, PartOutcome
from replica.errors import ClickHouseError
from replica.insert.piece import Piece
from replica.insert.piece_commit import Known, PieceCommit
from replica.part_log import error_code
from replica.part_name import PartName
from replica.storage.part_store import TemporaryPart

if TYPE_CHECKING:
    from replica.plain_state import PlainState


class LocalCommit(PieceCommit):
    """Brings one written piece to its end, by the table's own log."""

    def __init__(self, state: PlainState, piece: Piece, temporary: TemporaryPart) -> None:
        super().__init__(state, piece, temporary)
        self._state = state

    async def run(self) -> PartOutcome:
        outcome = None
        while outcome is None:
            try:
                outcome = await self._attempt()
            except (ClickHouseError, OSError) as problem:
                self.error_code = error_code(problem)
                outcome = await self._not_stored(str(problem))
        return outcome

    async def _attempt(self) -> PartOutcome | None:
        """One try: how it ended, or None when a smaller part is to be tried at once."""
        state, piece = self._state, self.piece
        async with state.committing:
            name = PartName.inserted(piece.partition_id, state.next_block_number())
            known = state.known_blocks.known(piece.block_ids)
            if not known:
                return await self._store(name)
            await state.save_log()  # nobody is told of a duplicate by an id that a crash would take
        return await self._without(
            {each: Known(str(known[each.block_id])) for each in piece.hashes if each.block_id in known}
        )

    async def _store(self, name: PartName) -> PartOutcome:
        state = self._state
        state.activate(await state.store.publish(self._temporary, name, state.now()))
        state.known_blocks.add(name, self.piece.block_ids)
        try:
            await state.save_log()
        except OSError as problem:
            return self._outcome(
                InsertStatus.UNKNOWN,
                part_name=str(name),
                error=f"the part is there, but its deduplication id could not be written: {problem}; insert the same "
                "block again",
            )
        return self._outcome(InsertStatus.STORED, part_name=str(name))
