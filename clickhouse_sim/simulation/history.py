"""One history: three replicas, clients, faults; then everything heals, must converge, and is checked.

Two phases, after TigerBeetle's VOPR: in the first only safety counts, in the second also that it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from clickhouse_sim.simulation.client import SimulatedClient, answer_with, door_of
from clickhouse_sim.simulation.deduplication_ledger import DeduplicationLedger
from clickhouse_sim.simulation.faults import Faults
from clickhouse_sim.simulation.insert_workload import InsertHistory, insert_blocks
from clickhouse_sim.simulation.log_ledger import LogContradiction, LogLedger
from clickhouse_sim.simulation.loop import SimulatedLoop, run
from clickhouse_sim.simulation.network import CALM
from clickhouse_sim.simulation.operator import intervene_now_and_again, optimize_now_and_again, start_everything
from clickhouse_sim.simulation.partition_workload import (
    SOURCE_BLOCK,
    SOURCE_TABLE,
    PartitionHistory,
    change_partitions,
    fill_source,
)
from clickhouse_sim.simulation.properties import (
    PropertyBroken,
    check_acknowledged_are_in_log,
    check_equal_parts,
    check_every_acknowledged_block_once,
    check_forgotten,
    check_forgotten_with_parts,
    check_nothing_left_over,
    check_parts_on_disk,
    check_queue,
    check_rows_of_log,
)
from clickhouse_sim.simulation.tape import Tape
from clickhouse_sim.simulation.world import World
from coordinator.api import Session
from coordinator.local_client import LocalCoordinator
from replica.commands import ColumnDefinition, CreateTable
from replica.environment import Environment
from replica.log_entry import EntryType
from replica.server import Server, ServerConfig
from replica.settings import MergeTreeSettings
from replica.table_structure import TableStructure
from replica.znodes import TableZnodes, sequence_number

REPLICAS = ["r1", "r2", "r3"]
LONGEST_CONVERGENCE_SECONDS = 900
_PARTITION_ENTRIES = (EntryType.DROP_RANGE, EntryType.DROP_PART, EntryType.ATTACH_PART, EntryType.REPLACE_RANGE)

TABLE = TableZnodes("/clickhouse/tables/01/t")
DEFINITION = CreateTable(
    database="default",
    table="t",
    columns=(ColumnDefinition("k", "UInt64"), ColumnDefinition("v", "String")),
    zookeeper_path="/clickhouse/tables/{shard}/t",
    replica_name="{replica}",
    partition_by="k % 2",
    order_by="k",
)


class DidNotConverge(Exception):
    """Healed long ago, and the replicas still have work to do."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything a history has."""

    clients: int = 2
    blocks_per_client: int = 15
    optimizes: int = 4
    interventions: int = 4
    pause_seconds: int = 20
    faults: int = 10
    longest_down_seconds: int = 60
    partition_commands: int = 0
    table_settings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


# What takes hours with the default settings happens within minutes: the log is cut, ids are forgotten, and a replica
# that is down for long is lost and clones another one.
FORGETFUL = Plan(
    blocks_per_client=40,
    pause_seconds=15,
    faults=6,
    longest_down_seconds=300,
    table_settings=MappingProxyType(
        {
            "min_replicated_logs_to_keep": "5",
            "max_replicated_logs_to_keep": "10",
            "replicated_deduplication_window": "20",
            "replicated_deduplication_window_seconds": "60",
            "old_parts_lifetime": "30",
            "cleanup_delay_period": "5",
            "max_cleanup_delay_period": "20",
            "cleanup_delay_period_random_add": "5",
        }
    ),
)


# Partitions and parts are dropped, detached, attached and replaced among all the rest.
DROPPING = Plan(clients=4, blocks_per_client=15, pause_seconds=3, faults=12, partition_commands=30)


@dataclass(frozen=True, slots=True)
class Report:
    """What a history was: equal seeds give equal reports.

    `trimmed_entries` were cut off the log; `lost_replicas` counts the times that one was marked lost, and cloned;
    `stored_again` the parts of blocks that were stored once more because their ids had been forgotten meanwhile;
    `partition_entries` the entries that dropped, attached or replaced something.
    """

    seed: int
    trace_hash: str
    simulated_seconds: float
    callbacks: int
    faults: dict[str, int]
    acknowledged: dict[int, str]
    trimmed_entries: int
    lost_replicas: int
    forgotten_ids: int
    stored_again: int
    partition_entries: int = 0


def simulate(seed: int, plan: Plan | None = None) -> Report:
    """Run the history of a seed. Raises PropertyBroken, DidNotConverge or SimulationError."""
    tape = Tape(seed)
    return run(_History(seed, tape, plan or Plan()).run(), tape)


class _History:
    def __init__(self, seed: int, tape: Tape, plan: Plan) -> None:
        self._seed = seed
        self._tape = tape
        self._plan = plan
        self._history = InsertHistory()
        self._definition = replace(DEFINITION, settings=dict(plan.table_settings))
        self._settings = MergeTreeSettings.from_text(plan.table_settings)
        self._ledger = DeduplicationLedger(TABLE, self._settings)
        blocks = range(plan.clients * plan.blocks_per_client)
        self._log = LogLedger(TABLE, TableStructure.from_definition(self._definition), [*blocks, SOURCE_BLOCK])
        self._partitions = PartitionHistory()

    async def run(self) -> Report:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self._loop = loop
        self._world = World(self._tape, REPLICAS, _make_server)
        for name in REPLICAS:
            self._start(name)
        await self._create_table()
        session = await self._observe()
        longest_down = self._plan.longest_down_seconds
        faults = Faults(self._world, self._tape, REPLICAS, self._start, longest_down, session.session_id)
        keeping = [asyncio.create_task(self._ledger.keep(session))]
        if self._plan.partition_commands:
            keeping.append(asyncio.create_task(self._log.keep(session)))
        await self._play(faults)
        await self._converge(session)
        await self._forget(session)
        for each in keeping:
            each.cancel()
        report = await self._report(session, faults)
        await session.close()
        return report

    async def _play(self, faults: Faults) -> None:
        async with asyncio.TaskGroup() as group:
            faulty = group.create_task(faults.inject(self._plan.faults, self._plan.pause_seconds))
            for client in range(self._plan.clients):
                group.create_task(self._insert(client))
            group.create_task(self._optimize())
            intervening = group.create_task(self._intervene())
            if self._plan.partition_commands:
                group.create_task(self._change_partitions())
            watching = group.create_task(self._watch_queues())
            await faulty
            watching.cancel()
            faults.heal()
            await intervening
            await start_everything(self._operator(), REPLICAS)

    async def _report(self, session: Session, faults: Faults) -> Report:
        log_names = await session.children(TABLE.log)
        lost = await session.get_many([TABLE.replica(name).is_lost for name in REPLICAS])
        return Report(
            self._seed,
            self._world.trace.digest(),
            self._loop.time(),
            self._loop.callbacks,
            dict(sorted(faults.seen.items())),
            {number: str(status) for number, status in sorted(self._history.acknowledged.items())},
            trimmed_entries=_past(log_names) - len(log_names),
            # Who is lost is set to 1, and to 0 when it has cloned; who joined began with 1.
            lost_replicas=sum(answer[1].version // 2 for answer in lost if answer is not None),
            forgotten_ids=self._ledger.forgotten.total(),
            stored_again=self._ledger.made_again,
            partition_entries=self._log.count(*_PARTITION_ENTRIES),
        )

    def _start(self, name: str) -> None:
        life = self._world.start(name)
        self._world.network.listen(door_of(name), answer_with(life.server), life.gate)

    async def _create_table(self) -> None:
        client = self._operator()
        for name in REPLICAS:
            await client.execute(name, self._definition)
        if self._plan.partition_commands:
            source = replace(self._definition, table=SOURCE_TABLE, zookeeper_path="/clickhouse/tables/{shard}/s")
            for name in REPLICAS:
                await client.execute(name, source)
            await fill_source(client, REPLICAS[0])

    async def _insert(self, number: int) -> None:
        client = SimulatedClient(f"c{number}", self._world.network, deadline_seconds=60)
        first = number * self._plan.blocks_per_client
        blocks = range(first, first + self._plan.blocks_per_client)
        await insert_blocks(client, self._tape, REPLICAS, blocks, self._plan.pause_seconds, self._history)

    async def _optimize(self) -> None:
        plan = self._plan
        await optimize_now_and_again(self._operator(), self._tape, REPLICAS, plan.optimizes, 2 * plan.pause_seconds)

    async def _intervene(self) -> None:
        plan = self._plan
        await intervene_now_and_again(self._operator(), self._tape, REPLICAS, plan.interventions, plan.pause_seconds)

    async def _change_partitions(self) -> None:
        plan, client = self._plan, SimulatedClient("partitions", self._world.network, deadline_seconds=60)
        await change_partitions(
            client, self._tape, REPLICAS, plan.partition_commands, plan.pause_seconds, self._log, self._partitions
        )

    def _operator(self) -> SimulatedClient:
        return SimulatedClient("operator", self._world.network, deadline_seconds=60)

    async def _watch_queues(self) -> None:
        """While faults happen: what a replica knows of its queue must hold at every moment."""
        while True:
            await asyncio.sleep(1)
            for name in self._world.running:
                check_queue(name, self._world.life(name).server)

    async def _converge(self, session: Session) -> None:
        """Wait until there is nothing left to do, and nothing new has come while the properties were checked."""
        try:
            async with asyncio.timeout(LONGEST_CONVERGENCE_SECONDS):
                while True:
                    past_log = _past(await session.children(TABLE.log))
                    if await self._is_quiet(session, past_log):
                        broken = await self._broken_property(session)
                        if _past(await session.children(TABLE.log)) == past_log:
                            break
                    await asyncio.sleep(1)
        except TimeoutError:
            raise DidNotConverge(f"{LONGEST_CONVERGENCE_SECONDS} s after healing") from None
        if broken is not None:
            raise broken

    async def _forget(self, session: Session) -> None:
        """Within a cleanup period at most, no deduplication id outside of the window remains."""
        settings = self._settings
        period = settings.max_cleanup_delay_period + settings.cleanup_delay_period_random_add
        for _ in range(period + 1):
            await self._ledger.look(session)
            if not self._ledger.outside():
                return
            await asyncio.sleep(1)
        raise PropertyBroken(f"not forgotten after a cleanup period: {self._ledger.outside()[:5]}")

    async def _is_quiet(self, session: Session, past_log: int) -> bool:
        """Every replica is writable, has copied the whole log and has an empty queue, and no insert is open."""
        for name in REPLICAS:
            rows = (await self._world.life(name).server.scan("system", "replicas")).to_pylist()
            state = next((row for row in rows if row["table"] == "t"), None)
            if state is None or state["is_readonly"] or state["log_pointer"] < past_log:
                return False
            if await session.children(TABLE.replica(name).queue):
                return False
        for partition in await session.children(TABLE.block_numbers):
            if await session.children(TABLE.partition(partition)):
                return False
        return True

    async def _observe(self) -> Session:
        return await LocalCoordinator(self._world.service, _Instant(), "checker").connect()

    async def _broken_property(self, session: Session) -> PropertyBroken | None:
        await self._ledger.look(session)
        try:
            if self._plan.partition_commands:
                await self._check_against_log(session)
            else:
                check_forgotten(self._ledger)
                for name in REPLICAS:
                    server = self._world.life(name).server
                    await check_every_acknowledged_block_once(name, server, self._history, self._ledger.forgotten)
            for name in REPLICAS:
                server = self._world.life(name).server
                await check_parts_on_disk(session, name, server, TABLE)
                check_queue(name, server)
            await check_equal_parts(session, TABLE)
            await check_nothing_left_over(session, TABLE)
        except PropertyBroken as broken:
            return broken
        return None

    async def _check_against_log(self, session: Session) -> None:
        await self._log.look(session)
        try:
            replay = self._log.replay()
        except LogContradiction as contradiction:
            raise PropertyBroken(str(contradiction)) from contradiction
        check_forgotten_with_parts(self._ledger, replay, self._partitions.unfinished)
        structure = TableStructure.from_definition(self._definition)
        check_acknowledged_are_in_log(structure, self._history, replay, self._ledger.forgotten)
        for name in REPLICAS:
            await check_rows_of_log(name, self._world.life(name).server, replay)


def _past(log_names: list[str]) -> int:
    """The number that the next log entry will have."""
    return sequence_number(log_names[-1]) + 1 if log_names else 0


class _Instant:
    """The checker's way to the coordination service: outside the network and its faults."""

    def delay(self, label: str) -> float | None:
        return CALM.quickest_seconds


def _make_server(name: str, environment: Environment) -> Server:
    return Server(environment, ServerConfig(name))
