"""The five routes of the monitor, and what each means for a delivery."""

from __future__ import annotations

import pytest

from clickhouse_sim.ingest.gateway import DedupeGateway, Fate, MonitorRoute, deliver

EVENT = {"id": "a"}
FILTERED = [MonitorRoute.NORMAL, MonitorRoute.REPLAY_THROUGH_DEDUPE]
BUFFERED = [MonitorRoute.ORDER_BUFFER_ONLY, MonitorRoute.FULL_OUTAGE_BUFFER]


@pytest.fixture
def gateway() -> DedupeGateway:
    return DedupeGateway()


def test_the_routes_have_the_monitors_names() -> None:
    assert [route.value for route in MonitorRoute] == [
        "normal",
        "order_buffer_only",
        "full_outage_buffer",
        "replay_through_dedupe",
        "dedupe_bypass_throttled",
    ]


@pytest.mark.parametrize("route", FILTERED)
def test_what_is_filtered_is_ordered_once_and_dropped_after_that(gateway: DedupeGateway, route: MonitorRoute) -> None:
    first, second = deliver(EVENT, route, gateway), deliver(EVENT, route, gateway)
    assert (first.fate, second.fate) == (Fate.ORDER, Fate.DROP)
    assert first.result is not None
    assert second.result is not None
    assert (first.result.reason, second.result.reason) == ("accepted", "duplicate")


@pytest.mark.parametrize("route", FILTERED)
def test_a_duplicate_is_a_successful_delivery(gateway: DedupeGateway, route: MonitorRoute) -> None:
    deliver(EVENT, route, gateway)
    assert deliver(EVENT, route, gateway).is_delivered


@pytest.mark.parametrize("route", BUFFERED)
def test_what_is_buffered_is_filtered_when_it_is_replayed(gateway: DedupeGateway, route: MonitorRoute) -> None:
    buffered = deliver(EVENT, route, gateway)
    assert (buffered.fate, buffered.result, buffered.is_delivered) == (Fate.BUFFER, None, False)
    assert gateway.get_stats().accepted_events == 0
    assert deliver(EVENT, MonitorRoute.REPLAY_THROUGH_DEDUPE, gateway).fate is Fate.ORDER
    assert deliver(EVENT, MonitorRoute.REPLAY_THROUGH_DEDUPE, gateway).fate is Fate.DROP


def test_on_the_bypass_duplicates_reach_ordering(gateway: DedupeGateway) -> None:
    for _ in range(2):
        routed = deliver(EVENT, MonitorRoute.DEDUPE_BYPASS_THROTTLED, gateway)
        assert (routed.fate, routed.result, routed.is_delivered) == (Fate.ORDER, None, True)


def test_the_bypass_neither_asks_nor_tells_the_gateway(gateway: DedupeGateway) -> None:
    deliver(EVENT, MonitorRoute.DEDUPE_BYPASS_THROTTLED, gateway)
    assert gateway.get_stats().current_cache_size == 0
    assert deliver(EVENT, MonitorRoute.NORMAL, gateway).fate is Fate.ORDER
    assert deliver(EVENT, MonitorRoute.DEDUPE_BYPASS_THROTTLED, gateway).fate is Fate.ORDER
