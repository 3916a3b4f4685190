"""The simulated loop: virtual time, drawn order, asyncio's primitives, and what it refuses."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from clickhouse_sim.simulation.loop import Deadlock, NotSimulated, SimulatedLoop, TimeStandsStill, run
from clickhouse_sim.simulation.tape import Tape

Program = Callable[[], Coroutine[Any, Any, Any]]


def running_loop() -> SimulatedLoop:
    return cast(SimulatedLoop, asyncio.get_running_loop())


def outcomes(program: Program, seeds: int = 50) -> set[Any]:
    return {run(program(), Tape(seed)) for seed in range(seeds)}


# --- time ----------------------------------------------------------------------------------------------------


def test_an_hour_passes_in_a_few_callbacks() -> None:
    async def program() -> tuple[float, int]:
        async def beat() -> None:
            for _ in range(3600):
                await asyncio.sleep(1)

        await asyncio.gather(beat(), beat())
        return running_loop().time(), running_loop().callbacks

    time, callbacks = run(program(), Tape(0))
    assert time == 3600
    assert callbacks < 5 * 2 * 3600


def test_time_moves_only_when_nothing_is_ready() -> None:
    async def program() -> list[float]:
        loop = running_loop()
        for _ in range(100):
            await asyncio.sleep(0)
        times = [loop.time()]
        for delay in (0.25, 0.5):
            await asyncio.sleep(delay)
            times.append(loop.time())
        return times

    assert run(program(), Tape(0)) == [0, 0.25, 0.75]


def test_cancelled_timers_do_not_move_time_and_are_forgotten() -> None:
    async def program() -> tuple[float, int]:
        loop = running_loop()
        for _ in range(5000):
            async with asyncio.timeout(1000):
                await asyncio.sleep(0.001)
        kept = len(loop._timers)
        await asyncio.sleep(1)
        return loop.time(), kept

    time, kept = run(program(), Tape(0))
    assert time == pytest.approx(6)
    assert kept < 2500


# --- order ---------------------------------------------------------------------------------------------------


async def three_tasks() -> str:
    order: list[str] = []

    async def say(word: str) -> None:
        order.append(word)

    async with asyncio.TaskGroup() as group:
        for word in "abc":
            group.create_task(say(word))
    return "".join(order)


async def three_timers() -> str:
    order: list[str] = []
    for word in "abc":
        running_loop().call_at(1.0, order.append, word)
    await asyncio.sleep(2)
    return "".join(order)


async def a_timer_among_the_ready() -> str:
    order: list[str] = []
    running_loop().call_soon(order.append, "a")
    running_loop().call_later(0, order.append, "b")
    running_loop().call_soon(order.append, "c")
    await asyncio.sleep(1)
    return "".join(order)


@pytest.mark.parametrize("program", [three_tasks, three_timers, a_timer_among_the_ready])
def test_seeds_explore_every_order(program: Program) -> None:
    assert outcomes(program) == {"abc", "acb", "bac", "bca", "cab", "cba"}


@pytest.mark.parametrize("program", [three_tasks, three_timers, a_timer_among_the_ready])
def test_a_blank_tape_runs_in_asyncios_own_order(program: Program) -> None:
    assert run(program(), Tape.replaying([])) == "abc"


def test_equal_tapes_give_equal_runs_and_a_recording_gives_them_again() -> None:
    for seed in range(20):
        tape, again = Tape(seed), Tape(seed)
        order = run(three_tasks(), tape)
        assert run(three_tasks(), again) == order
        replay = Tape.replaying(tape.draws)
        assert run(three_tasks(), replay) == order
        assert replay.draws == tape.draws == again.draws
        assert replay.first_mismatch is None


def test_the_callbacks_of_one_future_keep_their_order() -> None:
    async def program() -> str:
        order: list[str] = []
        future, other = running_loop().create_future(), running_loop().create_future()
        for word in "abc":
            future.add_done_callback(lambda _, word=word: order.append(word))
            other.add_done_callback(lambda _, word=word: order.append(word.upper()))
        future.set_result(None)
        other.set_result(None)
        await asyncio.sleep(1)
        return "".join(order)

    found = outcomes(program)
    assert {"".join(filter(str.islower, order)) for order in found} == {"abc"}
    assert {"".join(filter(str.isupper, order)) for order in found} == {"ABC"}
    assert len(found) > 10


def test_a_late_callback_of_a_done_future_is_run() -> None:
    async def program() -> str:
        heard: list[str] = []
        future = running_loop().create_future()
        future.add_done_callback(lambda _: future.add_done_callback(lambda _: heard.append("late")))
        future.set_result(None)
        await asyncio.sleep(1)
        future.add_done_callback(lambda _: heard.append("later"))
        future.add_done_callback(lambda _: heard.append("last"))
        await asyncio.sleep(1)
        return " ".join(heard)

    assert outcomes(program) == {"late later last"}


def test_one_ready_callback_needs_no_draw() -> None:
    async def program() -> None:
        for _ in range(100):
            await asyncio.sleep(0)

    tape = Tape(0)
    run(program(), tape)
    assert len(tape) == 0


def test_a_lost_update_is_found_by_some_seeds_only() -> None:
    """Two clerks read, think and write a balance; whether money is lost depends on the order of callbacks alone."""

    async def program() -> int:
        balance = 0

        async def clerk() -> None:
            nonlocal balance
            await asyncio.sleep(0)
            seen = balance
            await asyncio.sleep(0)
            balance = seen + 1

        await asyncio.gather(clerk(), clerk())
        return balance

    assert outcomes(program) == {1, 2}


# --- asyncio's primitives ------------------------------------------------------------------------------------


async def use_timeout() -> float:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await asyncio.sleep(10)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 5)
    return running_loop().time()


async def use_task_group() -> float:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise ValueError("one of them")

    others: list[asyncio.Task[None]] = []
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            others += [group.create_task(asyncio.sleep(1000)) for _ in range(5)]
    except* ValueError:
        pass
    assert [other.cancelled() for other in others] == [True] * 5
    return running_loop().time()


async def use_lock() -> int:
    lock, inside, most = asyncio.Lock(), 0, 0

    async def enter() -> None:
        nonlocal inside, most
        for _ in range(5):
            async with lock:
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

    await asyncio.gather(*(enter() for _ in range(5)))
    return most


async def use_event_and_condition() -> int:
    event, condition, woken = asyncio.Event(), asyncio.Condition(), 0

    async def wait() -> None:
        nonlocal woken
        await event.wait()
        async with condition:
            await condition.wait_for(lambda: woken > 0)
        woken += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(wait())
        event.set()
        await asyncio.sleep(1)
        async with condition:
            woken = 1
            condition.notify_all()
    return woken


async def use_queue() -> int:
    queue: asyncio.Queue[int] = asyncio.Queue(2)
    got: list[int] = []

    async def produce() -> None:
        for number in range(10):
            await queue.put(number)

    async def consume() -> None:
        while True:
            got.append(await queue.get())
            queue.task_done()

    consumers = [asyncio.create_task(consume()) for _ in range(3)]
    await asyncio.gather(produce(), produce())
    await queue.join()
    for consumer in consumers:
        consumer.cancel()
    return sum(got)


async def use_shield() -> str:
    inner = asyncio.create_task(asyncio.sleep(2, "kept"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await asyncio.shield(inner)
    return await inner


async def use_wait_and_semaphore() -> int:
    semaphore = asyncio.Semaphore(2)

    async def work() -> None:
        async with semaphore:
            await asyncio.sleep(1)

    tasks = [asyncio.create_task(work()) for _ in range(6)]
    done, pending = await asyncio.wait(tasks, timeout=2.5)
    await asyncio.gather(*pending)
    return len(done)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (use_timeout, 10.0),
        (use_task_group, 1.0),
        (use_lock, 1),
        (use_event_and_condition, 6),
        (use_queue, 90),
        (use_shield, "kept"),
        (use_wait_and_semaphore, 4),
    ],
)
def test_primitives_keep_their_promises_in_every_order(program: Program, expected: object) -> None:
    assert outcomes(program, 30) == {expected}


def test_tasks_and_futures_hash_by_number_and_equal_only_themselves() -> None:
    async def program() -> list[str]:
        tasks = {asyncio.create_task(asyncio.sleep(0), name=f"t{number}") for number in range(100)}
        futures = {running_loop().create_future() for _ in range(100)}
        assert len(tasks) == len(futures) == 100
        for kind in (tasks, futures):
            numbers = [hash(one) for one in kind]
            assert numbers == sorted(numbers)
        return [task.get_name() for task in tasks]

    assert run(program(), Tape(1)) == run(program(), Tape(1))


def test_names_of_tasks_do_not_depend_on_earlier_runs() -> None:
    async def program() -> str:
        return asyncio.create_task(asyncio.sleep(0)).get_name()

    assert run(program(), Tape(0)) == run(program(), Tape(0))


# --- the end of a run ----------------------------------------------------------------------------------------


def test_what_main_leaves_behind_is_cancelled_in_order() -> None:
    ended: list[int] = []

    async def linger(number: int) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)
            ended.append(number)

    async def program() -> None:
        left = [asyncio.create_task(linger(number)) for number in range(3)]
        await asyncio.sleep(0.1)
        assert len(left) == 3

    run(program(), Tape.replaying([]))
    assert ended == [0, 1, 2]


def test_an_abandoned_generator_runs_its_finally_blocks() -> None:
    ended: list[str] = []

    async def numbers() -> Any:
        try:
            yield 1
        finally:
            await asyncio.sleep(1)
            ended.append("closed")

    async def program() -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(2)

    run(program(), Tape(0))
    assert ended == ["closed"]


def test_the_error_of_main_comes_out() -> None:
    async def program() -> None:
        raise ValueError("of main")

    with pytest.raises(ValueError, match="of main"):
        run(program(), Tape(0))


def test_the_error_of_a_callback_ends_the_run() -> None:
    ended: list[str] = []

    def fail() -> None:
        raise ValueError("of a callback")

    async def program() -> None:
        running_loop().call_later(1, fail)
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)
            ended.append(f"cancelled at {running_loop().time()}")

    with pytest.raises(ValueError, match="of a callback"):
        run(program(), Tape(0))
    assert ended == ["cancelled at 2.0"]


def test_an_error_that_nobody_asks_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("of a task")

    async def program() -> None:
        task = asyncio.create_task(fail())
        await asyncio.sleep(1)
        del task

    run(program(), Tape(0))
    gc.collect()
    assert "Task exception was never retrieved" in caplog.text
    assert "of a task" in caplog.text


def test_a_deadlock_is_named_with_those_who_wait() -> None:
    async def wait_for_godot() -> None:
        await asyncio.Event().wait()

    async def program() -> None:
        await asyncio.sleep(3)
        await asyncio.create_task(wait_for_godot(), name="vladimir")

    with pytest.raises(Deadlock, match=r"after 3\.0+ s.*vladimir \(.*wait_for_godot\)"):
        run(program(), Tape(0))


def test_a_spinning_program_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clickhouse_sim.simulation.loop._CALLBACKS_PER_INSTANT", 1000)

    async def program() -> None:
        await asyncio.sleep(1)
        while True:
            await asyncio.sleep(0)

    with pytest.raises(TimeStandsStill, match=r"1\.000000 s"):
        run(program(), Tape(0))


def test_a_run_does_not_start_inside_another() -> None:
    async def program() -> None:
        inner = asyncio.sleep(0)
        try:
            run(inner, Tape(0))
        finally:
            inner.close()

    with pytest.raises(RuntimeError, match="inside a running event loop"):
        run(program(), Tape(0))


# --- refusals ------------------------------------------------------------------------------------------------


async def use_a_thread() -> None:
    await asyncio.to_thread(print)


async def open_a_connection() -> None:
    await asyncio.open_connection("127.0.0.1", 1)


async def start_a_server() -> None:
    await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)


async def start_a_process() -> None:
    await asyncio.create_subprocess_exec("true")


async def handle_a_signal() -> None:
    running_loop().add_signal_handler(signal.SIGTERM, print)


@pytest.mark.parametrize(
    "program", [use_a_thread, open_a_connection, start_a_server, start_a_process, handle_a_signal]
)
def test_the_outside_is_refused_by_name(program: Program) -> None:
    with pytest.raises(NotSimulated, match=r"loop\.\w+\(\) is not simulated"):
        run(program(), Tape(0))


def test_other_threads_are_refused() -> None:
    refusals: list[NotSimulated] = []

    async def program() -> None:
        loop = running_loop()

        def intrude() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except NotSimulated as refusal:
                refusals.append(refusal)

        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()

    run(program(), Tape(0))
    assert len(refusals) == 1


def test_every_method_of_an_event_loop_is_there_or_refused() -> None:
    for name in vars(asyncio.AbstractEventLoop):
        if not name.startswith("_"):
            assert name in vars(SimulatedLoop), name
