"""The life of an insert: what it writes, what it costs, and how it ends when something goes wrong."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from coordinator.api import Create
from replica.commands import DeduplicateInsert, InsertOptions, InsertStatus
from replica.errors import ClickHouseError, NoSuchColumnInTable, TooManyParts
from replica.log_entry import EntryType, LogEntry
from tests.replica.cluster import IMPATIENT, ROOT, Cluster, Replica, eventually, rows
from tests.replica.zookeeper_cluster import ANYWHERE, LOCAL


@pytest.fixture(params=ANYWHERE)
def service(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def one_replica(cluster: Cluster, **changes: object) -> Replica:
    replica = await cluster.start("r1")
    await cluster.create_table(**changes)
    return replica


async def test_a_stored_block_stands_in_log_parts_and_deduplication_hashes(cluster: Cluster) -> None:
    r1 = await one_replica(cluster)
    outcome = await r1.insert(rows(1, 2, 3))
    assert [(part.partition_id, part.rows, part.part_name) for part in outcome.parts] == [
        ("1", 2, "1_0_0_0"),
        ("0", 1, "0_0_0_0"),
    ]
    session = await cluster.session()
    for part, log_name in zip(outcome.parts, ("log-0000000000", "log-0000000001"), strict=True):
        entry = LogEntry.parse((await session.get(f"{ROOT}/log/{log_name}"))[0].decode())
        assert (entry.type, str(entry.new_part), entry.source_replica) == (EntryType.GET_PART, part.part_name, "r1")
        assert entry.block_id == part.block_id
        assert (await session.get(f"{ROOT}/deduplication_hashes/{part.block_id}"))[0].decode() == part.part_name
        assert (await session.get(f"{ROOT}/replicas/r1/parts/{part.part_name}"))[0].startswith(b"part header format")
        assert await session.children(f"{ROOT}/block_numbers/{part.partition_id}") == []
    # An insert never touches the version of the log, on which merges rely.
    assert (await session.get(f"{ROOT}/log"))[1].version == 0


async def test_the_block_id_is_clickhouses_own(cluster: Cluster) -> None:
    r1 = await one_replica(cluster)
    block = pa.table({"k": pa.array([1, 2, 3], pa.uint64()), "v": ["a", "b", "c"]})
    outcome = await r1.insert(block)
    assert [part.block_id for part in outcome.parts] == [
        "1_15791250770269468890_3957261080685031764",
        "0_15791250770269468890_3957261080685031764",
    ]


async def test_a_part_costs_two_round_trips(cluster: Cluster) -> None:
    r1 = await one_replica(cluster)
    await r1.insert(rows(2))
    await cluster.settled()
    await asyncio.sleep(0.1)
    session = r1.server._share.sessions.current  # type: ignore[union-attr]
    assert session is not None
    state = r1.table().state
    state.queue_changed = asyncio.Event()  # the queue's own round trips are not the insert's
    requests: list[str] = []
    multi = session.multi

    async def counted(operations):  # type: ignore[no-untyped-def]
        if not any(isinstance(each, Create) and "/queue/queue-" in each.path for each in operations):
            requests.append(" ".join(type(each).__name__ for each in operations))
        return await multi(operations)

    session.multi = counted  # type: ignore[method-assign]
    before = session.round_trips.copy()
    outcome = await r1.insert(rows(4))
    assert outcome.status is InsertStatus.STORED
    assert requests == ["CheckNotExists Create", "Create Delete Create Create Check"]
    assert (session.round_trips - before)["exists"] == 0


async def test_the_lock_says_that_an_insert_holds_it_so_that_a_drop_may_cancel_it(cluster: Cluster) -> None:
    r1 = await one_replica(cluster)
    seen: list[bytes] = []
    session = await cluster.session()
    state = r1.table().state
    publish = state.store.publish

    async def look(*arguments):  # type: ignore[no-untyped-def]
        (lock,) = await session.children(f"{ROOT}/block_numbers/0")
        value, stat = await session.get(f"{ROOT}/block_numbers/0/{lock}")
        assert stat.ephemeral_owner != 0
        seen.append(value)
        return await publish(*arguments)

    state.store.publish = look  # type: ignore[method-assign]
    await r1.insert(rows(2))
    await r1.insert(rows(4), deduplicate_insert=DeduplicateInsert.DISABLE)
    assert seen == [f"{ROOT}/temp/abandonable_lock-insert".encode()] * 2


async def test_a_repeated_block_is_a_duplicate_of_its_part(cluster: Cluster) -> None:
    r1 = await one_replica(cluster)
    first = await r1.insert(rows(1, 2))
    again = await r1.insert(rows(1, 2))
    assert again.status is InsertStatus.DUPLICATE
    assert [part.part_name for part in again.parts] == [part.part_name for part in first.parts]
    assert await r1.count() == 2
    assert [part.part_name for part in (await r1.insert(rows(4))).parts] == ["0_1_1_0"], "a duplicate takes no number"


async def test_deduplication_is_off_when_asked(cluster: Cluster) -> None:
    r1 = await one_replica(cluster)
    for _ in range(2):
        assert (await r1.insert(rows(1), deduplicate_insert=DeduplicateInsert.DISABLE)).status is InsertStatus.STORED
    session = await cluster.session()
    assert await session.children(f"{ROOT}/deduplication_hashes") == []


async def test_deduplication_is_off_with_a_window_of_zero(cluster: Cluster) -> None:
    r1 = await one_replica(cluster, settings={"replicated_deduplication_window": "0"})
    for _ in range(2):
        assert (await r1.insert(rows(1))).status is InsertStatus.STORED


async def test_a_token_decides_instead_of_the_data(cluster: Cluster) -> None:
    r1 = await one_replica(cluster)
    assert (await r1.insert(rows(2), insert_deduplication_token="a")).status is InsertStatus.STORED
    assert (await r1.insert(rows(4), insert_deduplication_token="a")).status is InsertStatus.DUPLICATE
    assert (await r1.insert(rows(2), insert_deduplication_token="b")).status is InsertStatus.STORED


async def test_of_two_equal_inserts_on_two_replicas_one_is_stored(cluster: Cluster) -> None:
    for name in ("r1", "r2"):
        await cluster.start(name)
    await cluster.create_table()
    r1, r2 = cluster.replicas["r1"], cluster.replicas["r2"]
    await r1.insert(rows(2))  # the partition is there, so that both take their number at once
    ready = asyncio.Barrier(2)
    for replica in (r1, r2):
        store = replica.table().state.store
        publish = store.publish

        async def both_have_a_number(*arguments, publish=publish):  # type: ignore[no-untyped-def]
            await ready.wait()
            return await publish(*arguments)

        store.publish = both_have_a_number  # type: ignore[method-assign]
    outcomes = await asyncio.gather(r1.insert(rows(4)), r2.insert(rows(4)))
    assert sorted(outcome.status for outcome in outcomes) == [InsertStatus.DUPLICATE, InsertStatus.STORED]
    assert outcomes[0].parts[0].part_name == outcomes[1].parts[0].part_name
    session = await cluster.session()
    assert await session.children(f"{ROOT}/block_numbers/0") == [], "the loser frees its lock"
    await cluster.settled()
    assert await r1.count() == await r2.count() == 2
    for name in ("r1", "r2"):
        folder = cluster.folder / name / "data" / "default" / "t"
        assert [path.name for path in folder.iterdir() if path.name.startswith("tmp")] == []


async def test_a_block_that_does_not_fit_is_refused_whole(cluster: Cluster) -> None:
    r1 = await one_replica(cluster)
    with pytest.raises(ClickHouseError, match=r"Row 2.*'k'"):
        await r1.insert(pa.table({"k": pa.array([1, -1]), "v": ["a", "b"]}))
    with pytest.raises(NoSuchColumnInTable):
        await r1.insert(pa.table({"k": [1], "w": ["a"]}))
    assert await r1.count() == 0


async def test_columns_left_out_get_their_defaults(cluster: Cluster) -> None:
    r1 = await one_replica(cluster)
    await r1.insert(pa.table({"k": [7]}))
    table = await r1.server.scan("default", "t")
    assert table.to_pylist() == [{"k": 7, "v": b""}]


async def test_an_empty_block_makes_nothing(cluster: Cluster) -> None:
    r1 = await one_replica(cluster)
    outcome = await r1.server.insert("default", "t", InsertOptions(), 0, rows())
    assert outcome.parts == ()


# --- when the session dies ----------------------------------------------------------------------------------


@LOCAL
async def test_an_insert_whose_commit_was_applied_but_not_answered_is_stored_once(cluster: Cluster) -> None:
    r1 = await one_replica(cluster)
    await r1.insert(rows(2))
    lost: list[str] = []
    commit: list[str] = []

    def reply_to_the_commit(label: str) -> bool:
        _, _, kind, number, *what = [*label.split(), "", ""][:6]
        if label.startswith("r1") and what[-1].startswith("Create,Delete,Create,Create"):
            commit.append(number)
        hit = not lost and kind == "reply" and number in commit
        if hit:
            lost.append(label)
        return hit

    cluster.delivery.loses = reply_to_the_commit
    outcome = await r1.insert(rows(4))
    assert lost, "the reply to the commit was to be lost"
    assert outcome.status is InsertStatus.STORED
    assert [part.part_name for part in outcome.parts] == ["0_1_1_0"]
    assert await r1.count() == 2


@LOCAL
async def test_an_insert_whose_commit_was_lost_on_the_way_takes_a_new_number(cluster: Cluster) -> None:
    r1 = await one_replica(cluster)
    await r1.insert(rows(2))
    lost = []

    def commit_request(label: str) -> bool:
        hit = not lost and label.startswith("r1") and "Multi Create,Delete,Create,Create" in label
        if hit:
            lost.append(label)
        return hit

    cluster.delivery.loses = commit_request
    outcome = await r1.insert(rows(4))
    assert lost
    assert outcome.status is InsertStatus.STORED
    assert [part.part_name for part in outcome.parts] == ["0_2_2_0"], "number 1 stays a gap"
    assert await r1.count() == 2


@LOCAL
async def test_an_insert_that_never_learns_its_fate_says_unknown_and_is_settled_later(cluster: Cluster) -> None:
    cluster.settings = IMPATIENT
    r1 = await one_replica(cluster)
    await r1.insert(rows(2))
    cut = [False]

    def nothing_after_the_commit(label: str) -> bool:
        if label.startswith("r1") and "Multi Create,Delete,Create,Create" in label:
            cut[0] = True
            return False
        return cut[0] and label.startswith("r1")

    cluster.delivery.loses = nothing_after_the_commit
    outcome = await r1.insert(rows(4))
    assert outcome.status is InsertStatus.UNKNOWN
    assert await r1.count() == 1, "what is not known to be committed is not shown"
    cluster.delivery.loses = lambda label: False
    await cluster.writable()
    await eventually(lambda: len(r1.table().state.store.active_parts()) == 2)
    assert (await r1.insert(rows(4))).status is InsertStatus.DUPLICATE


@LOCAL
async def test_an_insert_into_a_read_only_table_waits_then_says_not_stored(cluster: Cluster) -> None:
    cluster.settings = IMPATIENT
    r1 = await one_replica(cluster)
    cluster.delivery.loses = lambda label: label.startswith("r1")
    await eventually(lambda: r1.table().state.is_readonly)
    outcome = await r1.insert(rows(4))
    assert outcome.status is InsertStatus.NOT_STORED
    assert "read-only" in outcome.parts[0].error
    cluster.delivery.loses = lambda label: False
    await cluster.writable()
    assert (await r1.insert(rows(4))).status is InsertStatus.STORED


async def test_too_many_parts_are_refused_at_the_beginning_of_an_insert(cluster: Cluster) -> None:
    settings = {"parts_to_throw_insert": "3", "max_bytes_to_merge_at_max_space_in_pool": "1"}
    r1 = await one_replica(cluster, settings=settings)
    for key in (1, 3, 5):
        assert (await r1.insert(rows(key))).status is InsertStatus.STORED
    with pytest.raises(TooManyParts, match="3 in partition 1"):
        await r1.insert(rows(7))
    begun = await r1.server.insert("default", "t", InsertOptions(), 1, rows(7))
    assert begun.status is InsertStatus.STORED, "later blocks of an INSERT go on"
