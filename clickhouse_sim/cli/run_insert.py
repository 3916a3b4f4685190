"""What `chsim insert` does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow as pa

from clickhouse_sim.cli.narration import narrate
from clickhouse_sim.cli.outcomes import refuse_unstored, show_outcome
from clickhouse_sim.cli.progress import insert_progress
from clickhouse_sim.cli.render import Renderer
from clickhouse_sim.cli.writable import told_why_it_waits
from clickhouse_sim.cluster.cluster import Cluster
from clickhouse_sim.cluster.folder import ClusterFolder
from clickhouse_sim.formats.blocks import MAX_INSERT_BLOCK_SIZE
from clickhouse_sim.formats.files import STDIN, Reading, read_blocks
from clickhouse_sim.sql.run import schema_of
from clickhouse_sim.sql.statements import parse_table_name
from replica.commands import BlockOutcome, InsertOptions, InsertStatus
from replica.endpoint_client import EndpointClient, Insert
from replica.errors import ClickHouseError


@dataclass(frozen=True, slots=True)
class FileInsert:
    """Which file goes into which table, and how it is read."""

    table: str
    file: Path
    input_format: str | None
    block_rows: int | None
    token: str
    header: bool
    null_texts: tuple[str, ...]

    @property
    def source(self) -> str:
        return "stdin" if self.file == STDIN else self.file.name

    @property
    def reading(self) -> Reading:
        block_rows = self.block_rows or MAX_INSERT_BLOCK_SIZE
        return Reading(block_rows, self.input_format, self.header, self.null_texts)


@dataclass(slots=True)
class _Tally:
    """What has been answered so far."""

    rows: int = 0
    blocks: Counter[InsertStatus] = field(default_factory=Counter)

    def add(self, outcome: BlockOutcome) -> None:
        self.rows += outcome.rows
        self.blocks[outcome.status] += 1

    def sentence(self) -> str:
        fates = ", ".join(f"{count} {status.value}" for status, count in self.blocks.items())
        return f"{self.rows:,} rows in {self.blocks.total()} blocks ({fates or 'none'})"


def run_insert(request: FileInsert, folder: Path, replica: str | None, renderer: Renderer) -> None:
    """Insert the file block by block, telling what became of each.

    Blocks before a row that does not fit, or before an error of the server, stay in the table; the narration says
    how many, and a second run recognises them.
    """
    database, table = parse_table_name(request.table)
    cluster = Cluster(ClusterFolder(folder))
    name, address = cluster.chosen_replica(replica)
    tally = _Tally()
    options = InsertOptions(insert_deduplication_token=request.token)
    with EndpointClient(address) as client:
        try:
            blocks = read_blocks(request.file, schema_of(client, database, table), request.reading)
            first = next(blocks, None)
            if first is not None:
                with client.insert(database, table, first.schema, options) as insert:
                    waiting = partial(told_why_it_waits, cluster, name, address)
                    _send(chain([first], blocks), insert, waiting, renderer, tally)
        except ClickHouseError as error:
            if tally.blocks:
                narrate(f"Before that: {tally.sentence()}. They stay; the same command, run again, recognises them.")
            raise type(error)(f"{request.source} into {request.table}: {error.message}") from None
    narrate(f"{tally.sentence()} through {name}.")


def _send(
    blocks: Iterator[pa.Table],
    insert: Insert,
    waiting: Callable[[], AbstractContextManager[None]],
    renderer: Renderer,
    tally: _Tally,
) -> None:
    with renderer.records() as tell, insert_progress("inserting") as advance:
        for block in blocks:
            with waiting():
                outcome = insert.send(block)
            show_outcome(outcome, tell)
            refuse_unstored(outcome)
            tally.add(outcome)
            advance(tally.rows, tally.blocks.total(), tally.blocks[InsertStatus.DUPLICATE])
