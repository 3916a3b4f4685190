"""A table is made by its first replica and joined by others; a try whose answer was lost may be repeated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from coordinator.api import NoNode
from replica.clock import WallClock
from replica.errors import AllReplicasLost, BadArguments, ClickHouseError, KeeperException, ReplicaAlreadyExists
from replica.registration import add_later_znodes, create_or_join
from replica.session import ServerSession, open_server_session
from replica.table import replica_znodes
from replica.table_structure import TableStructure
from replica.znodes import Host, ReplicaZnodes, TableZnodes, later_additions
from replica.zookeeper_log import ZooKeeperLog
from tests.replica.cluster import IMPATIENT, ROOT, Cluster, definition

OF_A_TABLE = [
    "metadata",
    "columns",
    "log",
    "blocks",
    "async_blocks",
    "deduplication_hashes",
    "block_numbers",
    "nonincrement_block_numbers",
    "temp",
    "temp/abandonable_lock-insert",
    "temp/abandonable_lock-other",
    "replicas",
    "quorum",
    "quorum/last_part",
    "quorum/failed_parts",
    "mutations",
]
OF_A_REPLICA = [
    "host",
    "log_pointer",
    "queue",
    "parts",
    "flags",
    "is_lost",
    "metadata",
    "columns",
    "metadata_version",
    "min_unprocessed_insert_time",
    "max_processed_insert_time",
    "mutation_pointer",
    "creator_info",
]

STRUCTURE = TableStructure.from_definition(definition())
R1, R2, R3 = (TableZnodes(ROOT).replica(name) for name in ("r1", "r2", "r3"))


@pytest.fixture
async def session(cluster: Cluster) -> AsyncIterator[ServerSession]:
    made = await open_server_session(cluster.coordinator("r1"), "server", ZooKeeperLog(WallClock()))
    yield made
    await made.close()


async def join(session: ServerSession, znodes: ReplicaZnodes, creator: str = "table|server") -> None:
    await create_or_join(session, znodes, STRUCTURE, creator)


async def drop(session: ServerSession, znodes: ReplicaZnodes) -> None:
    for name in await session.children(znodes.root):
        await session.delete(f"{znodes.root}/{name}")
    await session.delete(znodes.root)


async def value(session: ServerSession, path: str) -> bytes:
    return (await session.get(path))[0]


async def test_the_first_replica_is_complete_and_the_others_are_lost(session: ServerSession) -> None:
    await join(session, R1)
    await join(session, R2)
    assert [await value(session, znodes.is_lost) for znodes in (R1, R2)] == [b"0", b"1"]
    assert await value(session, f"{ROOT}/replicas") == b"last added replica: r2"
    assert (await session.get(f"{ROOT}/replicas"))[1].version == 1


async def test_a_replica_that_joins_when_no_other_is_left_is_not_lost(session: ServerSession) -> None:
    await join(session, R1)
    await drop(session, R1)
    await join(session, R2)
    assert await value(session, R2.is_lost) == b"0"


async def test_a_joining_replica_has_the_version_of_the_metadata(session: ServerSession) -> None:
    await join(session, R1)
    for _ in range(3):
        await session.set(f"{ROOT}/metadata", STRUCTURE.metadata_text.encode())
    await join(session, R2)
    assert [await value(session, znodes.metadata_version) for znodes in (R1, R2)] == [b"0", b"3"]


async def test_the_znodes_of_a_replica_come_in_order_and_the_announcement_last(session: ServerSession) -> None:
    sent = []
    multi = session.multi

    async def noted(operations):  # type: ignore[no-untyped-def]
        sent.append([f"{type(each).__name__} {each.path.removeprefix(ROOT)}" for each in operations])
        return await multi(operations)

    session.multi = noted  # type: ignore[method-assign]
    await join(session, R1)
    await join(session, R2)

    def replica(name: str) -> list[str]:
        root = f"Create /replicas/{name}"
        return [root, *(f"{root}/{each}" for each in OF_A_REPLICA)]

    first, second = ([each for each in one if "sessions" not in each] for one in sent)
    assert first == ["Create ", *(f"Create /{each}" for each in OF_A_TABLE), *replica("r1")]
    assert second == [*replica("r2"), "Set /replicas"]


# --- others do the same at the same time ---------------------------------------------------------------------


def before_the_multi(session: ServerSession, effect):  # type: ignore[no-untyped-def]
    multi = session.multi

    async def late(operations):  # type: ignore[no-untyped-def]
        session.multi = multi  # type: ignore[method-assign]
        await effect()
        return await multi(operations)

    session.multi = late  # type: ignore[method-assign]


async def test_who_comes_second_to_make_the_table_joins_it(session: ServerSession) -> None:
    before_the_multi(session, lambda: join(session, R1))
    await join(session, R2)
    assert await session.children(f"{ROOT}/replicas") == ["r1", "r2"]
    assert await value(session, R2.is_lost) == b"1"


async def test_of_two_that_join_a_table_without_replicas_at_once_only_one_is_complete(session: ServerSession) -> None:
    await join(session, R1)
    await drop(session, R1)
    before_the_multi(session, lambda: join(session, R3))
    await join(session, R2)
    assert [await value(session, znodes.is_lost) for znodes in (R3, R2)] == [b"0", b"1"]


async def test_a_name_that_another_server_takes_meanwhile_is_refused(session: ServerSession) -> None:
    await join(session, R1)
    before_the_multi(session, lambda: join(session, R2, "table|another"))
    with pytest.raises(ReplicaAlreadyExists):
        await join(session, R2)


async def test_a_table_that_is_dropped_meanwhile_is_not_joined(session: ServerSession) -> None:
    await join(session, R1)
    get = session.get

    async def gone(path, watch=None):  # type: ignore[no-untyped-def]
        if path == f"{ROOT}/replicas":
            raise NoNode(path)
        return await get(path, watch)

    session.get = gone  # type: ignore[method-assign]
    with pytest.raises(AllReplicasLost):
        await join(session, R2)


# --- the same again ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("znodes", [R1, R2])
async def test_a_server_adopts_its_own_untouched_znodes(session: ServerSession, znodes: ReplicaZnodes) -> None:
    await join(session, R1)
    await join(session, znodes, "one table uuid|server")
    await join(session, znodes, "another table uuid|server") if znodes is R2 else None
    with pytest.raises(ReplicaAlreadyExists):
        await join(session, znodes, "table|another server")


USED = {
    "host": "host: h\n",
    "log_pointer": "1",
    "metadata": "other",
    "columns": "other",
    "metadata_version": "1",
    "min_unprocessed_insert_time": "5",
    "max_processed_insert_time": "5",
    "mutation_pointer": "0000000000",
    "is_lost": "2",
    "creator_info": "table|another server",
}


@pytest.mark.parametrize("name", [*USED, "queue/x", "parts/x", "flags/x", "-queue"])
async def test_znodes_that_somebody_uses_are_not_adopted(session: ServerSession, name: str) -> None:
    await join(session, R1)
    await join(session, R2)
    if name.startswith("-"):
        await session.delete(f"{R2.root}/{name[1:]}")
    elif "/" in name:
        await session.create(f"{R2.root}/{name}")
    else:
        await session.set(f"{R2.root}/{name}", USED[name].encode())
    with pytest.raises(ReplicaAlreadyExists, match=name.strip("-").partition("/")[0]):
        await join(session, R2)


# --- znodes of later releases --------------------------------------------------------------------------------


async def test_missing_znodes_of_later_releases_are_made_and_present_ones_left(session: ServerSession) -> None:
    await join(session, R1)
    await add_later_znodes(session, R1, "first")
    table = TableZnodes(ROOT)
    lost = [path for path, _ in later_additions(table) if await session.get(path) and path.endswith("_count")]
    for path in lost:
        await session.delete(path)
    await session.set(f"{ROOT}/pinned_part_uuids", b"kept")
    await add_later_znodes(session, R1, "second")
    for path, _ in later_additions(table):
        assert await session.exists(path) is not None
    assert lost == [f"{ROOT}/lost_part_count"]
    assert await value(session, f"{ROOT}/pinned_part_uuids") == b"kept"
    assert await value(session, table.table_shared_id) == b"first"


# --- names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "a", "/", "/a/", "/a//b", "/a/../b", "/a/.", "/a\x00", "/a/{nobody}/b"])
def test_a_path_that_cannot_be_a_tables_is_refused(path: str) -> None:
    with pytest.raises(ClickHouseError):
        replica_znodes(definition(zookeeper_path=path), {"shard": "01", "replica": "r1"})


@pytest.mark.parametrize("name", ["", "a/b", ".", "..", "a\n", "{nobody}"])
def test_a_name_that_cannot_be_a_replicas_is_refused(name: str) -> None:
    with pytest.raises(ClickHouseError):
        replica_znodes(definition(replica_name=name), {"shard": "01", "replica": "r1"})


def test_macros_are_filled_in() -> None:
    made = definition(zookeeper_path="/{shard}/{database}/{table}/{uuid}", replica_name="{replica}-x")
    znodes = replica_znodes(replace(made, uuid="u"), {"shard": "01", "replica": "r1"})
    assert znodes.root == "/01/default/t/u/replicas/r1-x"


@pytest.mark.parametrize(
    "changes", [{"table": "t" * 300}, *({"zookeeper_path": f"/{name}/t"} for name in ("zookeeper", "keeper"))]
)
async def test_a_name_that_cannot_be_is_refused_before_anything_is_made(
    cluster: Cluster, changes: dict[str, object]
) -> None:
    r1 = await cluster.start("r1")
    with pytest.raises(BadArguments):
        await r1.server.execute(definition(**changes))
    session = await cluster.session()
    assert "tables" not in await session.children("/clickhouse")


async def test_create_without_the_coordination_service_ends_with_its_reason(cluster: Cluster) -> None:
    cluster.settings = IMPATIENT
    r1 = await cluster.start("r1")
    cluster.delivery.loses = lambda label: label.startswith("r1")
    with pytest.raises(KeeperException):
        await r1.server.execute(definition())


def test_an_address_is_read_as_written_and_without_a_scheme_it_is_http() -> None:
    host = Host("h", 9009, 9000, "d", "t")
    assert Host.parse(host.to_text()) == host
    assert host.interserver_address == "h:9009"
    assert Host.parse(host.to_text().replace("scheme: grpc\n", "")).scheme == "http"
    for text in ("", "host: h\n", host.to_text().replace("9009", "x")):
        with pytest.raises(BadArguments):
            Host.parse(text)
