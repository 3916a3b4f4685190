"""What a living replica says of itself in its system tables."""

from __future__ import annotations

from typing import Any

from clickhouse_sim.cluster.endpoint_client import EndpointClient
from clickhouse_sim.sql.select import scanned

PATIENCE_SECONDS = 30.0


def system_rows(address: str, table: str, seconds: float = PATIENCE_SECONDS) -> list[dict[str, Any]]:
    """The rows of `system.<table>` of the server at `address`, one dictionary each.

    Raises NetworkError when it does not answer in time.
    """
    with EndpointClient(address, seconds) as client:
        rows: list[dict[str, Any]] = scanned(client.scan("system", table)).to_pylist()
    return rows
