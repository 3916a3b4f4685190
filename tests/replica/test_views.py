"""Materialized views and aliases: what reaches which table, and what it is known by there."""

from __future__ import annotations

import struct
from dataclasses import replace

import pyarrow as pa
import pytest

from clickhouse_sim.sql.statements import parse_statements
from replica.commands import (
    BlockOutcome,
    ColumnDefinition,
    CreateTable,
    DescribeTable,
    InsertOptions,
    InsertStatus,
    ListTables,
    ShowCreateTable,
    from_json,
    to_json,
)
from replica.dedup.siphash import siphash128
from replica.dedup.tokens import SourceToken
from replica.errors import (
    BadArguments,
    IncorrectQuery,
    NotImplementedInModel,
    TableAlreadyExists,
    ThereIsNoColumn,
    TooDeepRecursion,
    TypeMismatch,
    UnknownIdentifier,
    UnknownTable,
)
from tests.replica.cluster import Cluster, Replica, definition, rows

STORED, DUPLICATE, NOT_STORED = InsertStatus.STORED, InsertStatus.DUPLICATE, InsertStatus.NOT_STORED


async def run(replica: Replica, sql: str) -> None:
    for statement in parse_statements(sql):
        await replica.server.execute(statement)  # type: ignore[arg-type]


def plain(name: str, **changes: object) -> CreateTable:
    return definition(
        table=name, zookeeper_path=f"/clickhouse/tables/{{shard}}/{name}", **{"partition_by": "", **changes}
    )


async def one(cluster: Cluster, *names: str, **changes: object) -> Replica:
    """A server with table t and others like it."""
    replica = await cluster.start("r1")
    for name in ("t", *names):
        await replica.server.execute(plain(name, **changes))
    await cluster.writable()
    return replica


async def insert(replica: Replica, block: pa.Table, table: str = "t", **options: object) -> BlockOutcome:
    return await replica.server.insert("default", table, InsertOptions(**options), 0, block)  # type: ignore[arg-type]


async def keys(replica: Replica, table: str) -> list[int]:
    return sorted((await replica.server.scan("default", table)).column("k").to_pylist())


def ids(outcome: BlockOutcome) -> list[str]:
    return [part.block_id for part in outcome.parts] + [part.block_id for v in outcome.views for part in v.parts]


def known_as(extension: str, partition_id: str = "all") -> str:
    first, second = siphash128(extension.encode())
    return f"{partition_id}_{first}_{second}"


async def test_a_block_goes_into_the_table_and_what_the_view_makes_of_it_into_the_target(cluster: Cluster) -> None:
    r1 = await one(cluster, "big")
    await run(r1, "CREATE MATERIALIZED VIEW mv TO big AS SELECT k * 10 AS k, v FROM t WHERE k > 1")

    outcome = await insert(r1, rows(1, 2, 3), insert_deduplication_token="a")

    assert await keys(r1, "t") == [1, 2, 3]
    assert await keys(r1, "big") == [20, 30] == await keys(r1, "mv")
    (view,) = outcome.views
    assert (view.views, view.table, view.error) == (("default.mv",), "default.big", "")
    assert ids(outcome) == [
        known_as("user-token-a:source-id-empty:source-number-0"),
        known_as("user-token-a:source-id-empty:source-number-0:view-id-default.mv:view-block-0"),
    ]
    assert from_json(to_json(outcome)) == outcome


async def test_without_a_token_the_base_is_the_hash_of_the_inserted_block(cluster: Cluster) -> None:
    r1 = await one(cluster, "big", "big2")
    await run(r1, "CREATE MATERIALIZED VIEW m1 TO big AS SELECT k FROM t")
    await run(r1, "CREATE MATERIALIZED VIEW m2 TO big2 AS SELECT k + 1 AS k FROM t")

    outcome = await insert(r1, rows(1, 2))

    stream = struct.pack("<2Q2s2Q", 1, 2, b"12", 1, 2)
    base = "{}_{}".format(*siphash128(stream))
    extension = f"{base}:source-id-empty:source-number-0"
    assert ids(outcome) == [
        known_as(extension),
        known_as(f"{extension}:view-id-default.m1:view-block-0"),
        known_as(f"{extension}:view-id-default.m2:view-block-0"),
    ]
    assert outcome.data_hash_computations == 1


async def test_a_chain_sees_whole_rows_of_each_table_on_the_way(cluster: Cluster) -> None:
    r1 = await one(cluster)
    columns = (ColumnDefinition("k", "UInt64"), ColumnDefinition("n", "UInt64", "k + 100"))
    await r1.server.execute(plain("mid", columns=columns))
    await r1.server.execute(plain("last", columns=columns))
    await cluster.writable()
    await run(r1, "CREATE MATERIALIZED VIEW b TO last AS SELECT n AS k FROM mid WHERE k < 30")
    await run(r1, "CREATE MATERIALIZED VIEW a TO mid AS SELECT k * 10 AS k FROM t")

    outcome = await insert(r1, rows(1, 2, 3), insert_deduplication_token="x")

    assert await keys(r1, "last") == [110, 120]
    assert [view.views for view in outcome.views] == [("default.a",), ("default.a", "default.b")]
    steps = ":view-id-default.a:view-block-0:view-id-default.b:view-block-0"
    assert ids(outcome)[-1] == known_as(f"user-token-x:source-id-empty:source-number-0{steps}")


async def test_two_views_into_one_target_do_not_take_each_other_for_duplicates(cluster: Cluster) -> None:
    r1 = await one(cluster, "big")
    await run(r1, "CREATE MATERIALIZED VIEW m1 TO big AS SELECT k, v FROM t")
    await run(r1, "CREATE MATERIALIZED VIEW m2 TO big AS SELECT k, v FROM t")

    await insert(r1, rows(1))
    again = await insert(r1, rows(1))

    assert await keys(r1, "big") == [1, 1]
    assert again.status is DUPLICATE
    assert [view.parts[0].status for view in again.views] == [DUPLICATE, DUPLICATE]


async def test_a_refused_block_still_reaches_a_view_that_came_later(cluster: Cluster) -> None:
    r1 = await one(cluster, "big")
    await insert(r1, rows(1))
    await run(r1, "CREATE MATERIALIZED VIEW mv TO big AS SELECT k, v FROM t")

    outcome = await insert(r1, rows(1))

    assert outcome.parts[0].status is DUPLICATE
    assert outcome.status is STORED
    assert (await keys(r1, "t"), await keys(r1, "big")) == ([1], [1])


@pytest.mark.parametrize(
    ("options", "in_table", "in_target"),
    [
        ({}, 1, 1),
        ({"deduplicate_blocks_in_dependent_materialized_views": False}, 1, 2),
        ({"deduplicate_insert": "disable"}, 2, 2),
        ({"deduplicate_insert": "disable", "insert_deduplication_token": "x"}, 2, 2),
        ({"insert_deduplicate": False}, 1, 1),
        ({"insert_deduplicate": False, "deduplicate_insert": "backward_compatible_choice"}, 2, 2),
    ],
)
async def test_the_settings_decide_for_the_target_too(
    cluster: Cluster, options: dict[str, object], in_table: int, in_target: int
) -> None:
    r1 = await one(cluster, "big")
    await run(r1, "CREATE MATERIALIZED VIEW mv TO big AS SELECT k, v FROM t")

    for _ in range(2):
        outcome = await insert(r1, rows(1), **options)

    assert (len(await keys(r1, "t")), len(await keys(r1, "big"))) == (in_table, in_target)
    if options.get("deduplicate_blocks_in_dependent_materialized_views") is False:
        assert outcome.views[0].deduplication == "off: deduplicate_blocks_in_dependent_materialized_views = 0"


async def test_each_table_goes_by_its_own_window(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await r1.server.execute(plain("t", settings={"replicated_deduplication_window": "0"}))
    await r1.server.execute(plain("big"))
    await cluster.writable()
    await run(r1, "CREATE MATERIALIZED VIEW mv TO big AS SELECT k, v FROM t")

    await insert(r1, rows(1))
    await insert(r1, rows(1))

    assert (await keys(r1, "t"), await keys(r1, "big")) == ([1, 1], [1])


async def test_an_insert_into_a_view_goes_into_its_target_and_is_known_by_the_views_uuid(cluster: Cluster) -> None:
    r1 = await one(cluster, "big", "last")
    uuid = "11111111-2222-3333-4444-555555555555"
    await run(r1, f"CREATE MATERIALIZED VIEW mv UUID '{uuid}' TO big AS SELECT k * 10 AS k FROM t")
    await run(r1, "CREATE MATERIALIZED VIEW on TO last AS SELECT k FROM big")

    outcome = await insert(r1, rows(7).select(["k"]), "mv", insert_deduplication_token="x")

    assert (await keys(r1, "t"), await keys(r1, "big"), await keys(r1, "last")) == ([], [7], [7])
    base = f"user-token-x:source-id-{uuid}:source-number-0"
    assert ids(outcome) == [known_as(base), known_as(f"{base}:view-id-default.on:view-block-0")]


async def test_a_failing_view_is_named_and_hinders_nobody_and_a_retry_completes(cluster: Cluster) -> None:
    r1 = await one(cluster, "bad", "good")
    await run(r1, "CREATE MATERIALIZED VIEW a TO bad AS SELECT k - 5 AS k, v FROM t")
    await run(r1, "CREATE MATERIALIZED VIEW b TO good AS SELECT k, v FROM t")

    outcome = await insert(r1, rows(1))

    assert outcome.status is NOT_STORED
    assert "while pushing to view default.a" in outcome.views[0].error
    assert (await keys(r1, "t"), await keys(r1, "bad"), await keys(r1, "good")) == ([1], [], [1])

    await run(r1, "DROP VIEW a")
    await run(r1, "CREATE MATERIALIZED VIEW a TO bad AS SELECT k + 5 AS k, v FROM t")
    assert (await insert(r1, rows(1))).status is STORED
    assert (await keys(r1, "t"), await keys(r1, "bad"), await keys(r1, "good")) == ([1], [6], [1])


async def test_an_insert_is_refused_whole_while_a_target_is_missing(cluster: Cluster) -> None:
    r1 = await one(cluster, "big")
    await run(r1, "CREATE MATERIALIZED VIEW mv TO big AS SELECT k FROM t; DROP TABLE big")

    with pytest.raises(UnknownTable, match=r"Target table default\.big of view default\.mv"):
        await insert(r1, rows(1))
    with pytest.raises(UnknownTable):
        await r1.server.scan("default", "mv")
    assert await keys(r1, "t") == []


async def test_views_in_a_circle_are_refused_at_the_insert(cluster: Cluster) -> None:
    r1 = await one(cluster, "big")
    await run(r1, "CREATE MATERIALIZED VIEW a TO big AS SELECT k FROM t")
    await run(r1, "CREATE MATERIALIZED VIEW b TO t AS SELECT k FROM big")

    with pytest.raises(
        TooDeepRecursion, match=r"default\.t -> default\.a -> default\.big -> default\.b -> default\.t"
    ):
        await insert(r1, rows(1))


@pytest.mark.parametrize(
    ("select", "error"),
    [
        ("SELECT k AS other FROM t", ThereIsNoColumn),
        ("SELECT nothing AS k FROM t", UnknownIdentifier),
        ("SELECT [k] AS k FROM t", TypeMismatch),
        ("SELECT k FROM absent", UnknownTable),
        ("SELECT 1 AS k", NotImplementedInModel),
        ("SELECT a.k AS k FROM t AS a, big AS b", NotImplementedInModel),
    ],
)
async def test_a_view_that_does_not_fit_is_refused_when_it_is_created(
    cluster: Cluster, select: str, error: type[Exception]
) -> None:
    r1 = await one(cluster, "big")
    with pytest.raises(error):
        await run(r1, f"CREATE MATERIALIZED VIEW mv TO big AS {select}")
    assert "mv" not in [row["name"] for row in await r1.server.execute(ListTables())]


async def test_names_are_taken_once_and_dropped_by_what_they_are(cluster: Cluster) -> None:
    r1 = await one(cluster, "big")
    await run(r1, "CREATE MATERIALIZED VIEW mv TO big AS SELECT k FROM t")
    with pytest.raises(TableAlreadyExists):
        await run(r1, "CREATE MATERIALIZED VIEW big TO t AS SELECT k FROM t")
    with pytest.raises(TableAlreadyExists):
        await r1.server.execute(plain("mv"))
    await run(r1, "CREATE MATERIALIZED VIEW IF NOT EXISTS mv TO big AS SELECT k FROM t")
    with pytest.raises(IncorrectQuery):
        await run(r1, "DROP VIEW big")
    with pytest.raises(NotImplementedInModel, match=r"default\.mv is a MaterializedView"):
        await run(r1, "SYSTEM SYNC REPLICA mv")
    await run(r1, "DROP VIEW IF EXISTS none; DROP TABLE mv")
    with pytest.raises(UnknownTable):
        await run(r1, "DROP VIEW mv")


async def test_definitions_outlive_a_restart_and_can_be_looked_at(cluster: Cluster) -> None:
    r1 = await one(cluster, "big")
    await run(r1, "CREATE MATERIALIZED VIEW mv TO big AS SELECT k FROM default.t")
    await run(r1, "CREATE TABLE al ENGINE = Alias(default.big)")
    await cluster.stop("r1")
    r1 = await cluster.start("r1")
    await cluster.writable()

    assert (await insert(r1, rows(3))).views[0].parts[0].status is STORED
    assert await keys(r1, "al") == [3]
    (shown,) = await r1.server.execute(ShowCreateTable("default", "mv"))
    assert shown["statement"] == (
        "CREATE MATERIALIZED VIEW default.mv TO default.big\n(\n    `k` UInt64\n)\nAS SELECT k FROM default.t"
    )
    (shown,) = await r1.server.execute(ShowCreateTable("default", "al"))
    assert shown["statement"] == (
        "CREATE TABLE default.al\n(\n    `k` UInt64,\n    `v` String\n)\nENGINE = Alias('default.big')"
    )
    assert [row["name"] for row in await r1.server.execute(DescribeTable("default", "mv"))] == ["k"]
    tables = {row["name"]: row for row in (await r1.server.scan("system", "tables")).to_pylist()}
    assert [(name, row["engine"], row["as_select"]) for name, row in tables.items()] == [
        ("al", "Alias", ""),
        ("big", "ReplicatedMergeTree", ""),
        ("mv", "MaterializedView", "SELECT k FROM default.t"),
        ("t", "ReplicatedMergeTree", ""),
    ]
    assert tables["al"]["engine_full"] == "Alias('default.big')"
    assert tables["mv"]["create_table_query"] == (
        "CREATE MATERIALIZED VIEW default.mv TO default.big (`k` UInt64) AS SELECT k FROM default.t"
    )


# --- aliases -------------------------------------------------------------------------------------------------


async def test_an_alias_is_its_table_and_has_views_of_its_own(cluster: Cluster) -> None:
    r1 = await one(cluster, "of_alias", "of_table")
    await run(r1, "CREATE TABLE al ENGINE = Alias(t)")
    await run(r1, "CREATE MATERIALIZED VIEW va TO of_alias AS SELECT k FROM al")
    await run(r1, "CREATE MATERIALIZED VIEW vt TO of_table AS SELECT k FROM t")

    through = await insert(r1, rows(1), "al", insert_deduplication_token="B")
    await insert(r1, rows(2), "t")

    base = "user-token-B:source-id-empty:source-number-0"
    assert ids(through) == [
        known_as(base),
        known_as(f"{base}:view-id-default.va:view-block-0"),
        known_as(f"{base}:view-id-default.vt:view-block-0"),
    ]
    assert await keys(r1, "al") == await keys(r1, "t") == [1, 2]
    assert (await keys(r1, "of_alias"), await keys(r1, "of_table")) == ([1], [1, 2])


async def test_a_view_may_write_through_an_alias(cluster: Cluster) -> None:
    r1 = await one(cluster, "big", "last")
    await run(r1, "CREATE TABLE al ENGINE = Alias(big)")
    await run(r1, "CREATE MATERIALIZED VIEW via TO al AS SELECT k * 2 AS k FROM t")
    await run(r1, "CREATE MATERIALIZED VIEW on TO last AS SELECT k + 1 AS k FROM al")

    outcome = await insert(r1, rows(1, 2), insert_deduplication_token="C")

    assert (await keys(r1, "big"), await keys(r1, "last")) == ([2, 4], [3, 5])
    base = "user-token-C:source-id-empty:source-number-0:view-id-default.via:view-block-0"
    assert ids(outcome)[1:] == [known_as(base), known_as(f"{base}:view-id-default.on:view-block-0")]


async def test_what_cannot_be_an_alias(cluster: Cluster) -> None:
    r1 = await one(cluster, "big")
    await run(r1, "CREATE TABLE al ENGINE = Alias('default', 'big')")
    for sql, error, message in (
        ("CREATE TABLE a2 ENGINE = Alias(al)", BadArguments, "another Alias table"),
        ("CREATE TABLE a2 ENGINE = Alias(a2)", BadArguments, "cannot refer to itself"),
    ):
        with pytest.raises(error, match=message):
            await run(r1, sql)
    await run(r1, "CREATE TABLE early ENGINE = Alias(later)")  # ClickHouse, too, finds out when it is used
    with pytest.raises(UnknownTable):
        await insert(r1, rows(1), "early")


# --- several tokens in a block -------------------------------------------------------------------------------


async def together(replica: Replica, *numbers: int) -> BlockOutcome:
    tokens = [SourceToken(2) for _ in numbers]
    block = rows(*(key for number in numbers for key in (2 * number, 2 * number + 1)))
    return await replica.server.insert_together("default", "t", InsertOptions(), tokens, block)


async def test_of_several_tokens_the_known_ones_are_left_out_behind_the_view_too(cluster: Cluster) -> None:
    r1 = await one(cluster, "sums")
    await run(r1, "CREATE MATERIALIZED VIEW mv TO sums AS SELECT sum(k) AS k FROM t")

    await together(r1, 1)
    outcome = await together(r1, 1, 2)

    assert (await keys(r1, "t"), await keys(r1, "sums")) == ([2, 3, 4, 5], [5, 9])
    assert outcome.views[0].parts[0].rewrites == 1


async def test_behind_a_view_every_token_counts_in_every_partition(cluster: Cluster) -> None:
    r1 = await one(cluster)
    await r1.server.execute(plain("halves", partition_by="k % 2"))
    await cluster.writable()
    await run(r1, "CREATE MATERIALIZED VIEW mv TO halves AS SELECT intDiv(k, 2) AS k FROM t")

    outcome = await together(r1, 1, 2)

    assert [len(part.block_id.split(",")) for part in outcome.views[0].parts] == [2, 2]


async def test_behind_an_alias_and_a_view_that_changes_the_number_of_rows_only_all_or_nothing(
    cluster: Cluster,
) -> None:
    r1 = await one(cluster, "sums")
    await run(r1, "CREATE TABLE al ENGINE = Alias(sums)")
    await run(r1, "CREATE MATERIALIZED VIEW mv TO al AS SELECT sum(k) AS k FROM t")

    await together(r1, 1)
    assert (await together(r1, 1)).status is DUPLICATE
    outcome = await together(r1, 1, 2)

    assert "changes the number of rows" in outcome.views[0].parts[0].error
    assert outcome.status is NOT_STORED
    assert await keys(r1, "sums") == [5]


async def test_a_target_with_the_ids_of_both_generations_knows_a_retry_by_either(cluster: Cluster) -> None:
    r1 = await one(cluster)
    await r1.server.execute(
        replace(plain("big"), settings={"insert_deduplication_version": "compatible_double_hashes"})
    )
    await cluster.writable()
    await run(r1, "CREATE MATERIALIZED VIEW mv TO big AS SELECT k FROM t")

    outcome = await insert(r1, rows(1))
    assert len(outcome.views[0].parts[0].block_id.split(",")) == 2
    assert (await insert(r1, rows(1))).status is DUPLICATE
