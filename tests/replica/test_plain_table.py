"""Tables that are not replicated: inserts, their deduplication, merges, DDL, what a start finds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from replica.commands import (
    Action,
    AlterSettings,
    BlockOutcome,
    Command,
    CreateTable,
    DeduplicateInsert,
    DeduplicateInsertSelect,
    DescribeTable,
    DropReplica,
    DropTable,
    Engine,
    InsertOptions,
    InsertStatus,
    ListTables,
    OptimizeTable,
    PartOutcome,
    RestartReplica,
    RestoreReplica,
    RowSource,
    ShowCreateTable,
    SwitchAction,
    SyncReplica,
    from_json,
    to_json,
)
from replica.dedup.tokens import SourceToken
from replica.errors import BadArguments, ClickHouseError, DeduplicationIsNotPossible, TooManyParts
from replica.plain_table import PlainTable
from tests.replica.cluster import Cluster, Replica, definition, eventually, rows

LOGS = "data/default/t/deduplication_logs"
LAZY = {"merge_selecting_sleep_ms": "60000", "max_merge_selecting_sleep_ms": "60000", "merge_selector_base": "100"}


@dataclass
class Plain:
    """One server with a table `t` that is not replicated."""

    cluster: Cluster
    replica: Replica

    @property
    def table(self) -> PlainTable:
        table = self.replica.server.table("default", "t")
        assert isinstance(table, PlainTable)
        return table

    @property
    def folder(self) -> Path:
        return self.cluster.folder / "r1" / LOGS

    async def create(self, window: int = 10, *, settings: dict[str, str] | None = None, **changes: object) -> None:
        await self.execute(plain(window, settings=settings, **changes))

    async def execute(self, command: Command) -> list[dict[str, Any]]:
        return await self.replica.server.execute(command)

    async def insert(self, *keys: int, number: int = 0, **options: object) -> BlockOutcome:
        return await self.replica.server.insert("default", "t", InsertOptions(**options), number, rows(*keys))  # type: ignore[arg-type]

    async def insert_one(self, *keys: int, **options: object) -> PartOutcome:
        (part,) = (await self.insert(*keys, **options)).parts
        return part

    async def restart(self) -> None:
        await self.cluster.stop("r1")
        self.replica = await self.cluster.start("r1")

    async def keys(self) -> list[int]:
        return sorted((await self.replica.server.scan("default", "t", ["k"]))["k"].to_pylist())

    async def rows_of(self, system_table: str) -> list[dict[str, Any]]:
        return (await self.replica.server.scan("system", system_table)).to_pylist()

    def active(self) -> list[str]:
        return [str(part.name) for part in self.table.state.store.active_parts()]

    def logs(self) -> dict[str, list[list[str]]]:
        """The lines of the log's files, without the ids."""
        return {
            path.name: [line.split("\t")[:2] for line in path.read_text().splitlines()]
            for path in sorted(self.folder.iterdir())
        }


def plain(window: int = 10, *, settings: dict[str, str] | None = None, **changes: object) -> CreateTable:
    fields: dict[str, object] = {
        "engine": Engine.MERGE_TREE,
        "zookeeper_path": "",
        "replica_name": "",
        "settings": {"non_replicated_deduplication_window": str(window), **LAZY, **(settings or {})},
    }
    return definition(**{**fields, **changes})


@pytest.fixture
async def t(cluster: Cluster) -> AsyncIterator[Plain]:
    return Plain(cluster, await cluster.start("r1"))


# --- inserts -------------------------------------------------------------------------------------------------


async def test_block_numbers_are_one_sequence_of_all_partitions_and_refused_parts_use_some(t: Plain) -> None:
    await t.create()
    assert [part.part_name for part in (await t.insert(1, 2)).parts] == ["1_1_1_0", "0_2_2_0"]
    again = await t.insert(1, 2)
    assert [(p.status, p.part_name, p.removed_rows) for p in again.parts] == [
        (InsertStatus.DUPLICATE, "1_1_1_0", 1),
        (InsertStatus.DUPLICATE, "0_2_2_0", 1),
    ]
    assert [part.part_name for part in (await t.insert(3)).parts] == ["1_5_5_0"]
    assert await t.keys() == [1, 2, 3]
    assert t.logs() == {"deduplication_log_1.txt": [["1", "1_1_1_0"], ["1", "0_2_2_0"], ["1", "1_5_5_0"]]}


async def test_without_a_window_nothing_is_deduplicated_and_no_log_is_written(t: Plain) -> None:
    await t.create(0)
    outcomes = [await t.insert(1), await t.insert(1)]
    assert [each.status for each in outcomes] == [InsertStatus.STORED] * 2
    assert outcomes[0].deduplication == "off: non_replicated_deduplication_window = 0"
    assert not t.folder.exists()


async def test_only_the_last_ids_are_known(t: Plain) -> None:
    await t.create(2)
    for key in (1, 2, 3):
        await t.insert(key)
    assert (await t.insert(2)).status is InsertStatus.DUPLICATE
    assert (await t.insert(1)).status is InsertStatus.STORED
    assert (await t.insert(2)).status is InsertStatus.STORED, "1 has pushed it out"
    assert await t.keys() == [1, 1, 2, 2, 3]


async def test_a_start_knows_what_was_known_and_goes_on_with_the_numbers(t: Plain) -> None:
    await t.create(2)
    for key in range(1, 8):
        await t.insert_one(key)
    await t.restart()
    assert (await t.insert_one(7)).status is InsertStatus.DUPLICATE
    assert (await t.insert_one(6)).duplicate_of == "0_6_6_0"
    assert (await t.insert_one(9)).part_name == "1_10_10_0"
    assert await t.keys() == [*range(1, 8), 9]


async def test_a_torn_last_line_was_never_written_and_is_gone_with_the_next_one(t: Plain) -> None:
    await t.create()
    await t.insert(1)
    await t.insert(2)
    (path,) = t.folder.iterdir()
    whole = path.read_bytes()
    await t.cluster.stop("r1")
    path.write_bytes(whole[:-3])
    t.replica = await t.cluster.start("r1")
    assert (await t.insert(1)).status is InsertStatus.DUPLICATE
    assert (await t.insert(2)).status is InsertStatus.STORED
    await t.restart()
    assert [(await t.insert(key)).status for key in (1, 2)] == [InsertStatus.DUPLICATE] * 2


async def test_an_id_is_known_whether_its_part_is_there_or_not_as_in_clickhouse(t: Plain) -> None:
    await t.create()
    name = (await t.insert_one(1)).part_name
    await t.cluster.stop("r1")
    (t.folder.parent / name).rename(t.folder.parent / "elsewhere")
    t.replica = await t.cluster.start("r1")
    assert (await t.insert_one(1)).status is InsertStatus.DUPLICATE
    assert await t.keys() == []


async def test_a_part_of_which_the_log_does_not_know_stays_and_its_block_may_come_again(t: Plain) -> None:
    await t.create()
    await t.insert(1)
    await t.cluster.stop("r1")
    (path,) = t.folder.iterdir()
    path.write_bytes(b"")
    t.replica = await t.cluster.start("r1")
    assert (await t.insert_one(1)).part_name == "1_2_2_0"
    assert await t.keys() == [1, 1]


async def test_a_line_that_cannot_be_written_is_told_and_written_before_a_duplicate_is(
    t: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    await t.create()
    disk = t.table.state.environment.disk

    async def full(path: str, data: bytes) -> None:
        raise OSError(28, "No space left on device", path)

    real = disk.write

    async def full_for_logs(path: str, data: bytes) -> None:
        await (full if LOGS in path else real)(path, data)

    monkeypatch.setattr(disk, "write", full_for_logs)
    first = await t.insert_one(1)
    assert (first.status, first.part_name) == (InsertStatus.UNKNOWN, "1_1_1_0")
    assert "No space left" in first.error
    assert (await t.insert_one(1)).status is InsertStatus.NOT_STORED
    monkeypatch.undo()
    assert (await t.insert_one(1)).status is InsertStatus.DUPLICATE
    await t.restart()
    assert (await t.insert_one(1)).status is InsertStatus.DUPLICATE
    assert await t.keys() == [1]


async def test_equal_blocks_at_once_are_stored_once(t: Plain) -> None:
    await t.create()
    outcomes = await asyncio.gather(*(t.insert_one(1) for _ in range(8)))
    assert sorted(each.status for each in outcomes) == [InsertStatus.DUPLICATE] * 7 + [InsertStatus.STORED]
    assert {each.part_name for each in outcomes} == {t.active()[0]}


async def test_tokens_and_modes_are_those_of_replicated_tables(t: Plain) -> None:
    await t.create()
    token = {"insert_deduplication_token": "x"}
    assert (await t.insert_one(1, **token)).status is InsertStatus.STORED
    assert (await t.insert_one(3, **token)).status is InsertStatus.DUPLICATE, "the token is what counts"
    assert (await t.insert_one(1)).status is InsertStatus.STORED, "the data alone are another id"
    off = await t.insert(1, deduplicate_insert=DeduplicateInsert.DISABLE)
    assert (off.status, off.parts[0].block_id) == (InsertStatus.STORED, "")
    assert off.deduplication == "off: deduplicate_insert = disable"
    assert await t.keys() == [1, 1, 1]


async def test_insert_select_is_deduplicated_when_it_is_stable(t: Plain) -> None:
    await t.create()
    stable, unstable = RowSource.STABLE_SELECT, RowSource.UNSTABLE_SELECT
    assert (await t.insert(1, row_source=stable)).status is InsertStatus.STORED
    assert (await t.insert(1, row_source=stable)).status is InsertStatus.DUPLICATE
    assert (await t.insert(1, row_source=unstable)).status is InsertStatus.STORED
    force = DeduplicateInsertSelect.FORCE_ENABLE
    with pytest.raises(DeduplicationIsNotPossible):
        await t.insert(1, row_source=unstable, deduplicate_insert_select=force)


async def test_of_a_block_of_several_inserts_only_the_known_ones_are_left_out(t: Plain) -> None:
    await t.create(partition_by="")
    tokens = [SourceToken(1, "a"), SourceToken(1, "b"), SourceToken(1, "c")]

    async def together(*which: int) -> PartOutcome:
        block = rows(*which)
        (part,) = (await t.table.insert_together(InsertOptions(), [tokens[each] for each in which], block)).parts
        return part

    assert (await together(1)).part_name == "all_1_1_0"
    second = await together(0, 1, 2)
    assert (second.status, second.removed_rows, second.rewrites) == (InsertStatus.STORED, 1, 1)
    assert (second.part_name, second.duplicate_of) == ("all_3_3_0", "all_1_1_0")
    assert (await together(2, 0)).duplicate_of == "all_3_3_0"
    assert await t.keys() == [0, 1, 2]
    assert t.logs()["deduplication_log_1.txt"] == [["1", "all_1_1_0"], ["1", "all_3_3_0"], ["1", "all_3_3_0"]]


async def test_a_bad_block_is_refused_whole_and_too_many_parts_too(t: Plain) -> None:
    await t.create(settings={"parts_to_throw_insert": "1"})
    with pytest.raises(ClickHouseError):
        await t.replica.server.insert("default", "t", InsertOptions(), 0, pa.table({"nonsense": [1]}))
    await t.insert(1)
    with pytest.raises(TooManyParts):
        await t.insert(2)


# --- the window changes --------------------------------------------------------------------------------------


def window(value: int) -> AlterSettings:
    return AlterSettings("default", "t", modified={"non_replicated_deduplication_window": str(value)})


async def test_the_window_can_be_given_made_smaller_and_taken(t: Plain) -> None:
    await t.create(0)
    await t.insert(1)
    await t.execute(window(2))
    assert t.logs() == {"deduplication_log_1.txt": []}
    await t.insert(1)
    await t.insert(2)
    await t.execute(window(1))
    assert t.logs() == {
        "deduplication_log_1.txt": [["1", "1_2_2_0"], ["1", "0_3_3_0"]],
        "deduplication_log_2.txt": [],
    }
    assert (await t.insert(2)).status is InsertStatus.DUPLICATE
    assert (await t.insert(1)).status is InsertStatus.STORED
    await t.execute(AlterSettings("default", "t", reset=("non_replicated_deduplication_window",)))
    assert (await t.insert(1)).status is InsertStatus.STORED
    await t.restart()
    assert (await t.insert(1)).status is InsertStatus.STORED


# --- merges --------------------------------------------------------------------------------------------------


async def test_optimize_merges_here_and_ids_outlive_their_parts(t: Plain) -> None:
    await t.create()
    for key in (1, 3, 2, 5):
        await t.insert(key)
    answer = await t.execute(OptimizeTable("default", "t", final=True))
    assert answer == [
        {"partition_id": "0", "new_part": "0_3_3_1", "reason": ""},
        {"partition_id": "1", "new_part": "1_1_4_1", "reason": ""},
    ]
    assert (await t.insert_one(3)).duplicate_of == "1_2_2_0"
    await t.restart()
    assert t.active() == ["0_3_3_1", "1_1_4_1"]
    assert (await t.insert_one(7)).part_name == "1_5_5_0", "a refused number is a gap only until a start"
    assert await t.keys() == [1, 2, 3, 5, 7]


async def test_optimize_says_why_it_does_nothing(t: Plain) -> None:
    await t.create()
    await t.insert(1)
    asked = OptimizeTable("default", "t", partition_id="1")
    assert await t.execute(asked) == [
        {"partition_id": "1", "new_part": "", "reason": "There is only one part inside partition"}
    ]


async def test_optimize_deduplicate_by(t: Plain) -> None:
    await t.create(0, partition_by="")
    await t.insert(1, 1, 2)
    await t.insert(2, 3)
    await t.execute(OptimizeTable("default", "t", final=True, deduplicate=True))
    assert await t.keys() == [1, 2, 3]


async def test_parts_are_merged_by_themselves_and_the_old_ones_deleted(t: Plain) -> None:
    settings = {
        "merge_selector_base": "1",
        "merge_selecting_sleep_ms": "10",
        "old_parts_lifetime": "0",
        "cleanup_delay_period": "0",
    }
    await t.create(0, partition_by="", settings=settings)
    for key in range(6):
        await t.insert(key)
    store = t.table.state.store
    await eventually(lambda: len(store.parts()) == 1 == len(store.active_parts()))
    assert await t.keys() == list(range(6))
    kinds = [row["event_type"] for row in await t.rows_of("part_log")]
    assert {"NewPart", "MergePartsStart", "MergeParts", "RemovePart"} == set(kinds)
    assert t.table.state.server.pools.merges_mutations.running == 0


async def test_stopped_merges_begin_no_more(t: Plain) -> None:
    await t.create(0)
    await t.execute(SwitchAction(Action.MERGES, True, "default", "t"))
    await t.insert(1)
    await t.insert(3)
    with pytest.raises(ClickHouseError, match="Cancelled merging parts"):
        await t.execute(OptimizeTable("default", "t", final=True))
    await t.execute(SwitchAction(Action.MERGES, False))
    await t.execute(OptimizeTable("default", "t", final=True))
    assert t.active() == ["1_1_2_1"]


async def test_a_merge_never_passes_over_an_insert(t: Plain, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that is on its way to its name has its number already; a later one waits for it."""
    await t.create(0, partition_by="")
    await t.insert(1)
    store, publish = t.table.state.store, t.table.state.store.publish
    waiting, go_on = asyncio.Event(), asyncio.Event()

    async def slow(*arguments: Any) -> Any:
        waiting.set()
        await go_on.wait()
        return await publish(*arguments)

    monkeypatch.setattr(store, "publish", slow)
    inserting = asyncio.create_task(t.insert_one(2))
    await waiting.wait()
    monkeypatch.undo()
    later = asyncio.create_task(t.insert_one(3))
    await asyncio.sleep(0.05)
    assert t.active() == ["all_1_1_0"]
    go_on.set()
    assert [(await each).part_name for each in (inserting, later)] == ["all_2_2_0", "all_3_3_0"]
    await t.execute(OptimizeTable("default", "t", final=True))
    assert t.active() == ["all_1_3_1"]


# --- DDL and questions ---------------------------------------------------------------------------------------


async def test_it_needs_no_session(t: Plain) -> None:
    await t.create()
    await t.insert(1)
    t.replica.coordinator.sever()
    await eventually(lambda: t.table.state.server.sessions.current is None)
    assert (await t.insert(2)).status is InsertStatus.STORED
    await t.execute(window(3))
    await t.execute(DropTable("default", "t"))
    await t.create()
    assert await t.keys() == []


async def test_a_dropped_table_leaves_nothing_behind(t: Plain) -> None:
    await t.create()
    await t.insert(1)
    await t.execute(DropTable("default", "t"))
    assert not t.folder.parent.exists()
    assert [row for row in await t.execute(ListTables()) if row["database"] == "default"] == []
    await t.create()
    assert (await t.insert_one(1)).part_name == "1_1_1_0"


async def test_a_drop_ends_merges_and_gives_their_slots_back(t: Plain, monkeypatch: pytest.MonkeyPatch) -> None:
    await t.create(0, settings={"merge_selector_base": "1", "merge_selecting_sleep_ms": "10"})
    pools, workers = t.table.state.server.pools, t.table.state.environment.workers
    real = workers.run

    async def slow(label: str, job: Callable[[], Any]) -> Any:
        if label.startswith("merge"):
            await asyncio.sleep(3600)
        return await real(label, job)

    monkeypatch.setattr(workers, "run", slow)
    await t.insert(1)
    await t.insert(3)
    await eventually(lambda: pools.merges_mutations.running == 1)
    await t.execute(DropTable("default", "t"))
    assert pools.merges_mutations.running == 0


async def test_what_needs_replication_is_refused_with_clickhouses_error(t: Plain) -> None:
    await t.create(uuid="f9b0fe90-fa50-4fd9-a8d4-095fe84bfc1a")
    for command in (
        SyncReplica("default", "t"),
        RestartReplica("default", "t"),
        RestoreReplica("default", "t"),
        DropReplica("default", "t", "r2"),
    ):
        with pytest.raises(BadArguments) as caught:
            await t.execute(command)
        assert caught.value.message == "Table default.t (f9b0fe90-fa50-4fd9-a8d4-095fe84bfc1a) is not replicated"
    await t.execute(SwitchAction(Action.FETCHES, True, "default", "t"))  # ClickHouse lets this pass


async def test_questions(t: Plain) -> None:
    await t.create(3, settings=dict.fromkeys(LAZY, "100000"))
    (shown,) = await t.execute(ShowCreateTable("default", "t"))
    assert (
        "\nENGINE = MergeTree\nPARTITION BY k % 2\nORDER BY k\nSETTINGS non_replicated_deduplication_window = 3"
        in (shown["statement"])
    )
    assert [row["name"] for row in await t.execute(DescribeTable("default", "t"))] == ["k", "v"]
    assert {"database": "default", "name": "t", "engine": "MergeTree"} in await t.execute(ListTables())
    await t.insert(1)
    await t.insert(1)
    (row,) = await t.rows_of("tables")
    assert (row["engine"], row["engine_full"].split()[0]) == ("MergeTree", "MergeTree")
    (part,) = await t.rows_of("parts")
    assert (part["name"], part["engine"], part["active"]) == ("1_1_1_0", "MergeTree", 1)
    new, refused = await t.rows_of("part_log")
    assert (new["error"], refused["error"], refused["part_name"]) == (0, 389, "1_1_1_0")
    assert new["deduplication_block_ids"] == refused["deduplication_block_ids"] != []
    for empty in ("replicas", "replication_queue", "replicated_fetches", "merges"):
        assert await t.rows_of(empty) == []


async def test_both_kinds_of_tables_live_side_by_side(t: Plain) -> None:
    await t.create()
    await t.execute(definition(table="u"))
    await eventually(lambda: not t.replica.table("u").state.is_readonly)
    for name in ("t", "u"):
        outcome = await t.replica.server.insert("default", name, InsertOptions(), 0, rows(1))
        assert outcome.status is InsertStatus.STORED
    ids = [row["deduplication_block_ids"] for row in await t.rows_of("part_log")]
    assert ids[0] == ids[1], "the id does not depend on the table"
    await t.restart()
    assert [row["name"] for row in await t.rows_of("tables")] == ["t", "u"]
    assert [row["table"] for row in await t.rows_of("replicas")] == ["u"]


def test_definitions_of_an_older_catalog_are_replicated() -> None:
    old = to_json(definition()).replace(', "engine": "ReplicatedMergeTree"', "")
    assert "engine" not in old
    assert from_json(old).engine is Engine.REPLICATED_MERGE_TREE
    assert from_json(to_json(plain())) == plain()
