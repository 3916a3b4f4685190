"""The session of a replica dies at each single request that it sends while something goes on.

Each time it is writable again within a bound of virtual time, and every acknowledged row is there exactly once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from clickhouse_sim.simulation.history import DEFINITION, TABLE
from replica.commands import OptimizeTable
from replica.errors import ClickHouseError
from tests.clickhouse_sim.small_world import SmallWorld, keys_of, play

WRITABLE_WITHIN_SECONDS = 20
MOST_REQUESTS = 60

Step = Callable[[SmallWorld], Awaitable[None]]


class Death:
    """Ends the session of `victim` at its n-th request, before it arrives or when its answer is on the way."""

    def __init__(self, world: SmallWorld, victim: str, nth: int, moment: str) -> None:
        self.happened = False
        self._world = world
        self._left = nth
        self._victim = victim
        self._moment = moment
        self._real = world.world.network.delay
        world.world.network.delay = self._delay  # type: ignore[method-assign]

    def end(self) -> None:
        self._world.world.network.delay = self._real  # type: ignore[method-assign]

    def _delay(self, one: str, other: str, what: str) -> float | None:
        if what.startswith(f"{self._victim} ") and f" {self._moment} " in what and not self.happened:
            self._left -= 1
            if self._left == 0:
                self.happened = True
                session = int(what.split()[1].removeprefix("s"))
                self._world.world.service.expire(session)
        return self._real(one, other, what)


async def insert_on_r1(world: SmallWorld) -> None:
    await world.insert("r1", 2)


async def optimize_on_r1(world: SmallWorld) -> None:
    try:
        await world.server("r1").execute(OptimizeTable("default", "t", final=True))
    except ClickHouseError:
        await asyncio.sleep(1)


async def join_as_r3(world: SmallWorld) -> None:
    await world.start("r3")
    await world.execute("r3", DEFINITION)


async def restart_r1(world: SmallWorld) -> None:
    await world.start("r1")


STEPS: dict[str, tuple[str, Step]] = {
    "insert commit": ("r1", insert_on_r1),
    "pull and fetch": ("r2", insert_on_r1),
    "merge assignment and commit": ("r1", optimize_on_r1),
    "merge that comes by the log": ("r2", optimize_on_r1),
    "clone": ("r3", join_as_r3),
    "start-up": ("r1", restart_r1),
}


async def story(world: SmallWorld, step: str, nth: int, moment: str) -> bool:
    """Whether there was an n-th request at all."""
    victim, take = STEPS[step]
    await world.start("r1", "r2")
    await world.create("r1", "r2")
    await world.insert("r1", 0)
    await world.insert("r2", 1)
    await world.settled("r1", "r2")
    if step == "start-up":
        world.world.network.cut("r1", "coordinator")
        await asyncio.sleep(45)
        world.kill("r1")
        world.world.network.heal("r1", "coordinator")
    death = Death(world, victim, nth, moment)
    await take(world)
    running = ["r1", "r2", *(["r3"] if step == "clone" else [])]
    await world.writable(*running, seconds=WRITABLE_WITHIN_SECONDS)
    await world.settled(*running)
    death.end()
    blocks = (0, 1, 2) if take is insert_on_r1 else (0, 1)
    for name in running:
        assert await world.keys(name) == keys_of(*blocks), f"{name} after request {nth}"
    assert len({tuple(world.parts(name)) for name in running}) == 1
    session = await world.session()
    for partition in await session.children(TABLE.block_numbers):
        assert await session.children(TABLE.partition(partition)) == []
    assert await world.lost_parts() == 0
    assert not any(world.detached(name) for name in running), [world.detached(name) for name in running]
    await world.insert(victim, 9)
    return death.happened


@pytest.mark.parametrize("step", STEPS)
def test_a_session_may_die_at_any_request(step: str) -> None:
    """Odd ones do not arrive, even ones are carried out."""
    for nth in range(1, MOST_REQUESTS):
        moment = "request" if nth % 2 else "reply"
        if not play(lambda world, nth=nth, moment=moment: story(world, step, nth, moment), seed=nth):
            break
    assert nth > 5, "hardly a request was seen"


def test_a_replica_is_writable_soon_after_its_session_expired() -> None:
    async def told(world: SmallWorld) -> None:
        await world.start("r1")
        await world.create("r1")
        for _ in range(5):
            loop = asyncio.get_running_loop()
            for session in world.world.service.session_ids():
                world.world.service.expire(session)
            expired = loop.time()
            await asyncio.sleep(0.1)
            await world.writable("r1", seconds=WRITABLE_WITHIN_SECONDS)
            assert loop.time() - expired < WRITABLE_WITHIN_SECONDS

    play(told)
