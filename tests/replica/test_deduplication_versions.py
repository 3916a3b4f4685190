"""The upgrade of deduplication: replicas that write old ids, both, and new ones, and what they recognise."""

from __future__ import annotations

import pytest

from replica.background.deduplication_window import DeduplicationWindows
from replica.commands import AlterSettings, InsertOptions, InsertStatus
from replica.dedup.tokens import SourceToken
from replica.errors import BadArguments
from replica.insert.sink import insert_tokens
from replica.settings import MergeTreeSettings
from tests.replica.cluster import ROOT, Cluster, definition, rows
from tests.replica.idle import activate, idle_replica

OLD, BOTH, NEW = "old_separate_hashes", "compatible_double_hashes", "new_unified_hash"
NEIGHBOURS = [(OLD, OLD), (OLD, BOTH), (BOTH, OLD), (BOTH, NEW), (NEW, BOTH), (NEW, NEW)]
DIRECTORIES = ("blocks", "async_blocks", "deduplication_hashes")


async def upgraded(cluster: Cluster, *versions: str) -> None:
    """Replicas r1, r2 … of one table, one of each version."""
    for number, version in enumerate(versions, start=1):
        replica = await cluster.start(f"r{number}")
        await replica.server.execute(definition(settings={"insert_deduplication_version": version}))
    await cluster.writable()


async def insert(cluster: Cluster, name: str, key: int, token: str, is_async: bool) -> InsertStatus:
    state = cluster.replicas[name].table().state
    options = InsertOptions(insert_deduplication_token=token)
    return (await insert_tokens(state, options, [SourceToken(1, token)], rows(key), is_async=is_async)).status


async def ids(cluster: Cluster) -> dict[str, int]:
    session = await cluster.session()
    return {name: len(await session.children(f"{ROOT}/{name}")) for name in DIRECTORIES}


@pytest.mark.parametrize("token", ["", "t"])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("first", "second"), [(OLD, OLD), (OLD, BOTH), (BOTH, OLD), (BOTH, NEW), (NEW, BOTH), (NEW, NEW)]
)
async def test_neighbours_recognise_each_others_inserts(
    cluster: Cluster, first: str, second: str, is_async: bool, token: str
) -> None:
    await upgraded(cluster, first, second)
    assert await insert(cluster, "r1", 2, token, is_async) is InsertStatus.STORED
    assert await insert(cluster, "r2", 2, token, is_async) is InsertStatus.DUPLICATE


@pytest.mark.parametrize(("first", "second"), [(OLD, NEW), (NEW, OLD)])
async def test_who_leaves_out_the_step_between_stores_twice(cluster: Cluster, first: str, second: str) -> None:
    await upgraded(cluster, first, second)
    for name in ("r1", "r2"):
        assert await insert(cluster, name, 2, "t", False) is InsertStatus.STORED


async def test_an_old_retry_is_recognised_as_long_as_the_step_between_lasts(cluster: Cluster) -> None:
    await upgraded(cluster, OLD, BOTH, NEW)
    await insert(cluster, "r1", 2, "", False)
    assert await insert(cluster, "r2", 2, "", False) is InsertStatus.DUPLICATE
    assert await insert(cluster, "r3", 2, "", False) is InsertStatus.STORED, "a duplicate writes no new id"
    await insert(cluster, "r2", 4, "", False)
    assert await insert(cluster, "r3", 4, "", False) is InsertStatus.DUPLICATE


async def switch(cluster: Cluster, version: str) -> None:
    """Let r1 go on with another version."""
    await cluster.replicas["r1"].server.execute(
        AlterSettings("default", "t", {"insert_deduplication_version": version})
    )


async def test_an_upgrade_step_by_step_recognises_every_retry_that_the_step_before_could(cluster: Cluster) -> None:
    await upgraded(cluster, OLD)
    await insert(cluster, "r1", 2, "", False)
    await switch(cluster, BOTH)
    assert await insert(cluster, "r1", 2, "", False) is InsertStatus.DUPLICATE
    await insert(cluster, "r1", 4, "", False)
    await switch(cluster, NEW)
    assert await insert(cluster, "r1", 4, "", False) is InsertStatus.DUPLICATE
    await insert(cluster, "r1", 6, "", False)
    await switch(cluster, BOTH)
    assert await insert(cluster, "r1", 6, "", False) is InsertStatus.DUPLICATE, "and back"
    await switch(cluster, OLD)
    assert await insert(cluster, "r1", 4, "", False) is InsertStatus.DUPLICATE
    assert await insert(cluster, "r1", 6, "", False) is InsertStatus.STORED, "two steps at once are one too many"


async def test_new_ids_join_synchronous_and_asynchronous_inserts_which_old_ones_keep_apart(cluster: Cluster) -> None:
    await upgraded(cluster, OLD, NEW)
    for name, expected in (("r1", InsertStatus.STORED), ("r2", InsertStatus.DUPLICATE)):
        assert await insert(cluster, name, 2, "t", False) is InsertStatus.STORED
        assert await insert(cluster, name, 2, "t", True) is expected


@pytest.mark.parametrize(
    ("version", "is_async", "expected"),
    [
        (OLD, False, (1, 0, 0)),
        (OLD, True, (0, 1, 0)),
        (BOTH, False, (1, 0, 1)),
        (BOTH, True, (0, 1, 1)),
        (NEW, False, (0, 0, 1)),
        (NEW, True, (0, 0, 1)),
    ],
)
async def test_each_version_writes_its_own_directories(
    cluster: Cluster, version: str, is_async: bool, expected: tuple[int, int, int]
) -> None:
    await upgraded(cluster, version)
    await insert(cluster, "r1", 2, "", is_async)
    assert tuple((await ids(cluster)).values()) == expected


async def test_an_old_id_is_of_the_partitions_rows_and_a_new_one_of_the_block(cluster: Cluster) -> None:
    await upgraded(cluster, OLD, NEW)
    for name, expected in (("r1", InsertStatus.DUPLICATE), ("r2", InsertStatus.STORED)):
        replica = cluster.replicas[name]
        await replica.insert(rows(2, 1))
        (part,) = (await replica.insert(rows(2))).parts
        assert part.status is expected, name


async def test_every_directory_is_drained_by_its_own_window_whatever_is_written_now(cluster: Cluster) -> None:
    settings = {"replicated_deduplication_window": "2", "replicated_deduplication_window_for_async_inserts": "1"}
    async with idle_replica(cluster, "r1", settings=settings) as r1:
        for directory in DIRECTORIES:
            for number in range(3):
                await r1.session.create(f"{ROOT}/{directory}/{number}")
        activate(r1.state, r1.session)
        assert await DeduplicationWindows(r1.state, r1.session).forget_outside() == 1 + 2 + 1
        assert tuple((await ids(cluster)).values()) == (2, 1, 2)


async def test_an_async_window_of_nothing_turns_old_asynchronous_deduplication_off(cluster: Cluster) -> None:
    settings = {"insert_deduplication_version": OLD, "replicated_deduplication_window_for_async_inserts": "0"}
    replica = await cluster.start("r1")
    await cluster.create_table(settings=settings)
    for _ in range(2):
        assert await insert(cluster, "r1", 2, "t", True) is InsertStatus.STORED
    await replica.insert(rows(4))
    assert (await replica.insert(rows(4))).status is InsertStatus.DUPLICATE


def test_another_version_is_refused() -> None:
    with pytest.raises(BadArguments, match="old_separate_hashes, compatible_double_hashes, new_unified_hash"):
        MergeTreeSettings.from_text({"insert_deduplication_version": "newest"})
