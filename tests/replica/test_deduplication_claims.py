"""What is said of the insert path and its deduplication, sentence by sentence: each is true here.

Where a sentence says it less exactly than it is, docs/differences.md ("The descriptions") has it, and a test beside.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coordinator.api import CheckNotExists, Create, Delete, MultiFailed, NodeExists
from replica.background.deduplication_window import DeduplicationWindows
from replica.commands import BlockOutcome, DeduplicateInsert, InsertOptions, InsertStatus
from replica.dedup.tokens import SourceToken
from replica.insert import block_number
from replica.insert.block_number import LAST_BLOCK_NUMBER, BlockNumberLock, BlockNumbers
from replica.insert.sink import insert_block, insert_tokens
from replica.log_entry import LogEntry
from replica.part_name import PartName
from replica.profile_events import ProfileEvent
from tests.replica.cluster import ROOT, Cluster, rows
from tests.replica.idle import IdleReplica, activate, idle_replica, system_rows

IDS = f"{ROOT}/deduplication_hashes"
STORED, DUPLICATE = InsertStatus.STORED, InsertStatus.DUPLICATE


@dataclass
class Table:
    """The one replica of a table partitioned by `k % 2`, in which nothing runs by itself."""

    replica: IdleReplica
    folder: Path

    async def insert(
        self, *keys: int, number: int = 0, block: pa.Table | None = None, **options: Any
    ) -> BlockOutcome:
        rows_ = rows(*keys) if block is None else block
        return await insert_block(self.replica.state, InsertOptions(**options), number, rows_)

    async def together(self, *parts: tuple[str, list[int]]) -> BlockOutcome:
        """One block of several asynchronous inserts, each with its token or none."""
        tokens = [SourceToken(len(keys), token) for token, keys in parts]
        block = rows(*[key for _, keys in parts for key in keys])
        return await insert_tokens(self.replica.state, InsertOptions(), tokens, block, is_async=True)

    async def keys(self) -> list[int]:
        return sorted((await self.replica.table.scan(["k"])).column("k").to_pylist())

    async def ids(self) -> list[str]:
        return await self.replica.session.children(IDS)

    def count(self, event: ProfileEvent) -> int:
        return self.replica.state.server.events[event]


@pytest.fixture
async def table(cluster: Cluster) -> AsyncIterator[Table]:
    async with idle_replica(cluster, "r1") as replica:
        activate(replica.state, replica.session)
        yield Table(replica, cluster.folder / "r1" / "data" / "default" / "t")


# --- the block number -----------------------------------------------------------------------------------------


async def test_the_duplicate_check_and_the_lock_creation_are_performed_in_a_single_multi(table: Table) -> None:
    await table.insert(2)
    sent = table.replica.recorded_multis()
    outcome = await table.insert(4)
    allocation, _ = sent
    assert [type(each) for each in allocation] == [CheckNotExists, Create]
    check, create = allocation
    assert check.path == f"{IDS}/{outcome.parts[0].block_id}"
    assert isinstance(create, Create)
    assert (create.path, create.ephemeral, create.sequential) == (f"{ROOT}/block_numbers/0/block-", True, True)


async def test_every_insert_is_one_round_trip_plus_one_more(table: Table) -> None:
    await table.insert(2)
    trips = table.replica.session.round_trips
    before = trips.copy()
    await table.insert(4)
    assert trips - before == {"multi": 2}


async def test_the_sequential_create_appends_a_ten_digit_counter_which_is_the_block_number(table: Table) -> None:
    lock = await BlockNumbers(table.replica.state.znodes).allocate(table.replica.session, "0", [])
    assert isinstance(lock, BlockNumberLock)
    assert (lock.path, lock.number) == (f"{ROOT}/block_numbers/0/block-0000000000", 0)


async def test_if_the_session_dies_the_number_is_released_but_never_reused(table: Table) -> None:
    session = await table.replica.later_session()
    numbers = BlockNumbers(table.replica.state.znodes)
    lock = await numbers.allocate(session, "0", [])
    assert isinstance(lock, BlockNumberLock)
    await session.close()
    assert await table.replica.session.children(f"{ROOT}/block_numbers/0") == []
    again = await numbers.allocate(table.replica.session, "0", [])
    assert isinstance(again, BlockNumberLock)
    assert again.number == lock.number + 1


async def test_the_lock_is_deleted_as_part_of_the_commit_multi(table: Table) -> None:
    sent = table.replica.recorded_multis()
    await table.insert(2)
    log_entry, unlock, *_ = sent[-1]
    assert isinstance(log_entry, Create)
    assert log_entry.path == f"{ROOT}/log/log-"
    assert unlock == Delete(f"{ROOT}/block_numbers/0/block-0000000000")
    assert await table.replica.session.children(f"{ROOT}/block_numbers/0") == []


async def test_the_part_is_named_after_its_block_number(table: Table) -> None:
    await table.insert(2)
    (part,) = (await table.insert(4)).parts
    name = PartName.parse(part.part_name)
    assert (name.partition_id, name.min_block, name.max_block, name.level) == ("0", 1, 1, 0)


async def test_numbers_are_counted_in_each_partition(table: Table) -> None:
    await table.insert(2)
    assert [part.part_name for part in (await table.insert(4, 1)).parts] == ["0_1_1_0", "1_0_0_0"]


async def test_a_high_block_number_is_warned_of(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await table.insert(2)).parts[0].warning == ""
    monkeypatch.setattr(block_number, "HIGH_BLOCK_NUMBER", 1)
    (part,) = (await table.insert(4)).parts
    assert part.status is STORED
    assert f"block number 1 is near the last one, {LAST_BLOCK_NUMBER}" in part.warning


async def test_the_highest_number_that_was_taken_is_a_metric(table: Table) -> None:
    for key in (2, 4, 1, 6):
        await table.insert(key)
    (metric,) = await system_rows(table.replica, "metrics")
    assert (metric["metric"], metric["value"]) == ("MaxAllocatedEphemeralLockSequentialNumber", 2)


@pytest.mark.parametrize("suffix", ["2147483648", "-2147483648", "-0000000001"])
async def test_past_the_end_of_the_counter_no_number_is_taken(table: Table, suffix: str) -> None:
    """A counter of 32 bits goes on below zero; other services count on. Neither names a part."""
    await table.insert(2)
    session = table.replica.session
    real = session.multi

    async def at_the_end(operations: Any) -> Any:
        if not isinstance(operations[0], CheckNotExists):
            return await real(operations)
        path = f"{ROOT}/block_numbers/0/block-{suffix}"
        await session.create(path, ephemeral=True)
        return [None, path]

    session.multi = at_the_end  # type: ignore[method-assign]
    (part,) = (await table.insert(4)).parts
    assert part.status is InsertStatus.NOT_STORED
    assert "past 2147483647" in part.error
    assert await session.children(f"{ROOT}/block_numbers/0") == []


# --- a duplicate ----------------------------------------------------------------------------------------------


async def test_the_deduplication_znode_holds_the_name_of_the_part(table: Table) -> None:
    (part,) = (await table.insert(2)).parts
    assert await table.ids() == [part.block_id]
    assert (await table.replica.session.get(f"{IDS}/{part.block_id}"))[0].decode() == part.part_name


async def test_a_known_path_fails_the_multi_with_node_exists_and_its_index_names_it(table: Table) -> None:
    (part,) = (await table.insert(2)).parts
    operations = [CheckNotExists(f"{IDS}/a"), CheckNotExists(f"{IDS}/{part.block_id}"), Create(f"{ROOT}/x")]
    with pytest.raises(MultiFailed) as failed:
        await table.replica.session.multi(operations)
    assert (failed.value.index, type(failed.value.error)) == (1, NodeExists)


async def test_a_duplicate_is_detected_before_a_block_number_is_consumed(table: Table) -> None:
    for _ in range(3):
        await table.insert(2)
    assert (await table.insert(4)).parts[0].part_name == "0_1_1_0"


async def test_the_dedup_id_is_a_content_hash_and_not_the_block_number(table: Table) -> None:
    (first,) = (await table.insert(2)).parts
    (second,) = (await table.insert(2, deduplicate_insert=DeduplicateInsert.DISABLE)).parts
    (third,) = (await table.insert(2)).parts
    assert (first.part_name, second.part_name) == ("0_0_0_0", "0_1_1_0")
    assert (third.status, third.block_id, third.part_name) == (DUPLICATE, first.block_id, "0_0_0_0")


async def test_the_insert_reports_that_it_was_deduplicated_of_which_part_and_since_when(table: Table) -> None:
    (first,) = (await table.insert(2)).parts
    stat = await table.replica.session.exists(f"{IDS}/{first.block_id}")
    assert stat is not None
    (again,) = (await table.insert(2)).parts
    assert (again.status, again.part_name, again.removed_rows) == (DUPLICATE, first.part_name, 1)
    assert again.duplicate_since == stat.ctime / 1000


async def test_the_part_log_says_insert_was_deduplicated(table: Table) -> None:
    await table.insert(2)
    await table.insert(2)
    stored, duplicate = await system_rows(table.replica, "part_log")
    assert (stored["error"], duplicate["error"]) == (0, 389)
    assert duplicate["deduplication_block_ids"] == stored["deduplication_block_ids"] == await table.ids()


async def test_duplicate_rows_are_removed_and_the_rest_is_written_with_a_fresh_block_number(table: Table) -> None:
    await table.together(("a", [2]))
    (part,) = (await table.together(("a", [2]), ("b", [4]))).parts
    assert (part.status, part.part_name) == (STORED, "0_1_1_0")
    assert (part.removed_rows, part.rewrites, part.duplicate_of) == (1, 1, "0_0_0_0")
    assert await table.keys() == [2, 4]
    entry = LogEntry.parse((await table.replica.session.get(f"{ROOT}/log/log-0000000001"))[0].decode())
    assert str(entry.new_part) == "0_1_1_0"


async def test_rows_that_overlap_are_no_duplicate_of_each_other(table: Table) -> None:
    """'A block that partially overlaps with an existing part is inserted partially': tokens are, not rows."""
    await table.insert(2, 4)
    assert (await table.insert(4, 6)).status is STORED
    assert await table.keys() == [2, 4, 4, 6]


async def test_the_conflicts_are_counted(table: Table) -> None:
    await table.together(("a", [2]), ("b", [4]))
    await table.together(("a", [2]), ("b", [4]), ("c", [6]))
    assert table.count(ProfileEvent.DUPLICATED_INSERTED_BLOCKS) == 2


async def test_the_id_outlives_the_part_that_it_names(table: Table) -> None:
    (first,) = (await table.insert(2)).parts
    state = table.replica.state
    (part,) = state.store.active_parts()
    await table.replica.session.delete(state.znodes.part(first.part_name))
    await state.store.delete(part)
    (again,) = (await table.insert(2)).parts
    assert (again.status, again.part_name) == (DUPLICATE, first.part_name)


async def test_any_operation_may_be_executed_twice_and_the_second_is_a_no_op(table: Table) -> None:
    session = table.replica.session
    await table.insert(2, 1)

    async def everything() -> list[object]:
        folders = ("log", "block_numbers/0", "deduplication_hashes", "replicas/r1/parts")
        return [await session.children(f"{ROOT}/{folder}") for folder in folders] + [await table.keys()]

    before = await everything()
    await table.insert(2, 1)
    assert await everything() == before


# --- what is hashed -------------------------------------------------------------------------------------------


async def test_the_content_hash_is_computed_once_even_when_the_block_spans_several_partitions(table: Table) -> None:
    outcome = await table.insert(1, 2, 3, 4)
    assert len(outcome.parts) == 2
    assert outcome.data_hash_computations == table.count(ProfileEvent.DUPLICATION_DATA_HASH_COMPUTATIONS) == 1


@pytest.mark.parametrize(
    "options", [{"deduplicate_insert": DeduplicateInsert.DISABLE}, {"insert_deduplication_token": "t"}]
)
async def test_it_is_only_computed_when_deduplication_is_enabled_and_no_user_token_was_supplied(
    table: Table, options: dict[str, Any]
) -> None:
    assert (await table.insert(1, 2, **options)).data_hash_computations == 0


async def test_the_block_id_is_the_partition_and_the_two_halves_of_the_hash(table: Table) -> None:
    ids = [part.block_id.split("_") for part in (await table.insert(1, 2)).parts]
    assert [partition for partition, *_ in ids] == ["1", "0"]
    assert ids[0][1:] == ids[1][1:]
    assert all(0 <= int(half) < 2**64 for half in ids[0][1:])


async def test_the_same_data_again_means_the_whole_block_not_the_rows_of_a_partition(table: Table) -> None:
    await table.insert(1, 2)
    assert (await table.insert(2)).status is STORED
    assert (await table.insert(1, 2)).status is DUPLICATE


async def test_the_same_rows_in_another_partition_are_no_duplicates(cluster: Cluster) -> None:
    async with idle_replica(cluster, "r1") as replica:
        activate(replica.state, replica.session)
        table = Table(replica, cluster.folder)
        first = await table.insert(1, insert_deduplication_token="t")
        second = await table.insert(2, insert_deduplication_token="t")
        assert first.parts[0].block_id.split("_")[1:] == second.parts[0].block_id.split("_")[1:]
        assert second.status is STORED


async def test_a_retry_with_a_different_physical_layout_still_deduplicates(table: Table) -> None:
    keys = pa.array([2, 4, 6], pa.uint64())
    layouts = [
        pa.table({"k": keys, "v": pa.array(["x", "x", "x"])}),
        pa.table({"k": keys, "v": pa.array(["x", "x", "x"]).dictionary_encode()}),
        pa.table({"k": pa.chunked_array([keys[:1], keys[1:]]), "v": pa.chunked_array([["x", "x"], ["x"]])}),
        pa.table({"k": keys.cast(pa.int16()), "v": pa.array([b"x"] * 3, pa.large_binary())}),
    ]
    statuses = [(await table.insert(block=block)).status for block in layouts]
    assert statuses == [STORED, DUPLICATE, DUPLICATE, DUPLICATE]


async def test_two_tokens_with_the_same_content_but_different_provenance_are_not_duplicates(table: Table) -> None:
    assert (await table.insert(2, number=0)).status is STORED
    assert (await table.insert(2, number=1)).status is STORED


async def test_the_number_of_the_block_does_not_count_for_an_asynchronous_insert(table: Table) -> None:
    assert (await table.insert(2, number=0)).status is STORED
    assert (await table.together(("", [2]))).status is DUPLICATE
    tokens = [SourceToken(1, source_number=7)]
    again = await insert_tokens(table.replica.state, InsertOptions(), tokens, rows(2), is_async=True)
    assert again.status is DUPLICATE


async def test_of_equal_tokens_in_one_block_the_first_remains(table: Table) -> None:
    (part,) = (await table.together(("a", [2]), ("a", [4]), ("b", [6]))).parts
    assert (part.status, part.removed_rows) == (STORED, 1)
    assert await table.keys() == [2, 6]


# --- the user's token -----------------------------------------------------------------------------------------


async def test_the_same_token_means_a_duplicate_and_a_different_one_new_data(table: Table) -> None:
    assert (await table.insert(2, insert_deduplication_token="batch-1")).status is STORED
    assert (await table.insert(4, insert_deduplication_token="batch-1")).status is DUPLICATE
    assert (await table.insert(2, insert_deduplication_token="batch-2")).status is STORED


async def test_multiple_partitions_written_by_one_insert_can_carry_the_same_token(table: Table) -> None:
    outcome = await table.insert(1, 2, insert_deduplication_token="t")
    assert [part.status for part in outcome.parts] == [STORED, STORED]
    outcome = await table.insert(2, 1, insert_deduplication_token="t")
    assert [part.status for part in outcome.parts] == [DUPLICATE, DUPLICATE]


# --- the window -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "t"])
async def test_a_retry_after_the_original_has_aged_out_is_inserted_twice(cluster: Cluster, token: str) -> None:
    """A token's id is 'stable across retries forever'; what is remembered of it is not."""
    async with idle_replica(cluster, "r1", settings={"replicated_deduplication_window": "1"}) as replica:
        activate(replica.state, replica.session)
        table = Table(replica, cluster.folder)
        await table.insert(2, insert_deduplication_token=token)
        await asyncio.sleep(0.005)  # ids are ordered by the millisecond
        await table.insert(4)
        assert (await table.insert(2, insert_deduplication_token=token)).status is DUPLICATE
        await DeduplicationWindows(replica.state, replica.session).forget_outside()
        assert (await table.insert(2, insert_deduplication_token=token)).status is STORED
        assert await table.keys() == [2, 2, 4]


async def test_a_window_of_nothing_turns_deduplication_off(cluster: Cluster) -> None:
    async with idle_replica(cluster, "r1", settings={"replicated_deduplication_window": "0"}) as replica:
        activate(replica.state, replica.session)
        table = Table(replica, cluster.folder)
        outcomes = [await table.insert(2) for _ in range(2)]
        assert [outcome.status for outcome in outcomes] == [STORED, STORED]
        assert outcomes[0].deduplication == "off: replicated_deduplication_window = 0"
        assert await table.ids() == []
