"""One part is checked at a time: what is found, and what the multis carry."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coordinator.api import Check, Create, Delete, Set
from replica.background.part_check import YOUNG_PART_SECONDS, check_part
from replica.log_entry import EntryType, LogEntry
from replica.log_puller import LogPuller
from replica.part_name import PartName
from replica.parts_to_check import PartsToCheck
from replica.registration import add_later_znodes
from replica.session import SESSIONS_PATH
from replica.storage.part_store import PartState, StoredPart
from tests.replica.cluster import ROOT, Cluster
from tests.replica.idle import IdleReplica, activate, fetch_of, idle_replica, piece_of, system_rows

MINE = f"{ROOT}/replicas/r1"
OTHER = f"{ROOT}/replicas/r2"


@pytest.fixture
async def r1(cluster: Cluster) -> AsyncIterator[IdleReplica]:
    async with idle_replica(cluster, "r1") as replica:
        await add_later_znodes(replica.session, replica.state.znodes, "u")
        activate(replica.state, replica.session)
        yield replica


async def check(r1: IdleReplica, name: str) -> float | None:
    return await check_part(r1.state, r1.session, LogPuller(r1.state, r1.session), PartName.parse(name))


async def publish(r1: IdleReplica, name: str, *, registered: bool = True, age: float = 0) -> StoredPart:
    """An active part; in the queue's view it exists."""
    state = r1.state
    temporary = await state.store.write_temporary("tmp_insert_", piece_of(state, 2).image)
    part = await state.store.publish(temporary, PartName.parse(name), state.now() - age)
    state.store.activate(part, state.now())
    if registered:
        await r1.session.create(f"{MINE}/parts/{name}", part.header.to_bytes())
    return part


async def other(r1: IdleReplica, *parts: str) -> None:
    """Replica r2 with these parts, in the znodes only: it is not active."""
    for path in ("", "/parts", "/host"):
        await r1.session.create(OTHER + path)
    for part in parts:
        await r1.session.create(f"{OTHER}/parts/{part}")


async def put_in_log(r1: IdleReplica, *entries: LogEntry) -> None:
    for entry in entries:
        await r1.session.create(f"{ROOT}/log/log-", entry.to_text().encode(), sequential=True)


def merge(result: str, *sources: str) -> LogEntry:
    names = tuple(map(PartName.parse, sources))
    return LogEntry(EntryType.MERGE_PARTS, 1000, "r9", new_part=PartName.parse(result), source_parts=names)


def parts_here(r1: IdleReplica) -> list[str]:
    return [f"{part.name} {part.state}" for part in r1.state.store.parts()]


def detached(r1: IdleReplica, cluster: Cluster) -> list[str]:
    folder = cluster.folder / "r1" / "data" / "default" / "t" / "detached"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


async def lost_parts(r1: IdleReplica) -> bytes:
    return (await r1.session.get(f"{ROOT}/lost_part_count"))[0]


def rot(cluster: Cluster, part: str) -> None:
    path = cluster.folder / "r1" / "data" / "default" / "t" / part / "data.arrow"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


# --- a part that is here --------------------------------------------------------------------------------------


async def test_a_good_part_is_left_alone(r1: IdleReplica, cluster: Cluster) -> None:
    await publish(r1, "0_0_0_0")
    assert await check(r1, "0_0_0_0") is None
    assert parts_here(r1) == ["0_0_0_0 Active"]
    assert await r1.session.children(f"{MINE}/queue") == []


async def test_a_covered_part_needs_no_look(r1: IdleReplica) -> None:
    await publish(r1, "0_0_1_1")
    await r1.session.create(f"{MINE}/parts/0_0_0_0")
    assert await check(r1, "0_0_0_0") is None
    assert await r1.session.children(f"{MINE}/queue") == []


async def test_an_outdated_part_is_looked_at_when_it_should_be_gone(r1: IdleReplica) -> None:
    part = await publish(r1, "0_0_0_0")
    part.state = PartState.OUTDATED
    r1.state.store._active.remove(part.name)
    assert await check(r1, "0_0_0_0") == 480 + 30


async def test_an_unregistered_part_has_five_minutes(r1: IdleReplica, cluster: Cluster) -> None:
    await publish(r1, "0_0_0_0", registered=False, age=100)
    assert await check(r1, "0_0_0_0") == pytest.approx(200, abs=5)
    await publish(r1, "0_1_1_0", registered=False, age=YOUNG_PART_SECONDS + 1)
    assert await check(r1, "0_1_1_0") is None
    assert detached(r1, cluster) == ["unexpected_0_1_1_0"]


async def test_a_broken_part_and_what_it_covers_are_put_away_and_fetched_in_one_multi(
    r1: IdleReplica, cluster: Cluster
) -> None:
    await publish(r1, "0_0_0_0")
    await publish(r1, "0_0_1_1")
    await put_in_log(r1, fetch_of("0_0_0_0"), merge("0_0_1_1", "0_0_0_0", "0_1_1_0"), fetch_of("0_5_5_0"))
    rot(cluster, "0_0_1_1")
    stat = await r1.session.exists(f"{MINE}/parts/0_0_1_1")
    log_version = (await r1.session.get(f"{ROOT}/log"))[1].version
    assert stat is not None
    sent = r1.recorded_multis()
    assert await check(r1, "0_0_1_1") is None
    assert detached(r1, cluster) == ["broken_0_0_1_1", "covered-by-broken_0_0_0_0"]
    entry = LogEntry(EntryType.GET_PART, stat.ctime // 1000, new_part=PartName.parse("0_0_1_1"))
    guard = Check(f"{SESSIONS_PATH}/uuid-of-r1", 0)
    assert [each for each in sent[-1] if not isinstance(each, Check) or each.path != guard.path] == [
        Create(f"{MINE}/queue/queue-", entry.to_text().encode(), sequential=True),
        Set(f"{MINE}/is_lost", b"0", 0),
        Delete(f"{MINE}/parts/0_0_0_0"),
        Delete(f"{MINE}/parts/0_0_1_1"),
        Delete(f"{MINE}/queue/queue-0000000000"),
        Delete(f"{MINE}/queue/queue-0000000001"),
        Check(f"{ROOT}/log", log_version),
    ]
    assert [str(each.entry.new_part) for each in r1.state.queue] == ["0_5_5_0", "0_0_1_1"]
    r1.state.queue.check_invariant()


async def test_a_part_is_not_fetched_again_when_the_log_says_meanwhile_that_it_is_dropped(
    r1: IdleReplica, cluster: Cluster
) -> None:
    await publish(r1, "0_0_0_0")
    rot(cluster, "0_0_0_0")
    drop = LogEntry(EntryType.DROP_RANGE, 1000, "r9", new_part=PartName.drop_range("0", 5))

    async def dropped() -> None:
        await put_in_log(r1, drop)
        await r1.session.set(f"{ROOT}/log", b"")

    r1.before("multi", dropped)
    await check(r1, "0_0_0_0")
    assert [each.entry.type for each in r1.state.queue] == [EntryType.DROP_RANGE]


async def test_a_part_without_a_folder_is_fetched_again(r1: IdleReplica, cluster: Cluster) -> None:
    await publish(r1, "0_0_0_0")
    (cluster.folder / "r1" / "data" / "default" / "t" / "0_0_0_0").rename(cluster.folder / "elsewhere")
    assert await check(r1, "0_0_0_0") is None
    assert parts_here(r1) == []
    assert len(await r1.session.children(f"{MINE}/queue")) == 1


# --- a part that is missing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("theirs", ["0_1_1_0", "0_0_5_1"])
async def test_what_any_replica_has_or_covers_is_waited_for(r1: IdleReplica, theirs: str) -> None:
    await other(r1, theirs)
    await put_in_log(r1, fetch_of("0_1_1_0"))
    assert await check(r1, "0_1_1_0") is None
    assert await lost_parts(r1) == b""


@pytest.mark.parametrize("piece", ["0_1_1_0", "0_2_2_0", "0_3_3_0"])
async def test_a_part_of_which_somebody_has_a_piece_is_waited_for(r1: IdleReplica, piece: str) -> None:
    await other(r1, piece)
    await put_in_log(r1, fetch_of("0_1_3_1"))
    assert await check(r1, "0_1_3_1") is None
    assert await lost_parts(r1) == b""


async def test_of_a_merge_in_the_queue_the_sources_are_looked_for(r1: IdleReplica) -> None:
    await publish(r1, "0_1_1_0")
    await put_in_log(r1, merge("0_1_3_1", "0_1_1_0", "0_2_2_0", "0_3_3_0"))
    await LogPuller(r1.state, r1.session).pull()
    assert await check(r1, "0_1_3_1") is None
    assert len(r1.state.parts_to_check) == 2
    assert all(PartName.parse(each) in r1.state.parts_to_check for each in ("0_2_2_0", "0_3_3_0"))
    assert await lost_parts(r1) == b""
    (row,) = await system_rows(r1, "replicas")
    assert row["parts_to_check"] == 2


async def test_a_lost_part_becomes_an_empty_one_in_one_multi(r1: IdleReplica) -> None:
    await other(r1)
    await put_in_log(r1, fetch_of("0_1_1_0"))
    hashes = f"{ROOT}/deduplication_hashes"
    for block_id, part in (("inside", b"0_1_1_0"), ("outside", b"0_2_2_0"), ("elsewhere", b"1_1_1_0")):
        await r1.session.create(f"{hashes}/{block_id}", part)
    await r1.session.create(f"{ROOT}/blocks/old", b"0_1_1_0")
    await r1.session.set(f"{ROOT}/lost_part_count", b"4")
    versions = {path: (await r1.session.get(path))[1].version for path in (f"{ROOT}/log", f"{ROOT}/replicas")}
    sent = r1.recorded_multis()
    assert await check(r1, "0_1_1_0") is None
    (part,) = r1.state.store.active_parts()
    assert (str(part.name), part.rows) == ("0_1_1_0", 0)
    mine, theirs = f"{MINE}/parts/0_1_1_0", f"{OTHER}/parts/0_1_1_0"
    assert sent[-1][:-1] == [
        *(operation for path in (mine, theirs) for operation in (Create(path), Delete(path))),
        Create(mine, part.header.to_bytes()),
        *(Check(path, version) for path, version in versions.items()),
        Set(f"{ROOT}/lost_part_count", b"5", 1),
        Delete(f"{ROOT}/blocks/old"),
        Delete(f"{hashes}/inside"),
    ]
    assert await lost_parts(r1) == b"5"
    assert await r1.session.children(hashes) == ["elsewhere", "outside"]


@pytest.mark.parametrize("what", ["nothing wants it", "it is going to be dropped", "somebody registers it"])
async def test_a_lost_part_is_replaced_only_while_it_is_needed(r1: IdleReplica, what: str) -> None:
    await other(r1)
    if what != "nothing wants it":
        await put_in_log(r1, fetch_of("0_1_1_0"))
    if what == "it is going to be dropped":
        await put_in_log(r1, LogEntry(EntryType.DROP_RANGE, 1000, "r9", new_part=PartName.drop_range("0", 5)))
    if what == "somebody registers it":

        async def registered() -> None:
            await r1.session.create(f"{OTHER}/parts/0_1_1_0")

        await LogPuller(r1.state, r1.session).pull()
        r1.before("multi", registered)
    assert await check(r1, "0_1_1_0") is None
    assert parts_here(r1) == []
    assert await lost_parts(r1) == b""


async def test_a_merge_assigned_meanwhile_is_seen_before_a_part_is_given_up(r1: IdleReplica) -> None:
    await put_in_log(r1, fetch_of("0_1_1_0"))
    await LogPuller(r1.state, r1.session).pull()

    async def moved_on() -> None:
        await put_in_log(r1, LogEntry(EntryType.DROP_PART, 1000, "r9", new_part=PartName.parse("0_1_1_0")))
        await r1.session.set(f"{ROOT}/log", b"")

    r1.before("multi", moved_on)
    await check(r1, "0_1_1_0")
    assert parts_here(r1) == []
    assert await lost_parts(r1) == b""


# --- the queue of parts ---------------------------------------------------------------------------------------


def named(text: str) -> PartName:
    return PartName.parse(text)


async def test_parts_wait_in_order_each_once_until_their_time() -> None:
    parts = PartsToCheck()
    parts.add(named("0_2_2_0"), 10)
    parts.add(named("0_1_1_0"), 5)
    parts.add(named("0_1_1_0"), 0)
    assert (len(parts), parts.due(4), parts.due(5)) == (2, None, named("0_1_1_0"))
    assert parts.due(10) == named("0_2_2_0")
    parts.put_off(named("0_2_2_0"), 10)
    assert parts.due(10) == named("0_1_1_0")
    parts.settle(named("0_1_1_0"))
    assert named("0_1_1_0") not in parts
    parts.settle(named("0_2_2_0"))
    assert len(parts) == 0


async def test_a_part_that_is_being_dropped_is_not_put_into_the_queue(r1: IdleReplica) -> None:
    r1.state.queue.insert(
        "queue-0000000000", LogEntry(EntryType.DROP_RANGE, 1000, "r9", new_part=PartName.drop_range("0", 5))
    )
    r1.state.check_part(named("0_1_1_0"))
    r1.state.check_part(named("0_6_6_0"))
    assert len(r1.state.parts_to_check) == 1
