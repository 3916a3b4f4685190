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


file_argument = click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))

_READING_OPTIONS = (
    click.option(
        "--input-format",
        type=click.Choice(["csv", "parquet", "jsonl", "arrow"]),
        help="What FILE is. Default: by the end of its name; needed for stdin.",
    ),
    click.option(
        "--block-rows", type=click.IntRange(min=1), help="Rows of a block. Default: max_insert_block_size, 1048449."
    ),
    click.option(
        "--token", default="", metavar="TEXT", help="insert_deduplication_token, instead of the rows' hash."
    ),
    click.option("--null", "null_texts", multiple=True, metavar="TEXT", help="CSV: means NULL in a Nullable column."),
    click.option("--no-header", is_flag=True, help="CSV: no header line; the columns are the table's, in order."),
)


def reading_options(command: _Command) -> _Command:
    """How FILE is read and cut into blocks, and the token that stands for its rows."""
    for option in reversed(_READING_OPTIONS):
        command = option(command)
    return command
