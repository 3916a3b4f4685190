"""What `chsim insert` does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pyarrow as pa

from clickhouse_sim.cli.outcomes import refuse_unstored, show_outcome
from clickhouse_sim.cli.render import Renderer, narrate
from clickhouse_sim.cluster.cluster import Cluster
from clickhouse_sim.cluster.folder import ClusterFolder
from clickhouse_sim.formats.blocks import MAX_INSERT_BLOCK_SIZE
from clickhouse_sim.formats.files import read_blocks
from clickhouse_sim.sql.run import schema_of
from clickhouse_sim.sql.statements import parse_table_name
from replica.commands import InsertOptions, InsertStatus
from replica.endpoint_client import EndpointClient
from replica.errors import ClickHouseError


@dataclass(frozen=True, slots=True)
class FileInsert:
    """Which file goes into which table, and how it is read."""

    table: str
    file: Path
    block_rows: int | None
    token: str
    header: bool
    null_texts: tuple[str, ...]


@dataclass(slots=True)
class _Tally:
    """What has been answered so far."""

    rows: int = 0
    blocks: Counter[InsertStatus] = field(default_factory=Counter)

    def sentence(self) -> str:
        fates = ", ".join(f"{count} {status.value}" for status, count in self.blocks.items())
        return f"{self.rows:,} rows in {self.blocks.total()} blocks ({fates or 'none'})"


def run_insert(request: FileInsert, folder: Path, replica: str | None, renderer: Renderer) -> None:
    """Insert the file block by block, telling what became of each.

    Blocks before a row that does not fit, or before an error of the server, stay in the table; the narration says
    how many, and a second run recognises them.
    """
    database, table = parse_table_name(request.table)
    name, address = Cluster(ClusterFolder(folder)).chosen_replica(replica)
    tally = _Tally()
    with EndpointClient(address) as client:
        try:
            schema = schema_of(client, database, table)
            blocks = read_blocks(
                request.file,
                schema,
                request.block_rows or MAX_INSERT_BLOCK_SIZE,
                header=request.header,
                null_texts=request.null_texts,
            )
            _send(
                blocks,
                client,
                (database, table),
                InsertOptions(insert_deduplication_token=request.token),
                renderer,
                tally,
            )
        except ClickHouseError as error:
            if tally.blocks:
                narrate(f"Before that: {tally.sentence()}. They stay; the same command, run again, recognises them.")
            raise type(error)(f"{request.file.name} into {request.table}: {error.message}") from None
    narrate(f"{tally.sentence()} through {name}.")


def _send(
    blocks: Iterator[pa.Table],
    client: EndpointClient,
    table: tuple[str, str],
    options: InsertOptions,
    renderer: Renderer,
    tally: _Tally,
) -> None:
    first = next(blocks, None)
    if first is None:
        return
    with client.insert(*table, first.schema, options) as insert, renderer.progress("inserting") as progress:
        for block in chain([first], blocks):
            outcome = insert.send(block)
            show_outcome(outcome, renderer)
            refuse_unstored(outcome)
            tally.rows += outcome.rows
            tally.blocks[outcome.status] += 1
            progress.reached(tally.rows)
