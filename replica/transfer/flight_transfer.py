"""Parts between replicas over Arrow Flight: the real adapter of the `PartTransfer` port."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from replica.environment import PartFiles, PartRequest, PartSource
from replica.errors import NetworkError
from replica.transfer.flight_client import fetch_part
from replica.transfer.flight_server import PartServer


class FlightTransfer:
    """Listens on `host:port` (0: a free port) and is known to others as `advertised_host`, by default the same.

    A fetch runs in one of so many threads; when it is cancelled or too late, what still arrives is dropped.
    """

    def __init__(
        self, host: str = "127.0.0.1", port: int = 0, advertised_host: str | None = None, fetches_at_once: int = 32
    ) -> None:
        self._host = host
        self._port = port
        self._advertised_host = advertised_host or host
        self._server: PartServer | None = None
        self._threads = ThreadPoolExecutor(fetches_at_once, thread_name_prefix="fetch")

    async def serve(self, source: PartSource) -> str:
        """Raises OSError when the address cannot be listened on."""
        self._server = PartServer(self._host, self._port, source)
        return f"{self._advertised_host}:{self._server.port}"

    async def fetch(self, address: str, request: PartRequest, deadline_seconds: float) -> PartFiles:
        abandoned = Event()
        fetching = asyncio.get_running_loop().run_in_executor(
            self._threads, fetch_part, address, request, deadline_seconds, abandoned
        )
        try:
            return await asyncio.wait_for(fetching, deadline_seconds)
        except TimeoutError:
            raise NetworkError(
                f"{address} did not deliver part {request.part_name} within {deadline_seconds:g} s"
            ) from None
        finally:
            abandoned.set()

    async def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._server is not None:
            await self._server.stop()
