"""The arguments of `chsim` that serve a member, wherever it runs."""

from __future__ import annotations

from clickhouse_sim.cluster import zookeeper
from clickhouse_sim.cluster.folder import COORDINATOR, Settings


def service_arguments(settings: Settings, member: str, data: str) -> list[str]:
    """Those of our own coordinator or of a replica whose data lie in the folder `data`.

    Where it listens is the caller's to say; replicas begin with different servers of an ensemble.
    """
    if member == COORDINATOR:
        # With four ticks to the timeout, the coordinator grants it: sessions last from 2 to 20 ticks.
        tick_ms = max(10, round(settings.session_timeout * 1000 / 4))
        return ["coordinator", "serve", "--dir", data, "--tick-ms", str(tick_ms)]
    address = zookeeper.beginning_with(settings.coordinator_address, settings.replica_names.index(member))
    return [
        *("replica", "serve", "--name", member, "--zookeeper", address, "--dir", data),
        *("--session-timeout", str(settings.session_timeout)),
        *(f"--setting={name}={value}" for name, value in sorted(settings.server_settings.items())),
    ]
