"""What operators of replicated tables have met at the coordination service, as tested numbers.

How many znodes and requests an insert, a merge, an absent replica and an idle hour cost; which messages a lost
session causes; and a CREATE whose answer does not arrive. On virtual time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest

from clickhouse_sim.simulation.history import DEFINITION, TABLE
from clickhouse_sim.simulation.insert_workload import block_of
from clickhouse_sim.simulation.loop import run
from clickhouse_sim.simulation.tape import Tape
from clickhouse_sim.simulation.world import COORDINATOR, World
from coordinator.api import Session
from coordinator.local_client import LocalCoordinator
from replica.commands import InsertOptions, InsertStatus, OptimizeTable
from replica.errors import ClickHouseError, KeeperException, NoReplicaHasPart
from replica.server import Server, ServerConfig
from replica.table_state import TableState

ONE_PARTITION = replace(DEFINITION, partition_by="")
NO_MERGES = {
    "merge_selecting_sleep_ms": "3600000",
    "max_merge_selecting_sleep_ms": "3600000",
    "merge_selector_base": "1000",
}
HOUR = 3600


class _Instant:
    def delay(self, label: str) -> float | None:
        return 0.0001


@dataclass
class Run:
    """A world with one table on some replicas, and a session that looks on."""

    world: World[Server]
    names: list[str]
    session: Session

    def state(self, name: str) -> TableState:
        return self.world.life(name).server.table("default", "t").state

    async def create(self, **settings: str) -> None:
        for name in self.names:
            await self.until_done(name, replace(ONE_PARTITION, settings=settings))
        await self.settled()

    async def until_done(self, name: str, command: Any) -> None:
        while True:
            try:
                await self.world.life(name).server.execute(command)
                return
            except ClickHouseError:
                await asyncio.sleep(1)

    async def insert(self, name: str, number: int) -> None:
        outcome = await self.world.life(name).server.insert("default", "t", InsertOptions(), 0, block_of(number))
        assert outcome.status is InsertStatus.STORED

    async def settled(self) -> None:
        """Whoever lives is writable, has copied the log and carried it out."""
        while not all([await self._is_settled(name) for name in self.world.running]):
            await asyncio.sleep(0.1)

    async def _is_settled(self, name: str) -> bool:
        server = self.world.life(name).server
        if not server.started.is_set() or self.state(name).is_readonly or len(self.state(name).queue):
            return False
        pointer = (await self.session.get(TABLE.replica(name).log_pointer))[0]
        names = await self.session.children(TABLE.log)
        return not names or int(pointer or b"0") > int(names[-1][-10:])

    async def znodes(self) -> Counter[str]:
        """How many there are in the table, by the kind of thing that they stand for."""
        found: Counter[str] = Counter()
        waiting = [TABLE.root]
        while waiting:
            path = waiting.pop()
            names = await self.session.children(path)
            found[_kind(path)] += 1
            waiting += [f"{path}/{name}" for name in names]
        return found

    def requests(self) -> Counter[str]:
        """Round trips of the present sessions of all replicas so far, by kind."""
        found: Counter[str] = Counter()
        for name in self.world.running:
            session = self.state(name).server.sessions.current
            assert session is not None
            found += session.round_trips
        return found


def _kind(path: str) -> str:
    """The last folder above it whose children are of one kind: `log`, `queue`, `parts`, …; else `fixed`."""
    parent = path.rsplit("/", 2)[-2]
    return parent if parent in ("log", "queue", "parts", "deduplication_hashes", "all") else "fixed"


def simulated(replicas: int, story: Any) -> Any:
    """What a story, that is given a `Run`, comes to."""

    async def told() -> Any:
        names = [f"r{number}" for number in range(1, replicas + 1)]
        world = World(tape, names, lambda name, environment: Server(environment, ServerConfig(name)))
        for name in names:
            world.start(name)
        session = await LocalCoordinator(world.service, _Instant(), "looker-on").connect()
        return await story(Run(world, names, session))

    tape = Tape(1)
    return run(told(), tape)


# --- how znodes grow -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_an_insert_costs_two_znodes_and_one_a_replica(replicas: int) -> None:
    async def story(it: Run) -> Counter[str]:
        await it.create(**NO_MERGES)
        await it.insert("r1", 0)  # makes the partition's znode
        await it.settled()
        before = await it.znodes()
        for number in range(1, 6):
            await it.insert("r1", number)
        await it.settled()
        return (await it.znodes()) - before

    assert simulated(replicas, story) == {"log": 5, "deduplication_hashes": 5, "parts": 5 * replicas}


def test_what_a_merge_replaces_gives_its_znodes_back() -> None:
    async def story(it: Run) -> tuple[Counter[str], Counter[str]]:
        await it.create(**NO_MERGES, old_parts_lifetime="10")
        before = await it.znodes()
        for number in range(20):
            await it.insert("r1", number)
        await it.settled()
        await it.until_done("r1", OptimizeTable("default", "t", final=True))
        await it.settled()
        await asyncio.sleep(2 * HOUR)
        return before, await it.znodes()

    before, after = simulated(3, story)
    assert after["parts"] == 3
    assert after["queue"] == before["queue"] == 0
    assert after["log"] <= 11  # min_replicated_logs_to_keep, and up to 15 % more
    assert after["deduplication_hashes"] == 20
    assert after["fixed"] == before["fixed"] + 1  # the partition's


def test_an_absent_replica_costs_one_znode_an_entry_until_it_is_lost() -> None:
    limit = 40

    async def story(it: Run) -> list[tuple[int, int]]:
        settings = {"max_replicated_logs_to_keep": str(limit), "cleanup_delay_period": "5"}
        await it.create(**NO_MERGES, **settings, max_cleanup_delay_period="5", cleanup_delay_period_random_add="0")
        await it.world.stop("r3")
        seen = []
        for number in range(90):
            await it.insert("r1", number)
            await it.settled()
            await asyncio.sleep(10)
            znodes = await it.znodes()
            seen.append((znodes["log"], znodes["queue"]))
        return seen

    seen = simulated(3, story)
    assert [log for log, _ in seen[:limit]] == list(range(1, limit + 1))  # all of it waits for r3
    assert max(log for log, _ in seen) <= 1.15 * limit + 1
    assert seen[-1][0] <= 12  # r3 is lost: nothing waits for it any more
    assert {queue for _, queue in seen} == {0}


# --- how many requests ---------------------------------------------------------------------------------------


def test_requests_of_an_insert_grow_with_the_replicas_not_with_the_table() -> None:
    async def story(it: Run) -> list[int]:
        await it.create(**NO_MERGES)
        costs = []
        for number in range(40):
            before = it.requests()
            await it.insert("r1", number)
            await it.settled()
            costs.append((it.requests() - before).total())
        return costs

    for replicas in (1, 2, 3):
        costs = simulated(replicas, story)
        # Ten: two to insert, then the replica copies its own entry, sees that it has the part, removes the entry and
        # tells when. Each other one also looks for the part, for who has registered it, and registers it.
        assert max(costs[1:]) <= 10 + 18 * (replicas - 1), (replicas, costs)
        assert max(costs[30:]) <= max(costs[1:10]) + 4, (replicas, costs)


def test_requests_of_a_merge() -> None:
    async def story(it: Run) -> int:
        await it.create(**NO_MERGES)
        for number in range(10):
            await it.insert("r1", number)
        await it.settled()
        before = it.requests()
        await it.until_done("r1", OptimizeTable("default", "t", final=True))
        await it.settled()
        return (it.requests() - before).total()

    assert simulated(3, story) <= 55


@pytest.mark.parametrize("parts", [0, 50])
def test_an_idle_hour_is_a_few_cleanups(parts: int) -> None:
    """An idle table does not poll: it only looks, with a few requests a cleanup, for what has grown old."""

    async def story(it: Run) -> Counter[str]:
        await it.create(**NO_MERGES)
        for number in range(parts):
            await it.insert("r1", number)
        await it.settled()
        await asyncio.sleep(HOUR)
        before = it.requests()
        await asyncio.sleep(HOUR)
        return it.requests() - before

    asked = simulated(3, story)
    cleanups = 3 * HOUR / 300
    assert asked.total() <= 7 * cleanups, asked  # three generations of deduplication ids are looked at
    assert asked["multi"] == asked["create"] == asked["set"] == asked["delete"] == 0


# --- failures by cause ---------------------------------------------------------------------------------------


class Causes(logging.Handler):
    """Counts messages by what they are about: the logger and the text before it is filled in."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.seen: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        self.seen[f"{record.name}: {record.msg}"] += 1


def test_a_week_with_three_lost_sessions_a_day_has_few_messages_each() -> None:
    losses = 21

    async def story(it: Run) -> tuple[Counter[int], list[str]]:
        await it.create(old_parts_lifetime="60")
        number = 0
        for loss in range(losses):
            for _ in range(8):
                await it.insert("r1", number)
                number += 1
                await asyncio.sleep(HOUR)
            session = it.state(it.names[loss % 3]).server.sessions.current
            assert session is not None
            it.world.service.expire(session.session_id)
            await it.settled()
        errors: Counter[int] = Counter()
        exceptions: list[str] = []
        for name in it.names:
            for row in (await it.world.life(name).server.scan("system", "part_log")).to_pylist():
                errors[row["error"]] += 1
            for row in (await it.world.life(name).server.scan("system", "replication_queue")).to_pylist():
                exceptions.append(row["last_exception"])
        del errors[0]
        return errors, exceptions

    causes = Causes()
    logging.getLogger().addHandler(causes)
    try:
        errors, exceptions = simulated(3, story)
    finally:
        logging.getLogger().removeHandler(causes)
    assert set(causes.seen) <= {"replica.session: session %#x is lost"}, causes.seen
    assert causes.seen.total() <= losses
    assert errors[NoReplicaHasPart.code] == 0
    assert errors.total() <= losses, errors
    assert exceptions == []


# --- CREATE --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["r1", "r2"])
@pytest.mark.parametrize("comes_back", [True, False])
def test_a_create_whose_answer_is_lost_goes_on_where_it_was(name: str, comes_back: bool) -> None:
    """The first makes the table, the second joins it. It finds its znodes under the next session; when there is none
    in time it fails, and can be repeated."""

    async def story(it: Run) -> int:
        for each in it.names:
            server = it.world.life(each).server
            await server.started.wait()
            if each == name:
                it.world.network.lose_multi_replies(each)
                creating = asyncio.create_task(server.execute(ONE_PARTITION))
                while await it.session.exists(TABLE.replica(each).root) is None:
                    await asyncio.sleep(0.01)
                if comes_back:
                    await creating
                else:
                    it.world.network.cut(each, COORDINATOR)
                    with pytest.raises(KeeperException, match="could not be registered"):
                        await creating
                it.world.network.heal(each, COORDINATOR)
                it.world.network.deliver_multis(each)
            await it.until_done(each, replace(ONE_PARTITION, if_not_exists=True))
        await it.settled()
        await it.insert("r1", 0)
        await it.settled()
        return (await it.world.life("r2").server.scan("default", "t")).num_rows

    assert simulated(2, story) == 4
