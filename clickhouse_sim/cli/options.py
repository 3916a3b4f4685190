"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from clickhouse_sim.cli.completion import complete_replica, complete_table

if TYPE_CHECKING:
    from clickhouse_sim.cli.render import Renderer

_Command = TypeVar("_Command", bound=Callable[..., Any])

PRETTY = "pretty"
JSONL = "jsonl"
FORMATS = (PRETTY, "vertical", "json", JSONL, "csv", "tsv")
WATCH_SECONDS = 1.0


def _renderer(context: click.Context, option: click.Parameter, value: str | None) -> Renderer:
    from clickhouse_sim.cli.render import Renderer

    return Renderer.chosen(value)


class _Seconds(click.ParamType[float]):
    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            self.fail(f"{value!r} are no seconds. What the list is of goes before --watch.", param, context)
        if not 0.1 <= seconds <= 3600:
            self.fail("from 0.1 to 3600 seconds.", param, context)
        return seconds


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
    "renderer",
    type=click.Choice(FORMATS),
    callback=_renderer,
    help="Default: pretty on a terminal, jsonl in a pipe.",
)
watch_option = click.option(
    "--watch",
    is_flag=False,
    flag_value=str(WATCH_SECONDS),
    type=_Seconds(),
    metavar="[SECONDS]",
    help="Look again every second (or so many), until Ctrl-C. In a pipe only what changed is printed.",
)
table_argument = click.argument("table", required=False, shell_complete=complete_table)


def replica_option(meaning: str) -> Callable[[_Command], _Command]:
    """`--replica NAME`."""
    return click.option("--replica", metavar="NAME", help=meaning, shell_complete=complete_replica)
