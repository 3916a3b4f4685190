"""Who coordinates a cluster: the embedded coordinator, ZooKeeper servers of its own, or an existing ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clickhouse_sim.cluster.errors import ClusterError
from clickhouse_sim.cluster.folder import Settings
from clickhouse_sim.cluster.zookeeper import free_ports, local_address


@dataclass(frozen=True, slots=True)
class EmbeddedCoordinator:
    """The coordinator of this project, a process of the cluster."""

    def __str__(self) -> str:
        return "the embedded coordinator"


@dataclass(frozen=True, slots=True)
class OwnZooKeeper:
    """So many ZooKeeper servers, an odd number, as processes of the cluster."""

    servers: int

    def __str__(self) -> str:
        return f"{self.servers} ZooKeeper server{'s' if self.servers > 1 else ''} of its own"


@dataclass(frozen=True, slots=True)
class ExistingZooKeeper:
    """A ZooKeeper or Keeper that others run, at `host:port[,host:port...][/chroot]`."""

    address: str

    def __str__(self) -> str:
        return f"the ZooKeeper at {self.address}"


Coordination = EmbeddedCoordinator | OwnZooKeeper | ExistingZooKeeper


def coordination_of(settings: Settings) -> Coordination:
    """Who coordinates the cluster with these settings."""
    if not settings.zookeeper:
        return EmbeddedCoordinator()
    if settings.zookeeper_servers:
        return OwnZooKeeper(settings.zookeeper_servers)
    return ExistingZooKeeper(settings.zookeeper)


def with_coordination(settings: Settings, chosen: Coordination) -> Settings:
    """The settings with whoever was chosen; members of the cluster get ports that are free now."""
    match chosen:
        case EmbeddedCoordinator():
            return replace(settings, coordinator_port=free_ports(1)[0])
        case OwnZooKeeper(servers):
            return replace(settings, zookeeper=local_address(free_ports(servers)), zookeeper_servers=servers)
        case ExistingZooKeeper(address):
            return replace(settings, zookeeper=address)


def require_same(known: Coordination, chosen: Coordination) -> None:
    """Raises ClusterError: a cluster's tables stay where they are. Only an existing ZooKeeper may have moved."""
    both_existing = isinstance(known, ExistingZooKeeper) and isinstance(chosen, ExistingZooKeeper)
    if chosen != known and not both_existing:
        raise ClusterError(
            f"the folder holds a cluster on {known}, not on {chosen}: say nothing of it to start it again, or name"
            " another folder with --dir"
        )
