"""What `chsim logs` does."""

from __future__ import annotations

import click

from clickhouse_sim.cli.failures import INTERRUPTED
from clickhouse_sim.cluster.cluster import Cluster


def show_log(cluster: Cluster, member: str, lines: int, follow: bool) -> None:
    """Print the last lines of a member's log, and with `follow` what is added to it.

    Raises UnknownMember, and ClusterError when it has never run.
    """
    try:
        for text in cluster.log(member, lines, follow=follow):
            click.echo(text, nl=False)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
