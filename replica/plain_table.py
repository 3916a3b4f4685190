"""One table that is not replicated (ENGINE = MergeTree): nobody else knows of it, and it needs no session.

ClickHouse: StorageMergeTree. What it has besides a replicated table is its own deduplication log; what it shares with
one stands in `replica.stored_table`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pyarrow as pa

from replica.background.old_parts import delete_old_parts
from replica.commands import BlockOutcome, CreateTable, InsertOptions, OptimizeTable
from replica.dedup.tokens import SourceToken
from replica.errors import ClickHouseError
from replica.insert.dependents import DIRECT, Route
from replica.insert.sink import insert_block, insert_tokens
from replica.optimize import asked_by
from replica.plain_merges import PlainMerges
from replica.plain_state import PlainState
from replica.scan import scan_parts
from replica.storage.file_names import table_folder
from replica.storage.part_store import PartStore
from replica.stored_table import ServerShare
from replica.table_structure import TableStructure


class PlainTable:
    """A table: `load` it at every start, then let it `begin`."""

    def __init__(self, server: ServerShare, definition: CreateTable) -> None:
        """Raises the ClickHouseError of whatever is wrong in the definition."""
        structure = TableStructure.from_definition(definition)
        store = PartStore(
            server.environment.disk,
            server.environment.codec,
            table_folder(definition.database, definition.table),
            fsync=bool(structure.settings.fsync_after_insert),
        )
        self.state = PlainState(server, definition, structure, store)
        self._merges = PlainMerges(self.state)
        self._life: asyncio.Task[None] | None = None

    @property
    def definition(self) -> CreateTable:
        return self.state.definition

    async def load(self) -> None:
        """Find the parts and the deduplication log on the disk: it can be read and written from then on."""
        await self.state.load()

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Merge and clean up in the task group until `shut_down`, or until that is cancelled."""
        self._life = tasks.create_task(self._run())

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._merges.run())
            tasks.create_task(delete_old_parts(self.state))

    async def shut_down(self, refusal: ClickHouseError) -> None:
        """End everything that runs and waits; whoever asks from now on gets the refusal. Inserts run to their end."""
        assert self._life is not None
        self._life.cancel()
        await asyncio.wait([self._life])
        await self.state.requests.end(refusal)

    # --- what it is asked ------------------------------------------------------------------------------------

    async def insert(
        self, options: InsertOptions, source_number: int, block: pa.Table, route: Route = DIRECT
    ) -> BlockOutcome:
        with self.state.requests.insert():
            return await insert_block(self.state, options, source_number, block, route)

    async def insert_together(
        self, options: InsertOptions, tokens: Sequence[SourceToken], block: pa.Table, route: Route = DIRECT
    ) -> BlockOutcome:
        """A block that several asynchronous inserts have put together, each with its token, in the order of rows."""
        with self.state.requests.insert():
            return await insert_tokens(self.state, options, tokens, block, route, is_async=True)

    async def optimize(self, command: OptimizeTable) -> list[dict[str, str]]:
        """Merge what OPTIMIZE asks for. Raises as `PlainMerges.optimize`, and what is wrong with the command."""
        asked = asked_by(command, self.state.structure)
        return [each.to_row() for each in await self.state.requests.wait_for(self._merges.optimize(asked))]

    async def alter_settings(self, definition: CreateTable) -> None:
        """Go by a definition that differs in its settings only."""
        self.state.change_settings(definition)
        await self.state.resize_log()

    async def scan(self, columns: list[str] | None) -> pa.Table:
        """The rows of all parts that are active at this moment, in order of part name."""
        return await scan_parts(self.state, columns)
