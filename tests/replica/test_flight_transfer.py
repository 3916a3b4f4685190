"""Parts cross between two replicas over Flight, or the fetch fails by name and in time."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import pyarrow.flight as flight
import pytest

from replica.environment import PartFiles, PartRequest
from replica.errors import (
    Aborted,
    BadArguments,
    ClickHouseError,
    NetworkError,
    NoSuchDataPart,
)
from replica.transfer.flight_transfer import FlightTransfer

REQUEST = PartRequest("/clickhouse/tables/1/t/replicas/r1", "all_0_0_0")
PART = PartFiles((("data.parquet", bytes(range(256)) * 20_000), ("empty", b""), ("count.txt", b"17")))


class Source:
    """Does with a request what the test says."""

    def __init__(self, deed: Callable[[PartRequest], Awaitable[PartFiles]]) -> None:
        self._deed = deed
        self.requests: list[PartRequest] = []
        self.threads: list[threading.Thread] = []

    async def send_part(self, request: PartRequest) -> PartFiles:
        self.requests.append(request)
        self.threads.append(threading.current_thread())
        return await self._deed(request)


async def gives_the_part(_: PartRequest) -> PartFiles:
    return PART


@pytest.fixture
async def transfer() -> AsyncIterator[FlightTransfer]:
    transfer = FlightTransfer()
    yield transfer
    await transfer.stop()


async def test_a_part_arrives_whole_and_is_read_on_the_event_loop(transfer: FlightTransfer) -> None:
    source = Source(gives_the_part)
    address = await transfer.serve(source)
    assert address.startswith("127.0.0.1:")
    assert await transfer.fetch(address, REQUEST, 30) == PART
    assert source.requests == [REQUEST]
    assert source.threads == [threading.current_thread()]


async def test_many_parts_cross_at_once(transfer: FlightTransfer) -> None:
    address = await transfer.serve(Source(gives_the_part))
    parts = await asyncio.gather(*(transfer.fetch(address, REQUEST, 30) for _ in range(40)))
    assert parts == [PART] * 40


@pytest.mark.parametrize(
    "message", ["no part all_0_0_0", 'quotes " and {braces}. Detail: Failed', "длинно 🙂" * 3000, ""]
)
async def test_an_error_of_the_sender_comes_out_as_itself(transfer: FlightTransfer, message: str) -> None:
    async def has_no_such_part(_: PartRequest) -> PartFiles:
        raise NoSuchDataPart(message)

    address = await transfer.serve(Source(has_no_such_part))
    with pytest.raises(NoSuchDataPart) as caught:
        await transfer.fetch(address, REQUEST, 30)
    received = caught.value.message
    assert received == message or (received.endswith(" …") and message.startswith(received[:-2]))


async def test_a_bug_in_the_sender_is_told_by_its_name(transfer: FlightTransfer) -> None:
    async def stumbles(_: PartRequest) -> PartFiles:
        raise ZeroDivisionError("oh")

    address = await transfer.serve(Source(stumbles))
    with pytest.raises(ClickHouseError, match="ZeroDivisionError: oh") as caught:
        await transfer.fetch(address, REQUEST, 30)
    assert type(caught.value) is ClickHouseError


async def test_nobody_there_is_a_network_error_that_says_where(transfer: FlightTransfer) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(NetworkError, match=address):
            await transfer.fetch(address, REQUEST, 30)
    with pytest.raises(NetworkError, match="no address at all"):
        await transfer.fetch("no address at all", REQUEST, 30)


async def test_somebody_who_never_answers_is_a_network_error(transfer: FlightTransfer) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(NetworkError):
            await transfer.fetch(f"127.0.0.1:{silent.getsockname()[1]}", REQUEST, 0.3)


async def test_a_source_that_takes_too_long_is_a_network_error(transfer: FlightTransfer) -> None:
    async def sleeps(_: PartRequest) -> PartFiles:
        await asyncio.sleep(60)
        return PART

    address = await transfer.serve(Source(sleeps))
    with pytest.raises(NetworkError):
        await transfer.fetch(address, REQUEST, 0.3)


async def test_a_fetch_can_be_cancelled(transfer: FlightTransfer) -> None:
    asked = asyncio.Event()
    answer = asyncio.Event()

    async def waits(_: PartRequest) -> PartFiles:
        asked.set()
        await answer.wait()
        return PART

    address = await transfer.serve(Source(waits))
    fetching = asyncio.create_task(transfer.fetch(address, REQUEST, 30))
    await asked.wait()
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    answer.set()
    assert await transfer.fetch(address, REQUEST, 30) == PART


async def test_a_server_that_stops_aborts_what_it_was_asked(transfer: FlightTransfer) -> None:
    asked = asyncio.Event()

    async def waits(_: PartRequest) -> PartFiles:
        asked.set()
        await asyncio.sleep(60)
        return PART

    other = FlightTransfer()
    address = await other.serve(Source(waits))
    fetching = asyncio.create_task(transfer.fetch(address, REQUEST, 30))
    await asked.wait()
    await other.stop()
    with pytest.raises((Aborted, NetworkError)):
        await fetching
    with pytest.raises(NetworkError, match=address):
        await transfer.fetch(address, REQUEST, 30)


async def test_a_stream_that_breaks_off_is_a_network_error(transfer: FlightTransfer) -> None:
    """A relay between the two passes on the beginning of the part and then hangs up."""
    address = await transfer.serve(Source(gives_the_part))
    host, port = address.split(":")

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))

        async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter, most: int) -> None:
            while most > 0 and (data := await source.read(65536)):
                target.write(data[:most])
                await target.drain()
                most -= len(data)

        asking = asyncio.create_task(pass_on(reader, back, 1 << 40))
        await pass_on(there, writer, 1_500_000)
        asking.cancel()
        back.close()
        writer.close()

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as server:
        broken = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(NetworkError, match=broken):
            await transfer.fetch(broken, REQUEST, 30)


@pytest.mark.parametrize(
    "ticket",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b" " * 2_000_000 + json.dumps({"replica_path": "/t", "part_name": "a", "seconds": 1}).encode(),
        json.dumps({"replica_path": "/t", "seconds": 1}).encode(),
        json.dumps({"replica_path": "/t", "part_name": 7, "seconds": 1}).encode(),
        json.dumps({"replica_path": "/t", "part_name": "a" * 5000, "seconds": 1}).encode(),
        json.dumps({"replica_path": "/t\0", "part_name": "a", "seconds": 1}).encode(),
        json.dumps({"replica_path": "/t", "part_name": "a", "seconds": "1"}).encode(),
        json.dumps({"replica_path": "/t", "part_name": "a", "seconds": float("nan")}).encode(),
        json.dumps({"replica_path": "/t", "part_name": "a", "seconds": 1e9}).encode(),
    ],
)
async def test_a_malformed_request_is_refused(transfer: FlightTransfer, ticket: bytes) -> None:
    source = Source(gives_the_part)
    address = await transfer.serve(source)

    def ask() -> str:
        with flight.FlightClient(f"grpc://{address}") as client:
            try:
                client.do_get(flight.Ticket(ticket)).read_all()
            except flight.FlightServerError as problem:
                return problem.extra_info.decode()
        return "no error"

    assert BadArguments.name in await asyncio.to_thread(ask)
    assert source.requests == []
