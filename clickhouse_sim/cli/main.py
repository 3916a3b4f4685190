"""The entry of `chsim`."""

from __future__ import annotations

import click

import clickhouse_sim
from clickhouse_sim.cli.cluster_commands import down, kill, start, status, up
from clickhouse_sim.cli.data_commands import insert, sql
from clickhouse_sim.cli.failures import PoliteGroup
from clickhouse_sim.cli.inspect_commands import log, parts, queue, znodes
from clickhouse_sim.cli.service_commands import coordinator, replica


@click.group(cls=PoliteGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(clickhouse_sim.__version__, prog_name="chsim")
def main() -> None:
    """Run a replicated ClickHouse-like cluster, ask it, break it, understand it.

    \b
    chsim up --replicas 3
    chsim sql "SELECT 1"
    chsim down

    Exit codes: 0 done, 1 failed, 2 wrong usage, 69 a service cannot be reached.
    """


for _command in (up, down, kill, start, status, sql, insert, queue, log, parts, znodes, coordinator, replica):
    main.add_command(_command)
