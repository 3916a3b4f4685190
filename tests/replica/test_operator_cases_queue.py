"""What operators have met in replication queues, as tests of how it must be: waiting, throttled, never stuck."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from clickhouse_sim.simulation.loop import SimulatedLoop, run
from clickhouse_sim.simulation.network import CALM, Weather
from clickhouse_sim.simulation.tape import Tape
from clickhouse_sim.simulation.world import World
from replica import executor
from replica.commands import Action, InsertOptions, OptimizeTable, SwitchAction, SyncMode, SyncReplica
from replica.environment import Environment, PartFiles, PartRequest
from replica.queue import QueuedEntry
from replica.server import Server, ServerConfig
from replica.settings import ServerSettings
from replica.table_state import TableState
from replica.transfer.flight_transfer import FlightTransfer
from tests.replica.cluster import Cluster, Replica, definition, eventually, rows

# No merge by itself.
QUIET = {
    "merge_selecting_sleep_ms": "3600000",
    "max_merge_selecting_sleep_ms": "3600000",
    "merge_selector_base": "1000",
}


class Town:
    """Two replicas of one table in the simulated world; r2 has the settings that the case is about."""

    def __init__(self, tape: Tape, r2: ServerSettings, partition_by: str, **table: str) -> None:
        settings = {"r1": ServerSettings(), "r2": r2}
        self.world: World[Server] = World(
            tape, ["r1", "r2"], lambda name, ports: _server(name, ports, settings[name])
        )
        self._partition_by = partition_by
        self._table = {**QUIET, **table}

    async def build(self) -> None:
        for name in ("r1", "r2"):
            self.world.start(name)
            await self.server(name).execute(definition(partition_by=self._partition_by, settings=self._table))
        await self.until(lambda: not any(self.state(name).is_readonly for name in ("r1", "r2")))

    def server(self, name: str) -> Server:
        return self.world.life(name).server

    def state(self, name: str) -> TableState:
        return self.server(name).table("default", "t").state

    async def insert(self, name: str, *keys: int) -> None:
        for key in keys:
            await self.server(name).insert("default", "t", InsertOptions(), 0, rows(key))

    async def stop(self, name: str, action: Action, *, stop: bool = True) -> None:
        await self.server(name).execute(SwitchAction(action, stop, "default", "t"))

    async def queue(self, name: str = "r2") -> list[dict[str, Any]]:
        return (await self.server(name).scan("system", "replication_queue")).to_pylist()

    def parts(self, name: str = "r2") -> list[str]:
        return [str(part.name) for part in self.state(name).store.active_parts()]

    async def until(self, holds: Callable[[], bool], seconds: float = 600) -> float:
        """The simulated seconds that it took to come true."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        while not holds():
            assert loop.time() < started + seconds, "it did not come true"
            await asyncio.sleep(0.01)
        return loop.time() - started


def _server(name: str, ports: Environment, settings: ServerSettings) -> Server:
    return Server(ports, ServerConfig(name, settings=settings))


DEFAULTS = ServerSettings()


def play(
    case: Callable[[Town], Coroutine[Any, Any, None]],
    r2: ServerSettings = DEFAULTS,
    partition_by: str = "",
    **table: str,
) -> None:
    tape = Tape(1)

    async def played() -> None:
        town = Town(tape, r2, partition_by, **table)
        await town.build()
        await case(town)

    run(played(), tape)


# --- 1: another entry for the same part ----------------------------------------------------------------------


def test_an_entry_that_waits_for_an_overlapping_one_is_waiting_and_not_failing() -> None:
    async def case(town: Town) -> None:
        await town.stop("r2", Action.FETCHES)
        await town.insert("r1", 1, 2)
        await town.server("r1").execute(OptimizeTable("default", "t", final=True))
        await town.until(lambda: len(town.state("r2").queue) == 3)
        town.world.network.cut("r1", "r2")
        await town.stop("r2", Action.FETCHES, stop=False)
        await town.until(lambda: town.state("r2").server.pools.fetches.running == 2)
        (waiting,) = [row for row in await town.queue() if row["type"] == "MERGE_PARTS"]
        assert waiting["postpone_reason"] == (
            "Not executing log entry queue-0000000002 for part all_0_1_1 "
            "because it is not disjoint with part all_0_0_0 that is currently executing."
        )
        assert (waiting["num_tries"], waiting["last_exception"]) == (0, "")
        assert waiting["num_postponed"] > 0
        town.world.network.heal("r1", "r2")
        await town.until(lambda: len(town.state("r2").queue) == 0)
        assert town.parts() == ["all_0_1_1"]

    play(case)


# --- 2: nobody spins while everything waits ------------------------------------------------------------------


def test_a_queue_in_which_everything_waits_is_not_looked_at_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no execute_merges_on_single_replica here, hence nobody who waits for somebody else to merge; what
    remains of the case is that an idle loop rests."""
    looks = itertools.count()
    real = executor.select
    monkeypatch.setattr(executor, "select", lambda *arguments: (next(looks), real(*arguments))[1])

    async def case(town: Town) -> None:
        await town.stop("r2", Action.FETCHES)
        await town.stop("r2", Action.MERGES)
        await town.insert("r1", *range(20))
        await town.server("r1").execute(OptimizeTable("default", "t", final=True))
        await town.until(lambda: len(town.state("r2").queue) == 21)
        await asyncio.sleep(60)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        before, callbacks = next(looks), loop.callbacks
        postponed = [row["num_postponed"] for row in await town.queue()]
        await asyncio.sleep(3600)
        assert next(looks) - before == 1, "nobody has looked"
        assert [row["num_postponed"] for row in await town.queue()] == postponed
        assert loop.callbacks - callbacks < 3600 * 8, "heartbeats only"

    play(case)


# --- 3: more fetches than the pool has slots -----------------------------------------------------------------


def test_a_backlog_of_fetches_is_throttled_with_the_limit_in_the_reason_and_drains() -> None:
    async def case(town: Town) -> None:
        await town.stop("r2", Action.FETCHES)
        await town.insert("r1", *range(30))
        await town.until(lambda: len(town.state("r2").queue) == 30)
        town.world.network.weather = Weather(quickest_seconds=1, slowest_seconds=2)
        await town.stop("r2", Action.FETCHES, stop=False)
        await town.until(lambda: len(town.parts()) == 3)
        pool = town.state("r2").server.pools.fetches
        waiting = [row for row in await town.queue() if not row["is_currently_executing"]]
        assert pool.running <= 1
        assert len(waiting) >= 26
        assert {row["postpone_reason"].partition(" because ")[2] for row in waiting} == {
            "1 fetches already executing, max 1."
        }
        assert {(row["num_tries"], row["last_exception"]) for row in waiting} == {(0, "")}
        town.world.network.weather = CALM
        seconds = await town.until(lambda: len(town.state("r2").queue) == 0)
        assert seconds < 20, "each freed slot is taken at once"
        assert town.parts() == [f"all_{n}_{n}_0" for n in range(30)]

    play(case, ServerSettings(background_fetches_pool_size=1))


# --- 4: source parts size is greater than the current maximum ------------------------------------------------


async def test_a_large_merge_waits_for_free_slots_and_its_limit_grows_with_them(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.settings = ServerSettings(background_pool_size=4, background_merges_mutations_concurrency_ratio=1)
    r1 = await cluster.start("r1")
    sizes = {
        "number_of_free_entries_in_pool_to_lower_max_size_of_merge": "4",
        "max_bytes_to_merge_at_max_space_in_pool": str(1 << 20),
        "max_bytes_to_merge_at_min_space_in_pool": "1",
    }
    await cluster.create_table(partition_by="", settings={**QUIET, **sizes})
    for key in range(2):
        await r1.insert(rows(key))
    await cluster.settled()
    gates = _held_merges(monkeypatch)
    pool = r1.table().state.server.pools.merges_mutations
    for _ in range(3):
        pool.try_start()  # merges of other tables
    optimizing = asyncio.create_task(r1.server.execute(OptimizeTable("default", "t", final=True)))
    maxima = []
    for busy in (3, 2):
        await eventually(lambda: len(r1.table().state.queue) == 1)
        entry = next(iter(r1.table().state.queue))
        await eventually(lambda busy=busy, entry=entry: _maximum(busy) in entry.postpone_reason)
        assert "because source parts size (" in entry.postpone_reason
        maxima.append(_maximum(busy))
        assert not gates.running
        pool.finish()
    assert maxima == ["(32.00 B)", "(1.00 KiB)"]
    await eventually(lambda: len(gates.running) == 1)
    gates.gate.set()
    await optimizing
    assert await r1.active_parts() == ["all_0_1_1"]


def _maximum(busy: int) -> str:
    return {3: "(32.00 B)", 2: "(1.00 KiB)"}[busy]


class _Gates:
    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.running: list[str] = []


def _held_merges(monkeypatch: pytest.MonkeyPatch) -> _Gates:
    """Merges begin and then wait for the gate."""
    gates, real = _Gates(), executor.execute

    async def execute(state: Any, session: Any, queued: QueuedEntry) -> None:
        if queued.entry.source_parts:
            gates.running.append(queued.new_part_name)
            await gates.gate.wait()
        await real(state, session, queued)

    monkeypatch.setattr(executor, "execute", execute)
    return gates


# --- 5: a merge that is fetched ------------------------------------------------------------------------------

ONE_OF_EACH = ServerSettings(
    background_fetches_pool_size=1, background_pool_size=1, background_merges_mutations_concurrency_ratio=1
)


@pytest.mark.parametrize("why", ["sources are missing", "others have done it long ago"])
def test_a_merge_that_becomes_a_fetch_takes_a_slot_of_the_fetches_and_none_of_the_merges(why: str) -> None:
    async def case(town: Town) -> None:
        own = range(0) if why == "sources are missing" else range(4)
        await town.insert("r1", *own)
        await town.until(lambda: len(town.parts()) == len(own))
        await town.stop("r2", Action.REPLICATION_QUEUES)
        for key in range(len(own), 4):
            await town.insert("r1", key)
        await town.server("r1").execute(OptimizeTable("default", "t", final=True))
        await town.until(lambda: len(town.state("r2").queue) == 5 - len(own))
        pools = town.state("r2").server.pools
        assert pools.fetches.try_start()  # a fetch of another table that goes on and on
        await town.stop("r2", Action.REPLICATION_QUEUES, stop=False)
        await asyncio.sleep(30)
        (merge,) = [row for row in await town.queue() if row["type"] == "MERGE_PARTS"]
        assert merge["postpone_reason"] == (
            "Not executing fetch of part all_0_3_1 because 1 fetches already executing, max 1."
        )
        assert merge["num_tries"] <= 1
        assert pools.merges_mutations.running == 0
        pools.fetches.finish()
        await town.until(lambda: len(town.state("r2").queue) == 0)
        assert town.parts() == ["all_0_3_1"]

    prefer = {"prefer_fetch_merged_part_time_threshold": "0", "prefer_fetch_merged_part_size_threshold": "0"}
    play(case, ONE_OF_EACH, **({} if why == "sources are missing" else prefer))


def test_real_merges_go_on_while_merges_are_fetched_over_a_slow_link() -> None:
    async def case(town: Town) -> None:
        await town.insert("r1", 1, 3)
        await town.until(lambda: len(town.parts()) == 2)
        await town.stop("r2", Action.REPLICATION_QUEUES)
        await town.insert("r1", 0, 2)
        for partition in ("0", "1"):
            await town.server("r1").execute(OptimizeTable("default", "t", partition_id=partition, final=True))
        await town.until(lambda: len(town.state("r2").queue) == 4)
        town.world.network.cut("r1", "r2")  # the slowest link there is
        pools = town.state("r2").server.pools
        await town.stop("r2", Action.REPLICATION_QUEUES, stop=False)
        await town.until(lambda: town.parts() == ["1_0_1_1"], seconds=5)
        assert pools.fetches.running == 1, "of the other partition, for the next minute"
        await town.until(lambda: pools.merges_mutations.running == 0, seconds=5)
        town.world.network.heal("r1", "r2")
        await town.until(lambda: len(town.state("r2").queue) == 0)
        assert town.parts() == ["0_0_1_1", "1_0_1_1"]

    play(case, ONE_OF_EACH, partition_by="k % 2")


# --- 6: a source that has frozen -----------------------------------------------------------------------------


class _FlightCluster(Cluster):
    """Parts cross over real sockets."""

    def environment(self, name: str, coordinator: Any) -> Environment:
        environment = super().environment(name, coordinator)
        object.__setattr__(environment, "transfer", FlightTransfer())
        return environment


async def test_a_fetch_from_a_frozen_source_ends_and_gives_its_slot_back(cluster: Cluster) -> None:
    cluster = _FlightCluster(
        cluster.folder,
        settings=ServerSettings(background_fetches_pool_size=1, replicated_fetches_timeout_seconds=0.3),
    )
    r1 = await cluster.start("r1")
    r2 = await cluster.start("r2")
    await cluster.create_table(partition_by="", settings=QUIET)
    thaw = asyncio.Event()
    pool = r2.table().state.server.pools.fetches
    _freeze(r1, "all_0_0_0", thaw)
    try:
        await r1.insert(rows(1))
        await eventually(lambda: pool.running == 1)
        await r1.insert(rows(2))
        await eventually(lambda: r2.table().state.store.active_parts() != [])
        assert await r2.active_parts() == ["all_1_1_0"], "the slot was free for the next one"
        queue = (await r2.server.scan("system", "replication_queue")).to_pylist()
        (row,) = [each for each in queue if each["new_part_name"] == "all_0_0_0"]
        assert row["num_tries"] >= 1
        assert "all_0_0_0" in row["last_exception"]
        thaw.set()
        await cluster.settled()
        assert await r2.active_parts() == ["all_0_0_0", "all_1_1_0"]
        await eventually(lambda: pool.running == 0)
    finally:
        thaw.set()
        await cluster.close()


def _freeze(source: Replica, part: str, thaw: asyncio.Event) -> None:
    """The source stops in the middle of sending this part, until it is thawed."""
    real = source.server.send_part

    async def send_part(request: PartRequest) -> PartFiles:
        if request.part_name == part:
            await thaw.wait()
        return await real(request)

    source.server.send_part = send_part  # type: ignore[method-assign]


# --- 9: what fails is put off longer and longer --------------------------------------------------------------


def test_a_fetch_that_always_fails_is_tried_ever_more_rarely() -> None:
    async def case(town: Town) -> None:
        await town.stop("r2", Action.FETCHES)
        await town.insert("r1", 1)
        await town.until(lambda: len(town.state("r2").queue) == 1)
        town.world.crash("r1", lose_unsynced=False)
        await town.stop("r2", Action.FETCHES, stop=False)
        tries = []
        for _ in range(10):
            await asyncio.sleep(60)
            (row,) = await town.queue()
            tries.append(row["num_tries"])
            assert row["last_exception"]
        assert tries[0] <= 16, "2 ms, 4 ms, … make a minute after 15 pauses"
        assert all(later - earlier <= 2 for earlier, later in itertools.pairwise(tries[1:])), "once a minute"
        assert "exponential backoff policy" in row["postpone_reason"]

    play(case)


# --- 10: SYNC REPLICA under steady work ----------------------------------------------------------------------


async def test_sync_replica_returns_while_inserts_and_merges_never_end(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    r2 = await cluster.start("r2")
    await cluster.create_table(partition_by="", settings=QUIET)

    async def for_ever() -> None:
        for key in itertools.count():
            await r1.insert(rows(key))
            if key % 5 == 4:
                await r1.server.execute(OptimizeTable("default", "t", final=True))

    working = asyncio.create_task(for_ever())
    try:
        await eventually(lambda: len(r2.table().state.store.active_parts()) > 0)
        for mode in (SyncMode.DEFAULT, SyncMode.LIGHTWEIGHT):
            await asyncio.wait_for(r2.server.execute(SyncReplica("default", "t", mode)), 15)
            assert not working.done()
    finally:
        working.cancel()
        await asyncio.wait([working])
