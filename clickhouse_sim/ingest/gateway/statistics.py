"""What a gateway tells about itself. It is the evidence of one process, not a verdict on a whole pipeline."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DedupeIdentityLedgerStats:
    """How full a durable ledger is, and where it lies."""

    stored_identities: int
    max_identities: int
    database_path: str


@dataclass(frozen=True, slots=True)
class DedupeGatewayStats:
    """Counts since the gateway was made, and what it remembers now.

    `accepted_events` includes those without an identity. `durable_ledger` is None without a ledger that counts.
    """

    accepted_events: int
    dropped_duplicates: int
    current_cache_size: int
    active_window_seconds: float
    durable_ledger: DedupeIdentityLedgerStats | None = None
