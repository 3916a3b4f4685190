"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from clickhouse_sim.cli.render import JSONL, PRETTY

_Command = TypeVar("_Command", bound=Callable[..., Any])

cluster_folder = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".chsim"),
    envvar="CHSIM_DIR",
    show_default=True,
    help="The folder of the cluster (or CHSIM_DIR).",
)
output_format = click.option(
    "--format",
    "output_format",
    type=click.Choice([PRETTY, JSONL]),
    help="Default: pretty on a terminal, jsonl in a pipe.",
)


def replica_option(meaning: str) -> Callable[[_Command], _Command]:
    """`--replica NAME`."""
    return click.option("--replica", metavar="NAME", help=meaning)
