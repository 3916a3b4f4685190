"""A client of simulated servers, and the door that answers it: what they say crosses the network as bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from clickhouse_sim.simulation.network import Answer, Network
from clickhouse_sim.simulation.recording import Recording
from replica.commands import BlockOutcome, Command, InsertOptions, InsertStatus, from_json, to_json
from replica.dedup.tokens import SourceToken
from replica.errors import BadArguments, ClickHouseError, NetworkError
from replica.server import DEFAULT_DATABASE, Server

_PORT = 9000


def door_of(replica: str) -> str:
    """The address at which a replica answers clients."""
    return f"{replica}:{_PORT}"


def answer_with(server: Server) -> Answer:
    """What a server's door does with a question. Errors cross as the network carries them."""

    async def answer(question: bytes) -> bytes:
        header, _, payload = question.partition(b"\n")
        record = json.loads(header)
        match record["what"]:
            case "execute":
                return json.dumps(await server.execute(from_json(record["command"]))).encode()
            case "insert":
                options = from_json(record["options"])
                number = record["source_number"]
                outcome = await server.insert(DEFAULT_DATABASE, record["table"], options, number, _to_table(payload))
                return to_json(outcome).encode()
            case "insert together":
                tokens = [SourceToken(rows, by_user) for rows, by_user in record["tokens"]]
                outcome = await server.insert_together(
                    DEFAULT_DATABASE, record["table"], InsertOptions(), tokens, _to_table(payload)
                )
                return to_json(outcome).encode()
            case unknown:
                raise BadArguments(f"a simulated server is not asked to {unknown}")

    return answer


class SimulatedClient:
    """One client machine; every question has a deadline, after which its outcome is not known."""

    def __init__(
        self, name: str, network: Network, deadline_seconds: float, recording: Recording | None = None
    ) -> None:
        self.name = name
        self._network = network
        self._deadline_seconds = deadline_seconds
        self._recording = recording

    async def execute(self, replica: str, command: Command) -> None:
        """Raises ClickHouseError; NetworkError when no answer came in time."""
        with self._recorded(replica, json.loads(to_json(command))):
            await self._ask(replica, {"what": "execute", "command": to_json(command)}, b"")

    async def insert(
        self, replica: str, table: str, options: InsertOptions, block: pa.Table, source_number: int = 0
    ) -> BlockOutcome:
        """Raises ClickHouseError; NetworkError when no answer came in time: the block may be stored or not."""
        header = {"what": "insert", "table": table, "options": to_json(options), "source_number": source_number}
        return await self._outcome(replica, header, block)

    async def insert_together(
        self, replica: str, table: str, tokens: Sequence[SourceToken], block: pa.Table
    ) -> BlockOutcome:
        """Several inserts in one block, each with its token; raises as `insert`."""
        listed = [(token.rows, token.by_user) for token in tokens]
        return await self._outcome(replica, {"what": "insert together", "table": table, "tokens": listed}, block)

    async def _outcome(self, replica: str, header: dict[str, Any], block: pa.Table) -> BlockOutcome:
        told = {"what": "insert", "into": header["table"], "rows": str(_ends(block))}
        with self._recorded(replica, told) as answered:
            outcome = from_json(await self._ask(replica, header, _to_bytes(block)))
            assert isinstance(outcome, BlockOutcome)
            answered(*_verdict(outcome))
        return outcome

    async def _ask(self, replica: str, header: dict[str, Any], payload: bytes) -> bytes:
        question = json.dumps(header).encode() + b"\n" + payload
        try:
            async with asyncio.timeout(self._deadline_seconds):
                return await self._network.ask(self.name, door_of(replica), header["what"], question)
        except TimeoutError:
            raise NetworkError(f"no answer from {replica} within {self._deadline_seconds:g} s") from None

    @contextmanager
    def _recorded(self, replica: str, asked: dict[str, Any]) -> Iterator[Callable[[str, str], None]]:
        """Record the operation of the `with` block; it may say with what outcome and answer it ends."""
        if self._recording is None:
            yield lambda outcome, answer: None
            return
        operation = self._recording.begin(self.name, replica, asked)
        said = ["ok", ""]

        def answered(outcome: str, answer: str) -> None:
            said[:] = outcome, answer

        try:
            yield answered
        except NetworkError as problem:
            said[:] = "unknown", problem.message
            raise
        except ClickHouseError as problem:
            said[:] = "fail", f"{problem.message} ({problem.name})"
            raise
        finally:
            self._recording.end(operation, *said)


_OUTCOMES = {
    InsertStatus.STORED: "ok",
    InsertStatus.DUPLICATE: "ok",
    InsertStatus.NOT_STORED: "fail",
    InsertStatus.UNKNOWN: "unknown",
}


def _verdict(outcome: BlockOutcome) -> tuple[str, str]:
    """The outcome of an insert, and what became of each part."""
    fates = ", ".join(f"{part.status.value} {part.part_name}".rstrip() for part in outcome.parts)
    return _OUTCOMES[outcome.status], fates


def _ends(block: pa.Table) -> list[str]:
    """The first and the last row, enough to know a block again."""
    rows = block.to_pylist()
    return [str(row) for row in (rows[:1] + rows[1:][-1:])]


def _to_bytes(block: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, block.schema) as writer:
        writer.write_table(block)
    return bytes(sink.getvalue())


def _to_table(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()
