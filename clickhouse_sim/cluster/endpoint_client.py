"""The client of a server's endpoint, in plain blocking calls: what the command line speaks with."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as flight

from replica.commands import BlockOutcome, Command, InsertOptions, from_json, to_json
from replica.errors import ClickHouseError, LogicalError, NetworkError, TypeMismatch, error_from_json
from replica.transfer.flight_client import connect
from replica.transfer.flight_errors import received_as_clickhouse_errors

T = TypeVar("T")

# Longer than a server itself waits for anything: OPTIMIZE gives up after ten minutes, and says what is missing.
_PATIENCE_SECONDS = 900.0
_PATIENCE_AT_CLOSE_SECONDS = 5.0
_LONGEST_WAIT_SECONDS = 0.25


class EndpointClient:
    """Speaks with the server at `address` (`host:port`); for one thread at a time.

    Every method raises the server's ClickHouseError as itself, and NetworkError, which says the address, when
    nobody answers, the server dies meanwhile, or `seconds` pass without an answer.
    """

    def __init__(self, address: str, seconds: float = _PATIENCE_SECONDS) -> None:
        self._address = address
        self._seconds = seconds
        self._client = connect(address)

    def __enter__(self) -> EndpointClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def execute(self, command: Command) -> list[dict[str, Any]]:
        """The rows that the command answers."""
        action = flight.Action("command", to_json(command).encode())
        with received_as_clickhouse_errors(self._address):
            results = _interruptibly(lambda: list(self._client.do_action(action, self._bounded())))
            return [json.loads(result.body.to_pybytes()) for result in results]

    def scan(
        self, database: str, table: str, columns: list[str] | None = None, paths: Sequence[str] = ()
    ) -> pa.Table:
        """A snapshot of the table's rows, of these columns or of all; of system.zookeeper those below the paths."""
        ticket = json.dumps({"database": database, "table": table, "columns": columns, "paths": list(paths)})
        with received_as_clickhouse_errors(self._address):
            return _interruptibly(
                lambda: self._client.do_get(flight.Ticket(ticket.encode()), self._bounded()).read_all()
            )

    @contextmanager
    def insert(
        self, database: str, table: str, schema: pa.Schema, options: InsertOptions | None = None
    ) -> Iterator[Insert]:
        """One INSERT statement, which lasts as long as the `with` block and has any number of blocks."""
        request = {"database": database, "table": table, "options": json.loads(to_json(options or InsertOptions()))}
        descriptor = flight.FlightDescriptor.for_command(json.dumps(request).encode())
        insert = Insert(self._client, self._address, self._seconds, descriptor, schema)
        try:
            yield insert
        finally:
            insert.close()

    def _bounded(self) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=self._seconds)


class Insert:
    """An INSERT under way. After an error nothing more can be sent; what was answered before it stands.

    Flight puts no bound on a single message of a call, so a thread of its own carries the call, and `send` waits
    for it only so long.
    """

    def __init__(
        self,
        client: flight.FlightClient,
        address: str,
        seconds: float,
        descriptor: flight.FlightDescriptor,
        schema: pa.Schema,
    ) -> None:
        self._address = address
        self._seconds = seconds
        self._schema = schema
        self._over = False
        self._blocks: queue.SimpleQueue[pa.RecordBatch | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[BlockOutcome | ClickHouseError] = queue.SimpleQueue()
        self._carrier = threading.Thread(target=self._carry, args=(client, descriptor), daemon=True, name="insert")
        self._carrier.start()

    def send(self, block: pa.RecordBatch | pa.Table) -> BlockOutcome:
        """Insert the rows as one block, and wait for what became of them.

        Raises what the server answers; TypeMismatch, with nothing sent, when the block has another schema than
        the statement. After NetworkError it is not known whether the block was stored: to send it again, with the
        same place in the statement, is safe.
        """
        if self._over:
            raise LogicalError("this insert has ended; begin another one for more blocks")
        if not block.schema.equals(self._schema):
            raise TypeMismatch(f"a block of ({block.schema}) cannot be sent in an insert of ({self._schema})")
        self._blocks.put(_as_one_batch(block))
        self._over = True  # until it is answered: whoever gives up waiting has given up the insert
        answer = self._answer()
        if isinstance(answer, ClickHouseError):
            raise answer
        self._over = False
        return answer

    def _answer(self) -> BlockOutcome | ClickHouseError:
        """What came back. The wait is cut up, as a Ctrl-C just before a long one begins would be seen at its end."""
        left = self._seconds
        while left > 0:
            try:
                return self._answers.get(timeout=min(left, _LONGEST_WAIT_SECONDS))
            except queue.Empty:
                left -= _LONGEST_WAIT_SECONDS
        return NetworkError(f"The server at {self._address} has not answered within {self._seconds:g} s")

    def close(self) -> None:
        """End the statement. Blocks that were answered stay as they were answered."""
        self._blocks.put(None)
        if not self._over:
            self._over = True
            self._carrier.join(_PATIENCE_AT_CLOSE_SECONDS)

    def _carry(self, client: flight.FlightClient, descriptor: flight.FlightDescriptor) -> None:
        try:
            with received_as_clickhouse_errors(self._address):
                writer, outcomes = client.do_put(descriptor, self._schema)
                with writer:  # leaving it raises what the server gave as its reason to end the call, if it did
                    while (block := self._blocks.get()) is not None:
                        writer.write_batch(block)
                        self._answers.put(self._outcome(outcomes))
        except ClickHouseError as error:
            self._answers.put(error)

    def _outcome(self, outcomes: flight.FlightMetadataReader) -> BlockOutcome:
        message = outcomes.read()
        if message is None:
            raise NetworkError(f"The server at {self._address} ended the insert without an answer")
        text = message.to_pybytes()
        with suppress(ValueError):
            record = json.loads(text)
            if isinstance(record, dict) and "error" in record:
                raise error_from_json(json.dumps(record["error"]))
        outcome = from_json(text)
        if not isinstance(outcome, BlockOutcome):
            raise NetworkError(f"The server at {self._address} answered a {type(outcome).__name__} to a block")
        return outcome


def _interruptibly(call: Callable[[], T]) -> T:
    """The result of a blocking call, waited for in slices: Flight itself does not hear a Ctrl-C."""
    outcome: Future[T] = Future()

    def carry() -> None:
        try:
            outcome.set_result(call())
        except BaseException as problem:
            outcome.set_exception(problem)

    threading.Thread(target=carry, daemon=True, name="call").start()
    while not outcome.done():
        wait([outcome], _LONGEST_WAIT_SECONDS)
    return outcome.result()


def _as_one_batch(block: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    if isinstance(block, pa.RecordBatch):
        return block
    batches = block.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], block.schema)
