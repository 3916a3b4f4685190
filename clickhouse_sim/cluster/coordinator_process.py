"""The process of a coordination service."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from clickhouse_sim.cluster.folder import write_ready
from coordinator import server

# Sessions last between 2 and 20 ticks: with this one a cluster may ask for anything from a second to a minute.
_TICK_MS = 500


def serve(listen: tuple[str, int], folder: Path) -> None:
    """Serve until SIGTERM or SIGINT; `ready.json` in the folder says where, once it does.

    Raises OSError when the address is taken, and CoordinationError when the journal cannot be used.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    folder.mkdir(parents=True, exist_ok=True)

    def on_ready(address: str) -> None:
        write_ready(folder, endpoint=address)
        logging.getLogger(__name__).info("serving on %s", address)

    asyncio.run(server.serve(f"{listen[0]}:{listen[1]}", folder / "journal", tick_ms=_TICK_MS, on_ready=on_ready))
