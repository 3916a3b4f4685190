"""The simulated ports one by one: disk under a crash, network, transfer, workers, clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickhouse_sim.simulation.clock import EPOCH, SimulatedClock
from clickhouse_sim.simulation.disk import SimulatedDisk
from clickhouse_sim.simulation.disk_image import DiskImage
from clickhouse_sim.simulation.gate import Gate
from clickhouse_sim.simulation.loop import run
from clickhouse_sim.simulation.network import Network, Weather
from clickhouse_sim.simulation.tape import Tape
from clickhouse_sim.simulation.trace import Trace, fingerprint
from clickhouse_sim.simulation.transfer import SimulatedTransfer, part_from_bytes, part_to_bytes
from clickhouse_sim.simulation.workers import SimulatedWorkers
from replica.environment import PartFiles, PartRequest
from replica.errors import ClickHouseError, NetworkError, NoSuchDataPart


class Stage:
    """A network and the ports of two lives."""

    def __init__(self, seed: int = 0) -> None:
        self.tape = Tape(seed)
        self.trace = Trace(lambda: 0.0, keep_lines=True)
        self.network = Network(self.tape, self.trace)
        self.gates = {"r1": Gate(), "r2": Gate()}
        self.transfers = {name: SimulatedTransfer(name, self.network, gate) for name, gate in self.gates.items()}

    def play(self, program: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return run(program(), self.tape)


class Shelf:
    """A source of parts that takes its time."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.asked: list[PartRequest] = []
        self.finished = 0
        self.files = {"all_0_0_0": PartFiles((("data", b"\0rows"), ("empty", b"")))}

    async def send_part(self, request: PartRequest) -> PartFiles:
        self.asked.append(request)
        await asyncio.sleep(self.seconds)
        self.finished += 1
        if request.part_name == "bug":
            raise ZeroDivisionError("a bug")
        if request.part_name not in self.files:
            raise NoSuchDataPart(f"No part {request.part_name} in table")
        return self.files[request.part_name]


PART = PartRequest("/tables/t/replicas/r1", "all_0_0_0")


# --- transfer ------------------------------------------------------------------------------------------------


def test_a_part_crosses_as_bytes() -> None:
    stage, shelf = Stage(), Shelf()

    async def program() -> None:
        address = await stage.transfers["r1"].serve(shelf)
        part = await stage.transfers["r2"].fetch(address, PART, 10)
        assert part == shelf.files["all_0_0_0"]
        assert part is not shelf.files["all_0_0_0"]
        assert shelf.asked == [PART]
        assert shelf.asked[0] is not PART

    stage.play(program)


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8"), min_size=1), st.binary())))
def test_part_files_survive_as_bytes(files: list[tuple[str, bytes]]) -> None:
    part = PartFiles(tuple(files))
    assert part_from_bytes(part_to_bytes(part)) == part


@pytest.mark.parametrize(
    ("part_name", "kind", "message"),
    [
        ("all_7_7_0", NoSuchDataPart, "No part all_7_7_0 in table"),
        ("bug", ClickHouseError, "ZeroDivisionError: a bug"),
    ],
)
def test_errors_cross_by_name(part_name: str, kind: type[ClickHouseError], message: str) -> None:
    stage = Stage()

    async def program() -> None:
        address = await stage.transfers["r1"].serve(Shelf())
        with pytest.raises(ClickHouseError, match=message) as caught:
            await stage.transfers["r2"].fetch(address, PartRequest("/t", part_name), 10)
        assert type(caught.value) is kind

    stage.play(program)


def test_nobody_listening_is_told_at_once() -> None:
    stage = Stage()

    async def program() -> float:
        address = await stage.transfers["r1"].serve(Shelf())
        await stage.transfers["r1"].stop()
        with pytest.raises(NetworkError, match="nobody listens"):
            await stage.transfers["r2"].fetch(address, PART, 60)
        return asyncio.get_running_loop().time()

    assert stage.play(program) < 1


@pytest.mark.parametrize("weather", [Weather(loss_permille=1000), Weather(quickest_seconds=9, slowest_seconds=9)])
def test_lost_and_late_messages_end_at_the_deadline(weather: Weather) -> None:
    stage = Stage()

    async def program() -> float:
        address = await stage.transfers["r1"].serve(Shelf())
        stage.network.weather = weather
        with pytest.raises(NetworkError, match="within 3 s"):
            await stage.transfers["r2"].fetch(address, PART, 3)
        return asyncio.get_running_loop().time()

    assert stage.play(program) == 3


def test_a_cut_parts_two_machines_only_until_it_is_healed() -> None:
    stage = Stage()

    async def program() -> None:
        address = await stage.transfers["r1"].serve(Shelf())
        stage.network.cut("r1", "r2")
        with pytest.raises(NetworkError):
            await stage.transfers["r2"].fetch(address, PART, 3)
        assert stage.network.delay("r1", "r3", "hello") is not None
        stage.network.heal("r2", "r1")
        await stage.transfers["r2"].fetch(address, PART, 3)

    stage.play(program)


def test_a_cut_may_be_one_way() -> None:
    stage = Stage()

    async def program() -> None:
        stage.network.cut("r1", "coordinator", one_way=True)
        link = stage.network.link("r1", "coordinator", stage.gates["r1"])
        assert link.delay("r1 s1 request 1 Exists /a") is None
        assert link.delay("r1 s1 reply 1 Exists") is not None
        assert link.delay("r1 s1 event CREATED /a") is not None
        stage.network.heal("r1", "coordinator")
        stage.network.cut("coordinator", "r1", one_way=True)
        assert link.delay("r1 s1 request 1 Exists /a") is not None
        assert link.delay("r1 s1 reply 1 Exists") is None
        assert link.delay("r1 s1 goodbye") is None

    stage.play(program)


def test_multis_are_lost_on_the_way_there_or_on_the_way_back() -> None:
    stage = Stage()

    async def program() -> None:
        link = stage.network.link("r1", "coordinator", stage.gates["r1"])
        other = stage.network.link("r2", "coordinator", stage.gates["r2"])
        request, reply = "s1 request 1 Multi Create,Check", "s1 reply 1 Multi"
        stage.network.lose_multi_requests("r1")
        assert link.delay(f"r1 {request}") is None
        assert link.delay("r1 s1 request 2 Exists /a") is not None
        assert other.delay(f"r2 {request}") is not None
        stage.network.lose_multi_replies("r1")
        assert link.delay(f"r1 {request}") is not None
        assert link.delay(f"r1 {reply}") is None
        assert other.delay(f"r2 {reply}") is not None
        stage.network.deliver_multis("r1")
        assert link.delay(f"r1 {reply}") is not None

    stage.play(program)


def test_a_question_is_answered_even_if_the_asker_has_stopped_waiting() -> None:
    stage, shelf = Stage(), Shelf(1)
    stage.network.weather = Weather(quickest_seconds=5, slowest_seconds=5)

    async def program() -> None:
        address = await stage.transfers["r1"].serve(shelf)
        with pytest.raises(NetworkError):
            await stage.transfers["r2"].fetch(address, PART, 3)
        assert shelf.asked == []
        await asyncio.sleep(10)
        assert shelf.finished == 1

    stage.play(program)


def test_some_messages_are_lost_and_some_are_not() -> None:
    stage = Stage()
    stage.network.weather = Weather(loss_permille=300)

    async def program() -> int:
        return sum(stage.network.delay("a", "b", "hello") is None for _ in range(1000))

    assert 200 < stage.play(program) < 400


def test_an_address_has_one_listener_at_a_time() -> None:
    stage = Stage()

    async def program() -> None:
        await stage.transfers["r1"].serve(Shelf())
        with pytest.raises(OSError, match="in use"):
            await stage.transfers["r1"].serve(Shelf())
        stage.gates["r1"].close()
        reborn = SimulatedTransfer("r1", stage.network, Gate())
        await reborn.serve(Shelf())

    stage.play(program)


def test_the_link_of_a_dead_life_carries_nothing() -> None:
    stage = Stage()

    async def program() -> None:
        link = stage.network.link("r1", "coordinator", stage.gates["r1"])
        assert link.delay("r1 s1 heartbeat") is not None
        stage.gates["r1"].close()
        assert link.delay("r1 s1 heartbeat") is None

    stage.play(program)


# --- disk ----------------------------------------------------------------------------------------------------


def crash_during(operation: Callable[[SimulatedDisk], Coroutine[Any, Any, Any]], seed: int) -> DiskImage:
    """The image after a kill a moment after this operation has begun."""
    image, gate, tape = DiskImage(), Gate(), Tape(seed)
    image.make_folder("a")
    for name in "xyz":
        image.write(f"a/{name}", b"old")
    disk = SimulatedDisk("r1", image, gate, tape, Trace(lambda: 0.0))

    async def program() -> None:
        task = asyncio.create_task(operation(disk))
        while not disk._under_way:
            await asyncio.sleep(0)
        disk.crash(lose_unsynced=False)
        await asyncio.sleep(1)
        assert not task.done()

    run(program(), tape)
    return image


def test_what_a_kill_interrupts_has_happened_or_not() -> None:
    found = {crash_during(lambda disk: disk.write("a/x", b"new"), seed).read("a/x") for seed in range(20)}
    assert found == {b"old", b"new"}


def test_a_kill_can_leave_a_folder_half_removed() -> None:
    images = [crash_during(lambda disk: disk.remove("a"), seed) for seed in range(50)]
    left = {tuple(image.names("a")) if image.exists("a") else None for image in images}
    assert {None, ("x", "y", "z"), ("y", "z"), ("z",), ()} == left


def test_a_begun_operation_is_carried_through_though_its_caller_is_cancelled() -> None:
    image = DiskImage()
    disk = SimulatedDisk("r1", image, Gate(), Tape(0), Trace(lambda: 0.0))

    async def program() -> None:
        task = asyncio.create_task(disk.write("file", b"x"))
        while not disk._under_way:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(1)
        assert task.cancelled()

    run(program(), Tape(0))
    assert image.read("file") == b"x"


def test_an_interrupted_operation_that_would_have_failed_has_no_effect() -> None:
    for seed in range(10):
        image = crash_during(lambda disk: disk.rename("nothing", "a/x"), seed)
        assert image.read("a/x") == b"old"


def test_closing_carries_through_what_has_begun() -> None:
    image = DiskImage()
    disk = SimulatedDisk("r1", image, Gate(), Tape(0), Trace(lambda: 0.0))

    async def program() -> None:
        writing = asyncio.create_task(disk.write("file", b"x"))
        await asyncio.sleep(0.00005)
        disk.close()
        assert not writing.done()

    run(program(), Tape(0))
    assert image.read("file") == b"x"


def test_a_dead_disk_cancels_who_calls_it_and_changes_nothing() -> None:
    image = DiskImage()
    trace = Trace(lambda: 0.0, keep_lines=True)
    disk = SimulatedDisk("r1", image, Gate(), Tape(0), trace)

    async def program() -> None:
        disk.crash(lose_unsynced=True)
        with pytest.raises(asyncio.CancelledError):
            await disk.write("file", b"x")

    run(program(), Tape(0))
    assert image.names("") == []
    assert trace.lines == []


def test_every_operation_and_failure_is_traced() -> None:
    trace = Trace(lambda: 0.0, keep_lines=True)
    disk = SimulatedDisk("r1", DiskImage(), Gate(), Tape(0), trace)

    async def program() -> None:
        await disk.write("file", b"x")
        with pytest.raises(FileNotFoundError):
            await disk.read("nothing")

    run(program(), Tape(0))
    assert trace.lines == [
        "0.000000 r1 disk write file " + fingerprint(b"x"),
        "0.000000 r1 disk read nothing ! FileNotFoundError",
    ]


# --- workers and clock ---------------------------------------------------------------------------------------


def test_a_job_runs_once_its_time_has_come() -> None:
    gate = Gate()
    workers = SimulatedWorkers("r1", gate, Tape(0), Trace(lambda: 0.0))
    ran: list[float] = []

    async def program() -> None:
        loop = asyncio.get_running_loop()
        assert await workers.run("sum", lambda: (ran.append(loop.time()), 1 + 1)[1]) == 2
        assert ran == [loop.time()]
        task = asyncio.create_task(workers.run("never", lambda: ran.append(0)))
        await asyncio.sleep(0.0005)
        gate.close()
        await asyncio.sleep(1)
        assert task.cancelled()

    run(program(), Tape(0))
    assert len(ran) == 1


def test_the_wall_clock_follows_virtual_time_with_its_skew() -> None:
    clock = SimulatedClock(lambda: 10.5, skew_seconds=-2)
    assert clock.now() == EPOCH + 8.5
    clock.skew_seconds = 3600
    assert clock.now() == EPOCH + 3610.5
