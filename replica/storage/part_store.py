"""The parts that one table has on this server: their folders, and which of them count.

Part states are ClickHouse's (MergeTreeDataPartState.h). A *pre-active* part has its final name and is served to
fetches, but no SELECT sees it until its commit is known; an *active* part counts; an *outdated* one is covered by
an active part and waits to be deleted. Which parts exist is on the disk; the states are derived and in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from replica.environment import Disk, PartCodec, PartFiles
from replica.errors import ClickHouseError, DuplicateDataPart, NoSuchDataPart
from replica.part_name import PartName
from replica.part_set import PartSet
from replica.storage.checksums import PartHeader
from replica.storage.detached import DetachedParts
from replica.storage.file_names import CLONE_PREFIX, DELETE_PREFIX, make_durable_folder
from replica.storage.part_files import CHECKSUMS_FILE, PartImage, load_part, read_part, verified_part, write_part
from replica.to_the_end import to_the_end

log = logging.getLogger(__name__)

_TEMPORARY = ("tmp_", "tmp-")


class PartState(StrEnum):
    PRE_ACTIVE = "PreActive"
    ACTIVE = "Active"
    OUTDATED = "Outdated"


@dataclass(slots=True)
class StoredPart:
    """A part under its final name on the disk.

    `checksums` is its `checksums.txt` when that was verified. `remove_time` is when it became outdated. One that was
    `dropped` never counts again, whatever becomes of others.
    """

    name: PartName
    header: PartHeader
    checksums: bytes
    rows: int
    bytes_on_disk: int
    modification_time: float
    state: PartState = PartState.PRE_ACTIVE
    remove_time: float = 0
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class TemporaryPart:
    """A part that is written, and durable if asked, but has no name yet."""

    folder: str
    image: PartImage


class PartStore:
    """The parts below one folder of the disk."""

    def __init__(self, disk: Disk, codec: PartCodec, folder: str, *, fsync: bool) -> None:
        self._disk = disk
        self._codec = codec
        self._folder = folder
        self._fsync = fsync
        self.detached = DetachedParts(disk, folder)
        self._parts: dict[PartName, StoredPart] = {}
        self._active = PartSet()
        self._temporary_numbers = itertools.count()
        self._deleting = asyncio.Lock()

    @property
    def fsync(self) -> bool:
        """Whether a part is durable before it gets its name."""
        return self._fsync

    @fsync.setter
    def fsync(self, fsync: bool) -> None:
        self._fsync = fsync

    # --- what is there ---------------------------------------------------------------------------------------

    def get(self, name: PartName) -> StoredPart | None:
        return self._parts.get(name)

    def parts(self) -> list[StoredPart]:
        """All parts in every state, in order of name."""
        return [self._parts[name] for name in sorted(self._parts)]

    def active_parts(self) -> list[StoredPart]:
        return [self._parts[name] for name in self._active]

    def active_containing(self, name: PartName) -> StoredPart | None:
        """The active part that is, or covers, the named one."""
        containing = self._active.containing(name)
        return None if containing is None else self._parts[containing]

    def pre_active(self, name: PartName) -> StoredPart | None:
        """The part of that very name, if its commit is not decided yet."""
        part = self._parts.get(name)
        return part if part is not None and part.state is PartState.PRE_ACTIVE else None

    async def files(self, name: PartName) -> PartFiles:
        """The files of a part in any state. Raises NoSuchDataPart."""
        try:
            if name in self._parts:
                return await load_part(self._disk, self._path(name))
        except FileNotFoundError:
            pass  # it is on its way to or from its final name
        raise NoSuchDataPart(f"Part {name} is not on the disk of this server (folder {self._folder})")

    def decode(self, files: PartFiles) -> pa.Table:
        """The rows in a part's files, verified: a pure job. Raises CorruptedData when the disk has rotted."""
        return read_part(files, self._codec)

    # --- how a part comes ------------------------------------------------------------------------------------

    async def write_temporary(self, prefix: str, image: PartImage) -> TemporaryPart:
        """Write a part under a temporary name that begins with `prefix`, as `tmp_insert_`.

        Raises OSError, as when the disk is full; what was written is removed again then.
        """
        temporary = TemporaryPart(f"{self._folder}/{prefix}{next(self._temporary_numbers)}", image)
        try:
            await write_part(self._disk, temporary.folder, image.files, fsync=self._fsync)
        except OSError:
            with contextlib.suppress(OSError):
                await self.discard(temporary)
            raise
        return temporary

    async def publish(self, temporary: TemporaryPart, name: PartName, now: float) -> StoredPart:
        """Give it its final name, pre-active. Raises DuplicateDataPart if a part of that name is there."""
        if name in self._parts:
            raise DuplicateDataPart(f"Part {name} exists already in {self._folder}")
        part = _stored(name, temporary.image, now)
        self._parts[name] = part
        try:
            await self._disk.rename(temporary.folder, self._path(name))
            if self._fsync:
                await self._disk.fsync_folder(self._folder)
        except OSError:
            del self._parts[name]
            raise
        return part

    def activate(self, part: StoredPart, now: float) -> None:
        """Let a pre-active part count; the active parts that it covers become outdated."""
        covered = [self._parts[name] for name in self._active.covered_by(part.name)]
        part.state = PartState.ACTIVE if self._active.add(part.name) else PartState.OUTDATED
        for each in covered if part.state is PartState.ACTIVE else [part]:
            each.state = PartState.OUTDATED
            each.remove_time = now

    # --- how a part goes -------------------------------------------------------------------------------------

    async def withdraw(self, part: StoredPart, image: PartImage, folder: str = "") -> TemporaryPart:
        """Take the final name of a pre-active part away again; `folder` is where it is to lie then."""
        folder = folder or f"{self._folder}/tmp_withdrawn_{next(self._temporary_numbers)}"
        await self._disk.rename(self._path(part.name), folder)
        self._forget(part)
        return TemporaryPart(folder, image)

    async def discard(self, temporary: TemporaryPart) -> None:
        """Remove a part that got no name."""
        await self._disk.remove(temporary.folder)

    def drop(self, drop_range: PartName) -> None:
        """Let what the range contains count no more, though nothing covers it, until `delete_dropped`.

        A pre-active part in it stays what it is: whoever has published it learns that it was not committed.
        """
        for part in self.parts():
            if drop_range.contains(part.name) and part.state is not PartState.PRE_ACTIVE:
                part.state = PartState.OUTDATED
                part.dropped = True
                self._active.remove(part.name)

    def outdated_before(self, time: float) -> list[StoredPart]:
        """The parts that have been outdated since that time or longer, in order of name, but not what was dropped."""
        outdated = [part for part in self.parts() if part.state is PartState.OUTDATED and not part.dropped]
        return [part for part in outdated if part.remove_time <= time]

    async def delete(self, part: StoredPart) -> None:
        """Remove a part that does not count. Its folder loses the name first, so that no half of it is seen."""
        folder = f"{self._folder}/{DELETE_PREFIX}{part.name}"
        await self._disk.rename(self._path(part.name), folder)
        self._forget(part)
        await self._disk.remove(folder)

    async def delete_dropped(self, drop_range: PartName) -> list[StoredPart]:
        """Remove what was dropped in the range, for good; which parts those were.

        No crash brings them back: with no part that covers them they would count. Carried through, whoever is
        cancelled.
        """
        return await to_the_end(self._delete_dropped(drop_range))

    async def _delete_dropped(self, drop_range: PartName) -> list[StoredPart]:
        async with self._deleting:
            dropped = [part for part in self.parts() if part.dropped and drop_range.contains(part.name)]
            folders = [f"{self._folder}/{DELETE_PREFIX}{part.name}" for part in dropped]
            for part, folder in zip(dropped, folders, strict=True):
                with contextlib.suppress(FileNotFoundError):  # a disk that has lost it
                    await self._disk.rename(self._path(part.name), folder)
                self._forget(part)
            if dropped:
                await self._disk.fsync_folder(self._folder)
            for folder in folders:
                await self._disk.remove(folder)
            return dropped

    async def detach(self, part: StoredPart, prefix: str) -> None:
        """Move a part out of the table into `detached/<prefix>_<name>`, where an operator finds it.

        The parts that only it covered count again. Of a part whose folder is gone nothing can be kept. Once begun
        it is carried through, whoever is cancelled.
        """
        self._forget(part)
        with contextlib.suppress(FileNotFoundError):
            await to_the_end(self.detached.take_in(self._path(part.name), f"{prefix}_{part.name}"))

    async def copy_to_detached(self, part: StoredPart) -> None:
        """Let a copy of the part lie in `detached/` under its name; nothing if it lies there already."""
        if not await self.detached.has(part.name, await load_part(self._disk, self._path(part.name))):
            copy = await self.copy(self, part)
            await self.detached.take_in(copy.folder, str(part.name))

    async def copy(self, source: PartStore, part: StoredPart) -> TemporaryPart:
        """A part of a table of this server once more, as hard links under a temporary name here.

        Raises NoSuchDataPart when it is deleted meanwhile.
        """
        folder = f"{self._folder}/{CLONE_PREFIX}{next(self._temporary_numbers)}"
        await self._disk.make_folder(folder)
        try:
            files = await load_part(self._disk, source._path(part.name))
            for name, _ in files.files:
                await self._disk.link(f"{source._path(part.name)}/{name}", f"{folder}/{name}")
        except FileNotFoundError:
            await self._disk.remove(folder)
            raise NoSuchDataPart(f"Part {part.name} left {source._folder} while it was copied: try again") from None
        if self._fsync:
            await self._disk.fsync_folder(folder)
        return TemporaryPart(folder, PartImage(files, part.header))

    def _forget(self, part: StoredPart) -> None:
        self._parts.pop(part.name, None)
        if self._active.remove(part.name):
            self._let_covered_count(part.name)

    def _let_covered_count(self, name: PartName) -> None:
        outdated = [part for part in self.parts() if part.state is PartState.OUTDATED and not part.dropped]
        covered = [part for part in outdated if name.contains(part.name)]
        for part in _coverers_first(covered):
            if self._active.add(part.name):
                part.state = PartState.ACTIVE

    # --- start -----------------------------------------------------------------------------------------------

    async def load(self, now: float) -> None:
        """Find the parts on the disk after a start; what is broken goes to `detached/`, what is temporary goes.

        Every sound part is active afterwards, or outdated when another covers it.
        """
        await make_durable_folder(self._disk, self._folder)
        loaded = []
        for entry in await self._disk.list(self._folder):
            if entry.startswith(_TEMPORARY):
                with contextlib.suppress(FileNotFoundError):  # a deletion that the table's earlier life had begun
                    await self._disk.remove(f"{self._folder}/{entry}")
            elif (name := PartName.try_parse(entry)) is not None:
                part = await self._load_part(name, now)
                if part is not None:
                    loaded.append(part)
        for part in _coverers_first(loaded):
            self._parts[part.name] = part
            self.activate(part, now)

    async def _load_part(self, name: PartName, now: float) -> StoredPart | None:
        try:
            image = verified_part(await load_part(self._disk, self._path(name)), self._codec)
        except (ClickHouseError, FileNotFoundError) as problem:
            log.warning("part %s is broken, moving it to detached/: %s", name, problem)
            await self.detached.take_in(self._path(name), f"broken-on-start_{name}")
            return None
        return _stored(name, image, now)

    def _path(self, name: PartName) -> str:
        return f"{self._folder}/{name}"


def _stored(name: PartName, image: PartImage, now: float) -> StoredPart:
    checksums = dict(image.files.files)[CHECKSUMS_FILE]
    return StoredPart(name, image.header, checksums, image.rows, image.size, now)


def _coverers_first(parts: Iterable[StoredPart]) -> list[StoredPart]:
    return sorted(parts, key=lambda part: (-part.name.level, -part.name.mutation, part.name))
