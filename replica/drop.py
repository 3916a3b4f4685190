"""What is left to do of tables that were dropped: local data, then znodes, then the mark in the catalog.

The mark is what a later start finds, so a drop that was interrupted anywhere is finished then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from coordinator.api import CoordinationError, NoNode
from replica.catalog import Catalog
from replica.commands import CreateTable, Engine
from replica.errors import ClickHouseError, TableIsDropped
from replica.session import ServerSession
from replica.storage.file_names import table_folder
from replica.stored_table import ServerShare
from replica.table import replica_znodes
from replica.unregistration import remove_left_overs, unregister_replica
from replica.znodes import ReplicaZnodes, TableZnodes

log = logging.getLogger(__name__)

_LONGEST_RETRY_SECONDS = 10.0
PATIENCE_SECONDS = 30.0


class Drops:
    """The unfinished drops of one server; they go on in its task group until they succeed."""

    def __init__(
        self, server: ServerShare, catalog: Catalog, macros: dict[str, str], tasks: asyncio.TaskGroup
    ) -> None:
        self._server = server
        self._catalog = catalog
        self._macros = macros
        self._tasks = tasks
        self._unfinished: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._problem = "the coordination service does not answer"

    def begin(self, definition: CreateTable) -> None:
        """Finish in the background what `Catalog.mark_dropped` has begun."""
        name = (definition.database, definition.table)
        self._unfinished[name] = finishing = self._tasks.create_task(self._finish(definition))
        finishing.add_done_callback(lambda _: self._unfinished.pop(name))

    async def wait(self, database: str, table: str) -> None:
        """Return when no dropped table of that name is left.

        Raises TableIsDropped when that takes too long; the removal goes on nevertheless.
        """
        finishing = self._unfinished.get((database, table))
        if finishing is None:
            return
        await asyncio.wait([finishing], timeout=PATIENCE_SECONDS)
        if not finishing.done():
            raise TableIsDropped(
                f"Table {database}.{table} is dropped, but not all of it is gone yet: {self._problem}. "
                "It is tried again until it works"
            )

    async def _finish(self, definition: CreateTable) -> None:
        seconds = 0.5
        while True:
            try:
                await self._remove(definition)
                return
            except (ClickHouseError, CoordinationError, OSError) as problem:
                self._problem = str(problem)
                log.warning("%s.%s cannot be removed yet: %s", definition.database, definition.table, problem)
                await asyncio.sleep(seconds)
                seconds = min(2 * seconds, _LONGEST_RETRY_SECONDS)

    async def _remove(self, definition: CreateTable) -> None:
        disk, folder = self._server.environment.disk, table_folder(definition.database, definition.table)
        with contextlib.suppress(FileNotFoundError):
            await disk.remove(folder)
        await disk.fsync_folder(folder.rpartition("/")[0])  # or a loss of power brings old parts into a new table
        if definition.engine is Engine.REPLICATED_MERGE_TREE:
            await self._unregister(definition)
        await self._catalog.forget_dropped(definition)

    async def _unregister(self, definition: CreateTable) -> None:
        session = await self._server.sessions.live()
        znodes = replica_znodes(definition, self._macros)
        if await self._is_ours(session, znodes):
            await unregister_replica(session, znodes)
            await self._remove_left_overs(session, znodes.table)

    async def _remove_left_overs(self, session: ServerSession, table: TableZnodes) -> None:
        """Of the last replica's drop, if an earlier life of this server was interrupted at the table's znodes."""
        await remove_left_overs(session, table)
        if await session.exists(table.dropped) is not None:
            raise TableIsDropped(f"another session holds {table.dropped_lock}; it expires if its server is dead")

    async def _is_ours(self, session: ServerSession, znodes: ReplicaZnodes) -> bool:
        """Whether the replica's znodes were made by this server: meanwhile another one may have taken the name."""
        try:
            value, _ = await session.get(znodes.creator_info)
        except NoNode:
            return True
        return value.decode("utf-8", "replace").rpartition("|")[2] == self._server.server_uuid
