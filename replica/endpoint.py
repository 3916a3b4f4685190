"""The clients' door of a server, over Arrow Flight.

| call | request | answer |
|---|---|---|
| `do_action("command", …)` | a command as `commands.to_json` writes it | one result a row, each a JSON object |
| `do_get(ticket)` | `{"database", "table", "columns", "paths"}`; columns null: all | the table's rows |
| `do_put(descriptor)` | `{"database", "table", "options"}`, then record batches | after each batch its outcome |

The `paths` of a scan, which may be left out, are what system.zookeeper lists.

A record batch of `do_put` is one inserted block; its source number is its place in the call, from 0. Its outcome
comes back as one metadata message, the JSON of a `BlockOutcome`, or `{"error": <JSON of a ClickHouseError>}`, with
which the call ends. All other errors come as `flight_errors` sends them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.flight as flight

from replica.commands import BlockOutcome, Command, InsertOptions, from_json, to_json
from replica.errors import BadArguments, ClickHouseError
from replica.transfer.flight_errors import sent_as_flight_errors
from replica.transfer.flight_host import HostedFlightServer, request_record, text_of

_LONGEST_NAME = 1024
_MOST_COLUMNS = 100_000
_MOST_PATHS = 1000
_ROWS_PER_BATCH = 65_536

# How long a server is given for one thing; whoever asks may give up sooner.
_ANSWER_SECONDS = 3600.0


class Server(Protocol):
    """What a server does for its clients. Every method raises ClickHouseErrors."""

    async def execute(self, command: Command) -> list[dict[str, Any]]:
        """The rows that the command answers, their values fit for JSON."""
        ...

    async def insert(
        self, database: str, table: str, options: InsertOptions, source_number: int, block: pa.Table
    ) -> BlockOutcome: ...

    async def scan(self, database: str, table: str, columns: list[str] | None, paths: Sequence[str] = ()) -> pa.Table:
        """A snapshot of the table's rows; of all columns when none are named."""
        ...


class Endpoint(HostedFlightServer):
    """Listens on `host:port` from its construction on; `stop()` ends it."""

    def __init__(self, server: Server, host: str = "127.0.0.1", port: int = 0) -> None:
        self._server = server
        super().__init__(host, port)

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[bytes]:
        with sent_as_flight_errors():
            if action.type != "command":
                raise BadArguments(f"there is no action {action.type!r} at a server's endpoint, only 'command'")
            command = from_json(action.body.to_pybytes())
            if not isinstance(command, Command):
                raise BadArguments(f"a {type(command).__name__} is not a command")
            rows = self.answer(self._server.execute(command), _ANSWER_SECONDS)
            return iter([json.dumps(row).encode() for row in rows])

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        with sent_as_flight_errors():
            record = request_record(ticket.ticket)
            database, table = _table_of(record)
            scanning = self._server.scan(database, table, _columns_of(record), _paths_of(record))
            rows = self.answer(scanning, _ANSWER_SECONDS)
            batches = rows.to_batches(max_chunksize=_ROWS_PER_BATCH)
            return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(rows.schema, batches))

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        with sent_as_flight_errors():
            record = request_record(descriptor.command or b"")
            database, table = _table_of(record)
            options = _options_of(record)
        for source_number, chunk in enumerate(reader):
            block = pa.Table.from_batches([chunk.data], reader.schema)
            inserting = self._server.insert(database, table, options, source_number, block)
            try:
                outcome = self.answer(inserting, _ANSWER_SECONDS)
            except ClickHouseError as error:
                writer.write(json.dumps({"error": json.loads(error.to_json())}).encode())
                return
            writer.write(to_json(outcome).encode())


def _table_of(record: dict[str, Any]) -> tuple[str, str]:
    return text_of(record, "database", _LONGEST_NAME), text_of(record, "table", _LONGEST_NAME)


def _columns_of(record: dict[str, Any]) -> list[str] | None:
    columns = record.get("columns")
    if columns is None:
        return None
    if not isinstance(columns, list) or len(columns) > _MOST_COLUMNS or not all(isinstance(c, str) for c in columns):
        raise BadArguments("the columns of a scan must be a list of names, or null for all of them")
    return columns


def _paths_of(record: dict[str, Any]) -> list[str]:
    paths = record.get("paths", [])
    if not isinstance(paths, list) or len(paths) > _MOST_PATHS or not all(_is_path(path) for path in paths):
        raise BadArguments("the paths of a scan must be a list of znode paths")
    return paths


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_NAME and value.isprintable()


def _options_of(record: dict[str, Any]) -> InsertOptions:
    options = from_json(json.dumps(record.get("options")))
    if not isinstance(options, InsertOptions):
        raise BadArguments("the options of an insert must be InsertOptions")
    return options
