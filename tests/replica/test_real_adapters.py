"""Threads for workers, the wall clock and the machine's randomness behave as their ports say."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from replica.chance import SystemChance
from replica.clock import WallClock
from replica.environment import shuffled
from replica.errors import CorruptedData
from replica.workers import ThreadWorkers


@pytest.fixture
def workers() -> Iterator[ThreadWorkers]:
    workers = ThreadWorkers(2)
    yield workers
    workers.close()


async def test_a_job_runs_away_from_the_loop_and_gives_its_result(workers: ThreadWorkers) -> None:
    assert await workers.run("thread", threading.current_thread) is not threading.current_thread()


async def test_the_error_of_a_job_comes_out(workers: ThreadWorkers) -> None:
    def job() -> None:
        raise CorruptedData("broken")

    with pytest.raises(CorruptedData, match="broken"):
        await workers.run("breaks", job)


async def test_no_more_jobs_run_at_once_than_there_are_threads(workers: ThreadWorkers) -> None:
    meeting = threading.Barrier(2)
    running: list[int] = []

    def job() -> int:
        running.append(1)
        meeting.wait(10)
        most = len(running)
        meeting.wait(10)
        running.pop()
        return most

    assert max(await asyncio.gather(*(workers.run("meets", job) for _ in range(6)))) == 2


async def test_the_result_of_a_cancelled_job_is_dropped(workers: ThreadWorkers) -> None:
    begun, proceed, done = threading.Event(), threading.Event(), threading.Event()

    def job() -> int:
        begun.set()
        proceed.wait(10)
        done.set()
        return 1

    running = asyncio.create_task(workers.run("long", job))
    await asyncio.to_thread(begun.wait, 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    proceed.set()
    assert await asyncio.to_thread(done.wait, 10)
    assert await workers.run("next", lambda: 2) == 2


def test_the_clock_goes_on_from_1970() -> None:
    assert WallClock().now() > 1_700_000_000


def test_chance_draws_every_option_and_no_other() -> None:
    chance = SystemChance()
    assert {chance.choose("letter", "abc") for _ in range(300)} == set("abc")
    assert {chance.choose("number", range(3)) for _ in range(300)} == {0, 1, 2}
    assert sorted(shuffled(chance, "order", [3, 1, 2])) == [1, 2, 3]
