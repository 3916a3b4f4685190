"""What is being asked of one table at this moment, and how all of it ends when the table goes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from replica.errors import Aborted, ClickHouseError

T = TypeVar("T")


class TableRequests:
    """Inserts run to their own end; whoever else waits for something is told that it will not come."""

    def __init__(self) -> None:
        self._refusal: ClickHouseError | None = None
        self._inserts = 0
        self._waiting: list[asyncio.Task[Any]] = []
        self._insert_ended = asyncio.Event()

    def check(self) -> None:
        """Raises the error that says why nothing is to begin any more, once `end` was called."""
        if self._refusal is not None:
            raise self._refusal

    @contextmanager
    def insert(self) -> Iterator[None]:
        """An insert runs as long as the `with` block. Raises as `check`."""
        self.check()
        with self._counted():
            yield

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._inserts += 1
        try:
            yield
        finally:
            self._inserts -= 1
            self._insert_ended.set()

    async def run_to_its_end(self, storing: Coroutine[Any, Any, T]) -> T:
        """The result of what an insert must not leave half-done: it goes on when who waits for it is cancelled."""

        async def counted() -> T:
            with self._counted():
                return await storing

        return await asyncio.shield(asyncio.create_task(counted()))

    async def wait_for(self, request: Coroutine[Any, Any, T]) -> T:
        """The result of a request that may be cut off. Raises Aborted when the table goes meanwhile."""
        task = asyncio.create_task(request)
        self._waiting.append(task)
        try:
            self.check()
            await asyncio.wait([task])
        finally:
            self._waiting.remove(task)
            task.cancel()
        if task.cancelled():
            raise Aborted(f"It was given up: {self._refusal}")
        return task.result()

    async def end(self, refusal: ClickHouseError) -> None:
        """Refuse what comes from now on, end what waits, and return when the running inserts have ended."""
        self._refusal = refusal
        waiting = list(self._waiting)
        for task in waiting:
            task.cancel()
        if waiting:
            await asyncio.wait(waiting)
        while self._inserts:
            self._insert_ended.clear()
            await self._insert_ended.wait()
