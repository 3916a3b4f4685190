"""Follows every transaction of the coordination service, with all properties that can be told from them.

The first violation is kept, not raised: it happens in the middle of the service's work, which goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from clickhouse_sim.simulation.properties.broken import PropertyBroken
from clickhouse_sim.simulation.properties.commit_is_one import CommitIsOne
from clickhouse_sim.simulation.properties.done_before_gone import DoneBeforeGone
from clickhouse_sim.simulation.properties.legal_log import LegalLog
from clickhouse_sim.simulation.properties.locks_are_ephemeral import LocksAreEphemeral
from clickhouse_sim.simulation.properties.log_is_copied_once import LogIsCopiedOnce
from coordinator.processor import Transaction
from replica.znodes import TableZnodes


class Follower(Protocol):
    """One property; `follow` raises PropertyBroken."""

    def follow(self, transaction: Transaction) -> None: ...


class FollowedProperties:
    """All of them for one table; `broken` is the first violation, of which `on_broken` is told at once."""

    def __init__(self, table: TableZnodes) -> None:
        self.broken: PropertyBroken | None = None
        self.on_broken: Callable[[], object] = bool
        self._table = table
        self._followers: Sequence[Follower] = ()
        self.begin()

    def begin(self) -> None:
        """Follow a table that does not exist yet, from here on."""
        table = self._table
        self._followers = (
            LocksAreEphemeral(table),
            CommitIsOne(table),
            LegalLog(table),
            LogIsCopiedOnce(table),
            DoneBeforeGone(table),
        )

    def pause(self) -> None:
        """Until `begin` the table's znodes are in hands that keep to no rule."""
        self._followers = ()

    def follow(self, transaction: Transaction) -> None:
        """Fits `LocalService.on_transaction`."""
        if self.broken is not None:
            return
        try:
            for follower in self._followers:
                follower.follow(transaction)
        except PropertyBroken as broken:
            self.broken = broken
            self.on_broken()
