"""The gateway itself: one decision for each event, made of what it remembers and what a ledger knows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from clickhouse_sim.ingest.gateway.clock import steady_clock
from clickhouse_sim.ingest.gateway.errors import DedupeConfigError, DedupeGatewayDestroyedError
from clickhouse_sim.ingest.gateway.identity import Event, IdentitySource, identity_of
from clickhouse_sim.ingest.gateway.ledger import CountingLedger, DedupeIdentityLedger
from clickhouse_sim.ingest.gateway.sqlite_ledger import SqliteIdentityLedger
from clickhouse_sim.ingest.gateway.statistics import DedupeGatewayStats
from clickhouse_sim.ingest.gateway.window_memory import WindowMemory
from clickhouse_sim.ingest.gateway.windows import chosen_windows, is_duration, require_duration


class FilterReason(StrEnum):
    """Why an event goes on or not."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    ACCEPTED_WITHOUT_IDENTITY = "accepted_without_identity"


@dataclass(frozen=True, slots=True)
class DedupeFilterResult:
    """A decision, without the identity and without anything of the event.

    A duplicate was delivered well: it is downstream already, and nobody need send it again.
    """

    accepted: bool
    reason: FilterReason
    identity_source: IdentitySource


def _results(accepted: bool, reason: FilterReason) -> Mapping[IdentitySource, DedupeFilterResult]:
    return {source: DedupeFilterResult(accepted, reason, source) for source in IdentitySource}


_ACCEPTED = _results(True, FilterReason.ACCEPTED)
_DUPLICATE = _results(False, FilterReason.DUPLICATE)
_WITHOUT_IDENTITY = DedupeFilterResult(True, FilterReason.ACCEPTED_WITHOUT_IDENTITY, IdentitySource.NONE)


class DedupeGateway:
    """Accepts each identity once within its window, and with a durable ledger once for ever.

    Make one for the life of a process, and ask it once for each delivery: every `filter` and `filter_with_result` is
    an operation of its own. Not for several threads at once.

    `preset` is `standard`, `heavy-duplicates`, `high-latency` or `cross-node-busy`; instead of it both windows may be
    given, in seconds. `now_provider` is a clock in milliseconds; without it a steady one. Identities leave only in
    a clean-up: `cleanup()`, or with `auto_cleanup` while filtering, `auto_cleanup_interval_seconds` after the one
    before at the earliest. So an identity may be remembered for up to an interval longer than its window, and without
    any clean-up for ever.

    `durable_identity_ledger_path` is an SQLite file that keeps at most `max_durable_identities` for ever and may be
    shared by gateways and processes; `identity_ledger` is a ledger of the caller's instead.

    Raises DedupeConfigError for options that do not fit, DedupeIdentityLedgerError for a file that cannot be used.
    """

    def __init__(
        self,
        preset: str | None = None,
        *,
        sliding_window_seconds: float | None = None,
        max_sliding_window_seconds: float | None = None,
        auto_cleanup: bool = True,
        auto_cleanup_interval_seconds: float = 30,
        now_provider: Callable[[], float] | None = None,
        durable_identity_ledger_path: str | Path | None = None,
        max_durable_identities: int | None = None,
        identity_ledger: DedupeIdentityLedger | None = None,
    ) -> None:
        self._windows = chosen_windows(preset, sliding_window_seconds, max_sliding_window_seconds)
        if not isinstance(auto_cleanup, bool):
            raise DedupeConfigError(f"auto_cleanup is True or False, not {auto_cleanup!r}.")
        require_duration("auto_cleanup_interval_seconds", auto_cleanup_interval_seconds)
        self._now = steady_clock() if now_provider is None else now_provider
        self._window_seconds = self._windows.sliding_seconds
        self._cleanup_interval_ms = _milliseconds(auto_cleanup_interval_seconds)
        # Between these readings of the clock no automatic clean-up is due: at first nowhere, without them everywhere.
        self._tidy_from, self._tidy_until = (math.inf, math.inf) if auto_cleanup else (-math.inf, math.inf)
        self._memory = WindowMemory()
        self._accepted = 0
        self._dropped = 0
        self._destroyed = False
        self._own_ledger = _opened(durable_identity_ledger_path, max_durable_identities, identity_ledger)
        self._ledger: DedupeIdentityLedger | None = (
            identity_ledger if identity_ledger is not None else self._own_ledger
        )

    def filter(self, event: Event | None) -> bool:
        """Whether the event goes on. Raises as `filter_with_result`."""
        return self.filter_with_result(event).accepted

    def filter_with_result(self, event: Event | None) -> DedupeFilterResult:
        """Decide on one delivery, and why.

        Raises DedupeGatewayDestroyedError, and what the ledger raises: then nothing is remembered or counted.
        """
        if self._destroyed:
            raise DedupeGatewayDestroyedError("This gateway was destroyed; make a new one.")
        identity, source = identity_of(event)
        if identity is None:
            self._accepted += 1
            return _WITHOUT_IDENTITY
        now = self._now()
        if not self._tidy_from <= now < self._tidy_until:
            self._clean_up(now)
        if identity in self._memory or not self._may_accept(identity, now):
            self._dropped += 1
            return _DUPLICATE[source]
        self._memory.remember(identity, now)
        self._accepted += 1
        return _ACCEPTED[source]

    def update_window(self, seconds: float) -> None:
        """Change the window, as far as its bounds allow. What is no positive, finite number is ignored."""
        if is_duration(seconds):
            self._window_seconds = min(max(seconds, self._windows.sliding_seconds), self._windows.max_seconds)

    def get_stats(self) -> DedupeGatewayStats:
        """Counts since the beginning, and the state now."""
        stats = self._ledger.get_stats() if isinstance(self._ledger, CountingLedger) else None
        return DedupeGatewayStats(self._accepted, self._dropped, len(self._memory), self._window_seconds, stats)

    def cleanup(self) -> None:
        """Forget identities that are older than the window; one that is exactly as old stays."""
        self._forget_older(self._now())

    def destroy(self) -> None:
        """Forget everything, reset the counts, and close the ledger if the gateway opened it. Its rows stay.

        A caller's ledger stays open. To destroy twice is fine; to filter afterwards is not.
        """
        self._destroyed = True
        self._memory = WindowMemory()
        self._accepted = self._dropped = 0
        self._ledger = None
        if self._own_ledger is not None:
            self._own_ledger.close()

    def _may_accept(self, identity: str, now: float) -> bool:
        return self._ledger is None or self._ledger.claim(identity, int(now))

    def _clean_up(self, now: float) -> None:
        """The first event begins the cadence; a clock that was set back begins it anew."""
        self._tidy_from, self._tidy_until = now, now + self._cleanup_interval_ms
        self._forget_older(now)

    def _forget_older(self, now: float) -> None:
        self._memory.forget_before(now - _milliseconds(self._window_seconds))


def _milliseconds(seconds: float) -> float:
    """To a microsecond, so that 1.005 s are the 1005 ms that a clock can show."""
    return round(seconds * 1000, 3)


def _opened(
    path: str | Path | None, max_identities: int | None, identity_ledger: DedupeIdentityLedger | None
) -> SqliteIdentityLedger | None:
    """The gateway's own ledger, if it is to have one. Raises DedupeConfigError for a choice that is none."""
    if path is not None and identity_ledger is not None:
        raise DedupeConfigError("Choose durable_identity_ledger_path or identity_ledger, not both.")
    if identity_ledger is not None and not callable(getattr(identity_ledger, "claim", None)):
        raise DedupeConfigError("identity_ledger has no claim(identity_key, accepted_at_ms).")
    if path is None and max_identities is None:
        return None
    if path is None or max_identities is None:
        raise DedupeConfigError("durable_identity_ledger_path and max_durable_identities go together: give both.")
    return SqliteIdentityLedger(path, max_identities)
