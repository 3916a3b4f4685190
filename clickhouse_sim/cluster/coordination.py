"""Who coordinates a cluster: the embedded coordinator, ZooKeeper servers of its own, or an existing ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clickhouse_sim.cluster.errors import ClusterError
from clickhouse_sim.cluster.folder import Backend, Settings
from clickhouse_sim.cluster.zookeeper import free_ports, local_address

ZOOKEEPER_PORT = 2181
KEEPER_PORT = 9181


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
class OwnKeeper:
    """So many ClickHouse Keepers, an odd number, as containers of the cluster."""

    servers: int

    def __str__(self) -> str:
        return f"{self.servers} ClickHouse Keeper{'s' if self.servers > 1 else ''} of its own"


@dataclass(frozen=True, slots=True)
class ExistingZooKeeper:
    """A ZooKeeper or Keeper that others run, at `host:port[,host:port...][/chroot]`."""

    address: str

    def __str__(self) -> str:
        return f"the ZooKeeper at {self.address}"


Coordination = EmbeddedCoordinator | OwnZooKeeper | OwnKeeper | ExistingZooKeeper


def coordination_of(settings: Settings) -> Coordination:
    """Who coordinates the cluster with these settings."""
    if not settings.zookeeper:
        return EmbeddedCoordinator()
    if settings.keeper:
        return OwnKeeper(settings.zookeeper_servers)
    if settings.zookeeper_servers:
        return OwnZooKeeper(settings.zookeeper_servers)
    return ExistingZooKeeper(settings.zookeeper)


def with_coordination(settings: Settings, chosen: Coordination) -> Settings:
    """The settings with whoever was chosen; members of the cluster get ports that are free now, or in a network of
    their own the usual ones. Raises ClusterError for what the backend cannot run or reach."""
    if settings.backend is not Backend.PROCESS:
        return _in_a_network(settings, chosen)
    match chosen:
        case EmbeddedCoordinator():
            return replace(settings, coordinator_port=free_ports(1)[0])
        case OwnZooKeeper(servers):
            return replace(settings, zookeeper=local_address(free_ports(servers)), zookeeper_servers=servers)
        case OwnKeeper():
            raise ClusterError("ClickHouse Keeper runs in containers only: add --backend docker")
        case ExistingZooKeeper(address):
            return replace(settings, zookeeper=address)


def _in_a_network(settings: Settings, chosen: Coordination) -> Settings:
    match chosen:
        case EmbeddedCoordinator():
            return replace(settings, coordinator_port=ZOOKEEPER_PORT)
        case OwnZooKeeper(servers) | OwnKeeper(servers):
            is_keeper = isinstance(chosen, OwnKeeper)
            named = replace(settings, zookeeper="named next", zookeeper_servers=servers, keeper=is_keeper)
            port = KEEPER_PORT if is_keeper else ZOOKEEPER_PORT
            return replace(named, zookeeper=",".join(f"{name}:{port}" for name in named.coordinator_names))
        case ExistingZooKeeper(address):
            raise ClusterError(
                f"the ZooKeeper at {address} need not be where containers reach it: leave --backend docker out, or"
                " let them have their own with --coordinator zookeeper"
            )


def require_same(known: Coordination, chosen: Coordination) -> None:
    """Raises ClusterError: a cluster's tables stay where they are. Only an existing ZooKeeper may have moved."""
    both_existing = isinstance(known, ExistingZooKeeper) and isinstance(chosen, ExistingZooKeeper)
    if chosen != known and not both_existing:
        raise ClusterError(
            f"the folder holds a cluster on {known}, not on {chosen}: say nothing of it to start it again, or name"
            " another folder with --dir"
        )
