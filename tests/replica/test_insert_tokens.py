"""Blocks that several inserts have put together: what is known already costs its rows, and the rest is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coordinator.api import CheckNotExists
from replica.commands import BlockOutcome, DeduplicateInsert, InsertOptions, InsertStatus, PartOutcome
from replica.dedup.info import DeduplicationInfo
from replica.dedup.tokens import SourceToken
from replica.expression import complete
from replica.insert.commit import PartCommit
from replica.insert.piece import Recipe, pieces_of
from replica.insert.sink import insert_tokens
from replica.log_entry import LogEntry
from replica.profile_events import ProfileEvent
from tests.replica.cluster import ROOT, Cluster, eventually, rows
from tests.replica.idle import IdleReplica, activate, idle_replica, system_rows

IDS = f"{ROOT}/deduplication_hashes"


@dataclass
class Inserting:
    replica: IdleReplica
    folder: Path

    async def insert(self, *parts: tuple[str, list[int]], is_async: bool = True, **options: Any) -> BlockOutcome:
        """Rows with their tokens, "" for none."""
        tokens = [SourceToken(len(keys), token) for token, keys in parts]
        block = rows(*[key for _, keys in parts for key in keys])
        return await insert_tokens(self.replica.state, InsertOptions(**options), tokens, block, is_async=is_async)

    async def one(self, *parts: tuple[str, list[int]], is_async: bool = True) -> PartOutcome:
        (outcome,) = (await self.insert(*parts, is_async=is_async)).parts
        return outcome

    async def keys(self) -> list[int]:
        return sorted((await self.replica.table.scan(["k"])).column("k").to_pylist())

    async def ids(self) -> list[str]:
        return await self.replica.session.children(IDS)

    def on_disk(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir()) if self.folder.exists() else []


@pytest.fixture
async def inserting(cluster: Cluster) -> AsyncIterator[Inserting]:
    async with idle_replica(cluster, "r1") as replica:
        activate(replica.state, replica.session)
        yield Inserting(replica, cluster.folder / "r1" / "data" / "default" / "t")


async def test_a_block_of_several_tokens_makes_one_part_with_an_id_each(inserting: Inserting) -> None:
    outcome = await inserting.one(("a", [2]), ("b", [4, 6]), ("", [8]))
    assert (outcome.status, outcome.rows, outcome.removed_rows) == (InsertStatus.STORED, 4, 0)
    assert sorted(outcome.block_id.split(",")) == await inserting.ids()
    for name in await inserting.ids():
        assert (await inserting.replica.session.get(f"{IDS}/{name}"))[0] == b"0_0_0_0"
    entry = LogEntry.parse((await inserting.replica.session.get(f"{ROOT}/log/log-0000000000"))[0].decode())
    assert entry.block_id == "", "only a synchronous insert writes its ids into the log"


async def test_only_the_conflicting_tokens_rows_are_removed(inserting: Inserting) -> None:
    first = await inserting.one(("a", [2]), ("b", [4, 6]))
    second = await inserting.one(("b", [4, 6]), ("c", [8]), ("d", [10]))
    assert (second.status, second.part_name) == (InsertStatus.STORED, "0_1_1_0")
    assert (second.rows, second.removed_rows, second.rewrites) == (4, 2, 1)
    assert second.duplicate_of == first.part_name
    stat = await inserting.replica.session.exists(f"{IDS}/{first.block_id.split(',')[1]}")
    assert stat is not None
    assert second.duplicate_since == stat.ctime / 1000
    assert await inserting.keys() == [2, 4, 6, 8, 10]
    assert len(await inserting.ids()) == 4
    assert inserting.on_disk() == ["0_0_0_0", "0_1_1_0"], "the part that was written first is gone"


@pytest.mark.parametrize("is_async", [False, True])
async def test_all_conflicts_cost_one_rewrite(inserting: Inserting, is_async: bool) -> None:
    for number, token in enumerate("abc"):
        await inserting.one((token, [2 * number]))
    sent = inserting.replica.recorded_multis()
    outcome = await inserting.one(("a", [0]), ("b", [2]), ("x", [10]), ("c", [4]), is_async=is_async)
    assert (outcome.removed_rows, outcome.rewrites, outcome.duplicate_of) == (3, 1, "0_0_0_0, 0_1_1_0, 0_2_2_0")
    assert await inserting.keys() == [0, 2, 4, 10]
    allocations = [each for each in sent if isinstance(each[0], CheckNotExists)]
    assert len(allocations) == (1 if is_async else 2), "who asks first needs no attempt that fails"


async def test_wholly_duplicate_names_every_part_and_since_when(inserting: Inserting) -> None:
    await inserting.one(("a", [2]))
    await inserting.one(("b", [4]))
    outcome = await inserting.one(("a", [2]), ("b", [4]))
    assert (outcome.status, outcome.part_name, outcome.removed_rows) == (
        InsertStatus.DUPLICATE,
        "0_0_0_0, 0_1_1_0",
        2,
    )
    assert outcome.duplicate_since > 0
    assert inserting.on_disk() == ["0_0_0_0", "0_1_1_0"]
    log = await system_rows(inserting.replica, "part_log")
    assert [row["error"] for row in log] == [0, 0, 389]


async def test_a_conflict_that_appears_at_the_commit_is_resolved_the_same_way(inserting: Inserting) -> None:
    first = await inserting.one(("a", [2]))
    session = inserting.replica.session
    value, _ = await session.get(f"{IDS}/{first.block_id}")
    await session.delete(f"{IDS}/{first.block_id}")
    inserting.replica.before("multi_checked", lambda: session.create(f"{IDS}/{first.block_id}", value))
    outcome = await inserting.one(("a", [2]), ("b", [4]))
    assert (outcome.status, outcome.part_name) == (InsertStatus.STORED, "0_2_2_0"), "number 1 is given back"
    assert (outcome.removed_rows, outcome.rewrites) == (1, 1)
    assert await inserting.keys() == [2, 4]
    assert await session.children(f"{ROOT}/block_numbers/0") == []


async def test_the_same_token_twice_in_one_block_keeps_the_first(inserting: Inserting) -> None:
    outcome = await inserting.one(("a", [2]), ("b", [4]), ("a", [6]))
    assert (outcome.status, outcome.rows, outcome.removed_rows, outcome.rewrites) == (InsertStatus.STORED, 3, 1, 0)
    assert await inserting.keys() == [2, 4]
    assert len(await inserting.ids()) == 2


async def test_the_same_rows_twice_in_one_block_keep_the_first(inserting: Inserting) -> None:
    outcome = await inserting.one(("", [2, 4]), ("", [2, 4]), ("", [4, 2]))
    assert (outcome.rows, outcome.removed_rows) == (6, 2)
    assert await inserting.keys() == [2, 2, 4, 4]


async def test_of_a_synchronous_insert_equal_tokens_of_other_blocks_are_no_repetition(inserting: Inserting) -> None:
    tokens = [SourceToken(1, "a", 0), SourceToken(1, "a", 1)]
    outcome = await insert_tokens(inserting.replica.state, InsertOptions(), tokens, rows(2, 4))
    assert outcome.parts[0].removed_rows == 0


async def test_a_token_counts_only_in_the_partitions_where_it_has_rows(inserting: Inserting) -> None:
    outcome = await inserting.insert(("a", [1, 2]), ("b", [3]), ("c", [4]))
    ids = {part.partition_id: part.block_id.split(",") for part in outcome.parts}
    assert {partition: len(names) for partition, names in ids.items()} == {"1": 2, "0": 2}
    again = await inserting.insert(("b", [3, 8]))
    assert {part.partition_id: part.status for part in again.parts} == {
        "1": InsertStatus.DUPLICATE,
        "0": InsertStatus.STORED,
    }


async def test_data_are_hashed_once_a_token_however_many_partitions(inserting: Inserting) -> None:
    events = inserting.replica.state.server.events
    outcome = await inserting.insert(("", [1, 2]), ("", [3, 4]), ("t", [5, 6]))
    assert outcome.data_hash_computations == events[ProfileEvent.DUPLICATION_DATA_HASH_COMPUTATIONS] == 2
    await inserting.insert(("t", [5, 6]), ("", [7, 8]))
    assert events[ProfileEvent.DUPLICATION_DATA_HASH_COMPUTATIONS] == 3
    assert events[ProfileEvent.DUPLICATED_INSERTED_BLOCKS] == 2, "t, in two partitions"
    listed = {row["event"]: row["value"] for row in await system_rows(inserting.replica, "events")}
    assert listed == {"DuplicationDataHashComputations": 3, "DuplicatedInsertedBlocks": 2}


async def test_nothing_is_hashed_and_nothing_removed_when_deduplication_is_off(inserting: Inserting) -> None:
    outcome = await inserting.insert(("", [2]), ("", [2]), deduplicate_insert=DeduplicateInsert.DISABLE)
    assert outcome.data_hash_computations == 0
    assert outcome.deduplication == "off: deduplicate_insert = disable"
    assert await inserting.keys() == [2, 2]
    assert await inserting.ids() == []


# --- blocks that went through views ---------------------------------------------------------------------------


def halved(block: pa.Table) -> pa.Table:
    """A view that changes the number of rows."""
    return block.slice(0, (block.num_rows + 1) // 2)


async def commit(replica: IdleReplica, info: DeduplicationInfo, recipe: Recipe) -> PartOutcome:
    (piece,) = pieces_of(recipe, info, deduplicated=True)
    temporary = await replica.state.store.write_temporary("tmp_insert_", piece.image)
    return await PartCommit(replica.state, piece, temporary).run()


def viewed(replica: IdleReplica, *parts: tuple[str, list[int]]) -> tuple[DeduplicationInfo, Recipe]:
    structure = replica.state.structure
    block = rows(*[key for _, keys in parts for key in keys]).cast(structure.schema.arrow_schema)
    tokens = [SourceToken(len(keys), token) for token, keys in parts]
    info = DeduplicationInfo(block, structure.schema, tokens, is_async=True)
    derive = lambda block: complete(halved(block), structure.schema)  # noqa: E731
    return info, Recipe(structure, replica.environment.codec, derive, row_by_row=False)


async def test_behind_a_view_the_rest_is_derived_anew(inserting: Inserting) -> None:
    info, recipe = viewed(inserting.replica, ("a", [2, 4]))
    await commit(inserting.replica, info, recipe)
    info, recipe = viewed(inserting.replica, ("a", [2, 4]), ("b", [6, 8]))
    outcome = await commit(inserting.replica, info, recipe)
    assert (outcome.status, outcome.rewrites) == (InsertStatus.STORED, 1)
    assert await inserting.keys() == [2, 6]


async def test_a_partial_conflict_of_a_reanchored_block_is_refused_loudly(inserting: Inserting) -> None:
    await inserting.one(("a", [2, 4]))
    info, recipe = viewed(inserting.replica, ("a", [2, 4]), ("b", [6, 8]))
    outcome = await commit(inserting.replica, info.reanchored(halved(info.block)), recipe)
    assert outcome.status is InsertStatus.NOT_STORED
    assert "Only the whole insert can be deduplicated" in outcome.error
    assert await inserting.keys() == [2, 4]
    assert inserting.on_disk() == ["0_0_0_0"]


async def test_a_whole_conflict_of_a_reanchored_block_is_a_duplicate(inserting: Inserting) -> None:
    await inserting.one(("a", [2, 4]), ("b", [6, 8]))
    info, recipe = viewed(inserting.replica, ("a", [2, 4]), ("b", [6, 8]))
    outcome = await commit(inserting.replica, info.reanchored(halved(info.block)), recipe)
    assert outcome.status is InsertStatus.DUPLICATE


# --- what was seen lately --------------------------------------------------------------------------------------


async def test_a_hint_spares_the_attempts_that_must_fail(inserting: Inserting) -> None:
    await inserting.one(("a", [2]))
    sent = inserting.replica.recorded_multis()
    outcome = await inserting.one(("a", [2]))
    assert outcome.status is InsertStatus.DUPLICATE
    assert sent == [], "one look is enough"


async def test_a_hint_whose_id_is_gone_decides_nothing(inserting: Inserting) -> None:
    first = await inserting.one(("a", [2]))
    await inserting.replica.session.delete(f"{IDS}/{first.block_id}")
    assert (await inserting.one(("a", [2]))).status is InsertStatus.STORED


async def test_without_any_hint_the_coordination_service_decides_alone(inserting: Inserting) -> None:
    first = await inserting.one(("a", [2]))
    inserting.replica.state.recent_ids.missed(f"{IDS}/{first.block_id}")
    assert (await inserting.one(("a", [2]))).status is InsertStatus.DUPLICATE


# --- cancelled --------------------------------------------------------------------------------------------------


async def test_who_is_cancelled_while_it_commits_leaves_nothing_half_done(inserting: Inserting) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        reached.set()
        await go_on.wait()

    inserting.replica.before("multi_checked", hold)
    task = asyncio.create_task(inserting.one(("a", [2])))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    again = asyncio.create_task(inserting.one(("a", [2])))
    go_on.set()
    assert (await again).status in (InsertStatus.DUPLICATE, InsertStatus.STORED)
    assert await inserting.keys() == [2]
    assert [name for name in inserting.on_disk() if name.startswith("tmp")] == []


# --- on two replicas at once ------------------------------------------------------------------------------------


async def test_of_blocks_that_share_a_token_each_row_is_stored_once(cluster: Cluster) -> None:
    for name in ("r1", "r2"):
        await cluster.start(name)
    await cluster.create_table()
    await cluster.replicas["r1"].insert(rows(100))  # the partition is there, so that both take their number at once
    ready = asyncio.Barrier(2)

    async def insert(name: str, *parts: tuple[str, int]) -> PartOutcome:
        state = cluster.replicas[name].table().state
        publish = state.store.publish

        async def both_have_a_number(*arguments: Any) -> Any:
            state.store.publish = publish  # type: ignore[method-assign]
            await ready.wait()
            return await publish(*arguments)

        state.store.publish = both_have_a_number  # type: ignore[method-assign]
        tokens = [SourceToken(1, token) for token, _ in parts]
        block = rows(*[key for _, key in parts])
        (part,) = (await insert_tokens(state, InsertOptions(), tokens, block, is_async=True)).parts
        return part

    outcomes = await asyncio.gather(insert("r1", ("a", 2), ("b", 4)), insert("r2", ("b", 4), ("c", 6)))
    assert [outcome.status for outcome in outcomes] == [InsertStatus.STORED] * 2
    assert sorted(outcome.removed_rows for outcome in outcomes) == [0, 1]
    (loser,) = (outcome for outcome in outcomes if outcome.removed_rows)
    (winner,) = (outcome for outcome in outcomes if not outcome.removed_rows)
    assert loser.duplicate_of == winner.part_name
    for name in ("r1", "r2"):
        store = cluster.replicas[name].table().state.store
        await eventually(lambda store=store: sum(part.rows for part in store.active_parts()) == 4)
        keys = (await cluster.replicas[name].server.scan("default", "t")).column("k").to_pylist()
        assert sorted(keys) == [2, 4, 6, 100]
    session = await cluster.session()
    assert await session.children(f"{ROOT}/block_numbers/0") == []
