"""Data that is destroyed behind everybody's back: files rot, disks are lost, and some rows are gone for ever then.

Rows are gone when the last of their copies is destroyed: no other replica, lost ones aside, has a part with them
registered, whole on its disk and not replaced by another at that moment. Only those may be missing in the end, and
the table must say that it has lost parts. What is on its way, or put away in `detached/`, or replaced by a covering
part and not deleted yet, is no copy: ClickHouse puts it away together with the covering part when that breaks.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from clickhouse_sim.simulation.disk_image import DiskImage
from clickhouse_sim.simulation.world import World
from coordinator.api import Session
from replica.environment import Chance, PartFiles
from replica.errors import ClickHouseError
from replica.part_name import PartName
from replica.part_set import PartSet
from replica.server import DEFAULT_DATABASE, Server
from replica.storage.file_names import table_folder
from replica.storage.part_codec import ArrowCodec
from replica.storage.part_files import read_part
from replica.znodes import TableZnodes


class Destruction:
    """What has been destroyed in one world; `keys` are the keys of the rows that are gone for ever."""

    def __init__(self, world: World[Server], table: TableZnodes) -> None:
        self._world = world
        self._table = table
        self._folder = table_folder(DEFAULT_DATABASE, "t")
        self.keys: set[int] = set()

    def lose_disk(self, name: str) -> None:
        """All parts of a replica that is down are gone, `detached/` too; its catalog is on another disk."""
        image = self._world.images[name]
        if not image.exists(self._folder):
            return
        for part in self._parts(image):
            self._note(name, part, covering=[])
        image.remove(self._folder)
        image.fsync_folder(self._folder.rpartition("/")[0])

    def rot(self, name: str, chance: Chance) -> bool:
        """A bit flips in one file of one part, here or in every copy; False if the replica has no part."""
        parts = self._parts(self._world.images[name])
        if not parts:
            return False
        part = chance.choose("rotten part", parts)
        file = chance.choose("rotten file", self._world.images[name].names(f"{self._folder}/{part}"))
        byte = chance.choose("rotten byte", range(1 << 16))
        for each in chance.choose("rots where", ([name], sorted(self._world.images))):
            self._rot(each, part, file, byte)
        return True

    def _rot(self, name: str, part: PartName, file: str, byte: int) -> None:
        image = self._world.images[name]
        parts = self._parts(image)
        path = f"{self._folder}/{part}/{file}"
        if part in parts and image.exists(path):
            self._note(name, part, [other for other in parts if other != part and other.contains(part)])
            image.rot(path, byte)

    def _note(self, name: str, part: PartName, covering: list[PartName]) -> None:
        """The copy of a part at this replica is about to be destroyed: what only it has is gone.

        The parts that cover it here stay.
        """
        image = self._world.images[name]
        others = {key for other in sorted(self._world.images) if other != name for key in self._keys_at(other)}
        others.update(key for each in covering for key in self._keys_in(image, each))
        self.keys.update(set(self._keys_in(image, part)) - others)

    def _keys_at(self, name: str) -> Iterator[int]:
        """The keys that a replica has registered and whole on its disk; none if it is lost and is going to clone."""
        nodes = self._world.service.processor.tree.nodes()
        znodes = self._table.replica(name)
        is_lost = nodes.get(znodes.is_lost)
        if is_lost is None or is_lost.data != b"0":
            return
        image = self._world.images[name]
        for part in PartSet(part for part in self._parts(image) if znodes.part(str(part)) in nodes):
            yield from self._keys_in(image, part)

    def _parts(self, image: DiskImage) -> list[PartName]:
        if not image.exists(self._folder):
            return []
        names = map(PartName.try_parse, image.names(self._folder))
        return sorted(name for name in names if name is not None and image.names(f"{self._folder}/{name}"))

    def _keys_in(self, image: DiskImage, part: PartName) -> list[int]:
        folder = f"{self._folder}/{part}"
        files = PartFiles(tuple((name, image.read(f"{folder}/{name}")) for name in image.names(folder)))
        try:
            rows: pa.Table = read_part(files, ArrowCodec())
        except ClickHouseError:
            return []  # it is rotten already
        keys: list[int] = rows.column("k").to_pylist()
        return keys


async def let_start_by_force(session: Session, table: TableZnodes, name: str, why_readonly: str) -> None:
    """What an operator does about a replica that does not trust its disk: let it start nevertheless."""
    if "doesn't look like the set of parts" in why_readonly:
        flag = table.replica(name).force_restore_data
        if await session.exists(flag) is None:
            await session.create(flag)
