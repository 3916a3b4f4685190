"""The world: lives of toy servers, crashes that let nothing out, races that seeds find."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from clickhouse_sim.simulation.loop import SimulationError, run
from clickhouse_sim.simulation.network import Weather
from clickhouse_sim.simulation.tape import Tape
from clickhouse_sim.simulation.trace import first_difference
from clickhouse_sim.simulation.world import COORDINATOR, World
from coordinator.api import CoordinationError, NodeExists, Session, SessionLost
from replica.environment import Environment, PartFiles, PartRequest
from replica.errors import NetworkError

Toy = Callable[[str, Environment], Coroutine[Any, Any, None]]


class ToyServer:
    """A server that is one coroutine."""

    def __init__(self, name: str, environment: Environment, toy: Toy) -> None:
        self.name = name
        self.environment = environment
        self._toy = toy

    async def run(self) -> None:
        await self._toy(self.name, self.environment)


def play(
    toy: Toy,
    story: Callable[[World[ToyServer]], Coroutine[Any, Any, Any]],
    seed: int = 0,
    names: tuple[str, ...] = ("r1", "r2"),
) -> tuple[World[ToyServer], Any]:
    """Run a story in a world of such servers, all of them started; the world and the story's result."""
    tape = Tape(seed)

    async def program() -> tuple[World[ToyServer], Any]:
        world = World(tape, names, lambda name, ports: ToyServer(name, ports, toy), keep_trace=True)
        for name in names:
            world.start(name)
        return world, await story(world)

    return run(program(), tape)


def lines_after(world: World[ToyServer], mark: str) -> list[str]:
    """What the trace says of effects after the line that ends so."""
    [position] = [number for number, line in enumerate(world.trace.lines) if line.endswith(mark)]
    return [line for line in world.trace.lines[position + 1 :] if not line.startswith("choice")]


# --- crash ---------------------------------------------------------------------------------------------------


class Shelf:
    """Sends nothing, and tidies up on the disk when it is interrupted."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    async def send_part(self, request: PartRequest) -> PartFiles:
        try:
            await asyncio.sleep(1000)
        finally:
            await self._environment.disk.write("interrupted", b"")
        return PartFiles(())


async def tidy_server(name: str, environment: Environment) -> None:
    """Does what a crash must not let out: cleans up and says goodbye in `finally` blocks, in several tasks."""
    session = await environment.coordinator.connect()
    await environment.transfer.serve(Shelf(environment))
    await session.create(f"/{name}", ephemeral=True)
    await environment.disk.write("running", b"")

    async def clean_up_disk() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await environment.disk.remove("running")

    async def clean_up_znode() -> None:
        try:
            await environment.workers.run("long", lambda: None)
            await asyncio.sleep(1000)
        finally:
            await session.delete(f"/{name}")

    async def come_back() -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1000)
            other = await environment.coordinator.connect()
            await other.create(f"/{name}-came-back")

    detached = asyncio.create_task(clean_up_disk())
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(clean_up_znode())
            group.create_task(come_back())
            await asyncio.shield(detached)
    finally:
        with suppress(NetworkError):
            await environment.transfer.fetch("r2:9009", PartRequest("/", "goodbye"), 1)
        await environment.disk.write("stopped", b"")
        await session.close()


@pytest.mark.parametrize("lose_unsynced", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_nothing_passes_after_a_crash(seed: int, lose_unsynced: bool) -> None:
    async def story(world: World[ToyServer]) -> tuple[bool, bool]:
        await asyncio.sleep(1)
        session = world.life("r2").environment.coordinator
        observer = await session.connect()
        asking = asyncio.create_task(
            world.life("r2").environment.transfer.fetch("r1:9009", PartRequest("/", "any"), 500)
        )
        await asyncio.sleep(1)
        world.crash("r1", lose_unsynced=lose_unsynced)
        at_once = await observer.exists("/r1") is not None
        with pytest.raises(NetworkError, match="it died"):
            await asking
        await asyncio.sleep(100)
        assert await observer.exists("/r1-came-back") is None
        return at_once, await observer.exists("/r1") is not None

    world, (at_once, later) = play(tidy_server, story, seed)
    assert (at_once, later) == (True, False), "the ephemeral znode goes when the session expires, not before"
    after = lines_after(world, "r1 loses power" if lose_unsynced else "r1 is killed")
    assert not [line for line in after if line.split()[1] == "r1" or (" r1 > " in line and "failure" not in line)]
    assert not [line for line in after if " lost r1 " in line], "a dead life does not even try"
    assert world.images["r1"].names("") in ([["running"], []] if lose_unsynced else [["running"]])


def test_a_stop_in_good_order_lets_everything_out() -> None:
    async def quick(name: str, environment: Environment) -> None:
        session = await environment.coordinator.connect()
        await session.create(f"/{name}", ephemeral=True)
        try:
            await asyncio.sleep(1000)
        finally:
            await environment.disk.write("stopped", b"")
            await session.close()

    async def story(world: World[ToyServer]) -> bool:
        await asyncio.sleep(1)
        await world.stop("r1")
        session = await world.life("r2").environment.coordinator.connect()
        return await session.exists("/r1") is None

    world, gone = play(quick, story)
    assert gone
    assert world.running == ["r2"]
    assert world.images["r1"].names("") == ["stopped"]


def test_the_sessions_of_a_dead_life_die_at_once() -> None:
    sessions: dict[str, Session] = {}

    async def connected(name: str, environment: Environment) -> None:
        sessions[name] = await environment.coordinator.connect()
        await asyncio.sleep(1000)

    async def story(world: World[ToyServer]) -> list[str]:
        await asyncio.sleep(1)
        world.crash("r1", lose_unsynced=False)
        return [name for name in sorted(sessions) if sessions[name].alive]

    assert play(connected, story)[1] == ["r2"]


def test_all_tasks_of_a_dead_life_end_and_no_other() -> None:
    async def story(world: World[ToyServer]) -> list[str]:
        await asyncio.sleep(1)
        before = set(world._loop.live_tasks())
        world.crash("r1", lose_unsynced=False)
        await asyncio.sleep(0.001)
        return sorted(task.get_name() for task in before if task.done())

    async def busy(name: str, environment: Environment) -> None:
        async def deep(depth: int) -> None:
            below = asyncio.create_task(deep(depth - 1), name=f"{name}-{depth}") if depth else None
            await asyncio.sleep(1000)
            del below

        await deep(3)

    _, ended = play(busy, story)
    assert ended == ["r1", "r1-1", "r1-2", "r1-3"]


# --- lives ---------------------------------------------------------------------------------------------------


async def counting_server(_name: str, environment: Environment) -> None:
    """Counts its lives on its disk."""
    disk = environment.disk
    lives = int(await disk.read("lives")) if await disk.exists("lives") else 0
    await disk.write("new", str(lives + 1).encode())
    await disk.fsync("new")
    await disk.rename("new", "lives")
    await disk.fsync_folder("")
    await asyncio.sleep(1000)


def test_the_disk_outlives_the_server() -> None:
    async def story(world: World[ToyServer]) -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            world.crash("r1", lose_unsynced=True)
            world.start("r1")
        await asyncio.sleep(1)

    world, _ = play(counting_server, story)
    assert world.images["r1"].read("lives") == b"4"
    assert world.images["r2"].read("lives") == b"1"


def test_a_replica_lives_once_at_a_time() -> None:
    async def story(world: World[ToyServer]) -> None:
        with pytest.raises(SimulationError, match="r1 is running already"):
            world.start("r1")
        world.crash("r1", lose_unsynced=False)
        for impossible in (lambda: world.life("r1"), lambda: world.crash("r1", lose_unsynced=False)):
            with pytest.raises(SimulationError, match="r1 is down"):
                impossible()

    play(counting_server, story)


def test_a_server_that_fails_can_be_told() -> None:
    async def fail(name: str, environment: Environment) -> None:
        raise ZeroDivisionError(name)

    async def story(world: World[ToyServer]) -> object:
        await asyncio.sleep(1)
        return [repr(world.life(name).task.exception()) for name in world.running]

    assert play(fail, story)[1] == ["ZeroDivisionError('r1')", "ZeroDivisionError('r2')"]


def test_a_replica_cut_off_from_the_coordinator_loses_its_session() -> None:
    async def hold(name: str, environment: Environment) -> None:
        session = await environment.coordinator.connect()
        await session.create(f"/{name}", ephemeral=True)
        await session.wait_dead()
        with pytest.raises(SessionLost):
            await session.exists("/")

    async def story(world: World[ToyServer]) -> bool:
        await asyncio.sleep(1)
        world.network.cut("r1", COORDINATOR)
        await asyncio.sleep(100)
        assert world.life("r1").task.done()
        assert world.life("r1").task.exception() is None
        assert not world.life("r2").task.done()
        session = await world.life("r2").environment.coordinator.connect()
        return await session.exists("/r1") is None

    assert play(hold, story)[1]


def test_clocks_can_disagree() -> None:
    async def story(world: World[ToyServer]) -> float:
        world.clocks["r2"].skew_seconds = 60
        one, other = (world.life(name).environment.clock for name in ("r1", "r2"))
        return other.now() - one.now()

    assert play(counting_server, story)[1] == 60


# --- exploring -----------------------------------------------------------------------------------------------


async def claiming_server(name: str, environment: Environment) -> None:
    """A wrong lock: looks whether somebody holds it, and if not takes it."""
    session = await environment.coordinator.connect()
    with suppress(NodeExists):
        await session.create("/holders")
    await asyncio.sleep(1 + environment.chance.choose("wait", range(10)) / 1000)
    if not await session.children("/holders"):
        await session.create(f"/holders/{name}")
    await asyncio.sleep(1000)


def holders(seed: int, names: tuple[str, ...] = ("r1", "r2")) -> tuple[World[ToyServer], tuple[str, ...]]:
    async def story(world: World[ToyServer]) -> tuple[str, ...]:
        await asyncio.sleep(3)
        session = await world.life("r1").environment.coordinator.connect()
        return tuple(await session.children("/holders"))

    return play(claiming_server, story, seed, names)


def test_some_seeds_find_the_race_and_others_do_not() -> None:
    assert {holders(seed)[1] for seed in range(60)} == {("r1",), ("r2",), ("r1", "r2")}


def test_the_same_seed_tells_the_same_story_and_another_one_another() -> None:
    one, again, other = holders(3)[0].trace, holders(3)[0].trace, holders(4)[0].trace
    assert first_difference(one.lines, again.lines) is None
    assert one.digest() == again.digest() != other.digest()
    assert {line.split()[1] for line in one.lines if line.startswith("choice")} >= {"ready", "wait", "message"}
    assert first_difference(one.lines, other.lines) is not None


def test_a_recorded_tape_tells_the_story_again() -> None:
    async def story(world: World[ToyServer]) -> str:
        world.network.weather = Weather(loss_permille=50)
        await asyncio.sleep(30)
        world.crash("r1", lose_unsynced=True)
        world.start("r1")
        await asyncio.sleep(30)
        return world.trace.digest()

    async def stubborn(name: str, environment: Environment) -> None:
        while True:
            with suppress(CoordinationError):
                await claiming_server(name, environment)

    def told_by(tape: Tape) -> str:
        async def program() -> str:
            world = World(tape, ["r1", "r2"], lambda name, ports: ToyServer(name, ports, stubborn))
            world.start("r1")
            world.start("r2")
            return await story(world)

        return run(program(), tape)

    tape = Tape(11)
    digest = told_by(tape)
    replay = Tape.replaying(tape.draws)
    assert told_by(replay) == digest
    assert replay.first_mismatch is None


# --- pause ---------------------------------------------------------------------------------------------------


def test_a_paused_life_does_nothing_until_it_goes_on() -> None:
    """Not even heartbeats, so its session ends; and what came due meanwhile happens when it goes on."""
    ticks: dict[str, list[float]] = {"r1": [], "r2": []}
    sessions: dict[str, Session] = {}

    async def ticking(name: str, environment: Environment) -> None:
        sessions[name] = await environment.coordinator.connect()
        while True:
            ticks[name].append(asyncio.get_running_loop().time())
            await asyncio.sleep(1)

    async def story(world: World[ToyServer]) -> None:
        await asyncio.sleep(10.5)
        world.pause("r1")
        await asyncio.sleep(100)
        assert len(ticks["r1"]) < 12 < 100 < len(ticks["r2"])
        assert sessions["r2"].alive
        assert world.service.session_ids() == [sessions["r2"].session_id]
        world.resume("r1")
        await asyncio.sleep(5)
        assert ticks["r1"][-1] > 110
        assert not sessions["r1"].alive

    play(ticking, story)


def test_a_paused_life_can_be_killed_and_started_anew() -> None:
    async def idle(name: str, environment: Environment) -> None:
        await environment.coordinator.connect()
        await asyncio.sleep(1_000_000)

    async def story(world: World[ToyServer]) -> None:
        await asyncio.sleep(1)
        world.pause("r1")
        await asyncio.sleep(1)
        world.crash("r1", lose_unsynced=True)
        world.start("r1")
        await asyncio.sleep(1)
        assert len(world.service.session_ids()) == 3

    play(idle, story)
