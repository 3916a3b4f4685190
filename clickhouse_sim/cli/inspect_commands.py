"""`queue`, `log`, `parts`: what a cluster is doing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from clickhouse_sim.cli.options import cluster_folder, output_format, replica_option, table_argument, watch_option

if TYPE_CHECKING:
    from clickhouse_sim.cli.render import Renderer


@click.command()
@table_argument
@replica_option("Only this replica's queue.")
@watch_option
@cluster_folder
@output_format
def queue(table: str | None, replica: str | None, watch: float | None, folder: Path, renderer: Renderer) -> None:
    """What each replica has still to do, and why it waits.

    \b
    chsim queue flights --replica r2

    A living replica is asked. Of a dead or paused one the znodes are read, which know no tries and no reasons.
    """
    from clickhouse_sim.cli.inspect_cluster import queue_listing
    from clickhouse_sim.cli.watch import show

    show(lambda: queue_listing(table, replica, folder), renderer, watch)


@click.command()
@table_argument
@watch_option
@cluster_folder
@output_format
def log(table: str | None, watch: float | None, folder: Path, renderer: Renderer) -> None:
    """The replication log that all replicas share, decoded.

    \b
    chsim log flights --watch
    """
    from clickhouse_sim.cli.inspect_cluster import log_listing
    from clickhouse_sim.cli.watch import show

    show(lambda: log_listing(table, folder), renderer, watch)


@click.command()
@table_argument
@replica_option("Only this replica's parts.")
@watch_option
@cluster_folder
@output_format
def parts(table: str | None, replica: str | None, watch: float | None, folder: Path, renderer: Renderer) -> None:
    """The parts on each living replica, from system.parts.

    \b
    chsim parts flights --format tsv
    """
    from clickhouse_sim.cli.inspect_cluster import parts_listing
    from clickhouse_sim.cli.watch import show

    show(lambda: parts_listing(table, replica, folder), renderer, watch)
