"""`up`, `down`, `status`, `kill`, `start`, `pause`, `resume`, `partition`, `heal`, `logs`: a cluster as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from clickhouse_sim.cli.completion import complete_member
from clickhouse_sim.cli.narration import counted, narrate
from clickhouse_sim.cli.options import cluster_folder, output_format, watch_option
from clickhouse_sim.cli.service_commands import server_settings
from clickhouse_sim.cli.zookeeper_address import ZooKeeperAddress

if TYPE_CHECKING:
    from clickhouse_sim.cli.render import Renderer
    from clickhouse_sim.cluster.cluster import Cluster
    from clickhouse_sim.cluster.coordination import Coordination
    from clickhouse_sim.cluster.folder import Link, Settings

_member = click.argument("member", metavar="NAME", shell_complete=complete_member)

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
    "--backend",
    type=click.Choice(["process", "docker"]),
    help="What runs them: processes, or containers of a Docker engine. Processes, or as in the folder.",
)
@click.option(
    "--coordinator",
    type=click.Choice(["embedded", "zookeeper", "keeper"]),
    help="What coordinates: our own, Apache ZooKeeper, or (in containers) ClickHouse Keeper. Embedded, or as in the"
    " folder.",
)
@click.option("--servers", type=click.Choice(["1", "3"]), help="How many ZooKeepers or Keepers; 1.")
@click.option(
    "--zookeeper",
    type=ZooKeeperAddress(),
    help="Use this ZooKeeper or Keeper, which is there already; its chroot is made where it is missing.",
)
@server_settings
@cluster_folder
def up(
    replicas: int | None,
    session_timeout: float | None,
    backend: str | None,
    coordinator: str | None,
    servers: str | None,
    zookeeper: str | None,
    settings: tuple[tuple[str, str], ...],
    folder: Path,
) -> None:
    """Start a coordinator and its replicas in the background.

    \b
    chsim up --replicas 3
    chsim up --coordinator zookeeper --servers 3
    chsim up --zookeeper 127.0.0.1:2181/chsim
    chsim up --backend docker
    chsim up --setting background_fetches_pool_size=1

    Ready when it returns. In the folder of an earlier cluster, that one starts again with its data.
    """
    from clickhouse_sim.cluster.folder import Backend

    coordination = _coordination(coordinator, servers, zookeeper)
    cluster = _cluster(folder)
    chosen = Backend(backend) if backend else None
    started = cluster.up(replicas, session_timeout, coordination, dict(settings), chosen)
    last = started.replica_names[-1]
    narrate(_who_coordinates(started, cluster))
    serve = "serves" if len(started.replica_names) == 1 else "serve"
    narrate(f"{counted(len(started.replica_names), 'replica')} {serve}: {', '.join(started.replica_names)}.")
    narrate(_WHAT_NEXT % (last, last, last))


@click.command()
@click.option("--volumes", is_flag=True, help="Of containers: remove the data too, and forget the cluster.")
@cluster_folder
def down(volumes: bool, folder: Path) -> None:
    """Stop the cluster, replicas first; its data stay.

    \b
    chsim down
    """
    stopped = _cluster(folder).down(data=volumes)
    narrate(f"Stopped {', '.join(stopped)}." if stopped else "Nothing was running.")


@click.command()
@_member
@cluster_folder
def kill(member: str, folder: Path) -> None:
    """End a replica, the coordinator or a ZooKeeper server with SIGKILL, like a crash.

    \b
    chsim kill r2
    """
    pid = _cluster(folder).kill(member)
    narrate(f"Killed {member} (pid {pid}) with SIGKILL. Start it again with: chsim start {member}")


@click.command()
@_member
@click.option("--no-wait", is_flag=True, help="Return as soon as the process serves, writable or not.")
@cluster_folder
def start(member: str, no_wait: bool, folder: Path) -> None:
    """Start a replica, the coordinator or a ZooKeeper server again.

    \b
    chsim start r2

    Returns when its tables can be written again: after a crash only the session timeout frees its place, and until
    then it is read-only. What it waits for is told.
    """
    cluster = _cluster(folder)
    ready = cluster.start(member)
    narrate(f"{member} serves on {ready.endpoint} (pid {ready.pid}).")
    if not no_wait:
        from clickhouse_sim.cli.writable import wait_until_writable

        wait_until_writable(cluster, member)


@click.command()
@_member
@cluster_folder
def pause(member: str, folder: Path) -> None:
    """Hold a replica or the coordinator (SIGSTOP, or a frozen container), like a stall.

    \b
    chsim pause r2
    """
    pid = _cluster(folder).pause(member)
    narrate(f"Paused {member} (pid {pid}). Let it go on with: chsim resume {member}")


@click.command()
@_member
@cluster_folder
def resume(member: str, folder: Path) -> None:
    """Let a paused replica or coordinator go on.

    \b
    chsim resume r2
    """
    pid = _cluster(folder).resume(member)
    narrate(f"{member} (pid {pid}) goes on.")


@click.command()
@_member
@click.argument("other", metavar="[OTHER]", required=False, shell_complete=complete_member)
@cluster_folder
def partition(member: str, other: str | None, folder: Path) -> None:
    """Cut the network between two members of a cluster in containers, or between one and all others.

    \b
    chsim partition r1                 # from everybody
    chsim partition r1 r2              # replicas that no longer fetch from each other
    chsim partition r1 coordinator     # from whoever coordinates, all servers of an ensemble
    chsim partition zk2                # one server of an ensemble

    Clients still reach both ends. The links stay cut, also when a member is killed and started, until chsim heal.
    """
    cuts = _cluster(folder).partition(member, other)
    narrate(f"Cut: {_links(cuts)}. Mend it with: chsim heal")


@click.command()
@cluster_folder
def heal(folder: Path) -> None:
    """Mend every link that chsim partition cut.

    \b
    chsim heal
    """
    mended = _cluster(folder).heal()
    narrate(f"Mended: {_links(mended)}." if mended else "No link was cut.")


@click.command()
@watch_option
@cluster_folder
@output_format
def status(watch: float | None, folder: Path, renderer: Renderer) -> None:
    """What runs where, how far it is behind, what is read-only.

    \b
    chsim status --watch 2

    The lag of a replica is the number of log entries that it has still to copy into its queue or to carry out. Nobody
    is waited for longer than a few seconds: who is silent "does not answer". Where log or queue entries pile up, that
    is narrated.
    """
    from clickhouse_sim.cli.cluster_status import status_listing
    from clickhouse_sim.cli.watch import show

    show(lambda: status_listing(folder), renderer, watch)


@click.command()
@_member
@click.option("-f", "--follow", is_flag=True, help="Go on with what is added, until Ctrl-C.")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=100, show_default=True, help="The last so many.")
@cluster_folder
def logs(member: str, follow: bool, lines: int, folder: Path) -> None:
    """What the process of a replica or the coordinator wrote.

    \b
    chsim logs r2 -n 20 -f

    The replication log of a table is another thing: chsim log.
    """
    from clickhouse_sim.cli.process_logs import show_log

    show_log(_cluster(folder), member, lines, follow)


def _coordination(coordinator: str | None, servers: str | None, zookeeper: str | None) -> Coordination | None:
    """What was asked for; None if nothing was."""
    from clickhouse_sim.cluster.coordination import EmbeddedCoordinator, ExistingZooKeeper, OwnKeeper, OwnZooKeeper

    if zookeeper is not None:
        if coordinator or servers:
            raise click.UsageError("--zookeeper names one that is there: --coordinator and --servers start others.")
        return ExistingZooKeeper(zookeeper)
    if servers and coordinator not in ("zookeeper", "keeper"):
        raise click.UsageError(
            "--servers is how many ZooKeeper servers there are: add --coordinator zookeeper (or keeper)."
        )
    if coordinator == "zookeeper":
        return OwnZooKeeper(int(servers or 1))
    if coordinator == "keeper":
        return OwnKeeper(int(servers or 1))
    return EmbeddedCoordinator() if coordinator else None


def _who_coordinates(settings: Settings, cluster: Cluster) -> str:
    if not settings.coordinator_names:
        return f"The ZooKeeper at {settings.zookeeper} coordinates; chsim down leaves it alone."
    address = cluster.coordinator_address()
    if not settings.zookeeper:
        return f"The coordinator listens on {address}."
    kind = "Keeper" if settings.keeper else "ZooKeeper"
    return f"{kind} ({', '.join(settings.coordinator_names)}) listens on {address}."


def _links(links: list[Link]) -> str:
    return ", ".join(f"{one} and {other}" for one, other in links)


def _cluster(folder: Path) -> Cluster:
    from clickhouse_sim.cluster.cluster import Cluster
    from clickhouse_sim.cluster.folder import ClusterFolder

    return Cluster(ClusterFolder(folder.absolute()))
