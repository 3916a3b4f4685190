"""`sql` and `insert`: data in and out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from clickhouse_sim.cli.completion import complete_table
from clickhouse_sim.cli.options import cluster_folder, file_argument, output_format, reading_options, replica_option

if TYPE_CHECKING:
    from clickhouse_sim.cli.render import Renderer
    from replica.commands import InsertOptions


@click.command()
@click.argument("text", required=False)
@click.option("-f", "--file", type=click.File(encoding="utf-8"), help="Read the statements from a file; - is stdin.")
@replica_option("Where to run; otherwise CREATE runs on every living replica, all else on the first.")
@cluster_folder
@output_format
def sql(text: str | None, file: IO[str] | None, replica: str | None, folder: Path, renderer: Renderer) -> None:
    """Run SQL statements, separated by `;`. Without TEXT they are read from standard input.

    \b
    chsim sql "SELECT toYYYYMM(time_hour), count() FROM flights GROUP BY 1"
    chsim sql -f schema.sql
    echo "SELECT 1" | chsim sql --format csv
    """
    from clickhouse_sim.cli.run_sql import run_sql

    if text is not None and file is not None:
        raise click.UsageError("Give the statements as TEXT or with --file, not both.")
    if text is None:
        text = _read_statements(file or sys.stdin)
    run_sql(text, folder, replica, renderer)


def _read_statements(source: IO[str]) -> str:
    if source is sys.stdin and source.isatty():
        raise click.UsageError('Say what to run: chsim sql "SELECT 1"')
    try:
        return source.read()
    except UnicodeDecodeError as problem:
        raise click.UsageError(f"The statements are not UTF-8: {problem}") from None


@click.command()
@click.argument("table", shell_complete=complete_table)
@file_argument
@replica_option("Which replica takes the rows; otherwise the first living one.")
@reading_options
@click.option(
    "--setting",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the INSERT, as SETTINGS in SQL takes it: deduplicate_insert=disable.",
)
@cluster_folder
@output_format
def insert(
    table: str,
    file: Path,
    input_format: str | None,
    replica: str | None,
    block_rows: int | None,
    token: str,
    settings: tuple[str, ...],
    null_texts: tuple[str, ...],
    no_header: bool,
    folder: Path,
    renderer: Renderer,
) -> None:
    """Insert a file or standard input, block by block.

    \b
    chsim insert flights flights.csv --null NA --block-rows 2000
    zcat events.jsonl.gz | chsim insert events - --input-format jsonl

    FILE ends in .csv, .parquet, .jsonl, .ndjson, .arrow, .arrows or .feather, or is - for standard input.

    The same rows with the same --block-rows make the same blocks, so a second run is recognised as duplicate.
    Columns that the file lacks get their defaults. CSV: an unquoted \\N is NULL, and so is an empty field in a
    Nullable column that is not a String.
    """
    from clickhouse_sim.cli.run_insert import FileInsert, run_insert

    if str(file) == "-" and input_format is None:
        raise click.UsageError("Say what comes from stdin: --input-format csv, parquet, jsonl or arrow.")
    options = _insert_options(token, settings)
    request = FileInsert(table, file, input_format, block_rows, options, header=not no_header, null_texts=null_texts)
    run_insert(request, folder, replica, renderer)


def _insert_options(token: str, settings: tuple[str, ...]) -> InsertOptions:
    """Raises UsageError, UnknownSetting and BadArguments."""
    from clickhouse_sim.sql.settings import insert_options

    named = {"insert_deduplication_token": token} if token else {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise click.UsageError(f"--setting takes NAME=VALUE, not {setting!r}.")
        if name in named:
            raise click.UsageError(f"The setting {name} is given twice.")
        named[name] = value
    return insert_options(named)
