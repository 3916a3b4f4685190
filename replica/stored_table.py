"""What every table that keeps parts on this server has, replicated or not.

`replica.table_state` and `replica.plain_state` are the two kinds; inserts and the system tables work on either.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from replica.blockers import Blockers
from replica.commands import Action, CreateTable, InsertOptions
from replica.environment import Environment
from replica.insert.deduplication_mode import Deduplication
from replica.insert.piece import Piece
from replica.insert.piece_commit import PieceCommit
from replica.part_log import PartEventType, PartLog, TableOfEvents, TablePartLog
from replica.part_name import PartName
from replica.pools import Pools
from replica.profile_events import CurrentMetrics, ProfileEvents
from replica.running_operations import RunningOperations
from replica.session import SessionKeeper
from replica.settings import MergeTreeSettings, ServerSettings
from replica.storage.part_store import PartStore, StoredPart, TemporaryPart
from replica.table_requests import TableRequests
from replica.table_structure import TableStructure

if TYPE_CHECKING:
    from replica.table_state import TableState


@dataclass(frozen=True, slots=True)
class ServerShare:
    """What all tables of a server share; `tables` are the replicated ones, by database and name."""

    environment: Environment
    settings: ServerSettings
    sessions: SessionKeeper
    pools: Pools
    server_uuid: str
    part_log: PartLog = field(default_factory=PartLog)
    events: ProfileEvents = field(default_factory=ProfileEvents)
    metrics: CurrentMetrics = field(default_factory=CurrentMetrics)
    tables: dict[tuple[str, str], TableState] = field(default_factory=dict)


class StoredTable(ABC):
    """One table on one server: its definition, its parts, and what happens to them."""

    def __init__(
        self, server: ServerShare, definition: CreateTable, structure: TableStructure, store: PartStore
    ) -> None:
        self.server = server
        self.environment = server.environment
        self.definition = definition
        self.database = definition.database
        self.name = definition.table
        self.uuid = definition.uuid
        self.structure = structure
        self.store = store
        self.parts_changed = asyncio.Event()
        self.settings_changed = asyncio.Event()
        self.part_log = TablePartLog(
            server.part_log,
            self.environment.clock,
            TableOfEvents(self.database, self.name, self.uuid, structure.partition_key),
        )
        self.running = RunningOperations(self.environment.clock, self.part_log)
        self.blockers = Blockers()
        self.requests = TableRequests()

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"

    def now(self) -> float:
        """Wall-clock seconds since 1970."""
        return self.environment.clock.now()

    def activate(self, part: StoredPart) -> None:
        """Let a part count, and let whoever looks for merges know."""
        self.store.activate(part, self.now())
        self.parts_changed.set()

    async def delete(self, part: StoredPart) -> None:
        """Remove a part that does not count from the disk."""
        await self.store.delete(part)
        self.part_log.add(
            PartEventType.REMOVE_PART,
            str(part.name),
            part.name.partition_id,
            rows=part.rows,
            size_in_bytes=part.bytes_on_disk,
        )

    def reading(self, *names: PartName) -> AbstractContextManager[None]:
        """While these parts are read; what shows that one is broken, or gone, goes on."""
        return nullcontext()

    def change_settings(self, definition: CreateTable) -> None:
        """Go at once by a definition that differs in its settings only; what sleeps by the old ones looks again."""
        settings = MergeTreeSettings.from_text(definition.settings)
        self.definition = definition
        self.structure = replace(self.structure, settings=settings)
        self.store.fsync = bool(settings.fsync_after_insert)
        self.settings_changed.set()
        self.parts_changed.set()

    def switch(self, action: Action, *, stop: bool) -> None:
        """Stop an action of this table, or let it go on at once."""
        if stop:
            self.blockers.stop(action)
        else:
            self.blockers.start(action)
            self.parts_changed.set()

    @abstractmethod
    def check_alterable(self) -> None:
        """Raises the error that says why no ALTER is carried out now."""

    @abstractmethod
    def deduplication(self, options: InsertOptions, *, is_async: bool) -> Deduplication:
        """Whether an insert into this table is deduplicated. Raises DeduplicationIsNotPossible."""

    @abstractmethod
    def commit(self, piece: Piece, temporary: TemporaryPart) -> PieceCommit:
        """What brings a written piece to its end."""
