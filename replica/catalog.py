"""Which tables this server has: their definitions, kept on its disk across restarts.

One JSON file a table, `metadata/<database>/<table>.json`; ClickHouse keeps the CREATE statement there. The file of a
table that is dropped ends in `.dropped` until everything else of it is gone.
"""

from __future__ import annotations

from replica.commands import CreateTable, Definition, Dependent, from_json, to_json
from replica.environment import Disk
from replica.errors import BadArguments, CorruptedData
from replica.storage.file_names import escape_for_file_name, make_durable_folder

_FOLDER = "metadata"
_SUFFIX = ".json"
_DROPPED_SUFFIX = ".dropped"


class Catalog:
    """The definitions on one disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def load(self) -> list[Definition]:
        """All of them, in order of name. Raises CorruptedData for a file that is no definition."""
        return await self._load(_SUFFIX)

    async def load_dropped(self) -> list[CreateTable]:
        """Those of tables whose drop is not finished. Raises CorruptedData."""
        return [each for each in await self._load(_DROPPED_SUFFIX) if isinstance(each, CreateTable)]

    async def _load(self, suffix: str) -> list[Definition]:
        await make_durable_folder(self._disk, _FOLDER)
        definitions = []
        for database in await self._disk.list(_FOLDER):
            for file_name in await self._disk.list(f"{_FOLDER}/{database}"):
                if file_name.endswith(suffix):
                    definitions.append(await self._read(f"{_FOLDER}/{database}/{file_name}"))
        return definitions

    async def add(self, definition: Definition) -> None:
        """Durable when this returns."""
        folder, path = _folder(definition), f"{_stem(definition)}{_SUFFIX}"
        await make_durable_folder(self._disk, folder)
        await self._disk.write(f"{path}.tmp", to_json(definition).encode())
        await self._disk.fsync(f"{path}.tmp")
        await self._disk.rename(f"{path}.tmp", path)
        await self._disk.fsync_folder(folder)

    async def remove(self, definition: Dependent) -> None:
        """Of a view or an alias nothing else is left."""
        await self._disk.remove(f"{_stem(definition)}{_SUFFIX}")
        await self._disk.fsync_folder(_folder(definition))

    async def mark_dropped(self, definition: CreateTable) -> None:
        """The table does not exist any more, durably; what is left of it is still to be removed."""
        await self._disk.rename(f"{_stem(definition)}{_SUFFIX}", f"{_stem(definition)}{_DROPPED_SUFFIX}")
        await self._disk.fsync_folder(_folder(definition))

    async def forget_dropped(self, definition: CreateTable) -> None:
        """Nothing is left of it."""
        await self._disk.remove(f"{_stem(definition)}{_DROPPED_SUFFIX}")
        await self._disk.fsync_folder(_folder(definition))

    async def _read(self, path: str) -> Definition:
        try:
            definition = from_json(await self._disk.read(path))
        except BadArguments as problem:
            raise CorruptedData(f"{path} is not the definition of a table: {problem.message}") from problem
        if not isinstance(definition, Definition):
            raise CorruptedData(f"{path} is not the definition of a table")
        return definition


def _folder(definition: Definition) -> str:
    return f"{_FOLDER}/{escape_for_file_name(definition.database)}"


def _stem(definition: Definition) -> str:
    return f"{_folder(definition)}/{escape_for_file_name(definition.table)}"
