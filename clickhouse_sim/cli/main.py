"""All commands of `chsim`, each imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

import click

import clickhouse_sim
from clickhouse_sim.cli.failures import PoliteGroup

_MODULE_OF = {
    "up": "cluster_commands",
    "down": "cluster_commands",
    "status": "cluster_commands",
    "kill": "cluster_commands",
    "start": "cluster_commands",
    "pause": "cluster_commands",
    "resume": "cluster_commands",
    "partition": "cluster_commands",
    "heal": "cluster_commands",
    "logs": "cluster_commands",
    "sql": "data_commands",
    "insert": "data_commands",
    "block-id": "block_id_command",
    "queue": "inspect_commands",
    "log": "inspect_commands",
    "parts": "inspect_commands",
    "znodes": "znode_commands",
    "dedupe": "dedupe_command",
    "simulate": "simulate_commands",
    "coordinator": "service_commands",
    "replica": "service_commands",
    "completion": "completion_command",
}


class _Commands(PoliteGroup):
    """The commands, in the order in which one comes to need them."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_MODULE_OF)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _MODULE_OF:
            return None
        command = getattr(import_module(f"clickhouse_sim.cli.{_MODULE_OF[name]}"), name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(clickhouse_sim.__version__, prog_name="chsim")
def main() -> None:
    """Run a replicated ClickHouse-like cluster, ask it, break it, understand it.

    \b
    chsim up --replicas 3
    chsim sql "SELECT 1"
    chsim down

    Exit codes: 0 done, 1 failed, 2 wrong usage, 69 a service cannot be reached, 130 Ctrl-C.
    """
