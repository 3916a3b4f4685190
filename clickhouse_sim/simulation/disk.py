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

T = TypeVar("T")

_DURATIONS = tuple(step / 10_000 for step in range(20))


class SimulatedDisk:
    """Every operation takes a drawn time up to 2 ms and has its effect at the end of it, all at once.

    What a crash finds under way may have had its effect or not, and a write or a removal may have got half way.
    """

    def __init__(self, owner: str, image: DiskImage, gate: Gate, chance: Chance, trace: Trace) -> None:
        self._owner = owner
        self._image = image
        self._gate = gate
        self._chance = chance
        self._trace = trace
        # What a crash would do to the operations under way, oldest first.
        self._interruptions: list[Callable[[], None]] = []

    async def make_folder(self, path: str) -> None:
        await self._change(f"make_folder {path}", lambda: self._image.make_folder(path))

    async def write(self, path: str, data: bytes) -> None:
        def write_half() -> None:
            self._image.write(path, data[: self._chance.choose("disk write torn at", range(len(data) + 1))])

        await self._change(f"write {path} {fingerprint(data)}", lambda: self._image.write(path, data), write_half)

    async def rename(self, source: str, target: str) -> None:
        await self._change(f"rename {source} {target}", lambda: self._image.rename(source, target))

    async def link(self, source: str, target: str) -> None:
        await self._change(f"link {source} {target}", lambda: self._image.link(source, target))

    async def remove(self, path: str) -> None:
        def remove_half() -> None:
            entries = self._image.entries_below(path)
            self._image.remove_entries(entries[: self._chance.choose("disk remove stopped at", range(len(entries)))])

        await self._change(f"remove {path}", lambda: self._image.remove(path), remove_half)

    async def fsync(self, path: str) -> None:
        await self._change(f"fsync {path}", lambda: self._image.fsync(path))

    async def fsync_folder(self, path: str) -> None:
        await self._change(f"fsync_folder {path}", lambda: self._image.fsync_folder(path))

    async def read(self, path: str) -> bytes:
        return await self._perform(f"read {path}", lambda: self._image.read(path))

    async def list(self, path: str) -> list[str]:
        return await self._perform(f"list {path}", lambda: self._image.list(path))

    async def exists(self, path: str) -> bool:
        return await self._perform(f"exists {path}", lambda: self._image.exists(path))

    def crash(self, *, lose_unsynced: bool) -> None:
        """Close the gate and settle what is under way; with `lose_unsynced` the power goes too."""
        self._gate.open = False
        for interrupt in self._interruptions:
            # What could not have succeeded has no effect.
            with suppress(OSError):
                interrupt()
        self._interruptions.clear()
        if lose_unsynced:
            self._image.lose_power(self._chance)

    async def _change(
        self, what: str, apply: Callable[[], None], apply_half: Callable[[], None] | None = None
    ) -> None:
        fates = [lambda: None, apply] if apply_half is None else [lambda: None, apply_half, apply]

        def interrupt() -> None:
            self._chance.choose("disk operation interrupted", fates)()

        self._interruptions.append(interrupt)
        try:
            await self._perform(what, apply)
        finally:
            if self._gate.open:
                self._interruptions.remove(interrupt)

    async def _perform(self, what: str, apply: Callable[[], T]) -> T:
        self._gate.check()
        await asyncio.sleep(self._chance.choose("disk duration", _DURATIONS))
        self._gate.check()
        try:
            result = apply()
        except OSError as problem:
            self._trace.note(self._owner, f"disk {what} ! {type(problem).__name__}")
            raise
        self._trace.note(self._owner, f"disk {what}")
        return result
