"""What `chsim insert` does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

import click
import pyarrow as pa

from clickhouse_sim.cli.narration import counted, narrate
from clickhouse_sim.cli.outcomes import (
    UNANSWERED,
    narrate_deduplication,
    refuse_unstored,
    show_outcome,
    told_if_unanswered,
)
from clickhouse_sim.cli.progress import insert_progress
from clickhouse_sim.cli.render import Renderer
from clickhouse_sim.cli.writable import blaming_the_coordinator, told_why_it_waits
from clickhouse_sim.cluster.cluster import Cluster
from clickhouse_sim.cluster.endpoint_client import EndpointClient, Insert
from clickhouse_sim.cluster.errors import ClusterUnreachable
from clickhouse_sim.cluster.folder import ClusterFolder
from clickhouse_sim.formats.blocks import MAX_INSERT_BLOCK_SIZE
from clickhouse_sim.formats.files import STDIN, Reading, format_of, read_blocks
from clickhouse_sim.sql.run import schema_of
from clickhouse_sim.sql.statements import parse_table_name
from replica.commands import BlockOutcome, InsertOptions, InsertStatus
from replica.errors import BadArguments, ClickHouseError

_ROW = re.compile(r"Row (\d+)\b")


@dataclass(frozen=True, slots=True)
class FileInsert:
    """Which file goes into which table, and how it is read."""

    table: str
    file: Path
    input_format: str | None
    block_rows: int | None
    options: InsertOptions
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
    unanswered: int | None = None
    last: BlockOutcome | None = None

    def add(self, outcome: BlockOutcome) -> None:
        self.rows += outcome.rows
        self.blocks[outcome.status] += 1

    def sentence(self) -> str:
        fates = ", ".join(f"{count} {status.value}" for status, count in self.blocks.items())
        return f"{counted(self.rows, 'row')} in {counted(self.blocks.total(), 'block')} ({fates or 'none'})"

    def farewell(self) -> str:
        """What to say of an insert that does not get to its end: how much of it is known, and what to do."""
        known = [f"Before that: {self.sentence()}."] if self.blocks else []
        if self.unanswered is not None:
            known.append(f"Whether block {self.unanswered} was stored is not known.")
        if not known:
            return ""
        return " ".join([*known, "What is stored stays; the same command, run again, recognises it."])


def run_insert(request: FileInsert, folder: Path, replica: str | None, renderer: Renderer) -> None:
    """Insert the file block by block, telling what became of each.

    Blocks before a row that does not fit, or before an error of the server, stay in the table; the narration says
    how many, and a second run recognises them.
    """
    database, table = parse_table_name(request.table)
    require_usable(request)
    cluster = Cluster(ClusterFolder(folder))
    name, address = cluster.chosen_replica(replica)
    tally = _Tally()
    with EndpointClient(address) as client:
        try:
            schema = schema_of(client, database, table)
            blocks = _naming_blocks(read_blocks(request.file, schema, request.reading, _tell_missing), request)
            first = next(blocks, None)
            if first is not None:
                with client.insert(database, table, first.schema, request.options) as insert:
                    waiting = partial(told_why_it_waits, cluster, name, address)
                    with blaming_the_coordinator(cluster):
                        _send(chain([first], blocks), insert, waiting, renderer, tally)
        except ClusterUnreachable as error:
            _say_farewell(tally)
            raise ClusterUnreachable(f"{request.source} into {request.table}: {error}") from None
        except ClickHouseError as error:
            _say_farewell(tally)
            raise type(error)(f"{request.source} into {request.table}: {error.message}") from None
        except KeyboardInterrupt:
            narrate("Interrupted.")
            _say_farewell(tally)
            raise
    narrate(f"{tally.sentence()} through {name}.")
    if tally.last is not None:
        narrate_deduplication(tally.last)


def require_usable(request: FileInsert) -> None:
    """Raises UsageError for a file of no known format, and for options that its format has no use for."""
    try:
        format_of(request.file, request.reading)
    except BadArguments as error:
        raise click.UsageError(f"{request.source}: {error.message}.") from None


def _say_farewell(tally: _Tally) -> None:
    if sentence := tally.farewell():
        narrate(sentence)


def _tell_missing(columns: Sequence[str]) -> None:
    narrate(f"Not in the file, so filled with defaults: {', '.join(columns)}.")


def _naming_blocks(blocks: Iterator[pa.Table], request: FileInsert) -> Iterator[pa.Table]:
    """The blocks; an error that names its row names its block too."""
    try:
        yield from blocks
    except ClickHouseError as error:
        row = _ROW.match(error.message)
        if row is None:
            raise
        number = (int(row[1]) - 1) // request.reading.block_rows
        raise type(error)(f"Row {row[1]} (block {number}){error.message[row.end() :]}") from None


def _send(
    blocks: Iterator[pa.Table],
    insert: Insert,
    waiting: Callable[[], AbstractContextManager[None]],
    renderer: Renderer,
    tally: _Tally,
) -> None:
    with renderer.records() as tell, insert_progress("inserting") as advance:
        for number, block in enumerate(blocks):
            try:
                with told_if_unanswered(number, block.num_rows, tell), waiting():
                    outcome = insert.send(block)
            except UNANSWERED:
                tally.unanswered = number
                raise
            show_outcome(outcome, tell)
            if outcome.status is InsertStatus.UNKNOWN:
                tally.unanswered = number
            refuse_unstored(outcome)
            tally.add(outcome)
            tally.last = outcome
            advance(tally.rows, tally.blocks.total(), tally.blocks[InsertStatus.DUPLICATE])
