"""A lost or new replica becomes a copy of the most advanced one: its parts, its pointer, its queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from coordinator.api import Create
from replica.background.lost_replica import clone_if_lost
from replica.errors import AllReplicasLost, ReplicaStatusChanged
from replica.log_entry import EntryType, LogEntry, ReplacedPart, ReplaceRange
from replica.part_name import PartName
from tests.replica.cluster import ROOT, Cluster
from tests.replica.idle import IdleReplica, fetch_of, idle_replica, piece_of

MINE = f"{ROOT}/replicas/r5"


@dataclass
class Cloning:
    """Replica r5 is new and lost; the others exist as znodes only."""

    cluster: Cluster
    r5: IdleReplica

    async def other(
        self, name: str, *parts: str, pointer: int = 0, queue: tuple[LogEntry, ...] = (), is_lost: bytes = b"0"
    ) -> None:
        session, root = self.r5.session, f"{ROOT}/replicas/{name}"
        if await session.exists(root) is None:
            for path in ("", "/queue", "/parts", "/log_pointer", "/is_lost"):
                await session.create(root + path)
        await session.set(f"{root}/log_pointer", str(pointer).encode())
        await session.set(f"{root}/is_lost", is_lost)
        for entry in queue:
            await session.create(f"{root}/queue/queue-", entry.to_text().encode(), sequential=True)
        for part in parts:
            await session.create(f"{root}/parts/{part}")

    async def log_up_to(self, count: int) -> None:
        entry = fetch_of("0_0_0_0").to_text().encode()
        await self.r5.session.multi([Create(f"{ROOT}/log/log-", entry, sequential=True)] * count)

    async def clone(self) -> None:
        await clone_if_lost(self.r5.state, self.r5.session)

    async def queue(self) -> list[str]:
        """What each entry of the queue does, as `GET_PART 0_0_0_0`."""
        return [f"{entry.type} {entry.new_part}" for entry in await self.entries()]

    async def entries(self) -> list[LogEntry]:
        names = await self.r5.session.children(f"{MINE}/queue")
        found = await self.r5.session.get_many([f"{MINE}/queue/{name}" for name in names])
        return [LogEntry.parse(answer[0].decode()) for answer in found if answer is not None]

    async def pointer(self) -> bytes:
        return (await self.r5.session.get(f"{MINE}/log_pointer"))[0]

    async def is_lost(self) -> bytes:
        return (await self.r5.session.get(f"{MINE}/is_lost"))[0]


@pytest.fixture
async def cloning(cluster: Cluster) -> AsyncIterator[Cloning]:
    async with idle_replica(cluster, "r1"), idle_replica(cluster, "r5") as r5:
        yield Cloning(cluster, r5)


def merge(result: str, *sources: str) -> LogEntry:
    names = tuple(map(PartName.parse, sources))
    return LogEntry(EntryType.MERGE_PARTS, 1000, "r9", new_part=PartName.parse(result), source_parts=names)


def drop_range(partition: str, right: int) -> LogEntry:
    return LogEntry(EntryType.DROP_RANGE, 1000, "r9", new_part=PartName.drop_range(partition, right))


async def test_a_new_replica_takes_over_parts_queue_and_pointer(cloning: Cloning) -> None:
    await cloning.other(
        "r1", "0_0_0_0", "1_0_0_0", pointer=7, queue=(fetch_of("0_1_1_0"), merge("0_0_1_1", "0_0_0_0"))
    )
    await cloning.log_up_to(7)
    await cloning.clone()
    fetches = ["GET_PART 0_0_0_0", "GET_PART 0_1_1_0", "GET_PART 1_0_0_0"]
    assert await cloning.queue() == [*fetches, "MERGE_PARTS 0_0_1_1"]
    assert await cloning.pointer() == b"7"
    assert await cloning.is_lost() == b"0"


async def test_a_fetch_is_as_old_as_the_part_at_the_source_and_names_no_source(cloning: Cloning) -> None:
    await cloning.other("r1", "0_0_0_0")
    stat = await cloning.r5.session.exists(f"{ROOT}/replicas/r1/parts/0_0_0_0")
    await cloning.clone()
    (entry,) = await cloning.entries()
    assert stat is not None
    assert (entry.create_time, entry.source_replica) == (stat.ctime // 1000, "")


@pytest.mark.parametrize(
    "others",
    [
        # (pointer, entries in the queue, is_lost): the winner is r3 each time
        {"r1": (3, 0, b"0"), "r2": (4, 3, b"0"), "r3": (5, 1, b"0")},
        {"r1": (5, 0, b"1"), "r2": (5, 2, b"0"), "r3": (5, 1, b"0"), "r4": (5, 1, b"0")},
        {"r1": (0, 0, b"0"), "r2": (0, 9, b"0"), "r3": (9, 8, b"0")},
    ],
)
async def test_the_source_is_the_first_with_the_least_to_do(
    cloning: Cloning, others: dict[str, tuple[int, int, bytes]]
) -> None:
    await cloning.log_up_to(10)
    for name, (pointer, waiting, is_lost) in others.items():
        await cloning.other(
            name, f"{name}_0_0_0", pointer=pointer, queue=(drop_range("9", 1),) * waiting, is_lost=is_lost
        )
    await cloning.clone()
    assert "GET_PART r3_0_0_0" in await cloning.queue()


async def test_without_another_replica_there_is_none_to_clone(cloning: Cloning) -> None:
    await cloning.other("r1", is_lost=b"1")
    await cloning.r5.session.set(f"{MINE}/queue", b"")
    with pytest.raises(AllReplicasLost):
        await cloning.clone()
    assert await cloning.is_lost() == b"1"


async def test_a_replica_that_is_not_lost_clones_nothing(cloning: Cloning) -> None:
    await cloning.other("r1", "0_0_0_0")
    await cloning.r5.session.set(f"{MINE}/is_lost", b"0")
    await cloning.clone()
    assert await cloning.queue() == []


async def test_a_replica_of_an_old_release_is_not_lost(cloning: Cloning) -> None:
    await cloning.other("r1", "0_0_0_0")
    await cloning.r5.session.delete(f"{MINE}/is_lost")
    await cloning.clone()
    assert (await cloning.queue(), await cloning.is_lost()) == ([], b"0")


async def test_the_queue_from_before_goes(cloning: Cloning) -> None:
    await cloning.r5.session.create(f"{MINE}/queue/queue-", fetch_of("0_5_5_0").to_text().encode(), sequential=True)
    await cloning.clone()
    assert await cloning.queue() == []


async def test_what_a_range_in_the_queue_will_drop_is_not_fetched(cloning: Cloning) -> None:
    waiting = (fetch_of("0_1_1_0"), merge("0_0_1_1", "0_0_0_0", "0_1_1_0"), drop_range("0", 1), fetch_of("0_2_2_0"))
    await cloning.other("r1", "0_0_0_0", "1_0_0_0", queue=waiting)
    await cloning.clone()
    assert await cloning.queue() == [
        "GET_PART 0_2_2_0",
        "GET_PART 1_0_0_0",
        f"DROP_RANGE {drop_range('0', 1).new_part}",
    ]


async def test_parts_that_the_source_will_not_have_are_detached(cloning: Cloning) -> None:
    store = cloning.r5.state.store
    for name in ("0_0_0_0", "0_9_9_0", "1_1_1_0"):
        image = piece_of(cloning.r5.state, 2).image
        temporary = await store.write_temporary("tmp_insert_", image)
        store.activate(await store.publish(temporary, PartName.parse(name), 0), 0)
        await cloning.r5.session.create(f"{MINE}/parts/{name}")
    await cloning.other("r1", "0_0_0_0", queue=(fetch_of("1_1_1_0"), drop_range("1", 1)))
    await cloning.clone()
    assert [str(part.name) for part in store.active_parts()] == ["0_0_0_0"]
    assert await cloning.r5.session.children(f"{MINE}/parts") == ["0_0_0_0"]
    folder = cloning.cluster.folder / "r5" / "data" / "default" / "t"
    assert sorted(path.name for path in (folder / "detached").iterdir()) == ["clone_0_9_9_0", "clone_1_1_1_0"]


async def test_the_result_of_a_merge_that_waits_at_the_source_is_kept(cloning: Cloning) -> None:
    """Another merged part is not, and what it was made of has to come again."""
    store = cloning.r5.state.store
    for name in ("0_0_0_0", "0_1_1_0", "0_0_1_1", "1_0_1_1"):
        temporary = await store.write_temporary("tmp_insert_", piece_of(cloning.r5.state, 2).image)
        store.activate(await store.publish(temporary, PartName.parse(name), 0), 0)
        await cloning.r5.session.create(f"{MINE}/parts/{name}")
    waiting = (fetch_of("0_1_1_0"), merge("0_0_1_1", "0_0_0_0", "0_1_1_0"), merge("1_0_2_1", "1_0_0_0", "1_1_2_1"))
    await cloning.other("r1", "0_0_0_0", "1_0_0_0", "1_1_2_1", queue=waiting)
    await cloning.clone()
    assert await cloning.r5.session.children(f"{MINE}/parts") == ["0_0_0_0", "0_0_1_1", "0_1_1_0"]
    assert [str(part.name) for part in store.active_parts()] == ["0_0_1_1"]
    assert sorted(await cloning.queue()) == [
        "GET_PART 0_0_0_0",
        "GET_PART 0_1_1_0",
        "GET_PART 1_0_0_0",
        "GET_PART 1_1_2_1",
        "MERGE_PARTS 0_0_1_1",
        "MERGE_PARTS 1_0_2_1",
    ]


async def test_a_part_that_the_source_has_still_to_drop_is_dropped_here_too(cloning: Cloning) -> None:
    drop = LogEntry(EntryType.DROP_PART, 1000, "r9", new_part=PartName.parse("0_1_1_0"))
    await cloning.other("r1", "0_0_0_0", "0_1_1_0", queue=(drop,))
    await cloning.clone()
    assert await cloning.queue() == ["GET_PART 0_0_0_0", "GET_PART 0_1_1_0", "DROP_PART 0_1_1_0"]


async def test_what_the_source_has_still_to_replace_is_kept_where_it_is_replaced_already(cloning: Cloning) -> None:
    store, new = cloning.r5.state.store, PartName.parse("0_3_3_0")
    temporary = await store.write_temporary("tmp_insert_", piece_of(cloning.r5.state, 2).image)
    store.activate(await store.publish(temporary, new, 0), 0)
    await cloning.r5.session.create(f"{MINE}/parts/{new}")
    replaced = (ReplacedPart(PartName.parse("0_7_7_0"), new, "0A"),)
    replace = ReplaceRange(PartName.drop_range("0", 2), "default", "s", replaced)
    await cloning.other(
        "r1", "0_1_1_0", queue=(LogEntry(EntryType.REPLACE_RANGE, 1000, "r9", replace_range=replace),)
    )
    await cloning.clone()
    assert await cloning.r5.session.children(f"{MINE}/parts") == ["0_3_3_0"]
    assert await cloning.queue() == ["REPLACE_RANGE None"]


async def test_a_merge_whose_result_the_source_has_is_not_taken_over(cloning: Cloning) -> None:
    await cloning.other("r1", "0_0_3_2", queue=(merge("0_0_1_1", "0_0_0_0"), merge("0_0_3_2", "0_0_1_1")))
    await cloning.clone()
    assert await cloning.queue() == ["GET_PART 0_0_3_2"]


async def test_many_parts_that_the_source_does_not_have_are_unregistered(cloning: Cloning) -> None:
    creates = [Create(f"{MINE}/parts/0_{n}_{n}_0") for n in range(250)]
    await cloning.r5.session.multi(creates)
    await cloning.other("r1", "0_7_7_0")
    await cloning.clone()
    assert await cloning.r5.session.children(f"{MINE}/parts") == ["0_7_7_0"]


async def test_a_long_queue_is_taken_over_whole(cloning: Cloning) -> None:
    await cloning.other("r1", *(f"0_{n}_{n}_0" for n in range(250)))
    await cloning.clone()
    assert sorted(await cloning.queue()) == sorted(f"GET_PART 0_{n}_{n}_0" for n in range(250))


# --- the source changes meanwhile ----------------------------------------------------------------------------


async def test_a_source_whose_pointer_moves_is_looked_at_again(cloning: Cloning) -> None:
    await cloning.other("r1", pointer=1)
    session, root = cloning.r5.session, f"{ROOT}/replicas/r1"

    async def pull() -> None:
        await session.create(f"{root}/queue/queue-", fetch_of("0_1_1_0").to_text().encode(), sequential=True)
        await session.set(f"{root}/log_pointer", b"2")

    cloning.r5.before("multi", pull)
    await cloning.clone()
    assert (await cloning.pointer(), await cloning.queue()) == (b"2", ["GET_PART 0_1_1_0"])


async def test_a_source_that_becomes_lost_is_not_cloned(cloning: Cloning) -> None:
    await cloning.other("r1", "0_0_0_0", pointer=1)
    cloning.r5.before("multi", lambda: cloning.r5.session.set(f"{ROOT}/replicas/r1/is_lost", b"1"))
    with pytest.raises(ReplicaStatusChanged):
        await cloning.clone()
    assert (await cloning.pointer(), await cloning.queue(), await cloning.is_lost()) == (b"", [], b"1")


async def test_a_source_that_has_lost_a_part_meanwhile_is_not_cloned(cloning: Cloning) -> None:
    """It raises the version of its `is_lost`, though the value stays 0, when it has to fetch a part again."""
    await cloning.other("r1", "0_0_0_0")
    cloning.r5.after("multi", lambda: cloning.r5.session.set(f"{ROOT}/replicas/r1/is_lost", b"0"))
    with pytest.raises(ReplicaStatusChanged):
        await cloning.clone()
    assert (await cloning.queue(), await cloning.is_lost()) == ([], b"1")


async def test_an_entry_that_leaves_the_sources_queue_meanwhile_is_not_copied(cloning: Cloning) -> None:
    await cloning.other("r1", queue=(fetch_of("0_0_0_0"), fetch_of("0_1_1_0")))
    cloning.r5.after("multi", lambda: cloning.r5.session.delete(f"{ROOT}/replicas/r1/queue/queue-0000000000"))
    await cloning.clone()
    assert await cloning.queue() == ["GET_PART 0_1_1_0"]


async def test_a_clone_that_fails_half_way_leaves_the_replica_lost(cloning: Cloning) -> None:
    await cloning.other("r1", "0_0_0_0")
    cloning.r5.after("multi", cloning.r5.later_session)
    with pytest.raises(Exception, match="later session"):
        await cloning.clone()
    assert await cloning.is_lost() == b"1"
