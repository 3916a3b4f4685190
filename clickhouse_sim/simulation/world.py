"""The simulated world: one coordination service, one network, and replicas that live, crash and live again.

A replica is its name and its disk; a life of it is a gate, the ports behind the gate, and a server. The world knows
what a server is made from and that it runs, nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from clickhouse_sim.simulation.clock import SimulatedClock
from clickhouse_sim.simulation.disk import SimulatedDisk
from clickhouse_sim.simulation.disk_image import DiskImage
from clickhouse_sim.simulation.gate import Gate, belongs_to, context_of
from clickhouse_sim.simulation.loop import SimulatedLoop, SimulationError
from clickhouse_sim.simulation.marks import Mark
from clickhouse_sim.simulation.network import Network
from clickhouse_sim.simulation.tape import Tape
from clickhouse_sim.simulation.trace import Trace
from clickhouse_sim.simulation.transfer import SimulatedTransfer
from clickhouse_sim.simulation.workers import SimulatedWorkers
from coordinator.local_client import Exchange, LocalCoordinator, LocalService
from coordinator.processor import Transaction
from replica.environment import Environment
from replica.storage.part_codec import ArrowCodec

COORDINATOR = "coordinator"


class Server(Protocol):
    """What runs in a life. `run` goes on until it is cancelled."""

    async def run(self) -> None: ...


S = TypeVar("S", bound=Server)


@dataclass(frozen=True, slots=True)
class Life(Generic[S]):
    """A replica from its start to its crash. `task` runs the server; it should end with the life and not before."""

    server: S
    environment: Environment
    task: asyncio.Task[None]
    gate: Gate
    disk: SimulatedDisk
    coordinator: LocalCoordinator


class World(Generic[S]):
    """Made inside a running `SimulatedLoop`; records all that happens in `trace`.

    `make_server(name, environment)` builds the server of a life, from its disk and what it finds there.
    `network.cut(name, COORDINATOR)` cuts a replica off from the coordination service. `listen` is told of every
    message that the coordination service receives or sends, `follow` of every transaction that it does.
    """

    def __init__(
        self,
        tape: Tape,
        replica_names: Sequence[str],
        make_server: Callable[[str, Environment], S],
        *,
        keep_trace: bool = False,
        listen: Callable[[Exchange], None] | None = None,
        follow: Callable[[Transaction], None] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self._loop = loop
        self._tape = tape
        self._make_server = make_server
        self._listen = listen
        self._lives: dict[str, Life[S]] = {}
        self._paused: dict[str, Gate] = {}
        self.trace = Trace(loop.time, keep_lines=keep_trace)
        tape.observer = self.trace.choice
        self.network = Network(tape, self.trace)
        self.images = {name: DiskImage() for name in replica_names}
        self.clocks = {name: SimulatedClock(loop.time) for name in replica_names}
        self.service = LocalService(
            SimulatedClock(loop.time).now, observer=self._heard, on_transaction=follow or (lambda transaction: None)
        )

    def start(self, name: str) -> Life[S]:
        """Begin a new life of a replica that is not running. Raises SimulationError if it is."""
        if name in self._lives:
            raise SimulationError(f"replica {name} is running already")
        self.trace.note(name, "starts", Mark.RESTART)
        gate = Gate()
        disk = SimulatedDisk(name, self.images[name], gate, self._tape, self.trace)
        coordinator = LocalCoordinator(self.service, self.network.link(name, COORDINATOR, gate), name)
        environment = Environment(
            coordinator=coordinator,
            disk=disk,
            transfer=SimulatedTransfer(name, self.network, gate),
            codec=ArrowCodec(),
            workers=SimulatedWorkers(name, gate, self._tape, self.trace),
            clock=self.clocks[name],
            chance=self._tape,
        )
        context = context_of(gate)
        server = context.run(self._make_server, name, environment)
        task = self._loop.create_task(server.run(), name=name, context=context)
        life = Life(server, environment, task, gate, disk, coordinator)
        self._lives[name] = life
        return life

    def crash(self, name: str, *, lose_unsynced: bool) -> None:
        """End a life as SIGKILL does, and with `lose_unsynced` as a loss of power does.

        The ports close first: nothing that the dead tasks still do, `finally` blocks included, has any effect.
        """
        life = self.life(name)
        del self._lives[name]
        self.resume(name)
        self.trace.note(name, "loses power" if lose_unsynced else "is killed", Mark.CRASH)
        life.disk.crash(lose_unsynced=lose_unsynced)
        life.coordinator.sever()
        self._drop_tasks(life)

    async def stop(self, name: str) -> None:
        """End a life in good order: the server is cancelled and runs to its own end, with its ports open."""
        life = self.life(name)
        self.trace.note(name, "stops", Mark.STOP)
        life.task.cancel()
        await asyncio.wait([life.task])
        if life.gate.open:  # it may have crashed meanwhile
            del self._lives[name]
            life.disk.close()
            life.coordinator.sever()
            self._drop_tasks(life)

    def life(self, name: str) -> Life[S]:
        """The present life of a replica. Raises SimulationError when it is down."""
        try:
            return self._lives[name]
        except KeyError:
            raise SimulationError(f"replica {name} is down") from None

    def pause(self, name: str) -> None:
        """Stop a life as SIGSTOP does: nothing of it happens until `resume`. Fine if it is paused."""
        self._paused[name] = self.life(name).gate
        self.trace.note(name, "is paused", Mark.PAUSED)
        self._freeze()

    def resume(self, name: str) -> None:
        """Undo `pause`; fine if there is nothing to undo."""
        if self._paused.pop(name, None) is not None:
            self.trace.note(name, "goes on", Mark.RESUMED)
            self._freeze()

    def _freeze(self) -> None:
        gates = list(self._paused.values())
        self._loop.freeze((lambda context: any(belongs_to(context, gate) for gate in gates)) if gates else None)

    def now(self) -> float:
        """Virtual seconds since the world began."""
        return self._loop.time()

    @property
    def running(self) -> list[str]:
        """Names of the replicas that live, sorted."""
        return sorted(self._lives)

    def _heard(self, exchange: Exchange) -> None:
        self.trace.note(COORDINATOR, str(exchange))
        if self._listen is not None:
            self._listen(exchange)

    def _drop_tasks(self, life: Life[S]) -> None:
        for task in self._loop.live_tasks():
            if belongs_to(task.context, life.gate):
                task.cancel()
