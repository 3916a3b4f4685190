"""A client of simulated servers: inserts and scans that cross the network as bytes, and the door that answers them."""

from __future__ import annotations

import asyncio
import json

import pyarrow as pa

from clickhouse_sim.simulation.gate import Gate
from clickhouse_sim.simulation.network import Network
from replica.commands import BlockOutcome, Command, InsertOptions, from_json, to_json
from replica.environment import Environment
from replica.errors import BadArguments, NetworkError
from replica.server import Server, ServerConfig

_PORT = 9000


class SimulatedServer:
    """A server together with its door for clients."""

    def __init__(self, name: str, environment: Environment, network: Network, gate: Gate, config: ServerConfig) -> None:
        self.server = Server(environment, config)
        self._name = name
        self._network = network
        self._gate = gate

    async def run(self) -> None:
        self._network.listen(address_of(self._name), self._answer, self._gate)
        try:
            await self.server.run()
        finally:
            self._network.hang_up(address_of(self._name))

    async def _answer(self, question: bytes) -> bytes:
        header, _, payload = question.partition(b"\n")
        record = json.loads(header)
        match record["what"]:
            case "execute":
                return json.dumps(await self.server.execute(from_json(record["command"]))).encode()
            case "insert":
                options = from_json(record["options"])
                outcome = await self.server.insert("default", record["table"], options, 0, _table(payload))
                return to_json(outcome).encode()
            case _:
                raise BadArguments(f"a simulated server is not asked to {record['what']}")


class SimulatedClient:
    """One client machine; every question has a deadline, after which its outcome is not known."""

    def __init__(self, name: str, network: Network, deadline_seconds: float) -> None:
        self._name = name
        self._network = network
        self._deadline_seconds = deadline_seconds

    async def execute(self, replica: str, command: Command) -> None:
        """Raises ClickHouseError; NetworkError when no answer came in time."""
        await self._ask(replica, {"what": "execute", "command": to_json(command)}, b"")

    async def insert(self, replica: str, table: str, options: InsertOptions, block: pa.Table) -> BlockOutcome:
        """Raises ClickHouseError; NetworkError when no answer came in time: the block may be stored or not."""
        header = {"what": "insert", "table": table, "options": to_json(options)}
        outcome = from_json(await self._ask(replica, header, _bytes(block)))
        assert isinstance(outcome, BlockOutcome)
        return outcome

    async def _ask(self, replica: str, header: dict[str, str], payload: bytes) -> bytes:
        question = json.dumps(header).encode() + b"\n" + payload
        try:
            async with asyncio.timeout(self._deadline_seconds):
                return await self._network.ask(self._name, address_of(replica), header["what"], question)
        except TimeoutError:
            raise NetworkError(f"no answer from {replica} within {self._deadline_seconds:g} s") from None


def address_of(replica: str) -> str:
    """Where a replica's door for clients is."""
    return f"{replica}:{_PORT}"


def _bytes(block: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, block.schema) as writer:
        writer.write_table(block)
    return bytes(sink.getvalue())


def _table(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()
