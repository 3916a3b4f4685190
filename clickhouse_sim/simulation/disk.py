"""The simulated disk: the `Disk` port of one life of a replica, over an image that outlives it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from clickhouse_sim.simulation.disk_image import DiskImage
from clickhouse_sim.simulation.gate import Gate
from clickhouse_sim.simulation.trace import Trace, fingerprint
from replica.environment import Chance
from replica.errors import BadArguments

T = TypeVar("T")

_DURATIONS = tuple(step / 10_000 for step in range(1, 21))


class SimulatedDisk:
    """Every operation takes a drawn time up to 2 ms and has its effect at the end of it, all at once.

    An operation that has begun is carried through even when the one who awaits it is cancelled. What a crash finds
    under way may have had its effect or not, and a removal may have got half way.
    """

    def __init__(self, owner: str, image: DiskImage, gate: Gate, chance: Chance, trace: Trace) -> None:
        self._owner = owner
        self._image = image
        self._gate = gate
        self._chance = chance
        self._trace = trace
        # How far each operation under way may have come when a crash interrupts it, oldest first.
        self._under_way: dict[int, tuple[Callable[[], object], ...]] = {}
        self._begun = 0

    async def make_folder(self, path: str) -> None:
        await self._change(f"make_folder {path}", lambda: self._image.make_folder(path))

    async def write(self, path: str, data: bytes) -> None:
        await self._change(f"write {path} {fingerprint(data)}", lambda: self._image.write(path, data))

    async def rename(self, source: str, target: str) -> None:
        await self._change(f"rename {source} {target}", lambda: self._image.rename(source, target))

    async def link(self, source: str, target: str) -> None:
        await self._change(f"link {source} {target}", lambda: self._image.link(source, target))

    async def remove(self, path: str) -> None:
        def remove_some() -> None:
            entries = self._image.entries_below(path)
            self._image.remove_entries(entries[: self._chance.choose("disk entries removed", range(len(entries)))])

        await self._perform(f"remove {path}", lambda: self._image.remove(path), remove_some)

    async def fsync(self, path: str) -> None:
        await self._change(f"fsync {path}", lambda: self._image.fsync(path))

    async def fsync_folder(self, path: str) -> None:
        await self._change(f"fsync_folder {path}", lambda: self._image.fsync_folder(path))

    async def read(self, path: str) -> bytes:
        return await self._perform(f"read {path}", lambda: self._image.read(path))

    async def list(self, path: str) -> list[str]:
        return await self._perform(f"list {path}", lambda: self._image.names(path))

    async def exists(self, path: str) -> bool:
        return await self._perform(f"exists {path}", lambda: self._image.exists(path))

    def crash(self, *, lose_unsynced: bool) -> None:
        """Close the gate and settle what is under way: the process is dead, with `lose_unsynced` the power off."""
        self._gate.close()
        for ends in self._under_way.values():
            # An operation that would have failed has no effect either way.
            with suppress(OSError, BadArguments):
                self._chance.choose("disk operation interrupted", ends)()
        self._under_way.clear()
        if lose_unsynced:
            self._image.lose_power(self._chance)

    def close(self) -> None:
        """Close the gate after carrying through what is under way."""
        self._gate.close()
        for *_, apply in self._under_way.values():
            with suppress(OSError, BadArguments):
                apply()
        self._under_way.clear()

    async def _change(self, what: str, apply: Callable[[], None]) -> None:
        await self._perform(what, apply, _nothing)

    async def _perform(self, what: str, apply: Callable[[], T], *partly: Callable[[], None]) -> T:
        self._gate.check()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._begun += 1
        number = self._begun

        def finish() -> None:
            if self._under_way.pop(number, None) is None:
                return
            error: OSError | BadArguments | None = None
            try:
                result = apply()
            except (OSError, BadArguments) as problem:
                error = problem
            self._trace.note(
                self._owner, f"disk {what}" if error is None else f"disk {what} ! {type(error).__name__}"
            )
            if done.cancelled():
                return
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

        self._under_way[number] = (_nothing, *partly, apply)
        loop.call_later(self._chance.choose("disk duration", _DURATIONS), finish)
        return await done


def _nothing() -> None:
    pass
