"""The clients' door and its client: commands, scans and inserts cross whole, and every failure has its name."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from clickhouse_sim.cluster.endpoint_client import EndpointClient, _interruptibly
from replica.commands import (
    BlockOutcome,
    ColumnDefinition,
    Command,
    CreateTable,
    DescribeTable,
    InsertOptions,
    InsertStatus,
    ListTables,
    PartOutcome,
    to_json,
)
from replica.endpoint import Endpoint
from replica.errors import (
    Aborted,
    BadArguments,
    ClickHouseError,
    LogicalError,
    NetworkError,
    TableIsReadOnly,
    TypeMismatch,
    UnknownTable,
)

T = TypeVar("T")

SCHEMA = pa.schema([pa.field("k", pa.uint64(), nullable=False), pa.field("s", pa.large_binary())])


def block_of(*keys: int) -> pa.Table:
    return pa.table([list(keys), [str(key).encode() for key in keys]], schema=SCHEMA)


class FakeServer:
    """Remembers what it is asked; stores what is inserted; stumbles where it is told to."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.inserts: list[tuple[str, str, InsertOptions, int]] = []
        self.rows = block_of()
        self.paths: list[str] = []
        self.fails_at: dict[int, Exception] = {}
        self.hangs_at: int | None = None

    async def execute(self, command: Command) -> list[dict[str, Any]]:
        self.commands.append(command)
        if isinstance(command, DescribeTable):
            await asyncio.sleep(3600)
        if isinstance(command, CreateTable):
            raise TableIsReadOnly("Table db.t is read-only. Wait for the coordination service.")
        return [{"name": "t", "engine": None, "rows": 2**63}, {"name": "é", "engine": "x", "rows": 0}]

    async def insert(
        self, database: str, table: str, options: InsertOptions, source_number: int, block: pa.Table
    ) -> BlockOutcome:
        self.inserts.append((database, table, options, source_number))
        if source_number == self.hangs_at:
            await asyncio.sleep(3600)
        if source_number in self.fails_at:
            raise self.fails_at[source_number]
        self.rows = pa.concat_tables([self.rows, block])
        part = PartOutcome("all", InsertStatus.STORED, block.num_rows, f"all_{source_number}_{source_number}_0")
        return BlockOutcome(source_number, block.num_rows, (part,))

    async def scan(self, database: str, table: str, columns: list[str] | None, paths: Sequence[str] = ()) -> pa.Table:
        self.paths = list(paths)
        if table == "slow":
            await asyncio.sleep(3600)
        if table != "t":
            raise UnknownTable(f"Table {database}.{table} does not exist")
        return self.rows if columns is None else self.rows.select(columns)


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
async def endpoint(server: FakeServer) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(server)
    yield endpoint
    await endpoint.stop()


async def asked(endpoint: Endpoint, question: Callable[[EndpointClient], T], seconds: float = 30) -> T:
    """What a client gets, asking from a thread of its own."""

    def ask() -> T:
        with EndpointClient(f"127.0.0.1:{endpoint.port}", seconds) as client:
            return question(client)

    return await asyncio.to_thread(ask)


async def test_a_command_answers_rows(endpoint: Endpoint, server: FakeServer) -> None:
    rows = await asked(endpoint, lambda client: client.execute(ListTables()))
    assert rows == [{"name": "t", "engine": None, "rows": 2**63}, {"name": "é", "engine": "x", "rows": 0}]
    assert server.commands == [ListTables()]


async def test_an_error_of_a_command_comes_out_as_itself(endpoint: Endpoint, server: FakeServer) -> None:
    create = CreateTable("db", "t", (ColumnDefinition("k", "UInt64"),), "/t/{uuid}", "{replica}", "k")
    with pytest.raises(TableIsReadOnly, match=r"^Table db\.t is read-only\. Wait for the coordination service\.$"):
        await asked(endpoint, lambda client: client.execute(create))
    assert server.commands == [create]


async def test_a_scan_gives_the_rows_and_the_schema(endpoint: Endpoint, server: FakeServer) -> None:
    server.rows = pa.concat_tables([block_of(1, 2), block_of(3)])
    rows = await asked(endpoint, lambda client: client.scan("db", "t"))
    assert rows.schema == SCHEMA
    assert rows.equals(server.rows)
    assert (await asked(endpoint, lambda client: client.scan("db", "t", ["s"]))).column_names == ["s"]


async def test_a_scan_passes_the_paths_of_znodes_on(endpoint: Endpoint, server: FakeServer) -> None:
    await asked(endpoint, lambda client: client.scan("db", "t", paths=["/a", "/{shard}"]))
    assert server.paths == ["/a", "/{shard}"]


@pytest.mark.parametrize("paths", ["/a", [1], ["/" + "a" * 5000], ["/\0"], ["/a"] * 1001])
async def test_a_scan_with_bad_paths_is_refused(endpoint: Endpoint, paths: Any) -> None:
    ticket = flight.Ticket(json.dumps({"database": "db", "table": "t", "paths": paths}).encode())

    def scan() -> None:
        with flight.connect(f"grpc://127.0.0.1:{endpoint.port}") as client:
            client.do_get(ticket).read_all()

    with pytest.raises(flight.FlightError, match="BAD_ARGUMENTS"):
        await asyncio.to_thread(scan)


async def test_a_scan_of_nothing_still_has_a_schema(endpoint: Endpoint, server: FakeServer) -> None:
    for empty in (block_of(), SCHEMA.empty_table(), pa.Table.from_batches([], SCHEMA)):
        server.rows = empty
        rows = await asked(endpoint, lambda client: client.scan("db", "t"))
        assert rows.num_rows == 0
        assert rows.schema == SCHEMA


async def test_an_error_of_a_scan_comes_out_as_itself(endpoint: Endpoint) -> None:
    with pytest.raises(UnknownTable, match=r"^Table db\.x does not exist$"):
        await asked(endpoint, lambda client: client.scan("db", "x"))


async def test_blocks_are_inserted_one_by_one(endpoint: Endpoint, server: FakeServer) -> None:
    options = InsertOptions(insert_deduplication_token="tok", insert_deduplicate=False)

    def insert(client: EndpointClient) -> list[BlockOutcome]:
        outcomes = []
        with client.insert("db", "t", SCHEMA, options) as statement:
            for number in range(50):
                outcomes.append(statement.send(block_of(number, number)))
                assert len(server.inserts) == number + 1
        return outcomes

    outcomes = await asked(endpoint, insert)
    assert [outcome.source_number for outcome in outcomes] == list(range(50))
    assert {outcome.status for outcome in outcomes} == {InsertStatus.STORED}
    assert server.inserts == [("db", "t", options, number) for number in range(50)]
    assert server.rows.num_rows == 100


async def test_a_large_block_is_one_block_and_so_is_an_empty_one(endpoint: Endpoint, server: FakeServer) -> None:
    large = pa.concat_tables([block_of(*range(150_000)), block_of(*range(186_776))])

    def insert(client: EndpointClient) -> list[int]:
        with client.insert("db", "t", SCHEMA) as statement:
            blocks = [large, block_of(), pa.Table.from_batches([], SCHEMA), block_of(7).to_batches()[0]]
            return [statement.send(block).rows for block in blocks]

    assert await asked(endpoint, insert) == [336_776, 0, 0, 1]
    assert server.rows.num_rows == 336_777
    assert server.rows.slice(0, 336_776).equals(large)


async def test_an_insert_of_no_blocks_asks_nothing(endpoint: Endpoint, server: FakeServer) -> None:
    def insert(client: EndpointClient) -> None:
        with client.insert("db", "t", SCHEMA):
            pass

    await asked(endpoint, insert)
    assert server.inserts == []


async def test_a_failed_block_ends_the_statement(endpoint: Endpoint, server: FakeServer) -> None:
    message = "Table is read-only. " + "Сессия потеряна. " * 2000
    server.fails_at = {1: TableIsReadOnly(message)}

    def insert(client: EndpointClient) -> str:
        with client.insert("db", "t", SCHEMA) as statement:
            assert statement.send(block_of(1)).status == InsertStatus.STORED
            with pytest.raises(TableIsReadOnly) as caught:
                statement.send(block_of(2))
            with pytest.raises(LogicalError, match="ended"):
                statement.send(block_of(3))
        return caught.value.message

    assert await asked(endpoint, insert) == message
    assert len(server.inserts) == 2


async def test_a_bug_in_the_server_is_told_by_its_name(endpoint: Endpoint, server: FakeServer) -> None:
    server.fails_at = {0: KeyError("oh")}

    def insert(client: EndpointClient) -> None:
        with client.insert("db", "t", SCHEMA) as statement:
            statement.send(block_of(1))

    with pytest.raises(ClickHouseError, match="KeyError: 'oh'"):
        await asked(endpoint, insert)


async def test_after_a_failed_block_no_other_is_taken(endpoint: Endpoint, server: FakeServer) -> None:
    server.fails_at = {0: TableIsReadOnly("no")}
    request = {"database": "db", "table": "t", "options": json.loads(to_json(InsertOptions()))}

    def insert_without_waiting() -> None:
        with flight.FlightClient(f"grpc://127.0.0.1:{endpoint.port}") as client:
            writer, _ = client.do_put(flight.FlightDescriptor.for_command(json.dumps(request)), SCHEMA)
            for batch in block_of(1).to_batches() + block_of(2).to_batches():
                writer.write_batch(batch)
            writer.close()

    await asyncio.to_thread(insert_without_waiting)
    assert len(server.inserts) == 1


async def test_an_insert_that_is_refused_at_the_door_says_why(endpoint: Endpoint, server: FakeServer) -> None:
    def insert(client: EndpointClient) -> None:
        with client.insert("", "t", SCHEMA) as statement:
            statement.send(block_of(1))

    with pytest.raises(BadArguments, match="database"):
        await asked(endpoint, insert)


async def test_a_block_of_another_schema_is_refused_unsent(endpoint: Endpoint, server: FakeServer) -> None:
    def insert(client: EndpointClient) -> BlockOutcome:
        with client.insert("db", "t", SCHEMA) as statement:
            with pytest.raises(TypeMismatch):
                statement.send(pa.table({"k": [1]}))
            return statement.send(block_of(1))

    assert (await asked(endpoint, insert)).source_number == 0
    assert len(server.inserts) == 1


async def test_nobody_there_is_a_network_error_that_says_where() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"

        def insert(client: EndpointClient) -> None:
            with client.insert("db", "t", SCHEMA) as statement:
                statement.send(block_of(1))

        for question in (
            lambda client: client.execute(ListTables()),
            lambda client: client.scan("db", "t"),
            insert,
        ):
            with EndpointClient(address) as client, pytest.raises(NetworkError, match=address):
                question(client)


async def test_a_server_that_does_not_answer_is_a_network_error(endpoint: Endpoint, server: FakeServer) -> None:
    server.hangs_at = 1

    def insert(client: EndpointClient) -> None:
        with client.insert("db", "t", SCHEMA) as statement:
            statement.send(block_of(1))
            statement.send(block_of(2))

    with pytest.raises(NetworkError, match=f"127.0.0.1:{endpoint.port}"):
        await asked(endpoint, insert, seconds=0.5)
    for question in (
        lambda client: client.execute(DescribeTable("db", "t")),
        lambda client: client.scan("db", "slow"),
    ):
        with pytest.raises(NetworkError, match=f"127.0.0.1:{endpoint.port}"):
            await asked(endpoint, question, seconds=0.2)


@pytest.mark.parametrize("answer", [b"", b"[]", b"\xff", to_json(ListTables()).encode()])
async def test_an_answer_that_is_no_outcome_is_an_error_at_once(answer: bytes) -> None:
    class OtherServer(flight.FlightServerBase):
        def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
            for _ in reader:
                writer.write(answer)

    with (
        OtherServer("grpc://127.0.0.1:0") as other,
        EndpointClient(f"127.0.0.1:{other.port}") as client,
        client.insert("db", "t", SCHEMA) as statement,
        pytest.raises(ClickHouseError),
    ):
        statement.send(block_of(1))


async def test_a_server_that_stops_aborts_the_insert(endpoint: Endpoint, server: FakeServer) -> None:
    server.hangs_at = 0

    def insert(client: EndpointClient) -> None:
        with client.insert("db", "t", SCHEMA) as statement:
            statement.send(block_of(1))

    inserting = asyncio.create_task(asked(endpoint, insert))
    while not server.inserts:
        await asyncio.sleep(0.01)
    await endpoint.stop()
    with pytest.raises(ClickHouseError, match="stopping"):
        await inserting


async def test_an_idle_insert_does_not_keep_a_server_from_stopping(server: FakeServer) -> None:
    endpoint = Endpoint(server)

    with (
        EndpointClient(f"127.0.0.1:{endpoint.port}") as client,
        client.insert("db", "t", SCHEMA) as statement,
    ):
        await asyncio.to_thread(statement.send, block_of(1))
        await endpoint.stop()
        with pytest.raises(ClickHouseError, match=r"stopping|127\.0\.0\.1"):
            await asyncio.to_thread(statement.send, block_of(2))
    assert len(server.inserts) == 1


async def test_a_stopping_server_takes_no_more_blocks(server: FakeServer) -> None:
    endpoint = Endpoint(server)
    with (
        EndpointClient(f"127.0.0.1:{endpoint.port}") as client,
        client.insert("db", "t", SCHEMA) as statement,
    ):
        await asyncio.to_thread(statement.send, block_of(1))
        stopping = asyncio.create_task(endpoint.stop())
        await asyncio.sleep(0)
        with pytest.raises(Aborted, match="stopping"):
            await asyncio.to_thread(statement.send, block_of(2))
        await stopping
    assert len(server.inserts) == 1


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(flight.FlightServerError) as caught:
        call()
    return str(json.loads(caught.value.extra_info)["name"])


def malformed_calls(client: flight.FlightClient) -> Iterator[Callable[[], Any]]:
    for kind, body in (
        ("drop", to_json(ListTables())),
        ("command", "{}"),
        ("command", "not JSON"),
        ("command", to_json(InsertOptions())),
    ):
        yield lambda kind=kind, body=body: list(client.do_action(flight.Action(kind, body.encode())))
    for ticket in (
        {},
        [],
        {"database": "db"},
        {"database": "db", "table": ""},
        {"database": "db", "table": "x" * 2000},
        {"database": "db", "table": "t", "columns": "k"},
        {"database": "db", "table": "t", "columns": [1]},
    ):
        yield lambda ticket=ticket: client.do_get(flight.Ticket(json.dumps(ticket).encode())).read_all()
    for request in (
        {},
        {"database": "db", "table": "t"},
        {"database": "db", "table": "t", "options": {"kind": "ListTables"}},
    ):

        def put(request: dict[str, Any] = request) -> None:
            writer, _ = client.do_put(flight.FlightDescriptor.for_command(json.dumps(request)), SCHEMA)
            writer.close()

        yield put


async def test_malformed_requests_are_refused_by_name(endpoint: Endpoint, server: FakeServer) -> None:
    def ask() -> list[str]:
        with flight.FlightClient(f"grpc://127.0.0.1:{endpoint.port}") as client:
            return [refused(call) for call in malformed_calls(client)]

    assert set(await asyncio.to_thread(ask)) == {BadArguments.name}
    assert server.commands == server.inserts == []


SERVER_PROCESS = textwrap.dedent(
    """
    import asyncio
    from replica.commands import BlockOutcome
    from replica.endpoint import Endpoint

    class Server:
        async def insert(self, database, table, options, source_number, block):
            if source_number:
                print("asked", flush=True)
                await asyncio.sleep(3600)
            return BlockOutcome(source_number, block.num_rows, ())

    async def main():
        endpoint = Endpoint(Server())
        print(endpoint.port, flush=True)
        await asyncio.to_thread(input)
        await endpoint.stop()

    asyncio.run(main())
    """
)


@contextmanager
def server_process() -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER_PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process, f"127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.kill()
        process.communicate()


async def test_a_server_killed_midway_is_a_network_error() -> None:
    with server_process() as (process, address), EndpointClient(address) as client:
        with client.insert("db", "t", SCHEMA) as statement:
            statement.send(block_of(1))
            sending = asyncio.create_task(asyncio.to_thread(statement.send, block_of(2)))
            await asyncio.to_thread(process.stdout.readline)
            os.kill(process.pid, signal.SIGKILL)
            with pytest.raises(NetworkError, match=address):
                await sending
        with pytest.raises(NetworkError, match=address):
            client.execute(ListTables())


def test_a_server_process_ends_though_a_client_sits_in_an_insert() -> None:
    with (
        server_process() as (process, address),
        EndpointClient(address) as client,
        client.insert("db", "t", SCHEMA) as statement,
    ):
        statement.send(block_of(1))
        process.communicate("\n", timeout=30)
        assert process.returncode == 0


def test_ctrl_c_ends_the_wait_for_a_slow_answer() -> None:
    """In a process of its own: the call never ends, the wait for it does."""
    program = """
import _thread, threading, time
from clickhouse_sim.cluster.endpoint_client import _interruptibly
threading.Timer(0.3, _thread.interrupt_main).start()
try:
    _interruptibly(lambda: time.sleep(3600))
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[2]
    )
    assert done.stdout == "interrupted\n", done.stderr


def test_an_error_of_the_call_is_that_of_the_wait() -> None:
    def late() -> None:
        raise TimeoutError("of the call itself")

    with pytest.raises(TimeoutError, match="of the call itself"):
        _interruptibly(late)
