"""A cluster in the simulated world: real servers behind the doors of simulated machines."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from clickhouse_sim.simulation.client import SimulatedClient, answer_with, door_of
from clickhouse_sim.simulation.disk_image import DiskImage
from clickhouse_sim.simulation.network import CALM
from clickhouse_sim.simulation.recording import Recording
from clickhouse_sim.simulation.tape import Tape
from clickhouse_sim.simulation.world import World
from coordinator.api import Session
from coordinator.local_client import LocalCoordinator, TransactionObserver
from replica.catalog import Catalog
from replica.commands import CreateTable
from replica.environment import Environment
from replica.errors import UnknownTable
from replica.queue import QueuedEntry
from replica.server import DEFAULT_DATABASE, SERVER_UUID_FILE, Server, ServerConfig
from replica.settings import ServerSettings
from replica.znodes import TableZnodes, sequence_number

DEFAULTS = ServerSettings()

_CLIENT_DEADLINE_SECONDS = 60


class SimulatedCluster:
    """Replicas of one table, all of them started. Made inside a running `SimulatedLoop`."""

    def __init__(
        self,
        tape: Tape,
        replicas: Sequence[str],
        table_name: str,
        table: TableZnodes,
        *,
        recording: Recording | None = None,
        follow: TransactionObserver | None = None,
        settings: ServerSettings = DEFAULTS,
    ) -> None:
        def make_server(name: str, environment: Environment) -> Server:
            return Server(environment, ServerConfig(name, settings=settings))

        listen = None if recording is None else recording.hear
        self.world: World[Server] = World(tape, replicas, make_server, listen=listen, follow=follow)
        self.replicas = list(replicas)
        self.table = table
        self._table_name = table_name
        self._recording = recording
        if recording is not None:
            recording.attach(self.world.now, self.world.trace, self.queues)
        for number, name in enumerate(replicas, start=1):
            _give_identity(self.world.images[name], number)
            self.start(name)

    def start(self, name: str) -> None:
        """Begin a new life of a replica that does not run."""
        life = self.world.start(name)
        self.world.network.listen(door_of(name), answer_with(life.server), life.gate)

    async def restart_with(self, name: str, table_settings: Mapping[str, str]) -> None:
        """End a life in good order and begin another one, with other settings in the definition of its table."""
        catalog = Catalog(self.world.life(name).environment.disk)
        for definition in await catalog.load():
            if isinstance(definition, CreateTable):
                await catalog.add(replace(definition, settings=dict(table_settings)))
        await self.world.stop(name)
        self.start(name)

    def server(self, name: str) -> Server:
        """The server of a replica that runs."""
        return self.world.life(name).server

    def client(self, name: str) -> SimulatedClient:
        """A client's machine."""
        return SimulatedClient(name, self.world.network, _CLIENT_DEADLINE_SECONDS, self._recording)

    async def observer(self) -> Session:
        """A session outside of the network and its faults."""
        return await LocalCoordinator(self.world.service, _Instant(), "checker").connect()

    def queues(self) -> dict[str, list[QueuedEntry]]:
        """What stands in the queue of the table on each replica that lives and has it."""
        queues = {}
        for name in self.world.running:
            with contextlib.suppress(UnknownTable):
                queues[name] = list(
                    self.server(name).replicated_table(DEFAULT_DATABASE, self._table_name).state.queue
                )
        return queues

    async def is_quiet(self, session: Session) -> bool:
        """Every replica is writable, has copied the whole log and has an empty queue, and no insert is open."""
        past_log = past(await session.children(self.table.log))
        for name in self.replicas:
            if not await self._is_idle(session, name, past_log):
                return False
        for partition in await session.children(self.table.block_numbers):
            if await session.children(self.table.partition(partition)):
                return False
        return past(await session.children(self.table.log)) == past_log

    async def _is_idle(self, session: Session, name: str, past_log: int) -> bool:
        if name not in self.world.running:
            return False
        rows = (await self.server(name).scan("system", "replicas")).to_pylist()
        state = next((row for row in rows if row["table"] == self._table_name), None)
        if state is None or state["is_readonly"] or state["log_pointer"] < past_log or state["parts_to_check"]:
            return False
        return not await session.children(self.table.replica(name).queue)


def past(log_names: Sequence[str]) -> int:
    """The number that the next log entry will have."""
    return sequence_number(log_names[-1]) + 1 if log_names else 0


def _give_identity(image: DiskImage, number: int) -> None:
    """No two servers have one UUID, not even where every draw is the plainest one."""
    image.write(SERVER_UUID_FILE, str(uuid.UUID(int=number, version=4)).encode())
    image.fsync(SERVER_UUID_FILE)
    image.fsync_folder("")


class _Instant:
    """The way of an observer to the coordination service."""

    def delay(self, label: str) -> float | None:
        return CALM.quickest_seconds
