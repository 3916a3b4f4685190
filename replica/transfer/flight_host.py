"""A Flight server whose work is done on the event loop.

Flight calls a server's handlers in threads of its own. A handler hands its work over to the loop at once, with
`answer`, and only waits there.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow.flight as flight

from replica.errors import Aborted, BadArguments, ClickHouseError, TimeoutExceeded

T = TypeVar("T")

_LARGEST_REQUEST = 1 << 20
_PATIENCE_AT_STOP_SECONDS = 1.0


class HostedFlightServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Listens on `host:port` from its construction on, for the running event loop; port 0 chooses a free one.

    Raises OSError when the address cannot be listened on. Work that a handler has begun goes on when its client
    goes away; `stop` cancels it.
    """

    def __init__(self, host: str, port: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[Future[Any], None] = {}
        self._handing_over = threading.Lock()
        self._stopping = False
        super().__init__(f"grpc://{host}:{port}")

    def answer(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """For handlers, in Flight's threads: what the work returns, done on the event loop.

        Raises the work's ClickHouseError (any other failure as a plain one that names it), TimeoutExceeded when it
        is not done after `seconds`, and Aborted when the server stops.
        """
        future = self._hand_over(work)
        if not wait([future], seconds).done:
            raise TimeoutExceeded(f"not done after {seconds:g} s; the work goes on, and its result is not awaited")
        try:
            return future.result()
        except ClickHouseError:
            raise
        except CancelledError:
            raise _stopping() from None
        except Exception as problem:
            raise ClickHouseError(f"{type(problem).__name__}: {problem}") from problem

    async def stop(self) -> None:
        """Refuse new calls, abort the work under way, and hang up on clients that still hold a call open."""
        with self._handing_over:
            self._stopping = True
            for future in list(self._under_way):
                future.cancel()
        port = self.port
        finished = asyncio.Event()

        def shut_down() -> None:
            self.shutdown()
            with suppress(RuntimeError):  # the loop may be gone by then
                self._loop.call_soon_threadsafe(finished.set)

        threading.Thread(target=shut_down, daemon=True, name="flight shutdown").start()
        if not await _happens(finished, _PATIENCE_AT_STOP_SECONDS):
            _hang_up(port)
            await _happens(finished, _PATIENCE_AT_STOP_SECONDS)

    def _hand_over(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._handing_over:
            if self._stopping:
                work.close()
                raise _stopping()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._under_way[future] = None
        future.add_done_callback(lambda done: self._under_way.pop(done, None))
        return future


async def _happens(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


def _hang_up(port: int) -> None:
    """Cut the connections that this process has accepted at a port.

    Flight's shutdown, and with it the end of the process, waits for as long as any client keeps a call open, and
    Flight has no way to end a call from the server's side while nothing is sent.
    """
    for number in map(int, os.listdir("/dev/fd")):
        with suppress(OSError):  # one that was closed meanwhile
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as end:
                    if end.family in (socket.AF_INET, socket.AF_INET6) and end.getsockname()[1] == port:
                        end.shutdown(socket.SHUT_RDWR)


def request_record(data: bytes) -> dict[str, Any]:
    """The JSON object that a ticket or descriptor carries. Raises BadArguments for anything else."""
    if len(data) > _LARGEST_REQUEST:
        raise BadArguments(f"a request of {len(data)} bytes is refused: {_LARGEST_REQUEST} is the most")
    try:
        record = json.loads(data)
    except (ValueError, RecursionError) as problem:
        raise BadArguments(f"a request must be JSON: {problem}") from None
    if not isinstance(record, dict):
        raise BadArguments(f"a request must be a JSON object, not {type(record).__name__}")
    return record


def text_of(record: dict[str, Any], key: str, longest: int) -> str:
    """The text under a key of a request. Raises BadArguments when there is none, or one of absurd length."""
    value = record.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= longest or "\0" in value:
        raise BadArguments(f"a request must say its {key}, a text of 1 to {longest} characters")
    return value


def _stopping() -> Aborted:
    return Aborted("the server is stopping; ask again when it is back, or ask another replica")
