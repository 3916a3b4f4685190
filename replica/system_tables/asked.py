"""What a system table is made from: one server, as it is when somebody asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from replica.commands import ColumnDefinition, Dependent
from replica.stored_table import ServerShare, StoredTable
from replica.system_tables.columns import Columns, Row
from replica.table_state import TableState


@dataclass(frozen=True, slots=True)
class Asked:
    """The server and its tables, and for system.zookeeper the paths that the query names.

    The `dependents` are its views and aliases, each with its columns.
    """

    server_name: str
    macros: Mapping[str, str]
    share: ServerShare
    tables: Sequence[StoredTable]
    paths: Sequence[str] = ()
    dependents: Sequence[tuple[Dependent, Sequence[ColumnDefinition]]] = ()

    @property
    def replicated(self) -> list[TableState]:
        """Those of the tables that are."""
        return [table for table in self.tables if isinstance(table, TableState)]

    def now(self) -> float:
        return self.share.environment.clock.now()


@dataclass(frozen=True, slots=True)
class SystemTable:
    """One table of the database `system`."""

    columns: Columns
    rows: Callable[[Asked], Awaitable[list[Row]]]
