"""Merges: assigned once for all replicas, executed or fetched, with one result everywhere."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

import replica.operations.merge_parts as operation
from coordinator.api import Create, Set
from replica.commands import OptimizeTable
from replica.errors import BadArguments, NoSuchColumnInTable, TableIsReadOnly, ThereIsNoColumn
from replica.log_entry import EntryType, LogEntry
from replica.log_puller import LogPuller
from replica.merge_assigner import MergeAssigner
from replica.part_name import PartName
from tests.replica.cluster import QUICK_CLEANUP, ROOT, Cluster, Replica, eventually, rows
from tests.replica.idle import fetch_of, idle_replica

# No merge by itself: only those that a test asks for.
QUIET = {
    "merge_selecting_sleep_ms": "3600000",
    "max_merge_selecting_sleep_ms": "3600000",
    "merge_selector_base": "1000",
}


async def filled(cluster: Cluster, *names: str, parts: int = 3, **settings: str) -> Replica:
    """Replicas with a table of one partition and so many parts of one row, on all of them."""
    for name in names:
        await cluster.start(name)
    await cluster.create_table(partition_by="", settings={**QUIET, **settings})
    first = cluster.replicas[names[0]]
    for key in range(parts):
        await first.insert(rows(parts - key))
    for replica in cluster.replicas.values():
        await eventually(lambda replica=replica: len(replica.table().state.store.active_parts()) == parts)
    await cluster.settled()
    return first


async def optimize(replica: Replica, **fields: Any) -> list[dict[str, Any]]:
    return await replica.server.execute(OptimizeTable("default", "t", **fields))


async def log_entries(cluster: Cluster) -> list[LogEntry]:
    session = await cluster.session()
    names = await session.children(f"{ROOT}/log")
    return [LogEntry.parse((await session.get(f"{ROOT}/log/{name}"))[0].decode()) for name in names]


async def test_optimize_final_makes_one_sorted_part_on_every_replica(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    assert await optimize(r1, final=True) == [{"partition_id": "all", "new_part": "all_0_2_1", "reason": ""}]
    r2 = cluster.replicas["r2"]
    await eventually(lambda: [str(part.name) for part in r2.table().state.store.active_parts()] == ["all_0_2_1"])
    for replica in (r1, r2):
        assert (await replica.server.scan("default", "t"))["k"].to_pylist() == [1, 2, 3]
    session = await cluster.session()
    headers = [(await session.get(f"{ROOT}/replicas/{name}/parts/all_0_2_1"))[0] for name in ("r1", "r2")]
    assert headers[0] == headers[1]


async def test_the_entry_is_written_with_a_check_of_the_logs_version(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1")
    session = await cluster.session()
    assert (await session.get(f"{ROOT}/log"))[1].version == 0
    await optimize(r1)
    assert (await session.get(f"{ROOT}/log"))[1].version == 1
    entry = (await log_entries(cluster))[-1]
    assert entry.type is EntryType.MERGE_PARTS
    assert [str(part) for part in entry.source_parts] == ["all_0_0_0", "all_1_1_0", "all_2_2_0"]
    assert (str(entry.new_part), entry.source_replica, entry.deduplicate) == ("all_0_2_1", "r1", False)


async def test_two_leaders_at_once_give_one_entry_and_one_retry(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    both_ready = asyncio.Barrier(2)
    refused = []
    for replica in (r1, r2):
        session = replica.server._share.sessions.current  # type: ignore[union-attr]
        assert session is not None
        multi = session.multi
        waited: list[bool] = []

        async def together(operations, multi=multi, waited=waited):  # type: ignore[no-untyped-def]
            assigns = any(isinstance(each, Set) and each.path == f"{ROOT}/log" for each in operations)
            if assigns and not waited:
                waited.append(True)
                await both_ready.wait()
            try:
                return await multi(operations)
            except Exception:
                if assigns:
                    refused.append(operations)
                raise

        session.multi = together  # type: ignore[method-assign]
    await asyncio.gather(optimize(r1, final=True), optimize(r2, final=True))
    merges = [entry for entry in await log_entries(cluster) if entry.type is EntryType.MERGE_PARTS]
    assert len(refused) == 1
    assert [str(entry.new_part) for entry in merges][:1] == ["all_0_2_1"]
    assert len([entry for entry in merges if str(entry.new_part) == "all_0_2_1"]) == 1


async def test_a_block_being_inserted_between_two_parts_keeps_them_apart(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", parts=1)
    session = await cluster.session()
    lock = await session.create(f"{ROOT}/block_numbers/all/block-", b"", ephemeral=True, sequential=True)
    await r1.insert(rows(7))
    (answer,) = await optimize(r1, final=True)
    assert answer["reason"] == "Block number 1 is still being inserted between parts all_0_0_0 and all_2_2_0"
    await session.delete(lock)
    assert (await optimize(r1, final=True))[0]["new_part"] == "all_0_2_1", "an abandoned number is only a gap"


async def test_a_part_that_this_replica_has_not_heard_of_keeps_its_neighbours_apart(cluster: Cluster) -> None:
    """Inserted elsewhere after the last pull: the predicate pulls before it decides."""
    r1 = await filled(cluster, "r1", "r2", parts=1)
    r2 = cluster.replicas["r2"]
    await r2.insert(rows(7))
    await r1.insert(rows(8))
    (answer,) = await optimize(r1, final=True)
    assert answer["new_part"] in ("all_0_2_1", "")
    assert all(
        str(entry.new_part) != "all_0_2_1" or len(entry.source_parts) == 3 for entry in await log_entries(cluster)
    )


async def test_a_replica_without_the_sources_fetches_the_merged_part(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    store = cluster.replicas["r2"].table().state.store
    for part in store.active_parts():
        await store.detach(part, "lost")
    await optimize(r1, final=True)
    await eventually(lambda: [str(part.name) for part in store.active_parts()] == ["all_0_2_1"])


async def test_always_fetch_merged_part_leaves_the_work_to_others(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    object.__setattr__(cluster.replicas["r2"].table().state.structure.settings, "always_fetch_merged_part", 1)
    jobs: list[str] = []
    workers = cluster.replicas["r2"].table().state.environment.workers
    run = workers.run

    async def noted(label, job):  # type: ignore[no-untyped-def]
        jobs.append(label)
        return await run(label, job)

    workers.run = noted  # type: ignore[method-assign]
    await optimize(r1, final=True)
    store = cluster.replicas["r2"].table().state.store
    await eventually(lambda: [str(part.name) for part in store.active_parts()] == ["all_0_2_1"])
    assert not any(label.startswith("merge") for label in jobs)


async def test_a_merge_with_other_content_than_registered_is_fetched_instead(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", "r2")
    r2 = cluster.replicas["r2"]
    store = r2.table().state.store
    spoiled = pa.table(rows(99), schema=r2.table().state.structure.schema.arrow_schema)
    read = operation.read_part
    names = iter([True])

    def once_wrong(files, codec):  # type: ignore[no-untyped-def]
        return spoiled if next(names, False) else read(files, codec)

    operation.read_part = once_wrong  # type: ignore[assignment]
    try:
        await optimize(r1, final=True)
        await eventually(lambda: [str(part.name) for part in store.active_parts()] == ["all_0_2_1"])
    finally:
        operation.read_part = read
    a, b = [await replica.server.scan("default", "t") for replica in (r1, r2)]
    assert a.equals(b)


async def test_deduplicate_by_columns(cluster: Cluster) -> None:
    await cluster.start("r1")
    await cluster.create_table(partition_by="", settings=QUIET)
    r1 = cluster.replicas["r1"]
    for value in ("a", "b"):
        await r1.insert(pa.table({"k": pa.array([1], pa.uint64()), "v": [value]}))
    await optimize(r1, final=True, deduplicate=True)
    assert await r1.count() == 2, "the rows differ"
    await optimize(r1, final=True, deduplicate=True, deduplicate_by=("k",))
    assert (await r1.server.scan("default", "t")).to_pylist() == [{"k": 1, "v": b"a"}]
    entry = (await log_entries(cluster))[-1]
    assert entry.deduplicate_by_columns == ("k",)
    with pytest.raises(NoSuchColumnInTable):
        await optimize(r1, deduplicate=True, deduplicate_by=("k", "w"))
    with pytest.raises(ThereIsNoColumn, match="k is missing"):
        await optimize(r1, deduplicate=True, deduplicate_by=("v",))


async def test_optimize_of_one_partition(cluster: Cluster) -> None:
    await cluster.start("r1")
    await cluster.create_table(settings=QUIET)
    r1 = cluster.replicas["r1"]
    for first in (0, 2):
        await r1.insert(rows(first, first + 1))
    assert await optimize(r1, partition="1", final=True) == [
        {"partition_id": "1", "new_part": "1_0_1_1", "reason": ""}
    ]
    assert await optimize(r1, partition_id="0") == [{"partition_id": "0", "new_part": "0_0_1_1", "reason": ""}]
    with pytest.raises(BadArguments):
        await optimize(r1, partition="(1, 2)")
    assert (await optimize(r1, partition="7"))[0]["reason"] == "There are no parts inside partition"
    assert (await optimize(r1, partition="0"))[0]["reason"] == "There is only one part inside partition"


async def test_a_partition_that_is_named_is_merged_whole(cluster: Cluster) -> None:
    """Without FINAL too, and beyond what a merge of its own accord takes. ClickHouse 18.16 and 26.9 do so."""
    await cluster.start("r1")
    await cluster.create_table(settings={**QUIET, "max_parts_to_merge_at_once": "2"})
    r1 = cluster.replicas["r1"]
    for key in (0, 2, 4):
        await r1.insert(rows(key))
    assert (await optimize(r1, partition="0"))[0]["new_part"] == "0_0_2_1"


async def test_final_answers_for_every_partition(cluster: Cluster) -> None:
    await cluster.start("r1")
    await cluster.create_table(settings=QUIET)
    r1 = cluster.replicas["r1"]
    await r1.insert(rows(0, 1))
    await r1.insert(rows(3))
    session = await cluster.session()
    await session.create(f"{ROOT}/block_numbers/1/block-", b"", ephemeral=True, sequential=True)
    await r1.insert(rows(5))
    answers = await optimize(r1, final=True)
    assert [(each["partition_id"], each["new_part"]) for each in answers] == [("0", "0_0_0_1"), ("1", "")]
    assert answers[1]["reason"].startswith("Block number 2 is still being inserted")


async def test_nothing_to_merge_is_said(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", parts=1)
    (answer,) = await optimize(r1)
    assert answer["new_part"] == ""
    assert answer["reason"]


async def test_optimize_of_a_read_only_table_is_refused(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1")
    cluster.delivery.loses = lambda label: label.startswith("r1")
    await eventually(lambda: r1.table().state.is_readonly)
    with pytest.raises(TableIsReadOnly):
        await optimize(r1)


async def test_merges_happen_by_themselves(cluster: Cluster) -> None:
    for name in ("r1", "r2"):
        await cluster.start(name)
    await cluster.create_table(partition_by="")
    r1 = cluster.replicas["r1"]
    for key in range(12):
        await r1.insert(rows(key))
    await eventually(lambda: len(r1.table().state.store.active_parts()) < 8)
    await cluster.settled()
    for replica in cluster.replicas.values():
        assert await replica.count() == 12


async def test_old_parts_leave_znodes_first_then_the_disk(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", old_parts_lifetime="0", **QUICK_CLEANUP)
    await optimize(r1, final=True)
    session = await cluster.session()
    store = r1.table().state.store
    seen: list[list[str]] = []
    delete = store.delete

    async def noted(part):  # type: ignore[no-untyped-def]
        seen.append(await session.children(f"{ROOT}/replicas/r1/parts"))
        assert str(part.name) not in seen[-1]
        await delete(part)

    store.delete = noted  # type: ignore[method-assign]
    folder = cluster.folder / "r1" / "data" / "default" / "t"
    await eventually(lambda: [path.name for path in folder.iterdir()] == ["all_0_2_1"])
    assert [str(part.name) for part in store.parts()] == ["all_0_2_1"]
    assert await session.children(f"{ROOT}/replicas/r1/parts") == ["all_0_2_1"]


async def test_outdated_parts_stay_for_their_lifetime(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1", **QUICK_CLEANUP)
    await optimize(r1, final=True)
    await asyncio.sleep(0.2)
    assert len(r1.table().state.store.parts()) == 4
    assert r1.table().state.store.get(PartName.parse("all_0_0_0")) is not None


async def test_a_merge_survives_a_restart_in_its_middle(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1")
    session = await cluster.session()
    entry = LogEntry(
        type=EntryType.MERGE_PARTS,
        create_time=1,
        source_replica="r1",
        source_parts=tuple(PartName.parse(f"all_{number}_{number}_0") for number in range(3)),
        new_part=PartName.parse("all_0_2_1"),
    )
    await cluster.stop("r1")
    await session.multi([Create(f"{ROOT}/log/log-", entry.to_text().encode(), sequential=True)])
    r1 = await cluster.start("r1")
    await cluster.writable()
    await eventually(lambda: [str(part.name) for part in r1.table().state.store.active_parts()] == ["all_0_2_1"])
    await cluster.settled()


async def test_a_merge_of_a_part_that_is_not_registered_is_not_assigned(cluster: Cluster) -> None:
    r1 = await filled(cluster, "r1")
    session = await cluster.session()
    await session.delete(f"{ROOT}/replicas/r1/parts/all_1_1_0")
    (answer,) = await optimize(r1, final=True)
    assert answer["reason"] == "a source part is not registered any more"
    assert not [entry for entry in await log_entries(cluster) if entry.type is EntryType.MERGE_PARTS]


async def test_an_old_large_merge_that_somebody_has_done_is_fetched(cluster: Cluster) -> None:
    r1 = await filled(
        cluster,
        "r1",
        "r2",
        prefer_fetch_merged_part_time_threshold="0",
        prefer_fetch_merged_part_size_threshold="0",
    )
    await cluster.stop("r2")
    await optimize(r1, final=True)
    r2 = await cluster.start("r2")
    await eventually(lambda: [str(part.name) for part in r2.table().state.store.active_parts()] == ["all_0_2_1"])
    assert await events_of(r1, "all_0_2_1") == ["MergePartsStart", "MergeParts"]
    assert await events_of(r2, "all_0_2_1") == ["DownloadPart"]


async def events_of(replica: Replica, part: str) -> list[str]:
    log = await replica.server.scan("system", "part_log")
    return [row["event_type"] for row in log.to_pylist() if row["part_name"] == part]


async def test_what_the_pull_brings_was_not_known_before_it(cluster: Cluster) -> None:
    """Of a part that was known before, no smaller block can be missed; of one that the pull brought, one may."""
    async with idle_replica(cluster, "r1") as r1:
        known, brought = PartName.parse("0_0_0_0"), PartName.parse("0_1_1_0")
        r1.state.queue.initialize([known])
        entry = fetch_of(str(brought)).to_text().encode()
        await r1.session.create(f"{ROOT}/log/log-", entry, sequential=True)
        assigner = MergeAssigner(r1.state, r1.session, LogPuller(r1.state, r1.session))
        predicate, _ = await assigner._keeper_predicate(["0"])
        assert brought in predicate.virtual_parts
        assert (
            predicate.why_not_part(brought)
            == f"Part {brought} does not contain in snapshot of previous virtual parts"
        )
