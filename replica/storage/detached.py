"""The folder `detached/` of a table: parts that do not count, for an operator to look at, attach or remove.

A part that was detached on purpose keeps its name; one that was put away has a reason before it, as in
`ignored_all_1_1_0`, and `_try1` behind it when the name was taken (MergeTreePartInfo.cpp, `DetachedPartInfo`).
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from replica.environment import Disk, PartFiles
from replica.errors import BadDataPartName, IncorrectFileName
from replica.part_name import PartName
from replica.storage.file_names import ATTACHING_PREFIX, DETACHED, make_durable_folder
from replica.storage.part_files import CHECKSUMS_FILE, load_part

_PUT_AWAY = re.compile(r"(?P<reason>[a-z-]+)_(?P<part>.+?)(?:_try[0-9]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class DetachedName:
    """The name of a folder in `detached/`: `part` is None where it names none, `reason` says why it was put away."""

    folder: str
    part: PartName | None
    reason: str = ""

    @classmethod
    def parse(cls, folder: str) -> DetachedName:
        part = PartName.try_parse(folder)
        if part is not None:
            return cls(folder, part)
        match = _PUT_AWAY.fullmatch(folder)
        part = None if match is None else PartName.try_parse(match["part"])
        return cls(folder, None) if match is None or part is None else cls(folder, part, match["reason"])


class DetachedParts:
    """Those of one table."""

    def __init__(self, disk: Disk, table_folder: str) -> None:
        self._disk = disk
        self._folder = f"{table_folder}/{DETACHED}"

    async def names(self) -> list[DetachedName]:
        """All there are, in order of their folders' names."""
        try:
            return [DetachedName.parse(name) for name in await self._disk.list(self._folder)]
        except FileNotFoundError:
            return []

    async def files(self, folder: str) -> PartFiles:
        """The files of one of them, nothing verified. Raises BadDataPartName when it is not there."""
        try:
            return await load_part(self._disk, self._path(folder))
        except (FileNotFoundError, NotADirectoryError):
            raise _not_found(folder) from None

    async def size(self, folder: str) -> int:
        """Bytes of all files of one of them; 0 when it is gone, or no folder of files."""
        try:
            return sum(len(content) for _, content in (await load_part(self._disk, self._path(folder))).files)
        except OSError:
            return 0

    async def has(self, name: PartName, files: PartFiles) -> bool:
        """Whether a part of that name and content is there already."""
        path = f"{self._path(str(name))}/{CHECKSUMS_FILE}"
        return await self._disk.exists(path) and await self._disk.read(path) == dict(files.files).get(CHECKSUMS_FILE)

    async def take_in(self, folder: str, name: str) -> None:
        """Move a folder here, under the name or the next free one after it."""
        await make_durable_folder(self._disk, self._folder)
        taken = set(await self._disk.list(self._folder))
        target = next(
            candidate
            for number in itertools.count()
            if (candidate := name + (f"_try{number}" if number else "")) not in taken
        )
        await self._disk.rename(folder, self._path(target))
        await self._disk.fsync_folder(self._folder)

    async def begin_attaching(self, folder: str) -> tuple[str, PartFiles]:
        """Path and files of a part that nobody else can attach now. Raises BadDataPartName when it is not there."""
        path = self._path(f"{ATTACHING_PREFIX}{folder}")
        try:
            await self._disk.rename(self._path(folder), path)
        except FileNotFoundError:
            raise _not_found(folder) from None
        return path, await load_part(self._disk, path)

    async def set_aside(self, folder: str, reason: str) -> None:
        """Give one of them a reason why it is not to be attached."""
        await self.take_in(self._path(folder), f"{reason}_{folder}")

    async def remove(self, folder: str) -> None:
        """Delete one of them. Raises BadDataPartName when it is not there."""
        path = self._path(f"deleting_{folder}")
        try:
            await self._disk.rename(self._path(folder), path)
        except FileNotFoundError:
            raise _not_found(folder) from None
        await self._disk.remove(path)

    def _path(self, folder: str) -> str:
        if not folder or "/" in folder or folder in (".", ".."):
            raise IncorrectFileName(f"Invalid part name {folder!r}")
        return f"{self._folder}/{folder}"


def _not_found(folder: str) -> BadDataPartName:
    return BadDataPartName(f'Detached part "{folder}" not found')
