"""What a server has answered for survives a loss of power that keeps nothing but what was synced."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pytest

from clickhouse_sim.simulation.disk import SimulatedDisk
from clickhouse_sim.simulation.disk_image import DiskImage
from clickhouse_sim.simulation.gate import Gate
from clickhouse_sim.simulation.trace import Trace
from replica.catalog import Catalog
from replica.commands import InsertStatus, ListTables, to_json
from replica.errors import CorruptedData, TableAlreadyExists
from replica.part_name import PartName
from replica.server import Server, ServerConfig
from replica.storage.part_store import PartStore
from tests.replica.cluster import Cluster, Replica, definition, eventually, rows
from tests.replica.idle import idle_replica, piece_of

T = TypeVar("T")
FOLDER = "data/default/t"


class Worst:
    """The first option each time: of what was not synced nothing survives, and nothing takes long."""

    def choose(self, label: str, options: Sequence[T]) -> T:
        return options[0]


def disk_over(image: DiskImage) -> SimulatedDisk:
    return SimulatedDisk("r1", image, Gate(), Worst(), Trace(lambda: 0.0))


@dataclass
class OneServer:
    """Server r1 on a disk that loses what was not synced; its coordination service lives on."""

    cluster: Cluster
    image: DiskImage

    async def start(self) -> Replica:
        coordinator = self.cluster.coordinator("r1")
        environment = replace(self.cluster.environment("r1", coordinator), disk=disk_over(self.image))
        server = Server(environment, ServerConfig("r1", settings=self.cluster.settings))
        replica = Replica(server, coordinator, asyncio.create_task(server.run()))
        await server.started.wait()
        self.cluster.replicas["r1"] = replica
        return replica

    async def lose_power(self) -> None:
        self.image.lose_power(Worst())
        replica = self.cluster.replicas.pop("r1")
        replica.coordinator.sever()
        replica.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await replica.task
        for session_id in self.cluster.service.session_ids():
            self.cluster.service.expire(session_id)


@pytest.fixture
async def server(cluster: Cluster) -> OneServer:
    return OneServer(cluster, DiskImage())


async def test_a_table_and_its_rows_survive(server: OneServer) -> None:
    r1 = await server.start()
    await server.cluster.create_table()
    for key in range(4):
        assert (await r1.insert(rows(key))).status is InsertStatus.STORED
    uuid = server.image.read("uuid")
    await server.lose_power()
    r1 = await server.start()
    assert server.image.read("uuid") == uuid
    with pytest.raises(TableAlreadyExists):
        await r1.server.execute(definition())
    assert await r1.count() == 4
    await server.cluster.writable()
    assert await r1.count() == 4, "none was found unregistered or broken"
    assert "detached" not in server.image.names(FOLDER)


async def test_a_server_is_the_same_one_again_from_its_first_start_on(server: OneServer) -> None:
    await server.start()
    uuid = server.image.read("uuid")
    await server.lose_power()
    await server.start()
    assert server.image.read("uuid") == uuid


async def test_a_definition_is_durable_when_it_is_added() -> None:
    image = DiskImage()
    catalog = Catalog(disk_over(image))
    await catalog.add(definition(table="a"))
    image.lose_power(Worst())
    assert await Catalog(disk_over(image)).load() == [definition(table="a")]


async def test_a_definition_is_there_whole_or_not_at_all() -> None:
    image = DiskImage()
    disk = disk_over(image)
    await Catalog(disk).add(definition(table="a"))
    rename = disk.rename

    async def never(source: str, target: str) -> None:
        raise OSError("the power is off")

    disk.rename = never  # type: ignore[method-assign]
    with pytest.raises(OSError, match="power"):
        await Catalog(disk).add(definition(table="b"))
    disk.rename = rename  # type: ignore[method-assign]
    assert await Catalog(disk).load() == [definition(table="a")]


@pytest.mark.parametrize("content", [b"", b"{", to_json(ListTables()).encode()])
async def test_a_file_that_is_no_definition_is_refused_by_name(content: bytes) -> None:
    disk = disk_over(DiskImage())
    await Catalog(disk).add(definition(table="a"))
    await disk.write("metadata/default/a.json", content)
    with pytest.raises(CorruptedData, match=r"metadata/default/a\.json"):
        await Catalog(disk).load()


async def test_a_detached_part_stays_detached(cluster: Cluster) -> None:
    image = DiskImage()
    async with idle_replica(cluster, "r1", disk=disk_over(image)) as r1:
        store = r1.state.store
        temporary = await store.write_temporary("tmp_insert_", piece_of(r1.state, 2).image)
        part = await store.publish(temporary, PartName.parse("0_0_0_0"), 0)
        await store.detach(part, "ignored")
        image.lose_power(Worst())
        assert image.names(FOLDER) == ["detached"]
        assert image.names(f"{FOLDER}/detached") == ["ignored_0_0_0_0"]


@pytest.mark.parametrize("fsync", [True, False])
async def test_a_published_part_is_durable_if_asked(cluster: Cluster, fsync: bool) -> None:
    image = DiskImage()
    async with idle_replica(cluster, "r1") as r1:
        codec, piece = r1.environment.codec, piece_of(r1.state, 2)
        store = PartStore(disk_over(image), codec, FOLDER, fsync=fsync)
        await store.load(0)
        await store.publish(await store.write_temporary("tmp_insert_", piece.image), PartName.parse("0_0_0_0"), 0)
        image.lose_power(Worst())
        again = PartStore(disk_over(image), codec, FOLDER, fsync=fsync)
        await again.load(0)
        assert [str(part.name) for part in again.active_parts()] == (["0_0_0_0"] if fsync else [])
        assert image.names(FOLDER) == (["0_0_0_0"] if fsync else [])


async def test_parts_are_synced_unless_the_table_says_otherwise(cluster: Cluster) -> None:
    synced: list[str] = []

    class Noting(SimulatedDisk):
        async def fsync(self, path: str) -> None:
            synced.append(path)
            await super().fsync(path)

    for name, settings in (("a", {}), ("b", {"fsync_after_insert": "0"})):
        disk = Noting("r1", DiskImage(), Gate(), Worst(), Trace(lambda: 0.0))
        coordinator = cluster.coordinator("r1")
        environment = replace(cluster.environment("r1", coordinator), disk=disk)
        replica_server = Server(environment, ServerConfig("r1", settings=cluster.settings))
        replica = Replica(replica_server, coordinator, asyncio.create_task(replica_server.run()))
        cluster.replicas["r1"] = replica
        await replica_server.started.wait()
        path = f"/clickhouse/tables/{name}"
        await replica_server.execute(definition(zookeeper_path=path, settings=settings))
        await eventually(lambda replica=replica: not replica.table().state.is_readonly)
        synced.clear()
        await replica.insert(rows(2))
        assert bool(synced) == (name == "a")
        await cluster.stop("r1")
