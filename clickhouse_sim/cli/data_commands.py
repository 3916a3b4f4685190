"""`sql` and `insert`: data in and out."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from clickhouse_sim.cli.options import cluster_folder, output_format, replica_option
from clickhouse_sim.cli.render import Renderer


@click.command()
@click.argument("text", required=False)
@replica_option("Where to run; otherwise CREATE runs on every living replica, all else on the first.")
@cluster_folder
@output_format
def sql(text: str | None, replica: str | None, folder: Path, output_format: str | None) -> None:
    """Run SQL statements, separated by `;`. Without TEXT they are read from standard input.

    \b
    chsim sql "SELECT toYYYYMM(time_hour), count() FROM flights GROUP BY 1"
    """
    from clickhouse_sim.cli.run_sql import run_sql

    if text is None:
        stdin = sys.stdin
        if stdin.isatty():
            raise click.UsageError('Say what to run: chsim sql "SELECT 1"')
        text = stdin.read()
    run_sql(text, folder, replica, Renderer.chosen(output_format))


@click.command()
@click.argument("table")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@replica_option("Which replica takes the rows; otherwise the first living one.")
@click.option(
    "--block-rows", type=click.IntRange(min=1), help="Rows of a block. Default: max_insert_block_size, 1048449."
)
@click.option("--token", default="", metavar="TEXT", help="insert_deduplication_token, instead of the rows' hash.")
@click.option("--null", "null_texts", multiple=True, metavar="TEXT", help="CSV: means NULL in a Nullable column.")
@click.option("--no-header", is_flag=True, help="CSV: no header line; the columns are the table's, in order.")
@cluster_folder
@output_format
def insert(
    table: str,
    file: Path,
    replica: str | None,
    block_rows: int | None,
    token: str,
    null_texts: tuple[str, ...],
    no_header: bool,
    folder: Path,
    output_format: str | None,
) -> None:
    """Insert a .csv or .parquet file, block by block.

    \b
    chsim insert flights flights.csv --null NA --block-rows 2000

    The same file with the same --block-rows makes the same blocks, so a second run is recognised as duplicate. CSV:
    an unquoted \\N is NULL, and so is an empty field in a Nullable column that is not a String.
    """
    from clickhouse_sim.cli.run_insert import FileInsert, run_insert

    request = FileInsert(table, file, block_rows, token, header=not no_header, null_texts=null_texts)
    run_insert(request, folder, replica, Renderer.chosen(output_format))
