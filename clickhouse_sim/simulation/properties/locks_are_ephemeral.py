"""A lock of a block number, and a replica's sign of life, go with the session that made them.

Otherwise a server that dies in the middle of an insert holds merges back for ever.
"""

from __future__ import annotations

from clickhouse_sim.simulation.properties.broken import PropertyBroken
from clickhouse_sim.simulation.properties.places import place
from coordinator.processor import Transaction
from coordinator.tree import NodeCreated
from replica.znodes import TableZnodes

NAME = "locks go with their session"


class LocksAreEphemeral:
    def __init__(self, table: TableZnodes) -> None:
        self._table = table

    def follow(self, transaction: Transaction) -> None:
        for change in transaction.changes:
            if isinstance(change, NodeCreated) and not change.owner and self._is_lock(change.path):
                raise PropertyBroken(NAME, f"{change.path} would outlive the session that made it")

    def _is_lock(self, path: str) -> bool:
        match place(self._table, path):
            case ["block_numbers", _, _] | ["replicas", _, "is_active"]:
                return True
        return False
