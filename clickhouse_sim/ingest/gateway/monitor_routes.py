"""What each route of the monitor in front of the gateway means for a delivery.

The monitor watches health, buffers and replays; the gateway filters just before ordering. So an event that is
buffered is not filtered yet, and one that is sent around the gateway is not filtered at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from clickhouse_sim.ingest.gateway.gateway import DedupeFilterResult, DedupeGateway
from clickhouse_sim.ingest.gateway.identity import Event


class MonitorRoute(StrEnum):
    """The routes, by the monitor's names."""

    NORMAL = "normal"
    ORDER_BUFFER_ONLY = "order_buffer_only"
    FULL_OUTAGE_BUFFER = "full_outage_buffer"
    REPLAY_THROUGH_DEDUPE = "replay_through_dedupe"
    DEDUPE_BYPASS_THROTTLED = "dedupe_bypass_throttled"


class Fate(StrEnum):
    """What is to be done with a delivery."""

    ORDER = "order"
    """Hand it to ordering."""
    DROP = "drop"
    """It is downstream already: done, and nothing to hand on."""
    BUFFER = "buffer"
    """Keep it, and replay it later through the gateway: it is not delivered yet."""


@dataclass(frozen=True, slots=True)
class Routed:
    """A delivery's fate; `result` is the gateway's decision, None where it was not asked."""

    fate: Fate
    result: DedupeFilterResult | None = None

    @property
    def is_delivered(self) -> bool:
        """Whether the sender is done with it. A duplicate is: it must not stay pending."""
        return self.fate is not Fate.BUFFER


def deliver(event: Event | None, route: MonitorRoute, gateway: DedupeGateway) -> Routed:
    """Send one delivery along a route.

    The gateway filters on `normal` and `replay_through_dedupe`. On the two buffering routes it is not asked, so the
    replay is the first that it hears of the event. On `dedupe_bypass_throttled` it is neither asked nor told:
    duplicates reach ordering, and what passes there is not remembered. Who cannot bear that must not take that route.
    Raises as `DedupeGateway.filter_with_result`.
    """
    match route:
        case MonitorRoute.ORDER_BUFFER_ONLY | MonitorRoute.FULL_OUTAGE_BUFFER:
            return Routed(Fate.BUFFER)
        case MonitorRoute.DEDUPE_BYPASS_THROTTLED:
            return Routed(Fate.ORDER)
        case MonitorRoute.NORMAL | MonitorRoute.REPLAY_THROUGH_DEDUPE:
            result = gateway.filter_with_result(event)
            return Routed(Fate.ORDER if result.accepted else Fate.DROP, result)
