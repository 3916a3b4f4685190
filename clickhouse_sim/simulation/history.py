"""One history: three replicas, clients, faults; then everything heals, must converge, and is checked.

Two phases, after TigerBeetle's VOPR: in the first only safety counts, in the second also that it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from clickhouse_sim.simulation.client import SimulatedClient
from clickhouse_sim.simulation.cluster import DEFAULTS, SimulatedCluster, past
from clickhouse_sim.simulation.deduplication_ledger import DeduplicationLedger
from clickhouse_sim.simulation.destruction import Destruction, let_start_by_force
from clickhouse_sim.simulation.faults import Faults
from clickhouse_sim.simulation.insert_workload import InsertHistory, insert_blocks
from clickhouse_sim.simulation.log_ledger import LogLedger
from clickhouse_sim.simulation.loop import SimulatedLoop, run
from clickhouse_sim.simulation.operator import (
    intervene_now_and_again,
    let_everything_go,
    lose_tree,
    optimize_now_and_again,
    restore,
)
from clickhouse_sim.simulation.partition_workload import (
    SOURCE_BLOCK,
    SOURCE_TABLE,
    PartitionHistory,
    change_partitions,
    fill_source,
)
from clickhouse_sim.simulation.properties.after_healing import (
    WINDOW,
    BlockIds,
    Id,
    check_equal_parts,
    check_every_acknowledged_block_once,
    check_forgotten,
    check_ids_have_their_rows,
    check_loss_is_told,
    check_nothing_left_over,
    check_parts_on_disk,
    check_queue,
    check_settings,
    ids_of_blocks,
)
from clickhouse_sim.simulation.properties.as_logged import check_against_log
from clickhouse_sim.simulation.properties.broken import PropertyBroken
from clickhouse_sim.simulation.properties.followed import FollowedProperties
from clickhouse_sim.simulation.recording import Recording
from clickhouse_sim.simulation.standard_table import DEFINITION, TABLE
from clickhouse_sim.simulation.tape import Tape
from coordinator.api import Session
from coordinator.processor import Transaction
from replica.dedup.hashes import DeduplicationVersion, HashKind
from replica.errors import ChecksumDoesntMatch, CorruptedData
from replica.log_entry import EntryType
from replica.server import DEFAULT_DATABASE, Server
from replica.settings import MergeTreeSettings, ServerSettings
from replica.table_structure import TableStructure

REPLICAS = ["r1", "r2", "r3"]

# The default, or so few that entries wait for slots.
POOLS = (
    DEFAULTS,
    ServerSettings(background_fetches_pool_size=1),
    ServerSettings(background_pool_size=1, background_merges_mutations_concurrency_ratio=1),
    ServerSettings(
        background_fetches_pool_size=1, background_pool_size=1, background_merges_mutations_concurrency_ratio=1
    ),
)
# Of an older release: it neither writes OPTIMIZE … DEDUPLICATE BY into the log nor copies it from there.
OLDER = MappingProxyType({"max_log_entry_format_version": "5"})

LONGEST_CONVERGENCE_SECONDS = 900
_PARTITION_ENTRIES = (EntryType.DROP_RANGE, EntryType.DROP_PART, EntryType.ATTACH_PART, EntryType.REPLACE_RANGE)

# An upgrade goes through these steps, each with replicas of two versions at most; to leave out the middle one would
# let a retry through.
_STEPS_OF_AN_UPGRADE = (
    (DeduplicationVersion.OLD_SEPARATE_HASHES,),
    (DeduplicationVersion.OLD_SEPARATE_HASHES, DeduplicationVersion.COMPATIBLE_DOUBLE_HASHES),
    (DeduplicationVersion.COMPATIBLE_DOUBLE_HASHES, DeduplicationVersion.NEW_UNIFIED_HASH),
    (DeduplicationVersion.NEW_UNIFIED_HASH,),
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
    tree_is_lost: bool = False
    destruction: bool = False
    table_settings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


# When all is done, the coordination service loses the table.
TREE_LOST = Plan(blocks_per_client=8, faults=8, pause_seconds=5, tree_is_lost=True)

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
            "replicated_deduplication_window_for_async_inserts": "20",
            "replicated_deduplication_window_seconds_for_async_inserts": "60",
            "old_parts_lifetime": "30",
            "cleanup_delay_period": "5",
            "max_cleanup_delay_period": "20",
            "cleanup_delay_period_random_add": "5",
        }
    ),
)

# Disks are lost and files rot as well, now and then the last copy of some rows.
DESTRUCTIVE = Plan(
    faults=14,
    destruction=True,
    table_settings=MappingProxyType(
        {"old_parts_lifetime": "60", "cleanup_delay_period": "5", "max_cleanup_delay_period": "20"}
    ),
)


# Partitions and parts are dropped, detached, attached and replaced among all the rest.
DROPPING = Plan(clients=4, blocks_per_client=15, pause_seconds=3, faults=12, partition_commands=30)


PLANS: Mapping[str, Plan] = MappingProxyType(
    {
        "standard": Plan(),
        "forgetful": FORGETFUL,
        "destructive": DESTRUCTIVE,
        "tree-lost": TREE_LOST,
        "dropping": DROPPING,
    }
)
"""The plans by name."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a history was: equal seeds give equal reports.

    `trimmed_entries` were cut off the log; `lost_replicas` counts the times that one was marked lost, and cloned;
    `stored_again` the parts of blocks that were stored once more because their ids had been forgotten meanwhile;
    `rewritten_parts` were written anew without the rows that were there already.
    `partition_entries` are those that dropped, attached or replaced something.
    `lost_parts` were replaced by empty ones, and `missing_rows` were acknowledged and are gone for ever.
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
    rewritten_parts: int
    deduplication_versions: dict[str, str]
    partition_entries: int
    lost_parts: int
    missing_rows: int


def simulate(
    seed: int, plan: Plan | None = None, *, tape: Tape | None = None, recording: Recording | None = None
) -> Report:
    """Run the history of a seed, or of the tape. Raises PropertyBroken, DidNotConverge or SimulationError."""
    if tape is None:
        tape = Tape(seed)
    return run(_History(seed, tape, plan or Plan(), recording).run(), tape)


class _History:
    def __init__(self, seed: int, tape: Tape, plan: Plan, recording: Recording | None) -> None:
        self._seed = seed
        self._tape = tape
        self._plan = plan
        self._recording = recording
        self._followed = FollowedProperties(TABLE)
        self._history = InsertHistory()
        self._definition = replace(DEFINITION, settings=dict(plan.table_settings))
        self._settings = MergeTreeSettings.from_text(plan.table_settings)
        self._ledgers = [DeduplicationLedger(TABLE, self._settings, kind) for kind in HashKind]
        versions = tape.choose("versions of deduplication", _STEPS_OF_AN_UPGRADE)
        self._versions = {name: tape.choose("version of deduplication", versions) for name in REPLICAS}
        blocks = [*range(plan.clients * plan.blocks_per_client), SOURCE_BLOCK] if plan.partition_commands else []
        self._log = LogLedger(TABLE, TableStructure.from_definition(self._definition), blocks)
        self._partitions = PartitionHistory()
        self._missing_rows = 0

    async def run(self) -> Report:
        """Play it to its end, or until a followed property breaks."""
        playing = asyncio.current_task()
        assert playing is not None
        self._followed.on_broken = playing.cancel
        try:
            return await self._run()
        except asyncio.CancelledError:
            if self._followed.broken is None:
                raise
            raise self._followed.broken from None

    async def _run(self) -> Report:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self._loop = loop
        self._cluster = SimulatedCluster(
            self._tape,
            REPLICAS,
            "t",
            TABLE,
            recording=self._recording,
            follow=self._follow,
            settings=self._tape.choose("sizes of the pools", POOLS),
        )
        self._world = self._cluster.world
        self._destruction = Destruction(self._world, TABLE)
        await self._create_table()
        session = await self._cluster.observer()
        longest_down = self._plan.longest_down_seconds
        destruction = self._destruction if self._plan.destruction else None
        faults = Faults(
            self._world, self._tape, REPLICAS, self._cluster.start, longest_down, session.session_id, destruction
        )
        keeping = [asyncio.create_task(ledger.keep(session)) for ledger in self._ledgers]
        await self._play(faults)
        await self._converge(session)
        await self._forget(session)
        for task in keeping:
            task.cancel()
        if self._plan.tree_is_lost:
            await self._lose_and_restore(session, faults)
        report = await self._report(session, faults)
        await session.close()
        return report

    def _follow(self, transaction: Transaction) -> None:
        self._log.follow(transaction)
        self._followed.follow(transaction)

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
            if self._older is not None:  # its upgrade: it goes on where it had to stop
                await self._cluster.restart_with(self._older, self._settings_of(self._older))
            await let_everything_go(self._operator(), REPLICAS)

    async def _lose_and_restore(self, session: Session, faults: Faults) -> None:
        """The table's znodes go when all replicas have all parts; RESTORE REPLICA brings back every block once."""
        self._followed.pause()
        await lose_tree(session, TABLE.root)
        self._followed.begin()
        for ledger in self._ledgers:
            ledger.begin_anew()
        async with asyncio.TaskGroup() as group:
            for name in REPLICAS:
                group.create_task(restore(self._operator(), name, session, TABLE.replica(name).root))
            await faults.inject(self._plan.faults, self._plan.pause_seconds)
            faults.heal()
        await self._converge(session)

    async def _report(self, session: Session, faults: Faults) -> Report:
        log_names = await session.children(TABLE.log)
        lost = await session.get_many([TABLE.replica(name).is_lost for name in REPLICAS])
        destroys = self._plan.destruction
        return Report(
            self._seed,
            self._world.trace.digest(),
            self._loop.time(),
            self._loop.callbacks,
            dict(sorted(faults.seen.items())),
            {number: str(status) for number, status in sorted(self._history.acknowledged.items())},
            trimmed_entries=past(log_names) - len(log_names),
            # Who is lost is set to 1, and to 0 when it has cloned; who joined began with 1. What is fetched again
            # raises the version too.
            lost_replicas=sum(answer[1].version // 2 for answer in lost if answer is not None and not destroys),
            forgotten_ids=sum(ledger.forgotten.total() for ledger in self._ledgers),
            stored_again=sum(ledger.made_again for ledger in self._ledgers),
            partition_entries=self._log.count(*_PARTITION_ENTRIES),
            lost_parts=int((await session.get(TABLE.lost_part_count))[0] or b"0"),
            missing_rows=self._missing_rows,
            rewritten_parts=self._history.rewritten_parts,
            deduplication_versions={name: str(version) for name, version in self._versions.items()},
        )

    async def _create_table(self) -> None:
        client = self._operator()
        self._older = self._tape.choose("replica of an older release", (None, *REPLICAS))
        for name in REPLICAS:
            settings = {**self._settings_of(name), **(OLDER if name == self._older else {})}
            await client.execute(name, replace(self._definition, settings=settings))
        if self._plan.partition_commands:
            source = replace(self._definition, table=SOURCE_TABLE, zookeeper_path="/clickhouse/tables/{shard}/s")
            for name in REPLICAS:
                await client.execute(name, source)
            await fill_source(client, REPLICAS[0])

    def _settings_of(self, name: str) -> dict[str, str]:
        """Of a replica of the newest release."""
        return {**self._definition.settings, "insert_deduplication_version": str(self._versions[name])}

    async def _insert(self, number: int) -> None:
        client = self._cluster.client(f"c{number}")
        first = number * self._plan.blocks_per_client
        blocks = range(first, first + self._plan.blocks_per_client)
        # Where rows are destroyed, two copies of them could not be told apart.
        await insert_blocks(
            client,
            self._tape,
            REPLICAS,
            blocks,
            self._plan.pause_seconds,
            self._history,
            rows_twice=not self._plan.destruction,
        )

    async def _optimize(self) -> None:
        plan = self._plan
        await optimize_now_and_again(self._operator(), self._tape, REPLICAS, plan.optimizes, 2 * plan.pause_seconds)

    async def _intervene(self) -> None:
        plan = self._plan
        await intervene_now_and_again(self._operator(), self._tape, REPLICAS, plan.interventions, plan.pause_seconds)

    async def _change_partitions(self) -> None:
        plan, client = self._plan, self._cluster.client("partitions")
        await change_partitions(
            client, self._tape, REPLICAS, plan.partition_commands, plan.pause_seconds, self._log, self._partitions
        )

    def _operator(self) -> SimulatedClient:
        return self._cluster.client("operator")

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
                    past_log = past(await session.children(TABLE.log))
                    if self._plan.destruction:
                        await self._let_start_by_force(session)
                    if await self._cluster.is_quiet(session):
                        try:
                            broken = await self._broken_property(session)
                        except (ChecksumDoesntMatch, CorruptedData):
                            continue  # only now that it is read a part turns out to be rotten
                        if past(await session.children(TABLE.log)) == past_log:
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
            outside = []
            for ledger in self._ledgers:
                await ledger.look(session)
                outside += ledger.outside()
            if not outside:
                return
            await asyncio.sleep(1)
        raise PropertyBroken(WINDOW, f"not forgotten after a cleanup period: {outside[:5]}")

    async def _let_start_by_force(self, session: Session) -> None:
        for name in self._world.running:
            for row in (await self._cluster.server(name).scan("system", "replicas")).to_pylist():
                if row["is_readonly"] and row["table"] == DEFINITION.table:
                    await let_start_by_force(session, TABLE, name, row["zookeeper_exception"])

    async def _broken_property(self, session: Session) -> PropertyBroken | None:
        for ledger in self._ledgers:
            await ledger.look(session)
        forgotten = {
            (ledger.kind, name): times for ledger in self._ledgers for name, times in ledger.forgotten.items()
        }
        structure = self._world.life(REPLICAS[0]).server.table(DEFAULT_DATABASE, "t").state.structure
        blocks = list(ids_of_blocks(structure, self._history))
        try:
            if self._plan.partition_commands:
                await check_against_log(
                    self._servers(), self._log, self._ledgers, self._history, blocks, forgotten, self._partitions
                )
            else:
                await self._check_blocks(session, blocks, forgotten)
            for name in REPLICAS:
                server = self._world.life(name).server
                await check_parts_on_disk(session, name, server, TABLE)
                check_queue(name, server)
                check_settings(name, server, self._settings_of(name))
            await check_equal_parts(session, TABLE)
            await check_nothing_left_over(session, TABLE)
        except PropertyBroken as broken:
            return broken
        return None

    async def _check_blocks(self, session: Session, blocks: Sequence[BlockIds], forgotten: Mapping[Id, int]) -> None:
        """Where nothing is dropped, every block is there."""
        gone = self._destruction.keys
        for ledger in self._ledgers:
            check_forgotten(ledger, blocks, gone)
        for name, server in self._servers().items():
            self._missing_rows = await check_every_acknowledged_block_once(
                name, server, self._history, blocks, forgotten, gone
            )
            await check_loss_is_told(session, TABLE, self._missing_rows, gone)
            await check_ids_have_their_rows(session, TABLE, name, server, blocks)

    def _servers(self) -> dict[str, Server]:
        return {name: self._world.life(name).server for name in REPLICAS}
