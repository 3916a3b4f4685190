"""The in-process service on a virtual clock: what a network may do, and that it is the same every time."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from coordinator.api import (
    CoordinatorUnreachable,
    Create,
    Session,
    SessionLost,
    Watch,
    WatchOutcome,
)
from coordinator.local_client import LocalCoordinator, LocalService

STARTED = 1_700_000_000.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """Jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual_now = 0.0

    def time(self) -> float:
        return self._virtual_now

    def _run_once(self) -> None:
        scheduled = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        if not self._ready and scheduled:  # type: ignore[attr-defined]
            self._virtual_now = max(self._virtual_now, scheduled[0]._when)
        super()._run_once()  # type: ignore[misc]


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(asyncio.wait_for(scenario(), 10_000))
    finally:
        loop.close()


def now() -> float:
    return asyncio.get_running_loop().time()


class Scripted:
    """0.1 s for every message, unless a word in its label says otherwise; keeps all labels."""

    def __init__(self, **exceptions: float | None) -> None:
        self.exceptions = exceptions
        self.labels: list[str] = []

    def delay(self, label: str) -> float | None:
        self.labels.append(label)
        for word, delay in self.exceptions.items():
            if word in label.replace("/", "_").split() or word == "everything":
                return delay
        return 0.1


def service(lines: list[str] | None = None) -> LocalService:
    kept = [] if lines is None else lines
    return LocalService(lambda: STARTED + now(), observer=lambda exchange: kept.append(str(exchange)))


def coordinator(served: LocalService, delivery: Scripted, client: str = "r1") -> LocalCoordinator:
    return LocalCoordinator(served, delivery, client)


async def gone(session: Session, path: str) -> float:
    """When the path goes away."""
    watch = Watch()
    assert await session.exists(path, watch) is not None
    assert await watch.wait() is WatchOutcome.CHANGED
    return now()


def test_every_message_is_labelled_and_takes_its_time() -> None:
    async def scenario() -> None:
        delivery = Scripted()
        session = await coordinator(service(), delivery).connect()
        assert now() == pytest.approx(0.2)
        watch = Watch()
        await session.exists("/a", watch)
        await session.multi([Create("/a"), Create("/a/b", sequential=True)])
        await watch.wait()
        _, stat = await session.get("/a")
        assert stat.ctime == round((STARTED + 0.5) * 1000)
        await session.close()
        assert delivery.labels == [
            "r1 - connect",
            "r1 s1 welcome",
            "r1 s1 request 1 Exists /a",
            "r1 s1 reply 1 Exists",
            "r1 s1 request 2 Multi Create,Create",
            "r1 s1 event CREATED /a",
            "r1 s1 reply 2 Multi",
            "r1 s1 request 3 GetData /a",
            "r1 s1 reply 3 GetData",
            "r1 s1 request 4 CloseSession",
            "r1 s1 reply 4 CloseSession",
        ]

    run(scenario)


@pytest.mark.parametrize("word", ["connect", "welcome"])
def test_a_lost_handshake_makes_the_service_unreachable(word: str) -> None:
    async def scenario() -> None:
        served = service()
        with pytest.raises(CoordinatorUnreachable, match="r1"):
            await coordinator(served, Scripted(**{word: None})).connect()
        assert now() == pytest.approx(10)
        assert len(served.session_ids()) == (word == "welcome")
        await asyncio.sleep(40)
        assert served.session_ids() == []

    run(scenario)


@pytest.mark.parametrize(("word", "applied"), [("request", False), ("reply", True)])
def test_a_lost_request_or_reply_ends_the_session_for_the_client(word: str, applied: bool) -> None:
    async def scenario() -> None:
        served, delivery = service(), Scripted()
        session = await coordinator(served, delivery).connect()
        await session.create("/eph", ephemeral=True)
        other = await coordinator(served, Scripted(), "r2").connect()
        delivery.exceptions = {word: None}
        asked = now()
        with pytest.raises(SessionLost):
            await session.create("/a")
        assert now() == pytest.approx(asked + 10)
        assert not session.alive
        assert (await other.exists("/a") is not None) == applied
        assert await gone(other, "/eph") - asked > 30
        delivery.exceptions = {}
        with pytest.raises(SessionLost):
            await session.exists("/a")

    run(scenario)


def test_a_late_request_is_applied_while_the_service_keeps_the_session_and_not_after() -> None:
    async def scenario() -> None:
        served, delivery = service(), Scripted()
        other = await coordinator(served, Scripted(), "r2").connect()
        for delay, applied in ((15.0, True), (60.0, False)):
            session = await coordinator(served, delivery).connect()
            delivery.exceptions = {"request": delay}
            with pytest.raises(SessionLost):
                await session.create("/a")
            assert await other.exists("/a") is None
            await asyncio.sleep(delay)
            assert (await other.exists("/a") is not None) == applied
            if applied:
                await other.delete("/a")
            delivery.exceptions = {}

    run(scenario)


def test_nothing_arrives_after_a_lost_message_of_its_direction() -> None:
    async def scenario() -> None:
        served, delivery = service(), Scripted()
        session = await coordinator(served, delivery).connect()
        other = await coordinator(served, Scripted(), "r2").connect()
        delivery.exceptions = {"request": None}
        first = asyncio.ensure_future(session.create("/a"))
        await asyncio.sleep(0)
        delivery.exceptions = {}
        second = asyncio.ensure_future(session.create("/b"))
        for lost in (first, second):
            with pytest.raises(SessionLost):
                await lost
        assert await other.exists("/b") is None

    run(scenario)


def test_a_slow_request_holds_up_those_behind_it() -> None:
    async def scenario() -> None:
        served, delivery = service(), Scripted()
        session = await coordinator(served, delivery).connect()
        await session.create("/q")
        delivery.exceptions = {"2": 3.0, "3": 2.0}
        asked = now()
        paths = await asyncio.gather(*(session.create("/q/n-", str(n).encode(), sequential=True) for n in range(6)))
        assert paths == [f"/q/n-{n:010d}" for n in range(6)]
        stats = [(await session.get(path))[1] for path in paths]
        assert {stat.ctime for stat in stats} == {round((STARTED + asked + 3.0) * 1000)}

    run(scenario)


def test_an_event_may_come_before_the_reply_that_armed_its_watch_and_after_the_one_that_caused_it() -> None:
    async def scenario() -> None:
        served, slow_reply, slow_event = service(), Scripted(reply=5.0), Scripted(event=5.0)
        reader = await coordinator(served, slow_reply).connect()
        writer = await coordinator(served, slow_event, "r2").connect()
        early, late = Watch(), Watch()
        await writer.exists("/a", late)
        read = asyncio.ensure_future(reader.exists("/a", early))
        await asyncio.sleep(0.15)
        await writer.create("/a")
        assert await early.wait() is WatchOutcome.CHANGED
        assert not read.done()
        waiting = asyncio.ensure_future(late.wait())
        await asyncio.sleep(1)
        assert not waiting.done()
        assert await waiting is WatchOutcome.CHANGED
        assert await read is None

    run(scenario)


def test_a_lost_event_is_noticed_with_the_next_heartbeat() -> None:
    async def scenario() -> None:
        served, delivery = service(), Scripted(event=None)
        session = await coordinator(served, delivery).connect()
        writer = await coordinator(served, Scripted(), "r2").connect()
        watch = Watch()
        await session.exists("/a", watch)
        await writer.create("/a")
        assert await watch.wait() is WatchOutcome.LOST
        assert now() < 30
        assert not session.alive

    run(scenario)


def test_a_session_is_kept_by_heartbeats_and_expires_a_timeout_after_the_last() -> None:
    async def scenario() -> None:
        served, delivery = service(), Scripted()
        local = coordinator(served, delivery)
        session = await local.connect()
        await session.create("/eph", ephemeral=True)
        other = await coordinator(served, Scripted(), "r2").connect()
        await asyncio.sleep(1000)
        assert session.alive
        local.sever()
        severed = now()
        assert not session.alive
        assert severed + 20 < await gone(other, "/eph") < severed + 33

    run(scenario)


def test_a_forced_expiry_reaches_the_client_as_a_loss() -> None:
    async def scenario() -> None:
        served = service()
        session = await coordinator(served, Scripted()).connect()
        other = await coordinator(served, Scripted(), "r2").connect()
        await session.create("/eph", ephemeral=True)
        watch = Watch()
        await session.exists("/a", watch)
        served.expire(session.session_id)
        served.expire(session.session_id)
        assert session.alive  # it does not know yet
        pending = asyncio.ensure_future(session.create("/b"))
        await session.wait_dead()
        assert await watch.wait() is WatchOutcome.LOST
        with pytest.raises(SessionLost):
            await pending
        assert await other.exists("/eph") is None
        assert await other.exists("/b") is None
        assert served.session_ids() == [other.session_id]

    run(scenario)


def test_severed_sessions_are_dead_and_what_was_sent_arrives() -> None:
    async def scenario() -> None:
        served = service()
        local = coordinator(served, Scripted())
        session = await local.connect()
        other = await coordinator(served, Scripted(), "r2").connect()
        sent = asyncio.ensure_future(session.create("/a"))
        await asyncio.sleep(0.05)
        local.sever()
        with pytest.raises(SessionLost):
            await sent
        await asyncio.sleep(0.1)
        assert await other.exists("/a") is not None
        again = await local.connect()  # a new process of the same name
        assert again.session_id != session.session_id
        assert again.alive

    run(scenario)


def test_runs_with_equal_deliveries_are_equal() -> None:
    def trace(seed: int) -> list[str]:
        lines: list[str] = []
        chance = random.Random(seed)

        class Drawn:
            def delay(self, label: str) -> float | None:
                lines.append(f"{now():.6f} {label}")
                return None if chance.random() < 0.01 else chance.choice((0.0, 0.1, 0.1, 0.3, 2.0))

        async def client(served: LocalService, name: str) -> None:
            local = LocalCoordinator(served, Drawn(), name)
            for round_ in range(6):
                try:
                    session = await local.connect()
                    await session.create(f"/{name}-{round_}-", ephemeral=True, sequential=True)
                    for _ in range(8):
                        watch = Watch()
                        await session.children("/", watch)
                        await session.create("/n-", sequential=True)
                        await watch.wait()
                    await session.close()
                except (SessionLost, CoordinatorUnreachable) as error:
                    lines.append(f"{name} {error}")

        async def scenario() -> None:
            served = service(lines)
            await asyncio.gather(*(client(served, f"r{n}") for n in range(3)))

        run(scenario)
        return lines

    first = trace(1)
    assert len(first) > 300
    assert any("lost" in line or "died" in line for line in first)
    assert trace(1) == first
    assert trace(2) != first


def test_a_restart_ends_every_connection_and_no_session() -> None:
    async def scenario() -> None:
        served = service()
        session = await coordinator(served, Scripted()).connect()
        await session.create("/a", ephemeral=True)
        asked = asyncio.ensure_future(session.create("/b"))
        await asyncio.sleep(0)
        served.restart()
        with pytest.raises(SessionLost):
            await asked
        assert now() < 1  # told at once, not after the operation's timeout
        other = await coordinator(served, Scripted(), "r2").connect()
        assert await other.exists("/a") is not None
        assert await other.exists("/b") is None  # it was on its way to a connection that is gone
        assert await gone(other, "/a") == pytest.approx(30, abs=3)

    run(scenario)
