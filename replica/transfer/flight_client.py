"""The receiving side of part transfer, in plain blocking calls, and how a Flight client is opened."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import pyarrow as pa
import pyarrow.flight as flight

from replica.environment import PartFiles, PartRequest
from replica.errors import NetworkError
from replica.transfer.flight_errors import received_as_clickhouse_errors
from replica.transfer.part_stream import join

_OPTIONS = [
    # Messages of any size: a block crosses whole.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A server that comes back is found at once, whatever other clients of this process saw of it.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]


def connect(address: str) -> flight.FlightClient:
    """A client for the server at `host:port`, which nobody has spoken to yet."""
    with received_as_clickhouse_errors(address):
        return flight.FlightClient(f"grpc://{address}", generic_options=_OPTIONS)


def fetch_part(address: str, request: PartRequest, seconds: float, abandoned: Event) -> PartFiles:
    """The part, whole, or the errors of `PartTransfer.fetch`. Ends early once `abandoned` is set."""
    ticket = {"replica_path": request.replica_path, "part_name": request.part_name, "seconds": seconds}
    with connect(address) as client, received_as_clickhouse_errors(address):
        reader = client.do_get(flight.Ticket(json.dumps(ticket).encode()), flight.FlightCallOptions(timeout=seconds))
        with _cancelled_unless_finished(reader):
            return join(_batches(reader, abandoned))


def _batches(reader: flight.FlightStreamReader, abandoned: Event) -> Iterator[pa.RecordBatch]:
    for chunk in reader:
        if abandoned.is_set():
            raise NetworkError("nobody waits for this part any more")
        yield chunk.data


@contextmanager
def _cancelled_unless_finished(reader: flight.FlightStreamReader) -> Iterator[None]:
    try:
        yield
    except BaseException:
        reader.cancel()
        raise
