"""The gateway in the simulation: what holds under every seed, and that a broken gateway would be caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clickhouse_sim.ingest.gateway import (
    DedupeFilterResult,
    DedupeGateway,
    DedupeIdentityLedgerCapacityError,
    Fate,
    MonitorRoute,
    Routed,
    deliver,
)
from clickhouse_sim.simulation.dedupe_scenario import (
    DURABLE,
    FULL,
    IN_MEMORY,
    DedupePlan,
    SimulatedLedger,
    simulate_dedupe,
)
from clickhouse_sim.simulation.history import DidNotConverge
from clickhouse_sim.simulation.properties.broken import PropertyBroken

SEEDS = range(40)


@pytest.mark.parametrize("plan", [IN_MEMORY, DURABLE, FULL], ids=["in memory", "durable", "full"])
def test_every_promise_holds_under_faults(plan: DedupePlan) -> None:
    _simulate_all(plan)


def test_the_interesting_things_do_happen() -> None:
    reports = [simulate_dedupe(seed, plan) for plan in (IN_MEMORY, DURABLE, FULL) for seed in SEEDS]
    faults = {kind for report in reports for kind in report.faults}
    assert faults == {"crash", "set a clock", "lose messages", "change the route", "fail claims"}
    for of_report in (lambda r: r.dropped, lambda r: r.ordered_twice, lambda r: r.refused, lambda r: r.lost):
        assert any(of_report(report) for report in reports)


def test_a_crash_between_claim_and_effect_loses_more_with_a_ledger_than_without() -> None:
    """The claim is durable and the effect is not: who needs both or neither needs an outbox around the two."""
    calm = {"events_per_producer": 6, "faults": 14}
    doubled = [simulate_dedupe(seed, replace(IN_MEMORY, **calm)) for seed in SEEDS]
    durable = [simulate_dedupe(seed, replace(DURABLE, **calm)) for seed in SEEDS]
    assert sum(report.lost for report in durable) > sum(report.lost for report in doubled)


@pytest.mark.parametrize("plan", [IN_MEMORY, FULL], ids=["in memory", "full"])
def test_equal_seeds_give_equal_runs(plan: DedupePlan) -> None:
    assert simulate_dedupe(7, plan) == simulate_dedupe(7, plan)
    assert simulate_dedupe(7, plan).trace_hash != simulate_dedupe(8, plan).trace_hash


# --- broken gateways ----------------------------------------------------------------------------------------------


class ForgetsTooEarly(DedupeGateway):
    def __init__(self, **options: Any) -> None:
        options["sliding_window_seconds"] /= 2
        super().__init__(**options)


class NeverCleansUp(DedupeGateway):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options, auto_cleanup=False)


class CleansUpTooRarely(DedupeGateway):
    def __init__(self, **options: Any) -> None:
        options["auto_cleanup_interval_seconds"] *= 4
        super().__init__(**options)


class GrowsYoungerWithRepeats(DedupeGateway):
    def filter_with_result(self, event: Any) -> DedupeFilterResult:
        result = super().filter_with_result(event)
        if result.reason == "duplicate":
            identity = event.get("id") or f"{event['nodeId']}::{event['sequence']}"
            self._memory._accepted_at[identity] = self._now()
            self._memory._accepted_at.move_to_end(identity)
        return result


class StopsWhenTheClockIsSetBack(DedupeGateway):
    def filter_with_result(self, event: Any) -> DedupeFilterResult:
        if self._now() < self._tidy_from != float("inf"):
            self._tidy_from, until = float("-inf"), self._tidy_until
            result = super().filter_with_result(event)
            self._tidy_until = until
            return result
        return super().filter_with_result(event)


class IgnoresTheNode(DedupeGateway):
    def filter_with_result(self, event: Any) -> DedupeFilterResult:
        return super().filter_with_result({**event, "nodeId": "any"} if "nodeId" in event else event)


class RemembersBeforeTheLedgerAgrees(DedupeGateway):
    def _may_accept(self, identity: str, now: float) -> bool:
        try:
            return super()._may_accept(identity, now)
        except DedupeIdentityLedgerCapacityError:
            self._memory.remember(identity, now)
            raise


class DropsWithoutIdentity(DedupeGateway):
    def filter_with_result(self, event: Any) -> DedupeFilterResult:
        return super().filter_with_result(event if event.keys() - {"number"} else {"id": "none"})


class CountsDuplicatesAsAccepted(DedupeGateway):
    def filter_with_result(self, event: Any) -> DedupeFilterResult:
        result = super().filter_with_result(event)
        self._accepted += not result.accepted
        return result


class LooksBeforeItClaims(SimulatedLedger):
    """As of a look some claims ago: what two gateways do that read first and write later."""

    def claim(self, identity_key: str, accepted_at_ms: int) -> bool:
        known = dict(self.claimed)
        for newest in list(known)[-2:]:
            del known[newest]
        if identity_key in known:
            return False
        self.claimed.pop(identity_key, None)
        return super().claim(identity_key, accepted_at_ms)


class EvictsTheOldest(SimulatedLedger):
    def claim(self, identity_key: str, accepted_at_ms: int) -> bool:
        if identity_key not in self.claimed and len(self.claimed) >= self.capacity:
            del self.claimed[next(iter(self.claimed))]
        return super().claim(identity_key, accepted_at_ms)


class OverfillsItself(SimulatedLedger):
    def claim(self, identity_key: str, accepted_at_ms: int) -> bool:
        self.capacity += 1
        return super().claim(identity_key, accepted_at_ms)


class RefusesWhatItKnows(SimulatedLedger):
    def claim(self, identity_key: str, accepted_at_ms: int) -> bool:
        if len(self.claimed) >= self.capacity:
            raise DedupeIdentityLedgerCapacityError(len(self.claimed), self.capacity)
        return super().claim(identity_key, accepted_at_ms)


class RefusesTooEarly(SimulatedLedger):
    def claim(self, identity_key: str, accepted_at_ms: int) -> bool:
        if identity_key not in self.claimed and len(self.claimed) >= self.capacity - 1:
            raise DedupeIdentityLedgerCapacityError(len(self.claimed), self.capacity)
        return super().claim(identity_key, accepted_at_ms)


class ForgetsNow(SimulatedLedger):
    """Rows that a crash takes: as if a claim were answered before it is durable."""

    def claim(self, identity_key: str, accepted_at_ms: int) -> bool:
        if len(self.claimed) % 7 == 6:
            self.claimed.popitem()
        return super().claim(identity_key, accepted_at_ms)


def claims_what_is_buffered(event: Any, route: MonitorRoute, gateway: DedupeGateway) -> Routed:
    routed = deliver(event, route, gateway)
    if routed.fate is Fate.BUFFER:
        gateway.filter(event)
    return routed


def keeps_duplicates_pending(event: Any, route: MonitorRoute, gateway: DedupeGateway) -> Routed:
    routed = deliver(event, route, gateway)
    return replace(routed, fate=Fate.BUFFER) if routed.fate is Fate.DROP else routed


def replays_around_the_gateway(event: Any, route: MonitorRoute, gateway: DedupeGateway) -> Routed:
    if route is MonitorRoute.REPLAY_THROUGH_DEDUPE:
        return Routed(Fate.ORDER, DedupeGateway().filter_with_result(event))
    return deliver(event, route, gateway)


BROKEN = [
    (IN_MEMORY, {"gateway": ForgetsTooEarly}, "within the window"),
    (IN_MEMORY, {"gateway": NeverCleansUp}, "dropped|still remembers"),
    (IN_MEMORY, {"gateway": CleansUpTooRarely}, "ms after it was accepted"),
    (IN_MEMORY, {"gateway": GrowsYoungerWithRepeats}, "ms after it was accepted"),
    (IN_MEMORY, {"gateway": StopsWhenTheClockIsSetBack}, "ms after it was accepted"),
    (IN_MEMORY, {"gateway": IgnoresTheNode}, "never ordered|never accepted"),
    (IN_MEMORY, {"gateway": DropsWithoutIdentity}, "dropped without an identity|never ordered"),
    (IN_MEMORY, {"gateway": CountsDuplicatesAsAccepted}, "but counts"),
    (IN_MEMORY, {"deliver": claims_what_is_buffered}, "ordered|dropped"),
    (DURABLE, {"deliver": keeps_duplicates_pending}, "not all events are delivered"),
    (DURABLE, {"deliver": replays_around_the_gateway}, "more than once|but counts"),
    (DURABLE, {"ledger": LooksBeforeItClaims}, "more than once on one ledger"),
    (DURABLE, {"ledger": ForgetsNow}, "more than once on one ledger"),
    (FULL, {"ledger": EvictsTheOldest}, "more than once on one ledger|identities accepted"),
    (FULL, {"ledger": OverfillsItself}, "identities accepted on a ledger for|while there was room"),
    (FULL, {"ledger": RefusesWhatItKnows}, "accepted and refused"),
    (FULL, {"ledger": RefusesTooEarly}, "refused while there was room"),
    (FULL, {"gateway": RemembersBeforeTheLedgerAgrees}, "nobody ever claimed it|never ordered"),
]


@pytest.mark.parametrize(
    ("plan", "broken", "why"), BROKEN, ids=[next(iter(broken.values())).__name__ for _, broken, _ in BROKEN]
)
def test_a_broken_one_is_caught(plan: DedupePlan, broken: dict[str, Callable[..., Any]], why: str) -> None:
    with pytest.raises((PropertyBroken, DidNotConverge), match=why):
        _simulate_all(replace(plan, **broken))  # type: ignore[arg-type]


def _simulate_all(plan: DedupePlan) -> None:
    for seed in SEEDS:
        simulate_dedupe(seed, plan)
