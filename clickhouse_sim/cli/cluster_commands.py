"""`up`, `down`, `kill`, `start`, `status`: a cluster of local processes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from clickhouse_sim.cli.options import cluster_folder, output_format
from clickhouse_sim.cli.render import Renderer, narrate
from clickhouse_sim.cluster.cluster import Cluster
from clickhouse_sim.cluster.folder import ClusterFolder

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
@cluster_folder
def up(replicas: int | None, session_timeout: float | None, folder: Path) -> None:
    """Start a coordinator and its replicas in the background.

    \b
    chsim up --replicas 3

    Ready when it returns. In the folder of an earlier cluster, that one starts again with its data.
    """
    settings = _cluster(folder).up(replicas, session_timeout)
    last = settings.replica_names[-1]
    narrate(f"The coordinator listens on {settings.coordinator_address}.")
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
    """End a replica (or the coordinator) with SIGKILL, as a crash would.

    \b
    chsim kill r2
    """
    pid = _cluster(folder).kill(member)
    narrate(f"Killed {member} (pid {pid}) with SIGKILL. Start it again with: chsim start {member}")


@click.command()
@click.argument("member")
@cluster_folder
def start(member: str, folder: Path) -> None:
    """Start a replica (or the coordinator) that does not run.

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


def _cluster(folder: Path) -> Cluster:
    return Cluster(ClusterFolder(folder.absolute()))
