"""What the benches ask of two replicas of one table, whosever they are."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from benchmarks.blocks import Block


class Connection(Protocol):
    """One client's connection, for one thread."""

    def prepare(self, block: Block) -> None:
        """Bring the block into the form in which it is sent, so that this is not timed."""
        ...

    def insert(self, block: Block) -> None:
        """One INSERT of one block; returns when it is acknowledged. Raises NotMeasured."""
        ...

    def close(self) -> None: ...


class Pair(Protocol):
    """Two replicas of one table, numbered 0 and 1, and their coordination service; a context manager of all that."""

    name: str

    def __enter__(self) -> Pair: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def connect(self, replica: int) -> Connection: ...

    def rows(self, replica: int) -> int:
        """The rows that the replica has now, without a question to the coordination service."""
        ...

    def stop(self, replica: int) -> None:
        """Let it end in order."""
        ...

    def start(self, replica: int) -> None:
        """Start it again with what it has; returns when it answers."""
        ...

    def requests(self) -> int:
        """Packets that the coordination service has received so far."""
        ...
