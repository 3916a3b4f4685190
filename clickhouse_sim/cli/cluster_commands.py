"""`up`, `down`, `kill`, `start`, `status`: a cluster of local processes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from clickhouse_sim.cli.options import cluster_folder, output_format
from clickhouse_sim.cli.render import Renderer, narrate
from clickhouse_sim.cli.zookeeper_address import ZooKeeperAddress
from clickhouse_sim.cluster.cluster import Cluster
from clickhouse_sim.cluster.coordination import (
    Coordination,
    EmbeddedCoordinator,
    ExistingZooKeeper,
    OwnZooKeeper,
)
from clickhouse_sim.cluster.folder import ClusterFolder, Settings

_WHAT_NEXT = """Try next:
  chsim sql "CREATE TABLE t (id UInt64, name String)
             ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/t', '{replica}') ORDER BY id"
  chsim sql "INSERT INTO t VALUES (1, 'one'), (2, 'two')"
  chsim sql "SELECT count() FROM t" --replica %s
  chsim kill %s; chsim start %s
  chsim down"""


@click.command()
@click.option("--replicas", type=click.IntRange(1, 32), help="How many; 3, or as many as the folder has.")
@click.option(
    "--session-timeout",
    type=click.FloatRange(0.5, 600),
    help="Seconds after which the coordinator gives up a silent replica; 6, or as in the folder.",
)
@click.option(
    "--coordinator",
    type=click.Choice(["embedded", "zookeeper"]),
    help="What coordinates: our own, or Apache ZooKeeper where it is installed. Embedded, or as in the folder.",
)
@click.option("--servers", type=click.Choice(["1", "3"]), help="How many ZooKeeper servers, zk1 to zk3; 1.")
@click.option(
    "--zookeeper",
    type=ZooKeeperAddress(),
    help="Use this ZooKeeper or Keeper, which is there already; its chroot is made where it is missing.",
)
@cluster_folder
def up(
    replicas: int | None,
    session_timeout: float | None,
    coordinator: str | None,
    servers: str | None,
    zookeeper: str | None,
    folder: Path,
) -> None:
    """Start a coordinator and its replicas in the background.

    \b
    chsim up --replicas 3
    chsim up --coordinator zookeeper --servers 3
    chsim up --zookeeper 127.0.0.1:2181/chsim

    Ready when it returns. In the folder of an earlier cluster, that one starts again with its data.
    """
    settings = _cluster(folder).up(replicas, session_timeout, _coordination(coordinator, servers, zookeeper))
    last = settings.replica_names[-1]
    narrate(_who_coordinates(settings))
    narrate(f"{len(settings.replica_names)} replicas serve: {', '.join(settings.replica_names)}.")
    narrate(_WHAT_NEXT % (last, last, last))


@click.command()
@cluster_folder
def down(folder: Path) -> None:
    """Stop the cluster, replicas first; its data stay.

    \b
    chsim down
    """
    stopped = _cluster(folder).down()
    narrate(f"Stopped {', '.join(stopped)}." if stopped else "Nothing was running.")


@click.command()
@click.argument("member")
@cluster_folder
def kill(member: str, folder: Path) -> None:
    """End a replica (or the coordinator, or a ZooKeeper server) with SIGKILL, as a crash would.

    \b
    chsim kill r2
    """
    pid = _cluster(folder).kill(member)
    narrate(f"Killed {member} (pid {pid}) with SIGKILL. Start it again with: chsim start {member}")


@click.command()
@click.argument("member")
@cluster_folder
def start(member: str, folder: Path) -> None:
    """Start a replica (or the coordinator, or a ZooKeeper server) that does not run.

    \b
    chsim start r2
    """
    ready = _cluster(folder).start(member)
    narrate(f"{member} serves on {ready.endpoint} (pid {ready.pid}).")


@click.command()
@cluster_folder
@output_format
def status(folder: Path, output_format: str | None) -> None:
    """Which processes run, and where they listen.

    \b
    chsim status
    """
    states = [asdict(state) for state in _cluster(folder).status()]
    Renderer.chosen(output_format).table(list(states[0]), [list(state.values()) for state in states])


def _coordination(coordinator: str | None, servers: str | None, zookeeper: str | None) -> Coordination | None:
    """What was asked for; None if nothing was."""
    if zookeeper is not None:
        if coordinator or servers:
            raise click.UsageError("--zookeeper names one that is there: --coordinator and --servers start others.")
        return ExistingZooKeeper(zookeeper)
    if servers and coordinator != "zookeeper":
        raise click.UsageError("--servers is how many ZooKeeper servers there are: add --coordinator zookeeper.")
    if coordinator == "zookeeper":
        return OwnZooKeeper(int(servers or 1))
    return EmbeddedCoordinator() if coordinator else None


def _who_coordinates(settings: Settings) -> str:
    if not settings.zookeeper:
        return f"The coordinator listens on {settings.coordinator_address}."
    if settings.coordinator_names:
        return f"ZooKeeper ({', '.join(settings.coordinator_names)}) listens on {settings.zookeeper}."
    return f"The ZooKeeper at {settings.zookeeper} coordinates; chsim down leaves it alone."


def _cluster(folder: Path) -> Cluster:
    return Cluster(ClusterFolder(folder.absolute()))
