"""`queue`, `log`, `parts`, `znodes`: what a cluster is doing."""

from __future__ import annotations

from pathlib import Path

import click

from clickhouse_sim.cli.options import cluster_folder, output_format, replica_option
from clickhouse_sim.cli.render import Renderer


@click.command()
@click.argument("table", required=False)
@replica_option("Only this replica's queue.")
@cluster_folder
@output_format
def queue(table: str | None, replica: str | None, folder: Path, output_format: str | None) -> None:
    """What each replica has still to do, and why it waits.

    \b
    chsim queue flights --replica r2

    A living replica is asked. Of a dead one the znodes are read, which know no tries and no reasons.
    """
    from clickhouse_sim.cli.inspect_cluster import show_queue

    show_queue(table, replica, folder, Renderer.chosen(output_format))


@click.command()
@click.argument("table", required=False)
@cluster_folder
@output_format
def log(table: str | None, folder: Path, output_format: str | None) -> None:
    """The replication log that all replicas of a table share, decoded.

    \b
    chsim log flights
    """
    from clickhouse_sim.cli.inspect_cluster import show_log

    show_log(table, folder, Renderer.chosen(output_format))


@click.command()
@click.argument("table", required=False)
@replica_option("Only this replica's parts.")
@cluster_folder
@output_format
def parts(table: str | None, replica: str | None, folder: Path, output_format: str | None) -> None:
    """The parts on each living replica, from system.parts.

    \b
    chsim parts flights
    """
    from clickhouse_sim.cli.inspect_cluster import show_parts

    show_parts(table, replica, folder, Renderer.chosen(output_format))


@click.command()
@click.argument("path", default="/")
@click.option("--depth", type=click.IntRange(min=0), default=3, show_default=True, help="Levels below PATH.")
@click.option("--stat", is_flag=True, help="Also versions, times, owner.")
@cluster_folder
@output_format
def znodes(path: str, depth: int, stat: bool, folder: Path, output_format: str | None) -> None:
    """The tree of the coordination service.

    \b
    chsim znodes /clickhouse/tables --depth 5 --stat
    """
    from clickhouse_sim.cli.inspect_cluster import show_znodes

    show_znodes(path, depth, stat, folder, Renderer.chosen(output_format))
