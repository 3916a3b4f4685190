"""What the machinery of one table that is not replicated shares: its block numbers and its deduplication log.

ClickHouse: StorageMergeTree. `replica.plain_table` owns one.
"""

from __future__ import annotations

import asyncio
import logging

from replica.commands import CreateTable, InsertOptions
from replica.dedup.local_log import LocalLog
from replica.insert.deduplication_mode import Deduplication, deduplication_of
from replica.insert.local_commit import LocalCommit
from replica.insert.piece import Piece
from replica.storage.file_names import table_folder
from replica.storage.local_log_files import LocalLogFiles
from replica.storage.part_store import PartStore, TemporaryPart
from replica.stored_table import ServerShare, StoredTable
from replica.table_structure import TableStructure

log = logging.getLogger(__name__)


class PlainState(StoredTable):
    """The state of one table that is on this server only.

    Under the lock `committing` parts come and go, and the log is written: so parts become active in the order of
    their numbers, and no merge can pass over one that is still to come (ClickHouse: the lock of the data parts).
    """

    def __init__(
        self, server: ServerShare, definition: CreateTable, structure: TableStructure, store: PartStore
    ) -> None:
        super().__init__(server, definition, structure, store)
        self.committing = asyncio.Lock()
        self.known_blocks = LocalLog(0, {})
        self._log_files = LocalLogFiles(server.environment.disk, table_folder(definition.database, definition.table))
        self._last_block_number = 0

    async def load(self) -> None:
        """Find the parts on the disk, and the ids of the blocks that came last, whether their parts are there or not.

        As in ClickHouse, block numbers go on after the highest one that a part has.
        """
        await self.store.load(self.now())
        self._last_block_number = max((part.name.max_block for part in self.store.parts()), default=0)
        self.known_blocks = await self._log_files.load(self._window)
        await self.save_log()

    @property
    def _window(self) -> int:
        return self.structure.settings.non_replicated_deduplication_window

    def next_block_number(self) -> int:
        """The numbers of all partitions are one sequence. One that is not used is a gap."""
        self._last_block_number += 1
        return self._last_block_number

    async def save_log(self) -> None:
        """Bring the deduplication log to the disk, as durably as the parts are. Raises OSError."""
        await self._log_files.save(self.known_blocks, fsync=self.store.fsync)

    async def resize_log(self) -> None:
        """Go by the window that the settings have now. What cannot be written is written with the next insert."""
        async with self.committing:
            self.known_blocks.resize(self._window)
            try:
                await self.save_log()
            except OSError as problem:
                log.warning("%s: the deduplication log cannot be written: %s", self.full_name, problem)

    def check_alterable(self) -> None:
        self.requests.check()

    def deduplication(self, options: InsertOptions, *, is_async: bool) -> Deduplication:
        asked = deduplication_of(options, is_async=is_async)
        return asked.in_table(self._window, "non_replicated_deduplication_window")

    def commit(self, piece: Piece, temporary: TemporaryPart) -> LocalCommit:
        return LocalCommit(self, piece, temporary)
