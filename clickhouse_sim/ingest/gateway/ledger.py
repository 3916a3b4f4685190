"""What a gateway needs of a ledger that outlives it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from clickhouse_sim.ingest.gateway.statistics import DedupeIdentityLedgerStats


class DedupeIdentityLedger(Protocol):
    """Who may accept an identity, decided in one place for every gateway that shares it."""

    def claim(self, identity_key: str, accepted_at_ms: int) -> bool:
        """Take the identity for ever: True for exactly one caller, False for every other and later one.

        Durable when it returns. Raises DedupeIdentityLedgerCapacityError when the identity is new and there is no
        room. After any other error the claim may have been taken or not.
        """
        ...


@runtime_checkable
class CountingLedger(Protocol):
    """A ledger that also says how full it is."""

    def get_stats(self) -> DedupeIdentityLedgerStats: ...
