"""The identity gateway: lets an event through once for as long as its identity is remembered.

Usable by itself, without a cluster:

    from clickhouse_sim.ingest.gateway import DedupeGateway

    gateway = DedupeGateway(preset="standard")
    fresh = [event for event in events if gateway.filter(event)]

It follows @causal-order/dedupe 1.2.1, whose names it takes in Python's spelling; docs/ingest.md says where it is
stricter.
"""

from clickhouse_sim.ingest.gateway.config_file import (
    create_dedupe_gateway_from_config_file,
    load_dedupe_gateway_config_file,
)
from clickhouse_sim.ingest.gateway.errors import (
    DedupeConfigError,
    DedupeError,
    DedupeGatewayDestroyedError,
    DedupeIdentityLedgerCapacityError,
    DedupeIdentityLedgerError,
)
from clickhouse_sim.ingest.gateway.gateway import DedupeFilterResult, DedupeGateway, FilterReason
from clickhouse_sim.ingest.gateway.identity import Event, IdentitySource
from clickhouse_sim.ingest.gateway.ledger import DedupeIdentityLedger
from clickhouse_sim.ingest.gateway.monitor_routes import Fate, MonitorRoute, Routed, deliver
from clickhouse_sim.ingest.gateway.sqlite_ledger import SqliteIdentityLedger
from clickhouse_sim.ingest.gateway.statistics import DedupeGatewayStats, DedupeIdentityLedgerStats
from clickhouse_sim.ingest.gateway.windows import PRESETS, Windows

__all__ = [
    "PRESETS",
    "DedupeConfigError",
    "DedupeError",
    "DedupeFilterResult",
    "DedupeGateway",
    "DedupeGatewayDestroyedError",
    "DedupeGatewayStats",
    "DedupeIdentityLedger",
    "DedupeIdentityLedgerCapacityError",
    "DedupeIdentityLedgerError",
    "DedupeIdentityLedgerStats",
    "Event",
    "Fate",
    "FilterReason",
    "IdentitySource",
    "MonitorRoute",
    "Routed",
    "SqliteIdentityLedger",
    "Windows",
    "create_dedupe_gateway_from_config_file",
    "deliver",
    "load_dedupe_gateway_config_file",
]
