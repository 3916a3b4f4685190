"""`block-id`: which deduplication ids a file has, and whether a cluster knows them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from clickhouse_sim.cli.options import file_argument, output_format, reading_options
from clickhouse_sim.cli.zookeeper_address import ZooKeeperAddress

if TYPE_CHECKING:
    from clickhouse_sim.cli.render import Renderer


class _Macro(click.ParamType[tuple[str, str]]):
    name = "name=value"

    def convert(self, value: str, param: click.Parameter | None, context: click.Context | None) -> tuple[str, str]:
        macro, equals, filling = value.partition("=")
        if not equals or not macro.isidentifier():
            self.fail(f"{value!r} is not name=value, as in shard=01", param, context)
        return macro, filling


@click.command("block-id")
@file_argument
@click.option(
    "--ddl",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with the CREATE TABLE of the table that the rows are for.",
)
@reading_options
@click.option("--check", "address", type=ZooKeeperAddress(), help="Look for the ids in this ZooKeeper or Keeper.")
@click.option("--path", metavar="ZNODE", help="The table's path there; otherwise that of its ENGINE.")
@click.option(
    "--macro", "macros", multiple=True, type=_Macro(), help="Fills in {name} in the path of the ENGINE. Repeatable."
)
@output_format
def block_id(
    file: Path,
    ddl: Path,
    input_format: str | None,
    block_rows: int | None,
    token: str,
    null_texts: tuple[str, ...],
    no_header: bool,
    address: str | None,
    path: str | None,
    macros: tuple[tuple[str, str], ...],
    renderer: Renderer,
) -> None:
    """The deduplication ids of a file, one a block and partition, without inserting it.

    \b
    chsim block-id flights.csv --ddl flights.sql
    chsim block-id flights.csv --ddl flights.sql --check 127.0.0.1:2181 --macro shard=01

    They are the ones that ClickHouse (from 26.7 on) computes for the same rows in the same blocks, and that
    `chsim insert` gives with the same options. Blocks are numbered as they come, as ClickHouse does if it does not
    join them: max_insert_block_size = --block-rows, min_insert_block_size_rows = 1, min_insert_block_size_bytes = 0,
    input_format_parallel_parsing = 0; with one block, or blocks of the default size, only the last of these matters.

    --check says of each id whether the table has it, as which part, and since when.
    """
    from clickhouse_sim.cli.run_block_id import Check, run_block_id
    from clickhouse_sim.cli.run_insert import FileInsert
    from replica.commands import InsertOptions

    if address is None and (path or macros):
        raise click.UsageError("--path and --macro say where to look: give --check HOST:PORT too.")
    if str(file) == "-" and input_format is None:
        raise click.UsageError("Say what comes from stdin: --input-format csv, parquet, jsonl or arrow.")
    options = InsertOptions(insert_deduplication_token=token)
    request = FileInsert("", file, input_format, block_rows, options, header=not no_header, null_texts=null_texts)
    check = None if address is None else Check(address, path, dict(macros))
    run_block_id(request, ddl, check, renderer)
