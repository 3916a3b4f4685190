"""The process of a coordination service."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from clickhouse_sim.cluster.errors import ClusterError
from clickhouse_sim.cluster.folder import write_ready
from clickhouse_sim.cluster.ports import free_port
from clickhouse_sim.cluster.process_log import log_to_stderr
from coordinator import server
from coordinator.journal import JournalDamaged, JournalInUse


def serve(listen: tuple[str, int], folder: Path, tick_ms: int) -> None:
    """Serve until SIGTERM or SIGINT; `ready.json` in the folder says where, once it does.

    Raises ClusterError when the address is taken, or the journal in the folder cannot be used.
    """
    log_to_stderr()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ready.json").unlink(missing_ok=True)  # of a life that ended by force

    def on_ready(address: str) -> None:
        write_ready(folder, endpoint=address)
        logging.getLogger(__name__).info("serving on %s", address)

    port = free_port(*listen)
    try:
        asyncio.run(server.serve(f"{listen[0]}:{port}", folder / "journal", tick_ms=tick_ms, on_ready=on_ready))
    except (JournalInUse, JournalDamaged) as problem:
        raise ClusterError(str(problem)) from None
