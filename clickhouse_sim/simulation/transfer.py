"""Parts between replicas of one simulated run: the `PartTransfer` port. Everything crosses as bytes."""

from __future__ import annotations

import asyncio
import json
import struct

from clickhouse_sim.simulation.gate import Gate
from clickhouse_sim.simulation.network import Network
from replica.environment import PartFiles, PartRequest, PartSource
from replica.errors import NetworkError

_PORT = 9009

_LENGTHS = struct.Struct(">II")


class SimulatedTransfer:
    """One life's end of it. A machine is known by its replica's name, and its address stays the same over lives."""

    def __init__(self, owner: str, network: Network, gate: Gate) -> None:
        self._owner = owner
        self._network = network
        self._gate = gate

    async def serve(self, source: PartSource) -> str:
        self._gate.check()

        async def answer(question: bytes) -> bytes:
            return part_to_bytes(await source.send_part(PartRequest(**json.loads(question))))

        self._network.listen(self._address, answer, self._gate)
        return self._address

    async def fetch(self, address: str, request: PartRequest, deadline_seconds: float) -> PartFiles:
        self._gate.check()
        question = json.dumps({"replica_path": request.replica_path, "part_name": request.part_name}).encode()
        try:
            async with asyncio.timeout(deadline_seconds):
                answer = await self._network.ask(self._owner, address, f"fetch {request.part_name}", question)
        except TimeoutError:
            raise NetworkError(f"no part {request.part_name} from {address} within {deadline_seconds:g} s") from None
        self._gate.check()
        return part_from_bytes(answer)

    async def stop(self) -> None:
        self._network.hang_up(self._address)

    @property
    def _address(self) -> str:
        return f"{self._owner}:{_PORT}"


def part_to_bytes(part: PartFiles) -> bytes:
    """Each file as the lengths of its name and its content, its name, its content."""
    pieces: list[bytes] = []
    for name, content in part.files:
        encoded = name.encode()
        pieces += (_LENGTHS.pack(len(encoded), len(content)), encoded, content)
    return b"".join(pieces)


def part_from_bytes(data: bytes) -> PartFiles:
    """What `part_to_bytes` was given."""
    files: list[tuple[str, bytes]] = []
    position = 0
    while position < len(data):
        name_length, content_length = _LENGTHS.unpack_from(data, position)
        name_at = position + _LENGTHS.size
        content_at = name_at + name_length
        position = content_at + content_length
        files.append((data[name_at:content_at].decode(), data[content_at:position]))
    return PartFiles(tuple(files))
