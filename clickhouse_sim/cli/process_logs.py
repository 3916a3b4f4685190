"""What `chsim logs` does."""

from __future__ import annotations

import time
from collections import deque

import click

from clickhouse_sim.cli.failures import INTERRUPTED
from clickhouse_sim.cluster.cluster import Cluster
from clickhouse_sim.cluster.errors import ClusterError

_POLL_SECONDS = 0.2


def show_log(cluster: Cluster, member: str, lines: int, follow: bool) -> None:
    """Print the last lines of a member's log, and with `follow` what is added to it.

    Raises UnknownMember, and ClusterError when it has never run.
    """
    cluster.folder.require_member(member)
    path = cluster.folder.log(member)
    try:
        file = path.open(errors="replace")
    except FileNotFoundError:
        raise ClusterError(f"{member} has no log: it has never run") from None
    with file:
        for line in deque(file, maxlen=lines):
            click.echo(line, nl=False)
        try:
            while follow:
                if added := file.read():
                    click.echo(added, nl=False)
                else:
                    time.sleep(_POLL_SECONDS)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None
