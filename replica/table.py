"""One replicated table on this server: from its definition to a running replica.

ClickHouse: StorageReplicatedMergeTree. The state that its parts share stands in `replica.table_state`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from coordinator.api import CoordinationError, CoordinatorUnreachable, Delete
from replica.background.attach import check_up_parts
from replica.background.restart import keep_active
from replica.commands import BlockOutcome, CreateTable, InsertOptions, OptimizeTable, PartitionCommand, SyncMode
from replica.dedup.tokens import SourceToken
from replica.environment import PartFiles
from replica.errors import BadDataPartName, ClickHouseError, KeeperException, TimeoutExceeded
from replica.insert.dependents import DIRECT, Route
from replica.insert.sink import insert_block, insert_tokens
from replica.macros import expanded
from replica.optimize import Optimize, asked_by
from replica.part_name import PartName
from replica.partition_commands import carry_out
from replica.registration import add_later_znodes, create_or_join
from replica.restoration import check_registered
from replica.scan import scan_parts
from replica.storage.checksums import compare
from replica.storage.file_names import table_folder
from replica.storage.part_files import check_checksums, checked_header
from replica.storage.part_store import PartStore
from replica.stored_table import ServerShare
from replica.sync import sync_replica
from replica.table_state import TableState
from replica.table_structure import TableStructure
from replica.unregistration import drop_other_replica
from replica.znodes import Host, ReplicaZnodes, TableZnodes, checked_replica_name, checked_table_path

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
_OPTIMIZE_SECONDS = 600


class ReplicatedTable:
    """A table: `register` it once, `load` it at every start, then `run` it."""

    def __init__(self, server: ServerShare, definition: CreateTable, macros: dict[str, str]) -> None:
        """Raises the ClickHouseError of whatever is wrong in the definition."""
        structure = TableStructure.from_definition(definition)
        store = PartStore(
            server.environment.disk,
            server.environment.codec,
            table_folder(definition.database, definition.table),
            fsync=bool(structure.settings.fsync_after_insert),
        )
        znodes = replica_znodes(definition, macros)
        self._life: asyncio.Task[None] | None = None
        self.state = TableState(server, definition, structure, znodes, store)

    @property
    def definition(self) -> CreateTable:
        return self.state.definition

    @property
    def creator_info(self) -> str:
        return f"{self.definition.uuid}|{self.state.server.server_uuid}"

    async def register(self) -> None:
        """Make or join the table in the coordination service. Raises as `create_or_join`; may be repeated."""
        session = self.state.server.sessions.current
        if session is None:
            raise CoordinatorUnreachable(self.state.server.sessions.last_error or "this server has no session now")
        await create_or_join(session, self.state.znodes, self.state.structure, self.creator_info)

    async def load(self) -> None:
        """Find the parts on the disk: they can be read from then on."""
        await self.state.store.load(self.state.now())

    def begin(self, tasks: asyncio.TaskGroup, host: Host, identifier: str, *, forced: bool = False) -> None:
        """Run in the task group until `shut_down`, or until that is cancelled; `forced` as for `check_up_parts`."""
        self._life = tasks.create_task(self.run(host, identifier, forced=forced))

    async def shut_down(self, refusal: ClickHouseError) -> None:
        """End everything that runs and waits; whoever asks from now on gets the refusal.

        Running inserts end as stored or, with the refusal, as not stored. The replica is not active afterwards; when
        the coordination service does not answer, only once its session has ended.
        """
        assert self._life is not None
        self._life.cancel()
        await asyncio.wait([self._life])
        state = self.state
        session = None if state.is_readonly else state.writable_session()
        await state.requests.end(refusal)
        state.become_readonly(refusal.message)
        if session is not None:
            with contextlib.suppress(CoordinationError):
                await session.multi_checked([Delete(state.znodes.is_active)])

    async def run(self, host: Host, identifier: str, *, forced: bool = False) -> None:
        """Be a replica under every session, until cancelled."""
        await self._attach(forced)
        await keep_active(self.state, host, identifier)

    async def _attach(self, forced: bool) -> None:
        state = self.state
        while True:
            session = await state.server.sessions.live()
            try:
                await check_registered(session, state.znodes, state.full_name)
                await add_later_znodes(session, state.znodes, self.definition.uuid)
                await check_up_parts(state, session, forced=forced)
                return
            except (ClickHouseError, CoordinationError, OSError) as problem:
                if str(problem) != state.readonly_reason:
                    log.warning("%s cannot start and stays read-only: %s", state.full_name, problem)
                state.become_readonly(str(problem))
                await asyncio.sleep(_RETRY_SECONDS)

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
        """Assign the merges that OPTIMIZE asks for and wait until this replica has their results.

        Raises TableIsReadOnly, KeeperException when the coordination service fails meanwhile, TimeoutExceeded, and
        what is wrong with the command.
        """
        asked = asked_by(command, self.state.structure)
        return await self.state.requests.wait_for(self._optimize(asked))

    async def _optimize(self, asked: Optimize) -> list[dict[str, str]]:
        with self._told_as_keeper_exception("OPTIMIZE"):
            assigned = await self.state.optimizer().optimize(asked)
            await self.state.puller().pull()  # what the queue does not know from here on was dropped
        await self._wait_for([each.new_part for each in assigned if each.new_part is not None])
        return [each.to_row() for each in assigned]

    async def alter_settings(self, definition: CreateTable) -> None:
        """Go by a definition that differs in its settings only."""
        self.state.change_settings(definition)

    async def sync(self, mode: SyncMode) -> None:
        """SYSTEM SYNC REPLICA. Raises as `sync_replica`, and KeeperException."""
        with self._told_as_keeper_exception("SYNC REPLICA"):
            await self.state.requests.wait_for(sync_replica(self.state, mode))

    async def alter_partition(self, command: PartitionCommand) -> None:
        """Carry out a statement about whole partitions or parts. Raises as `carry_out`, but KeeperException."""
        with self._told_as_keeper_exception("ALTER"):
            await self.state.requests.wait_for(carry_out(self.state, command))

    async def drop_replica(self, name: str) -> None:
        """SYSTEM DROP REPLICA. Raises BadArguments, TableWasNotDropped, TableIsReadOnly and KeeperException."""
        with self._told_as_keeper_exception("DROP REPLICA"):
            await self.state.requests.wait_for(drop_other_replica(self.state, name))

    async def wait_restored(self) -> None:
        """Until the parts that SYSTEM RESTORE REPLICA put aside are back. Raises TimeoutExceeded; it goes on then."""
        seconds = self.state.server.settings.receive_timeout
        try:
            async with asyncio.timeout(seconds):
                await self.state.requests.wait_for(self.state.restored.wait())
        except TimeoutError:
            raise TimeoutExceeded(
                f"{self.state.full_name} is registered again, but not all of its parts are attached after "
                f"{seconds:g} s; this goes on in the background. {self.state.readonly_reason}".rstrip()
            ) from None

    @contextlib.contextmanager
    def _told_as_keeper_exception(self, what: str) -> Iterator[None]:
        try:
            yield
        except CoordinationError as problem:
            raise KeeperException(f"{what} of {self.state.full_name} did not get to its end: {problem}") from problem

    async def _wait_for(self, parts: list[PartName]) -> None:
        queue = self.state.queue
        try:
            async with asyncio.timeout(_OPTIMIZE_SECONDS):
                await self.state.wait_for_progress(lambda: not queue.still_to_make(parts))
        except TimeoutError:
            waiting = ", ".join(map(str, queue.still_to_make(parts)))
            raise TimeoutExceeded(
                f"The merges are in the log, but {waiting} is not done after {_OPTIMIZE_SECONDS} s"
            ) from None

    async def scan(self, columns: list[str] | None) -> pa.Table:
        """The rows of all parts that are active at this moment, in order of part name."""
        return await scan_parts(self.state, columns)

    async def send_part(self, part_name: str) -> PartFiles:
        """A part in any state but temporary, for another replica.

        Raises NoSuchDataPart, and CorruptedData or ChecksumDoesntMatch when it is broken here.
        """
        name = PartName.try_parse(part_name)
        if name is None:
            raise BadDataPartName(f"Unexpected part name: {part_name[:100]!r}")
        state = self.state
        with state.reading(name):
            files = await state.store.files(name)
            job = partial(checked_header, files, state.environment.codec)
            header = await state.environment.workers.run("check part to send", job)
            part = state.store.get(name)
            if part is not None:
                compare(header, part.header)
                check_checksums(files, part.checksums)
        return files


def replica_znodes(definition: CreateTable, macros: dict[str, str]) -> ReplicaZnodes:
    """Path and replica name with this server's macros filled in. Raises BadArguments."""
    values = {
        **macros,
        "database": definition.database,
        "table": definition.table,
        "uuid": definition.uuid,
    }
    table = TableZnodes(checked_table_path(expanded(definition.zookeeper_path, values)))
    return table.replica(checked_replica_name(expanded(definition.replica_name, values)))
