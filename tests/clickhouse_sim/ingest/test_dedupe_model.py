"""A model on a virtual clock holds the gateway to its word: windows, cadence of clean-up, ledger, statistics.

The model keeps what was accepted in a plain list and computes every answer from the document's sentences.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from clickhouse_sim.ingest.gateway import (
    DedupeGateway,
    DedupeGatewayStats,
    DedupeIdentityLedgerCapacityError,
    DedupeIdentityLedgerStats,
)

IDENTITIES = st.sampled_from(["a", "b", "c", "n::1", "n::2"])
EVENTS: dict[str, dict[str, object]] = {
    "n::1": {"nodeId": "n", "sequence": 1},
    "n::2": {"nodeId": "n", "sequence": "2"},
}


class Ledger:
    """In memory, but of the caller: it outlives the gateways."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.known: set[str] = set()

    def claim(self, identity_key: str, accepted_at_ms: int) -> bool:
        if identity_key in self.known:
            return False
        if len(self.known) == self.capacity:
            raise DedupeIdentityLedgerCapacityError(len(self.known), self.capacity)
        self.known.add(identity_key)
        return True

    def get_stats(self) -> DedupeIdentityLedgerStats:
        return DedupeIdentityLedgerStats(len(self.known), self.capacity, "memory")


class GatewayMachine(RuleBasedStateMachine):
    """Seconds are whole in the model, so that window and interval are often hit exactly."""

    @initialize(
        window=st.integers(1, 8),
        more=st.integers(0, 8),
        interval=st.sampled_from([None, 1, 3, 10]),
        capacity=st.sampled_from([None, None, 2, 4]),
    )
    def make(self, window: int, more: int, interval: int | None, capacity: int | None) -> None:
        self.now = 1000
        self.shortest, self.longest, self.interval = window, window + more, interval
        self.ledger = None if capacity is None else Ledger(capacity)
        self.begin()

    def begin(self) -> None:
        options: dict[str, Any] = {} if self.interval is None else {"auto_cleanup_interval_seconds": self.interval}
        self.gateway = DedupeGateway(
            sliding_window_seconds=self.shortest,
            max_sliding_window_seconds=self.longest,
            auto_cleanup=self.interval is not None,
            now_provider=lambda: self.now * 1000,
            identity_ledger=self.ledger,
            **options,
        )
        self.window = self.shortest
        self.last_cleanup: int | None = None
        self.remembered: list[tuple[str, int]] = []
        self.durable = set() if self.ledger is None else set(self.ledger.known)
        self.accepted = self.dropped = 0

    def forget(self) -> None:
        self.remembered = [(each, at) for each, at in self.remembered if self.now - at <= self.window]

    @rule(identity=IDENTITIES)
    def filter(self, identity: str) -> None:
        if self.interval is not None:
            begins = self.last_cleanup is None or self.now < self.last_cleanup
            if begins or self.now - self.last_cleanup >= self.interval:  # type: ignore[operator]
                self.last_cleanup = self.now
                self.forget()
        remembered_at = dict(self.remembered).get(identity)
        event = EVENTS.get(identity, {"id": identity})
        is_new = remembered_at is None and not (self.ledger and identity in self.durable)
        if is_new and self.ledger and len(self.durable) == self.ledger.capacity:
            with pytest.raises(DedupeIdentityLedgerCapacityError):
                self.gateway.filter(event)
            return
        assert self.gateway.filter(event) is is_new
        if not is_new:
            self.dropped += 1
            if self.interval is not None and remembered_at is not None and self.window == self.longest:
                assert self.now - remembered_at < self.window + self.interval, "kept beyond window and interval"
            return
        self.accepted += 1
        self.remembered.append((identity, self.now))
        if self.ledger:
            self.durable.add(identity)

    @rule()
    def filter_without_identity(self) -> None:
        assert self.gateway.filter({"payload": 1})
        self.accepted += 1

    @rule(seconds=st.integers(0, 12))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule(seconds=st.integers(1, 30))
    def the_clock_is_set_back(self, seconds: int) -> None:
        self.now -= seconds

    @rule()
    def cleanup(self) -> None:
        self.gateway.cleanup()
        self.forget()

    @rule(seconds=st.integers(-1, 20))
    def update_window(self, seconds: int) -> None:
        self.gateway.update_window(seconds)
        if seconds > 0:
            self.window = sorted((self.shortest, seconds, self.longest))[1]

    @rule()
    def restart(self) -> None:
        self.gateway.destroy()
        assert self.gateway.get_stats().accepted_events == 0
        self.begin()

    @precondition(lambda self: hasattr(self, "gateway"))
    @invariant()
    def the_statistics_are_right(self) -> None:
        durable = self.ledger and DedupeIdentityLedgerStats(len(self.durable), self.ledger.capacity, "memory")
        assert self.gateway.get_stats() == DedupeGatewayStats(
            self.accepted, self.dropped, len(self.remembered), self.window, durable
        )


TestGateway = GatewayMachine.TestCase
TestGateway.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
