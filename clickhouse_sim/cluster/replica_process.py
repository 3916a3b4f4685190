"""The process of a replica: the real adapters of every port, and a server between them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path

from clickhouse_sim.cluster.folder import hold, write_ready
from clickhouse_sim.cluster.ports import free_port
from clickhouse_sim.cluster.process_log import log_to_stderr
from clickhouse_sim.sql.view_select import DuckDbEngine
from coordinator.kazoo_client import KazooCoordinator
from replica.chance import SystemChance
from replica.clock import WallClock
from replica.endpoint import Endpoint
from replica.environment import Environment, PartSource
from replica.server import Server, ServerConfig
from replica.settings import ServerSettings
from replica.storage.disk import LocalDisk
from replica.storage.part_codec import ParquetCodec
from replica.transfer.flight_transfer import FlightTransfer
from replica.workers import ThreadWorkers

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """What `chsim replica serve` is given; the timeout is in seconds.

    `zookeeper` is `host:port[,host:port...][/chroot]`, `listen` host and port; other replicas fetch from
    `interserver_host`, or where that is empty from the host listened on.
    """

    name: str
    shard: str
    zookeeper: str
    folder: Path
    listen: tuple[str, int]
    session_timeout: float
    settings: ServerSettings
    interserver_host: str = ""


def serve(options: ReplicaOptions) -> None:
    """Serve until SIGTERM or SIGINT; `ready.json` in the folder says where, once it does.

    Raises ClusterError when another process serves from the folder, or the address is taken.
    """
    log_to_stderr()
    options.folder.mkdir(parents=True, exist_ok=True)
    with hold(options.folder / "lock", f"another process serves from {options.folder}"):
        (options.folder / "ready.json").unlink(missing_ok=True)  # of a life that ended by force
        asyncio.run(_serve(options))


async def _serve(options: ReplicaOptions) -> None:
    told_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told_to_stop.set)
    host = options.listen[0]
    port = free_port(*options.listen)  # other replicas are told it before the endpoint listens on it
    workers, merge_workers = (ThreadWorkers(os.cpu_count() or 1) for _ in range(2))

    # --- the server plugs in here ---
    # A cancelled fetch holds its thread a little longer than its slot.
    transfer = _KnownTransfer(
        host,
        advertised_host=options.interserver_host or host,
        fetches_at_once=2 * options.settings.background_fetches_pool_size,
    )
    environment = replace(_environment(options, workers, transfer), merge_workers=merge_workers)
    server = Server(environment, ServerConfig(options.name, options.shard, tcp_port=port, settings=options.settings))
    endpoint = Endpoint(server, host, port)
    running = asyncio.create_task(server.run())
    started = asyncio.create_task(server.started.wait())
    stopping = asyncio.create_task(told_to_stop.wait())
    try:
        await asyncio.wait([running, started, stopping], return_when=asyncio.FIRST_COMPLETED)
        if started.done():
            write_ready(options.folder, endpoint=f"{host}:{port}", interserver=transfer.address)
            _log.info("%s serves on %s:%d", options.name, host, port)
            await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        _log.info("%s stops", options.name)
        (options.folder / "ready.json").unlink(missing_ok=True)
        for task in (running, started, stopping):
            task.cancel()
        ended = await asyncio.gather(running, return_exceptions=True)
        await endpoint.stop()
        workers.close()
        merge_workers.close()
    if isinstance(ended[0], Exception):
        raise ended[0]


class _KnownTransfer(FlightTransfer):
    """Keeps in mind where other replicas fetch from."""

    address = ""

    async def serve(self, source: PartSource) -> str:
        self.address = await super().serve(source)
        return self.address


def _environment(options: ReplicaOptions, workers: ThreadWorkers, transfer: FlightTransfer) -> Environment:
    return Environment(
        coordinator=KazooCoordinator(options.zookeeper, session_timeout_seconds=options.session_timeout),
        disk=LocalDisk(options.folder / "data"),
        transfer=transfer,
        codec=ParquetCodec(),
        workers=workers,
        clock=WallClock(),
        chance=SystemChance(),
        query_engine=DuckDbEngine(),
    )
