"""A part from another replica: where it is looked for, what is refused, how it comes to count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from coordinator.api import SessionLost
from replica.background.uncertain_parts import settle_uncertain_parts
from replica.environment import PartFiles, PartRequest
from replica.errors import (
    ChecksumDoesntMatch,
    ClickHouseError,
    CorruptedData,
    DuplicateDataPart,
    NetworkError,
    NoReplicaHasPart,
    PartIsTemporarilyLocked,
)
from replica.log_entry import EntryType, LogEntry
from replica.operations import execute
from replica.operations.commit_part import commit_part
from replica.operations.not_done import NotDone
from replica.part_name import PartName
from replica.queue import QueuedEntry
from replica.storage.part_files import PartImage
from replica.storage.part_store import PartState
from replica.znodes import Host
from tests.replica.cluster import ROOT, Cluster, eventually
from tests.replica.idle import IdleReplica, fetch_of, idle_replica, piece_of


@dataclass
class Sources:
    """Stands in for the way to other replicas: notes what is asked for, serves one image for everything."""

    image: PartImage | None = None
    asked: list[tuple[str, PartRequest, float]] = field(default_factory=list)

    async def serve(self, source: object) -> str:
        return "r1:9009"

    async def fetch(self, address: str, request: PartRequest, deadline_seconds: float) -> PartFiles:
        self.asked.append((address, request, deadline_seconds))
        assert self.image is not None
        return self.image.files

    async def stop(self) -> None:
        pass


@dataclass
class Fetching:
    """Replica r1 fetches; r2 … exist as znodes only."""

    cluster: Cluster
    r1: IdleReplica
    sources: Sources

    async def source(self, name: str, *parts: str, active: bool = True, header: bytes | None = None) -> None:
        session, root = self.r1.session, f"{ROOT}/replicas/{name}"
        await session.create(root)
        await session.create(f"{root}/host", Host(name, 9009, 0, "default", "t").to_text().encode())
        await session.create(f"{root}/parts")
        for part in parts:
            content = self.r1_image(2).header.to_bytes() if header is None else header
            await session.create(f"{root}/parts/{part}", content)
        if active:
            await session.create(f"{root}/is_active", b"x", ephemeral=True)

    def r1_image(self, *keys: int) -> PartImage:
        return piece_of(self.r1.state, *keys).image

    def queued(self, part: str) -> QueuedEntry:
        entry = self.r1.state.queue.insert(f"queue-{len(self.r1.state.queue):010}", fetch_of(part))
        self.r1.state.queue.start(entry, 0)
        return entry

    async def get(self, part: str) -> None:
        await execute(self.r1.state, self.r1.session, self.queued(part))

    def on_disk(self) -> list[str]:
        folder = self.cluster.folder / "r1" / "data" / "default" / "t"
        return sorted(path.name for path in folder.iterdir())

    async def registered(self) -> list[str]:
        return await self.r1.session.children(f"{ROOT}/replicas/r1/parts")

    def nothing_there(self) -> bool:
        return self.on_disk() == [] and self.r1.state.store.parts() == []


@pytest.fixture
async def fetching(cluster: Cluster) -> AsyncIterator[Fetching]:
    sources = Sources()
    async with idle_replica(cluster, "r1", transfer=sources) as r1:
        sources.image = piece_of(r1.state, 2).image
        yield Fetching(cluster, r1, sources)


async def test_a_fetched_part_is_registered_and_counts(fetching: Fetching) -> None:
    await fetching.source("r2", "0_0_0_0")
    await fetching.get("0_0_0_0")
    expected = PartRequest(f"{ROOT}/replicas/r2", "0_0_0_0")
    assert fetching.sources.asked == [("r2:9009", expected, 60.0)]
    assert await fetching.registered() == fetching.on_disk() == ["0_0_0_0"]
    value, _ = await fetching.r1.session.get(f"{ROOT}/replicas/r1/parts/0_0_0_0")
    assert value == fetching.r1_image(2).header.to_bytes()
    assert [part.state for part in fetching.r1.state.store.parts()] == [PartState.ACTIVE]


async def test_only_active_replicas_that_have_it_are_asked(fetching: Fetching) -> None:
    await fetching.source("r2", "0_0_0_0", active=False)
    await fetching.source("r3", "0_1_1_0", "1_0_0_0")
    await fetching.r1.session.create(f"{ROOT}/replicas/r4")  # being made, or being dropped
    await fetching.r1.session.create(f"{ROOT}/replicas/r4/is_active", ephemeral=True)
    with pytest.raises(NoReplicaHasPart, match="No active replica has part 0_0_0_0 or covering part"):
        await fetching.get("0_0_0_0")
    assert fetching.sources.asked == []


async def test_every_replica_is_tried_before_giving_up(fetching: Fetching) -> None:
    for name in ("r2", "r3", "r4", "r5"):
        await fetching.source(name, *(f"0_{n}_{n}_0" for n in range(10) if name == "r5"))
    for n in range(10):  # whoever comes first in the drawn order
        await fetching.get(f"0_{n}_{n}_0")
    assert [address for address, _, _ in fetching.sources.asked] == ["r5:9009"] * 10


async def test_a_replica_never_asks_itself(fetching: Fetching) -> None:
    await fetching.r1.session.create(f"{ROOT}/replicas/r1/is_active", ephemeral=True)
    await fetching.r1.session.create(f"{ROOT}/replicas/r1/parts/0_0_0_0")
    with pytest.raises(NoReplicaHasPart, match="No active replica"):
        await fetching.get("0_0_0_0")


async def test_the_source_is_drawn(fetching: Fetching) -> None:
    for name in ("r2", "r3"):
        await fetching.source(name, *(f"0_{n}_{n}_0" for n in range(20)))
    for n in range(20):
        await fetching.get(f"0_{n}_{n}_0")
    assert {address for address, _, _ in fetching.sources.asked} == {"r2:9009", "r3:9009"}


async def test_a_source_without_an_address_has_nothing(fetching: Fetching) -> None:
    await fetching.source("r2", "0_0_0_0")
    await fetching.r1.session.set(f"{ROOT}/replicas/r2/host", b"")
    with pytest.raises(NoReplicaHasPart, match="no address"):
        await fetching.get("0_0_0_0")


# --- a covering part -----------------------------------------------------------------------------------------


def merge(result: str, *sources: str) -> LogEntry:
    names = tuple(map(PartName.parse, sources))
    return LogEntry(EntryType.MERGE_PARTS, 1000, "r9", new_part=PartName.parse(result), source_parts=names)


async def test_the_largest_part_that_covers_it_is_taken_instead(fetching: Fetching) -> None:
    await fetching.source("r2", "0_0_0_0", "0_0_1_1", "0_0_2_2", "0_5_5_0")
    queued = fetching.queued("0_0_0_0")
    fetching.r1.state.queue.insert("queue-0000000007", merge("0_0_2_2", "0_0_0_0", "0_2_2_0"))
    await execute(fetching.r1.state, fetching.r1.session, queued)
    assert await fetching.registered() == ["0_0_2_2"]


async def test_a_covering_part_that_the_log_has_not_told_of_is_refused(fetching: Fetching) -> None:
    await fetching.source("r2", "0_0_1_1")
    with pytest.raises(NoReplicaHasPart):
        await fetching.get("0_0_0_0")
    assert fetching.sources.asked == []


async def test_a_refused_covering_part_ends_the_search(fetching: Fetching) -> None:
    for name in ("r2", "r3"):
        await fetching.source(name, "0_0_1_1")
    searched: list[str] = []
    children = fetching.r1.session.children

    async def noted(path: str, watch: object = None) -> list[str]:
        if path.endswith("/parts"):
            searched.append(path)
        return await children(path)

    fetching.r1.session.children = noted  # type: ignore[method-assign, assignment]
    with pytest.raises(NoReplicaHasPart):
        await fetching.get("0_0_0_0")
    assert len(searched) == 1


async def test_a_covering_part_waits_for_older_entries_that_it_covers(fetching: Fetching) -> None:
    await fetching.source("r2", "0_0_1_1")
    older = fetching.queued("0_0_0_0")
    newer = fetching.queued("0_1_1_0")
    fetching.r1.state.queue.insert("queue-0000000007", merge("0_0_1_1", "0_0_0_0", "0_1_1_0"))
    state = fetching.r1.state
    running = asyncio.create_task(execute(state, fetching.r1.session, newer))
    for _ in range(100):
        await asyncio.sleep(0)
    await fetching.r1.session.get(ROOT)  # the search for a source has had its round trips
    assert fetching.sources.asked == []
    state.queue.finish_attempt(older)
    await state.note_progress()
    await running
    assert [request.part_name for _, request, _ in fetching.sources.asked] == ["0_0_1_1"]


# --- what another merge will bring ---------------------------------------------------------------------------


async def test_what_nobody_has_comes_with_the_merge_it_goes_into(fetching: Fetching) -> None:
    queue = fetching.r1.state.queue
    fetching.queued("0_0_0_0")
    queue.insert("queue-0000000001", fetch_of("0_1_1_0"))
    queue.insert("queue-0000000002", fetch_of("0_7_7_0"))
    queue.insert("queue-0000000003", merge("0_0_1_1", "0_0_0_0", "0_1_1_0"))
    queue.move_to_tail(queue["queue-0000000000"])  # as the selection does
    with pytest.raises(NotDone, match="Will fetch merged part instead"):
        await execute(fetching.r1.state, fetching.r1.session, queue["queue-0000000000"])
    assert [each.new_part_name for each in queue] == ["0_7_7_0", "0_0_1_1", "0_0_0_0", "0_1_1_0"]


async def test_after_a_failed_transfer_the_siblings_are_put_off_too_and_the_error_counts(fetching: Fetching) -> None:
    await fetching.source("r2", "0_0_0_0")
    fetching.sources.image = None  # the transfer breaks
    queue = fetching.r1.state.queue
    fetching.queued("0_0_0_0")
    queue.insert("queue-0000000001", fetch_of("0_1_1_0"))
    queue.insert("queue-0000000002", merge("0_0_1_1", "0_0_0_0", "0_1_1_0"))

    async def broken(*_arguments: object) -> PartFiles:
        raise NetworkError("it broke off")

    fetching.sources.fetch = broken  # type: ignore[method-assign]
    with pytest.raises(NetworkError):
        await execute(fetching.r1.state, fetching.r1.session, queue["queue-0000000000"])
    assert [each.new_part_name for each in queue] == ["0_0_1_1", "0_0_0_0", "0_1_1_0"]


async def test_one_part_is_never_downloaded_twice_at_once(fetching: Fetching) -> None:
    await fetching.source("r2", "0_0_0_0")
    queued = fetching.queued("0_0_0_0")
    running = fetching.r1.state.running
    host = Host("r2", 9009, 0, "default", "t")
    with (
        running.fetch(PartName.parse("0_0_0_0"), fetching.r1.state.znodes, host),
        pytest.raises(NotDone, match="already"),
    ):
        await execute(fetching.r1.state, fetching.r1.session, queued)
    assert fetching.sources.asked == []
    await execute(fetching.r1.state, fetching.r1.session, queued)
    assert len(fetching.sources.asked) == 1


async def test_of_two_that_would_take_the_same_covering_part_one_waits(fetching: Fetching) -> None:
    await fetching.source("r2", "0_0_1_1")
    state = fetching.r1.state
    first, second = fetching.queued("0_0_0_0"), fetching.queued("0_1_1_0")
    state.queue.insert("queue-0000000007", merge("0_0_1_1", "0_0_0_0", "0_1_1_0"))
    arrived = asyncio.Event()
    image = fetching.sources.image
    assert image is not None

    async def slowly(address: str, request: PartRequest, seconds: float) -> PartFiles:
        fetching.sources.asked.append((address, request, seconds))
        await arrived.wait()
        return image.files

    fetching.sources.fetch = slowly  # type: ignore[method-assign]
    running = asyncio.create_task(execute(state, fetching.r1.session, second))
    await asyncio.sleep(0.02)
    state.queue.finish_attempt(first)
    await state.note_progress()
    await eventually(lambda: len(fetching.sources.asked) == 1)
    state.queue.start(first, 0)
    with pytest.raises(NotDone):
        await execute(state, fetching.r1.session, first)
    arrived.set()
    await running
    assert [request.part_name for _, request, _ in fetching.sources.asked] == ["0_0_1_1"]


# --- what is there already -----------------------------------------------------------------------------------


async def test_a_part_that_is_here_and_registered_needs_no_fetch(fetching: Fetching) -> None:
    store = fetching.r1.state.store
    for name in ("0_0_2_2", "0_7_7_0"):
        part = await store.publish(
            await store.write_temporary("tmp_insert_", fetching.r1_image(2)), PartName.parse(name), 0
        )
        if name == "0_0_2_2":
            store.activate(part, 0)
        await fetching.r1.session.create(f"{ROOT}/replicas/r1/parts/{name}")
    fetching.r1.state.queue.initialize([])
    for wanted in ("0_1_1_0", "0_7_7_0"):  # covered; the own insert, not decided yet
        await fetching.get(wanted)
    assert fetching.sources.asked == []


async def test_a_part_that_is_here_but_not_registered_is_not_the_one(fetching: Fetching) -> None:
    store = fetching.r1.state.store
    await store.publish(
        await store.write_temporary("tmp_insert_", fetching.r1_image(2)), PartName.parse("0_0_0_0"), 0
    )
    await fetching.source("r2", "0_0_0_0")
    with pytest.raises(PartIsTemporarilyLocked):
        await fetching.get("0_0_0_0")
    assert fetching.sources.asked == []


async def test_an_outdated_part_of_that_name_is_to_be_deleted_first(fetching: Fetching) -> None:
    store = fetching.r1.state.store
    await fetching.source("r2", "0_0_0_0")
    temporary = await store.write_temporary("tmp_insert_", fetching.r1_image(2))
    part = await store.publish(temporary, PartName.parse("0_0_0_0"), 0)
    part.state = PartState.OUTDATED
    queued = fetching.queued("0_0_0_0")
    with pytest.raises(NotDone, match="outdated"):
        await execute(fetching.r1.state, fetching.r1.session, queued)
    assert fetching.sources.asked == []
    await store.delete(part)
    await execute(fetching.r1.state, fetching.r1.session, queued)
    assert len(fetching.sources.asked) == 1


# --- what comes is checked -----------------------------------------------------------------------------------


async def test_a_part_that_was_damaged_on_the_way_is_refused(fetching: Fetching) -> None:
    await fetching.source("r2", "0_0_0_0")
    image = fetching.r1_image(2)
    (name, content), *others = image.files.files
    fetching.sources.image = PartImage(PartFiles(((name, content[:-1] + b"?"), *others)), image.header)
    with pytest.raises(ClickHouseError):
        await fetching.get("0_0_0_0")
    assert fetching.nothing_there()
    assert await fetching.registered() == []


async def test_content_other_than_what_a_replica_has_registered_is_refused(fetching: Fetching) -> None:
    await fetching.source("r2", "0_0_0_0")
    fetching.sources.image = fetching.r1_image(4)
    with pytest.raises(ChecksumDoesntMatch):
        await fetching.get("0_0_0_0")
    assert fetching.nothing_there()
    assert await fetching.registered() == []


# --- how it is registered ------------------------------------------------------------------------------------


async def commit(fetching: Fetching, *keys: int) -> None:
    store = fetching.r1.state.store
    temporary = await store.write_temporary("tmp-fetch_", fetching.r1_image(*keys))
    await commit_part(fetching.r1.state, fetching.r1.session, temporary, PartName.parse("0_0_0_0"))


async def test_of_two_that_register_it_at_once_the_later_one_compares(fetching: Fetching) -> None:
    await fetching.source("r2")
    other = fetching.r1_image(4).header.to_bytes()
    fetching.r1.before("multi", lambda: fetching.r1.session.create(f"{ROOT}/replicas/r2/parts/0_0_0_0", other))
    with pytest.raises(ChecksumDoesntMatch):
        await commit(fetching, 2)
    assert fetching.nothing_there()


async def test_of_two_equal_ones_at_once_both_count(fetching: Fetching) -> None:
    await fetching.source("r2")
    same = fetching.r1_image(2).header.to_bytes()
    fetching.r1.before("multi", lambda: fetching.r1.session.create(f"{ROOT}/replicas/r2/parts/0_0_0_0", same))
    await commit(fetching, 2)
    assert await fetching.registered() == fetching.on_disk() == ["0_0_0_0"]


async def test_what_an_earlier_try_has_registered_needs_no_registration(fetching: Fetching) -> None:
    path = f"{ROOT}/replicas/r1/parts/0_0_0_0"
    await fetching.r1.session.create(path, fetching.r1_image(2).header.to_bytes())
    multis = fetching.r1.recorded_multis()
    await asyncio.wait_for(commit(fetching, 2), 1)
    assert multis == []
    assert [part.state for part in fetching.r1.state.store.parts()] == [PartState.ACTIVE]


async def test_it_counts_only_once_it_is_registered(fetching: Fetching) -> None:
    seen: list[PartState] = []

    async def look() -> None:
        seen.extend(part.state for part in fetching.r1.state.store.parts())

    fetching.r1.before("multi", look)
    await commit(fetching, 2)
    assert seen == [PartState.PRE_ACTIVE]


async def test_a_refused_registration_leaves_nothing(fetching: Fetching) -> None:
    fetching.r1.before("multi", lambda: fetching.r1.session.delete(f"{ROOT}/replicas/r1/parts"))
    with pytest.raises(Exception, match="no such znode"):
        await commit(fetching, 2)
    assert fetching.nothing_there()


async def test_a_name_that_is_taken_leaves_nothing_temporary(fetching: Fetching) -> None:
    await commit(fetching, 2)
    with pytest.raises(DuplicateDataPart):
        await commit(fetching, 2)
    assert fetching.on_disk() == ["0_0_0_0"]


@pytest.mark.parametrize("refused", [True, False])
async def test_a_cancelled_commit_ends_before_the_cancellation_does(fetching: Fetching, refused: bool) -> None:
    begun = asyncio.Event()

    async def slowly() -> None:
        begun.set()
        await asyncio.sleep(0.05)
        if refused:
            raise ChecksumDoesntMatch("refused")

    fetching.r1.before("multi", slowly)
    committing = asyncio.create_task(commit(fetching, 2))
    await begun.wait()
    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing
    if refused:
        assert fetching.nothing_there()
    else:
        assert [part.state for part in fetching.r1.state.store.parts()] == [PartState.ACTIVE]
        assert await fetching.registered() == ["0_0_0_0"]


async def test_a_fetch_whose_commit_got_no_answer_is_settled_by_the_next_session(fetching: Fetching) -> None:
    """Whether it is registered or not: nothing stays that is registered and not here, or here and not registered."""
    state = fetching.r1.state
    for part, is_applied in (("0_0_0_0", True), ("0_1_1_0", False)):
        await fetching.source(f"r{5 + is_applied}", part)
        multi = fetching.r1.session.multi

        async def unanswered(operations, multi=multi, is_applied=is_applied):  # type: ignore[no-untyped-def]
            if is_applied:
                await multi(operations)
            raise SessionLost("no answer")

        fetching.r1.session.multi = unanswered  # type: ignore[method-assign]
        with pytest.raises(SessionLost):
            await fetching.get(part)
        fetching.r1.session.multi = multi  # type: ignore[method-assign]
    assert [part.state for part in state.store.parts()] == [PartState.PRE_ACTIVE] * 2
    settling = asyncio.create_task(settle_uncertain_parts(state, fetching.r1.session))
    await eventually(lambda: list(state.uncertain_parts) == [])
    await eventually(lambda: fetching.on_disk() == ["0_0_0_0"])
    settling.cancel()
    assert [str(part.name) for part in state.store.active_parts()] == ["0_0_0_0"]


async def test_a_sender_sees_a_wrong_size_in_its_own_checksums(cluster: Cluster) -> None:
    """No header holds the sizes of columns: whoever fetched the part would refuse it again and again."""
    r1 = await cluster.start("r1")
    await cluster.create_table()
    outcome = await r1.insert()
    name = outcome.parts[0].part_name
    await r1.table().send_part(name)
    path = cluster.folder / "r1" / "data" / "default" / "t" / name / "checksums.txt"
    kind, size, rest = path.read_text().split("\n")[1].split(" ", 2)
    path.write_text(path.read_text().replace(f"{kind} {size} {rest}", f"{kind} {int(size) + 1} {rest}"))
    with pytest.raises(CorruptedData, match=r"checksums\.txt"):
        await r1.table().send_part(name)
    detached = cluster.folder / "r1" / "data" / "default" / "t" / "detached"
    await eventually(lambda: detached.exists() and [each.name for each in detached.iterdir()] == [f"broken_{name}"])
