"""The sending side of part transfer: answers tickets `{"replica_path", "part_name", "seconds"}` with a part."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.flight as flight

from replica.environment import PartRequest, PartSource
from replica.errors import BadArguments
from replica.transfer.flight_errors import sent_as_flight_errors
from replica.transfer.flight_host import HostedFlightServer, request_record, text_of
from replica.transfer.part_stream import SCHEMA, cut

_LONGEST_PATH = 4096
_LONGEST_PART_NAME = 1024
_LONGEST_WAIT_SECONDS = 3600.0
_GRACE_SECONDS = 1.0  # the deadline is the receiver's to declare; this side only stops waiting


class PartServer(HostedFlightServer):
    """Gives away the parts of one source. The source knows which paths and parts there are; here only the form
    of a request is checked."""

    def __init__(self, host: str, port: int, source: PartSource) -> None:
        self._source = source
        super().__init__(host, port)

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        with sent_as_flight_errors():
            record = request_record(ticket.ticket)
            request = PartRequest(
                text_of(record, "replica_path", _LONGEST_PATH), text_of(record, "part_name", _LONGEST_PART_NAME)
            )
            seconds = record.get("seconds")
            if not isinstance(seconds, int | float) or not 0 < seconds <= _LONGEST_WAIT_SECONDS:
                raise BadArguments(f"a request must say in how many seconds, at most {_LONGEST_WAIT_SECONDS:g}")
            part = self.answer(self._source.send_part(request), seconds + _GRACE_SECONDS)
            return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(SCHEMA, cut(part)))
