"""How an error crosses a Flight call: as its JSON, in the details that Flight carries beside the message.

gRPC decorates messages with text of its own, so nothing is ever read back from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.flight as flight

from replica.errors import ClickHouseError, NetworkError, error_from_json

# gRPC refuses to carry more than 16 KiB of details and decorations.
_LARGEST_JSON = 4096


@contextmanager
def sent_as_flight_errors() -> Iterator[None]:
    """Around a server's handler: ClickHouseErrors leave as Flight errors."""
    try:
        yield
    except ClickHouseError as error:
        raise flight.FlightServerError(error.name, extra_info=_fitting_json(error).encode()) from None


@contextmanager
def received_as_clickhouse_errors(address: str) -> Iterator[None]:
    """Around a client's call: the server's ClickHouseErrors come out as themselves.

    All else that can go wrong with a call (nobody answers, the stream breaks off, the deadline passes) comes out
    as NetworkError.
    """
    try:
        yield
    except pa.ArrowException as problem:
        raise _received(problem, address) from None
    except OSError as problem:  # pyarrow raises some failures of the transport as these
        raise _received(problem, address) from None


def _fitting_json(error: ClickHouseError) -> str:
    text = error.to_json()
    kept = len(error.message)
    while len(text) > _LARGEST_JSON:
        kept //= 2
        text = type(error)(f"{error.message[:kept]} …").to_json()
    return text


def _received(problem: Exception, address: str) -> ClickHouseError:
    details = problem.extra_info if isinstance(problem, flight.FlightError) else b""
    if details:
        return error_from_json(details.decode(errors="replace"))
    reason = str(problem).split(". gRPC client debug context")[0]
    if isinstance(problem, flight.FlightServerError):
        return ClickHouseError(f"The server at {address} failed to answer: {reason}")
    return NetworkError(f"The call to {address} failed: {reason}")
