"""The identity gateway in the second world: retries, lost replies, and gateways that die between claim and effect.

Producers hand their events to a monitor, now and then one of the last ones once more. The monitor sends each along
its present route to some gateway, over a network that loses questions and answers, until it is delivered; what is
buffered it replays. A gateway decides, hands what it accepts to ordering a moment later (the effect), and answers a
moment after that. Meanwhile gateways are killed, clocks are set, claims end in errors, routes change. Then all heals.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from clickhouse_sim.ingest.gateway import (
    DedupeGateway,
    DedupeIdentityLedgerCapacityError,
    DedupeIdentityLedgerError,
    DedupeIdentityLedgerStats,
    Fate,
    MonitorRoute,
    Routed,
    deliver,
)
from clickhouse_sim.simulation.dedupe_properties import EMPTIES, DedupeRecord, check_record, check_statistics
from clickhouse_sim.simulation.history import DidNotConverge
from clickhouse_sim.simulation.loop import SimulatedLoop, run
from clickhouse_sim.simulation.network import CALM, Weather
from clickhouse_sim.simulation.properties.broken import PropertyBroken
from clickhouse_sim.simulation.tape import Tape
from clickhouse_sim.simulation.world import World
from replica.environment import Chance, Clock, Environment
from replica.errors import ClickHouseError

WINDOW_SECONDS = 20
CLEANUP_SECONDS = 5
LONGEST_CONVERGENCE_SECONDS = 900

_DEADLINE_SECONDS = 3
_RAIN = Weather(loss_permille=300)
_LIVE_ROUTES = (MonitorRoute.NORMAL, MonitorRoute.NORMAL, MonitorRoute.DEDUPE_BYPASS_THROTTLED)
_ROUTES = (*_LIVE_ROUTES, MonitorRoute.ORDER_BUFFER_ONLY, MonitorRoute.FULL_OUTAGE_BUFFER)
_BUFFERING = (MonitorRoute.ORDER_BUFFER_ONLY, MonitorRoute.FULL_OUTAGE_BUFFER)
_CLOCK_STEPS = (-60, -15, -3, 3, 15, 60)


class SimulatedLedger:
    """A caller's ledger that no crash touches. While it is `in_trouble`, new claims are taken and end in an error."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.claimed: dict[str, int] = {}
        self.in_trouble = False

    def claim(self, identity_key: str, accepted_at_ms: int) -> bool:
        if identity_key in self.claimed:
            return False
        if len(self.claimed) >= self.capacity:
            raise DedupeIdentityLedgerCapacityError(len(self.claimed), self.capacity)
        self.claimed[identity_key] = accepted_at_ms
        if self.in_trouble:
            raise DedupeIdentityLedgerError("the disk did not say whether it has synced")
        return True

    def get_stats(self) -> DedupeIdentityLedgerStats:
        return DedupeIdentityLedgerStats(len(self.claimed), self.capacity, "simulated")


@dataclass(frozen=True, slots=True)
class DedupePlan:
    """How much of everything. With a `capacity`, the gateways share a ledger; without one there must be one gateway.

    `gateway`, `ledger` and `deliver` are what runs: the real ones, unless a test breaks one.
    """

    gateways: int = 1
    capacity: int | None = None
    producers: int = 3
    events_per_producer: int = 12
    pause_seconds: int = 8
    faults: int = 10
    gateway: type[DedupeGateway] = DedupeGateway
    ledger: type[SimulatedLedger] = SimulatedLedger
    deliver: Callable[[dict[str, object], MonitorRoute, DedupeGateway], Routed] = deliver


IN_MEMORY = DedupePlan()
DURABLE = DedupePlan(gateways=2, capacity=1000)
FULL = DedupePlan(gateways=2, capacity=15)


@dataclass(frozen=True, slots=True)
class DedupeReport:
    """What a run had. `lost` events were acknowledged and never ordered: a crash fell between claim and effect."""

    seed: int
    trace_hash: str
    faults: dict[str, int]
    ordered: int
    dropped: int
    ordered_twice: int
    refused: int
    lost: int


def simulate_dedupe(seed: int, plan: DedupePlan = IN_MEMORY) -> DedupeReport:
    """Run the scenario of a seed. Raises PropertyBroken, DidNotConverge or SimulationError."""
    tape = Tape(seed)
    return run(_Scenario(seed, tape, plan).run(), tape)


class _GatewayProcess:
    """One life of a process with one gateway."""

    def __init__(
        self,
        life: str,
        plan: DedupePlan,
        ledger: SimulatedLedger | None,
        record: DedupeRecord,
        environment: Environment,
    ) -> None:
        self.life = life
        self._record = record
        self._deliver = plan.deliver
        self._chance = environment.chance
        self._now = _milliseconds(environment.clock)
        self.gateway = plan.gateway(
            sliding_window_seconds=WINDOW_SECONDS,
            max_sliding_window_seconds=WINDOW_SECONDS,
            auto_cleanup_interval_seconds=CLEANUP_SECONDS,
            now_provider=self._now,
            identity_ledger=ledger,
        )

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def answer(self, question: bytes) -> bytes:
        """Decide on a delivery, let it take effect, say what became of it."""
        asked = json.loads(question)
        event = asked["event"]
        await self._moment("before the decision")
        reading = self._now()
        try:
            routed = self._deliver(event, MonitorRoute(asked["route"]), self.gateway)
        except DedupeIdentityLedgerCapacityError as full:
            self._record.refused(event["number"], full)
            return json.dumps({"refused": full.code}).encode()
        except DedupeIdentityLedgerError:
            self._record.failed_claims.add(event["number"])
            raise
        self._record.decided(self.life, event["number"], reading, routed)
        if routed.fate is Fate.ORDER:
            await self._moment("between claim and effect")
            self._record.ordered(event["number"], filtered=routed.result is not None)
            await self._moment("between effect and answer")
        return json.dumps({"fate": routed.fate}).encode()

    async def _moment(self, label: str) -> None:
        await asyncio.sleep(self._chance.choose(label, range(10)) / 10)


@dataclass
class _Monitor:
    """Delivers each event until it is delivered. Its reservoir is its own, and durable: it never dies here."""

    world: World[_GatewayProcess]
    chance: Chance
    gateways: Sequence[str]
    record: DedupeRecord
    route: MonitorRoute = MonitorRoute.NORMAL
    reservoir: deque[dict[str, object]] = field(default_factory=deque)

    async def hand_in(self, event: dict[str, object]) -> None:
        """Returns when the event is delivered, refused or in the reservoir."""
        while True:
            answer = await self._ask(event, self.route)
            if answer == {"fate": Fate.BUFFER}:
                self.reservoir.append(event)
                return
            if self._is_done(event, answer):
                return
            await asyncio.sleep(1)

    async def replay(self) -> None:
        """Replay the reservoir, oldest first, whenever the route allows it; until cancelled."""
        while True:
            if self.reservoir and self.route not in _BUFFERING:
                event = self.reservoir[0]
                if self._is_done(event, await self._ask(event, MonitorRoute.REPLAY_THROUGH_DEDUPE)):
                    self.reservoir.popleft()
                    continue
            await asyncio.sleep(1)

    async def _ask(self, event: dict[str, object], route: MonitorRoute) -> object:
        """The answer of a drawn gateway; None when none came or it was an error."""
        address = _door_of(self.chance.choose("gateway to ask", self.gateways))
        question = json.dumps({"route": route, "event": event}).encode()
        try:
            async with asyncio.timeout(_DEADLINE_SECONDS):
                return json.loads(await self.world.network.ask("monitor", address, "deliver", question))
        except (TimeoutError, ClickHouseError):
            return None

    def _is_done(self, event: dict[str, object], answer: object) -> bool:
        if answer in ({"fate": Fate.ORDER}, {"fate": Fate.DROP}):
            self.record.acknowledged.add(_number(event))
            return True
        return answer == {"refused": DedupeIdentityLedgerCapacityError.code}


class _Scenario:
    def __init__(self, seed: int, tape: Tape, plan: DedupePlan) -> None:
        self._seed = seed
        self._tape = tape
        self._plan = plan
        self._ledger = None if plan.capacity is None else plan.ledger(plan.capacity)
        self._record = DedupeRecord()
        self._gateways = [f"g{number + 1}" for number in range(plan.gateways)]
        self._lives = 0
        self._faults: list[Callable[[], Awaitable[None]]] = [
            self._crash,
            self._set_a_clock,
            self._lose_messages,
            self._change_the_route,
            *([] if self._ledger is None else [self._fail_claims]),
        ]
        self._seen: dict[str, int] = {}

    async def run(self) -> DedupeReport:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self._world = World(self._tape, self._gateways, self._make_process)
        self._monitor = _Monitor(self._world, self._tape, self._gateways, self._record)
        for name in self._gateways:
            self._start(name)
        replaying = asyncio.create_task(self._monitor.replay())
        try:
            async with asyncio.timeout(LONGEST_CONVERGENCE_SECONDS), asyncio.TaskGroup() as group:
                for producer in range(self._plan.producers):
                    group.create_task(self._produce(producer))
                group.create_task(self._play_faults())
            async with asyncio.timeout(LONGEST_CONVERGENCE_SECONDS):
                while self._monitor.reservoir:
                    await asyncio.sleep(1)
        except TimeoutError:
            raise DidNotConverge(f"not all events are delivered after {LONGEST_CONVERGENCE_SECONDS} s") from None
        replaying.cancel()
        await asyncio.sleep(_DEADLINE_SECONDS)  # the last effects
        self._check_statistics()
        await self._check_that_memory_empties()
        check_record(self._record, WINDOW_SECONDS, CLEANUP_SECONDS, self._plan.capacity)
        return self._report()

    # --- producers --------------------------------------------------------------------------------------------

    async def _produce(self, producer: int) -> None:
        """Events of three kinds: with an id, with node and sequence, with neither. Then all of them once more."""
        made: list[dict[str, object]] = []
        for sequence in range(self._plan.events_per_producer):
            made.append(self._event(producer, sequence))
            await self._monitor.hand_in(made[-1])
            while self._tape.choose("deliver once more", (False, True, True)):
                await self._pause()
                await self._monitor.hand_in(self._tape.choose("which once more", made[-1:-4:-1]))
            await self._pause()
        for event in made:
            await self._monitor.hand_in(event)

    def _event(self, producer: int, sequence: int) -> dict[str, object]:
        number = producer * self._plan.events_per_producer + sequence
        self._record.made.add(number)
        match number % 5:
            case 0 | 2:
                return {"number": number, "id": f"event {number}"}
            case 1 | 3:
                return {"number": number, "nodeId": f"node {producer}", "sequence": sequence}
        self._record.without_identity.add(number)
        return {"number": number}

    async def _pause(self) -> None:
        await asyncio.sleep(self._tape.choose("pause", range(1, self._plan.pause_seconds * 10)) / 10)

    # --- faults -----------------------------------------------------------------------------------------------

    async def _play_faults(self) -> None:
        for _ in range(self._plan.faults):
            await self._pause()
            fault = self._tape.choose("fault", self._faults)
            name = fault.__name__.strip("_").replace("_", " ")
            self._seen[name] = self._seen.get(name, 0) + 1
            await fault()
        self._monitor.route = MonitorRoute.NORMAL

    async def _crash(self) -> None:
        name = self._tape.choose("who crashes", self._gateways)
        self._record.crashed.add(self._world.life(name).server.life)
        self._world.crash(name, lose_unsynced=False)
        await self._pause()
        self._start(name)

    async def _set_a_clock(self) -> None:
        clock = self._world.clocks[self._tape.choose("whose clock", self._gateways)]
        clock.skew_seconds += self._tape.choose("by how much", _CLOCK_STEPS)

    async def _lose_messages(self) -> None:
        self._world.network.weather = _RAIN
        await self._pause()
        self._world.network.weather = CALM

    async def _change_the_route(self) -> None:
        self._monitor.route = self._tape.choose("route", _ROUTES)

    async def _fail_claims(self) -> None:
        assert self._ledger is not None
        self._ledger.in_trouble = True
        await self._pause()
        self._ledger.in_trouble = False

    # --- gateways ---------------------------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        life = self._world.start(name)
        self._world.network.listen(_door_of(name), life.server.answer, life.gate)

    def _make_process(self, name: str, environment: Environment) -> _GatewayProcess:
        self._lives += 1
        return _GatewayProcess(f"{name}, life {self._lives}", self._plan, self._ledger, self._record, environment)

    # --- the end ----------------------------------------------------------------------------------------------

    def _check_statistics(self) -> None:
        for name in self._gateways:
            process = self._world.life(name).server
            check_statistics(process.life, process.gateway.get_stats(), self._record.decisions)

    async def _check_that_memory_empties(self) -> None:
        """When all is past its window, wherever the clocks were set to, one event more is all that is remembered."""
        farthest_back = self._plan.faults * max(_CLOCK_STEPS)
        await asyncio.sleep(WINDOW_SECONDS + CLEANUP_SECONDS + farthest_back)
        for name in self._gateways:
            gateway = self._world.life(name).server.gateway
            with suppress(DedupeIdentityLedgerCapacityError):
                gateway.filter({"id": f"the last one of {name}"})
            if (size := gateway.get_stats().current_cache_size) > 1:
                raise PropertyBroken(EMPTIES, f"{name} still remembers {size} identities past their window")

    def _report(self) -> DedupeReport:
        record = self._record
        return DedupeReport(
            self._seed,
            self._world.trace.digest(),
            dict(sorted(self._seen.items())),
            ordered=record.effects.total() + record.bypassed.total(),
            dropped=sum(not decision.accepted for decision in record.decisions),
            ordered_twice=sum(count > 1 for count in (record.effects + record.bypassed).values()),
            refused=len(record.refusals),
            lost=len(record.lost()),
        )


def _number(event: dict[str, object]) -> int:
    number = event["number"]
    assert isinstance(number, int)
    return number


def _door_of(gateway: str) -> str:
    return f"{gateway}:7000"


def _milliseconds(clock: Clock) -> Callable[[], float]:
    return lambda: round(clock.now() * 1000)
