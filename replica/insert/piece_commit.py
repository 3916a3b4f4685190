"""One written piece of an insert on its way to its end, in a table of either kind.

An id that is known already costs its token's rows: the part is written anew without them and tried again, until
nothing conflicts or nothing is left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from replica.commands import InsertStatus, PartOutcome
from replica.dedup.hashes import DeduplicationHash
from replica.insert.piece import Piece
from replica.profile_events import ProfileEvent
from replica.storage.file_names import INSERT_PREFIX
from replica.storage.part_store import TemporaryPart

if TYPE_CHECKING:
    from replica.stored_table import StoredTable


@dataclass(frozen=True, slots=True)
class Known:
    """What is told of an id that is there: the part it names, and since when (ms since 1970, 0 if nobody knows).

    An id that conflicted and is gone when it is read names no part.
    """

    part_name: str = ""
    since_ms: int = 0


class PieceCommit(ABC):
    """Brings one written piece to its end.

    `piece` is what is tried at present: the whole one, or what is left of it after conflicts. `error_code` is the
    number in ErrorCodes.cpp of what hindered the last attempt, 0 if nothing did.
    """

    def __init__(self, table: StoredTable, piece: Piece, temporary: TemporaryPart) -> None:
        self._table = table
        self.piece = piece
        self._temporary = temporary
        self._duplicates: dict[DeduplicationHash, Known] = {}
        self._rewrites = 0
        self.error_code = 0

    @abstractmethod
    async def run(self) -> PartOutcome:
        """Try until it is known how the piece ends. Whatever the outcome, nothing temporary stays behind."""

    async def _without(self, known: dict[DeduplicationHash, Known]) -> PartOutcome | None:
        """Go on without the rows that these ids stand for; the outcome when none are left."""
        table = self._table
        table.server.events.add(ProfileEvent.DUPLICATED_INSERTED_BLOCKS, len(known))
        self._duplicates |= known
        smaller = await table.environment.workers.run("rewrite part", partial(self.piece.without, set(known)))
        if smaller is None:
            return await self._duplicate()
        temporary = await table.store.write_temporary(INSERT_PREFIX, smaller.image)
        await table.store.discard(self._temporary)
        self.piece, self._temporary = smaller, temporary
        self._rewrites += 1
        return None

    async def _put_away(self) -> None:
        """What becomes of a piece that is not stored."""
        await self._table.store.discard(self._temporary)

    async def _duplicate(self) -> PartOutcome:
        await self._put_away()
        return self._outcome(InsertStatus.DUPLICATE, part_name=self._duplicate_of(), removed_rows=self.piece.rows)

    async def _not_stored(self, error: str) -> PartOutcome:
        await self._put_away()
        return self._outcome(InsertStatus.NOT_STORED, error=error)

    def _duplicate_of(self) -> str:
        names = {known.part_name: None for known in self._duplicates.values() if known.part_name}
        return ", ".join(names)

    def _outcome(
        self,
        status: InsertStatus,
        *,
        part_name: str = "",
        error: str = "",
        warning: str = "",
        removed_rows: int | None = None,
    ) -> PartOutcome:
        piece = self.piece
        since = [known.since_ms for known in self._duplicates.values() if known.since_ms]
        return PartOutcome(
            partition_id=piece.partition_id,
            status=status,
            rows=piece.rows,
            part_name=part_name,
            block_id=",".join(piece.block_ids),
            error=error,
            removed_rows=piece.removed_rows if removed_rows is None else removed_rows,
            rewrites=self._rewrites,
            duplicate_of=self._duplicate_of(),
            duplicate_since=min(since, default=0) / 1000,
            warning=warning,
        )
