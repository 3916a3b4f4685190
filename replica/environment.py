"""The ports through which a replica touches the world, bundled as one `Environment`.

No line of `replica/` asks whether the world behind a port is real or simulated. The real adapters stand in
`replica/storage/disk.py`, `replica/transfer/`, `replica/workers.py` and `replica/clock.py`; the simulated ones
in `clickhouse_sim/simulation/`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pyarrow as pa

from coordinator.api import Coordinator
from replica.schema.table import TableSchema

T = TypeVar("T")


class Disk(Protocol):
    """Files below the server's own root. Paths are relative, `/`-separated, and stay below the root.

    Nothing is durable before `fsync` (content of a file) and `fsync_folder` (names in a folder) have returned.
    Raises FileNotFoundError, FileExistsError and OSError as the operating system would.
    """

    async def make_folder(self, path: str) -> None:
        """Create the folder and its missing ancestors; one that exists is fine."""
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Create or replace a file whole; its folder must exist."""
        ...

    async def read(self, path: str) -> bytes: ...

    async def list(self, path: str) -> list[str]:
        """Names in a folder, sorted."""
        ...

    async def exists(self, path: str) -> bool: ...

    async def rename(self, source: str, target: str) -> None:
        """Move a file or folder. A file replaces a file; a folder refuses an existing target (FileExistsError)."""
        ...

    async def link(self, source: str, target: str) -> None:
        """Give a file a second name."""
        ...

    async def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; FileNotFoundError if there is none."""
        ...

    async def fsync(self, path: str) -> None: ...

    async def fsync_folder(self, path: str) -> None: ...


@dataclass(frozen=True, slots=True)
class PartRequest:
    """Which part a replica asks another for. `replica_path` is the sender's znode path of the table."""

    replica_path: str
    part_name: str


@dataclass(frozen=True, slots=True)
class PartFiles:
    """A part as it crosses between replicas: file name to content, in a fixed order."""

    files: tuple[tuple[str, bytes], ...]


class PartSource(Protocol):
    """The sending side: what a server does with a request. Raises `ClickHouseError`s, which cross by name."""

    async def send_part(self, request: PartRequest) -> PartFiles: ...


class PartTransfer(Protocol):
    """Parts between replicas."""

    async def serve(self, source: PartSource) -> str:
        """Start answering requests; the address `host:port` that others can fetch from."""
        ...

    async def fetch(self, address: str, request: PartRequest, deadline_seconds: float) -> PartFiles:
        """One part from another replica, whole, within the deadline.

        Raises the sender's `ClickHouseError`, or `NetworkError` when nobody answers, the stream breaks off
        or the deadline passes.
        """
        ...

    async def stop(self) -> None: ...


class PartCodec(Protocol):
    """The file format of a part's rows. Equal tables give equal bytes."""

    @property
    def file_name(self) -> str: ...

    def encode(self, rows: pa.Table) -> bytes: ...

    def decode(self, data: bytes) -> pa.Table:
        """Raises `CorruptedData` when the bytes are not what `encode` wrote."""
        ...


class Workers(Protocol):
    """CPU-heavy pure jobs, away from the event loop. A cancelled job's result is dropped."""

    async def run(self, label: str, job: Callable[[], T]) -> T: ...


class QueryEngine(Protocol):
    """The SELECTs of materialized views. Equal rows give equal rows, in the same order."""

    def select(self, select: str, source: tuple[str, str], rows: pa.Table, schema: TableSchema) -> pa.Table:
        """What the SELECT gives when the table `source`, database and name, has these rows and no others.

        A pure job for the workers. Raises the ClickHouseError of a SELECT that cannot be run over that table alone.
        """
        ...


class Clock(Protocol):
    """The wall clock. Waiting is not its business: that is `asyncio.sleep`."""

    def now(self) -> float:
        """Seconds since 1970."""
        ...


class Chance(Protocol):
    """Every random decision, one labelled draw at a time, so that a tape of them replays a run."""

    def choose(self, label: str, options: Sequence[T]) -> T:
        """One of the options (a `range` is a fine sequence), uniformly."""
        ...


@dataclass(frozen=True, slots=True)
class Environment:
    """All that a server gets from outside.

    Without `merge_workers` merges share the others' `workers`; without a `query_engine` there are no materialized
    views.
    """

    coordinator: Coordinator
    disk: Disk
    transfer: PartTransfer
    codec: PartCodec
    workers: Workers
    clock: Clock
    chance: Chance
    merge_workers: Workers | None = None
    query_engine: QueryEngine | None = None


def shuffled(chance: Chance, label: str, items: Sequence[T]) -> list[T]:
    """The items in a drawn order."""
    rest = list(items)
    order: list[T] = []
    while rest:
        order.append(rest.pop(chance.choose(label, range(len(rest))) if len(rest) > 1 else 0))
    return order


def drawn_factor(chance: Chance, label: str, low: float, high: float) -> float:
    """A factor between `low` and `high`, in steps of a thousandth of the span."""
    return low + (high - low) * chance.choose(label, range(1001)) / 1000
