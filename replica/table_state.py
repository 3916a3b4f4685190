"""What the machinery of one replicated table shares: its values, its ports, and whether it may write now.

`replica.table` owns one; the inserts, the puller, the executor and the background tasks work on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from replica.commands import Action, CreateTable, InsertOptions
from replica.dedup.hashes import DeduplicationVersion
from replica.dedup.recent_ids import RecentIds
from replica.errors import ChecksumDoesntMatch, CorruptedData, NoSuchDataPart, TableIsReadOnly
from replica.insert.block_number import BlockNumbers
from replica.insert.commit import PartCommit
from replica.insert.deduplication_mode import Deduplication, deduplication_of
from replica.insert.piece import Piece
from replica.optimize import Optimizer
from replica.part_name import PartName
from replica.parts_to_check import PartsToCheck
from replica.queue import ReplicationQueue
from replica.session import ServerSession
from replica.storage.part_store import PartStore, TemporaryPart
from replica.stored_table import ServerShare, StoredTable
from replica.sync import Puller
from replica.table_structure import TableStructure
from replica.znodes import ReplicaZnodes


class TableState(StoredTable):
    """The state of one replicated table on one server."""

    def __init__(
        self,
        server: ServerShare,
        definition: CreateTable,
        structure: TableStructure,
        znodes: ReplicaZnodes,
        store: PartStore,
    ) -> None:
        super().__init__(server, definition, structure, store)
        self.znodes = znodes
        self.queue = ReplicationQueue()
        self.block_numbers = BlockNumbers(znodes)
        self.recent_ids = RecentIds()
        self.queue_changed = asyncio.Event()
        self.queue_progress = asyncio.Condition()
        self.restored = asyncio.Event()
        self.uncertain_parts = UncertainParts()
        self.parts_to_check = PartsToCheck()
        self.last_queue_update_exception = ""
        self.last_queue_update = 0.0
        self.queue_update_started = 0.0
        self.readonly_since: float | None = self.now()
        self._session: ServerSession | None = None
        self._optimizer: Optimizer | None = None
        self._puller: Puller | None = None
        self._readonly_reason = "it is starting"

    def check_part(self, name: PartName, delay_seconds: float = 0) -> None:
        """Have somebody look at a part that is missing or does not look right; not at one that is being dropped."""
        if self.queue.is_going_to_be_dropped(name) is None:
            self.parts_to_check.add(name, self.now() + delay_seconds)

    @contextmanager
    def reading(self, *names: PartName) -> Iterator[None]:
        """While these parts are read: what shows that one is broken, or gone, is reported and goes on."""
        try:
            yield
        except (CorruptedData, ChecksumDoesntMatch, NoSuchDataPart):
            for name in names:
                self.check_part(name)
            raise

    # --- the queue moves on ------------------------------------------------------------------------------------

    async def wait_for_progress(self, holds: Callable[[], bool]) -> None:
        """Wait until the condition holds, looking again whenever an attempt has ended or the queue was loaded."""
        async with self.queue_progress:
            await self.queue_progress.wait_for(holds)

    async def note_progress(self) -> None:
        """Wake those who wait for the queue, the executor among them."""
        self.queue_changed.set()
        async with self.queue_progress:
            self.queue_progress.notify_all()

    # --- read-only or not ------------------------------------------------------------------------------------

    @property
    def is_readonly(self) -> bool:
        return self._session is None or not self._session.alive

    @property
    def readonly_reason(self) -> str:
        return self._readonly_reason if self.is_readonly else ""

    def become_active(self, session: ServerSession, optimizer: Optimizer, puller: Puller) -> None:
        self._session = session
        self._puller = puller
        self._optimizer = optimizer
        self.readonly_since = None

    def become_readonly(self, reason: str) -> None:
        if self.readonly_since is None:
            self.readonly_since = self.now()
        self._session = None
        self._optimizer = None
        self._puller = None
        self._readonly_reason = reason

    def writable_session(self) -> ServerSession:
        """The session under which this replica is active.

        Raises TableIsReadOnly, and once the table goes the error that says so.
        """
        self.requests.check()
        if self._session is None or not self._session.alive:
            raise self._readonly_error()
        return self._session

    def optimizer(self) -> Optimizer:
        """Who assigns merges while this replica is active. Raises TableIsReadOnly."""
        if self._optimizer is None or self.is_readonly:
            raise self._readonly_error()
        return self._optimizer

    def puller(self) -> Puller:
        """Who copies the log while this replica is active. Raises TableIsReadOnly."""
        if self._puller is None or self.is_readonly:
            raise self._readonly_error()
        return self._puller

    # --- what is asked of it -----------------------------------------------------------------------------------

    def check_alterable(self) -> None:
        self.writable_session()

    def change_settings(self, definition: CreateTable) -> None:
        super().change_settings(definition)
        self.queue_changed.set()

    def switch(self, action: Action, *, stop: bool) -> None:
        super().switch(action, stop=stop)
        if not stop:
            self.queue_changed.set()

    def deduplication(self, options: InsertOptions, *, is_async: bool) -> Deduplication:
        settings = self.structure.settings
        window = settings.replicated_deduplication_window
        if is_async and settings.insert_deduplication_version is DeduplicationVersion.OLD_SEPARATE_HASHES:
            window = settings.replicated_deduplication_window_for_async_inserts
        return deduplication_of(options, is_async=is_async).in_table(window, "replicated_deduplication_window")

    def commit(self, piece: Piece, temporary: TemporaryPart) -> PartCommit:
        return PartCommit(self, piece, temporary)

    def _readonly_error(self) -> TableIsReadOnly:
        return TableIsReadOnly(f"Table {self.full_name} is read-only on this replica: {self._readonly_reason}")


class UncertainParts:
    """Pre-active parts of which nobody knows whether their commit was applied: its session was lost."""

    def __init__(self) -> None:
        self._only_copies: dict[PartName, bool] = {}
        self._arrived = asyncio.Event()

    def __iter__(self) -> Iterator[tuple[PartName, bool]]:
        """Each with whether its rows may be nowhere else."""
        return iter(list(self._only_copies.items()))

    def add(self, name: PartName, *, only_copy: bool) -> None:
        self._only_copies[name] = only_copy
        self._arrived.set()

    def settle(self, name: PartName) -> None:
        """Its status is known now."""
        del self._only_copies[name]

    async def wait(self) -> None:
        """Wait until there is one."""
        while not self._only_copies:
            self._arrived.clear()
            await self._arrived.wait()
