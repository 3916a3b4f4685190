"""`znodes`: the tree of the coordination service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from clickhouse_sim.cli.options import cluster_folder, output_format, watch_option

if TYPE_CHECKING:
    from clickhouse_sim.cli.render import Renderer


class _TreeByDefault(click.Group):
    """A group that means `ls` when no subcommand is named: `chsim znodes /path --depth 2`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        named = args and (args[0] in self.commands or args[0] in context.help_option_names)
        if not named and not context.resilient_parsing:
            args = ["ls", *args]
        return super().parse_args(context, args)


@click.group(cls=_TreeByDefault)
def znodes() -> None:
    """The tree of the coordination service. Without a subcommand: `ls`.

    \b
    chsim znodes /clickhouse/tables --depth 5
    chsim znodes get /clickhouse/tables/01/flights/metadata
    """


@znodes.command()
@click.argument("path", default="/")
@click.option("--depth", type=click.IntRange(min=0), default=3, show_default=True, help="Levels below PATH.")
@click.option("--stat", is_flag=True, help="Also versions, times, owner.")
@watch_option
@cluster_folder
@output_format
def ls(path: str, depth: int, stat: bool, watch: float | None, folder: Path, renderer: Renderer) -> None:
    """The znodes below PATH: on a terminal as a tree, with the first line of each value.

    \b
    chsim znodes ls /clickhouse/tables --depth 5 --stat
    """
    from clickhouse_sim.cli.inspect_znodes import subtree_listing
    from clickhouse_sim.cli.watch import show

    show(lambda: subtree_listing(path, depth, stat, folder), renderer, watch)


@znodes.command()
@click.argument("path")
@cluster_folder
@output_format
def get(path: str, folder: Path, renderer: Renderer) -> None:
    """The whole value of one znode.

    \b
    chsim znodes get /clickhouse/tables/01/flights/log/log-0000000000
    """
    from clickhouse_sim.cli.inspect_znodes import show_value

    show_value(path, folder, renderer)


@znodes.command()
@click.argument("path")
@cluster_folder
@output_format
def stat(path: str, folder: Path, renderer: Renderer) -> None:
    """Versions, times, zxids, owner and number of children of one znode.

    \b
    chsim znodes stat /clickhouse/tables/01/flights/replicas/r1/is_active
    """
    from clickhouse_sim.cli.inspect_znodes import show_stat

    show_stat(path, folder, renderer)


@znodes.command()
@click.argument("path")
@click.option("--count", type=click.IntRange(min=1), help="End after so many events.")
@cluster_folder
@output_format
def watch(path: str, count: int | None, folder: Path, renderer: Renderer) -> None:
    """Print a line for each change of a znode or of the list of its children, until Ctrl-C.

    \b
    chsim znodes watch /clickhouse/tables/01/flights/log --count 1

    PATH need not exist yet. ZooKeeper's watches fire once and are set again, so of changes that follow each other at
    once only the last may be seen.
    """
    from clickhouse_sim.cli.inspect_znodes import watch_znode

    watch_znode(path, count, folder, renderer)
