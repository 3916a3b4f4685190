"""ALTER TABLE … MODIFY SETTING and RESET SETTING: of one server's table, at once, and over restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from replica.alter_settings import altered
from replica.commands import AlterSettings
from replica.errors import (
    BadArguments,
    ClickHouseError,
    ReadonlySetting,
    TableIsReadOnly,
    TooManyParts,
    UnknownSetting,
    UnknownTable,
)
from replica.settings import SETTINGS, MergeTreeSettings
from tests.replica.cluster import Cluster, definition, eventually, rows

CALM = {"merge_selecting_sleep_ms": "3600000", "max_merge_selecting_sleep_ms": "3600000"}


def modify(**settings: str) -> AlterSettings:
    return AlterSettings("default", "t", modified=settings)


def reset(*names: str) -> AlterSettings:
    return AlterSettings("default", "t", reset=names)


# --- the definition afterwards -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "command", "after"),
    [
        ({}, modify(old_parts_lifetime="7"), {"old_parts_lifetime": "7"}),
        ({"old_parts_lifetime": "5"}, modify(old_parts_lifetime="7"), {"old_parts_lifetime": "7"}),
        ({}, modify(old_parts_lifetime="480"), {"old_parts_lifetime": "480"}),
        ({}, modify(always_fetch_merged_part="true"), {"always_fetch_merged_part": "true"}),
        ({"old_parts_lifetime": "5"}, reset("old_parts_lifetime"), {}),
        ({"old_parts_lifetime": "5"}, reset("merge_selector_base"), {"old_parts_lifetime": "5"}),
        ({}, modify(index_granularity="8192"), {"index_granularity": "8192"}),
        ({"max_cleanup_delay_period": "9", "cleanup_delay_period": "8"}, reset("cleanup_delay_period"), None),
    ],
)
def test_the_definition_afterwards(
    before: Mapping[str, str], command: AlterSettings, after: Mapping[str, str] | None
) -> None:
    made = definition(settings=before)
    if after is None:
        with pytest.raises(BadArguments, match="must not be greater than"):
            altered(made, command)
    else:
        assert altered(made, command) == definition(settings=after)


@pytest.mark.parametrize(
    ("command", "error", "complaint"),
    [
        (modify(old_part_lifetime="7"), UnknownSetting, "nearest that this model knows is old_parts_lifetime"),
        (reset("old_part_lifetime"), BadArguments, "Cannot reset .* old_parts_lifetime"),
        (modify(index_granularity="1"), ReadonlySetting, "index_granularity is readonly"),
        (reset("index_granularity"), ReadonlySetting, "index_granularity is readonly"),
        (modify(old_parts_lifetime="7", merge_selector_base="x"), BadArguments, "merge_selector_base takes a whole"),
        (modify(fsync_after_insert="2"), BadArguments, "at most 1"),
        (modify(max_replicated_logs_to_keep="0"), BadArguments, "at least 1"),
        (modify(parts_to_throw_insert="18446744073709551616"), BadArguments, "at most 18446744073709551615"),
        (modify(cleanup_delay_period="301"), BadArguments, r"\(301\) must not .* max_cleanup_delay_period \(300\)"),
        (modify(merge_selecting_sleep_ms="60001"), BadArguments, "max_merge_selecting_sleep_ms"),
    ],
)
def test_what_does_not_fit_is_refused(command: AlterSettings, error: type[ClickHouseError], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        altered(definition(), command)


def test_every_default_is_within_its_own_limits() -> None:
    texts = {name: str(setting.default) for name, setting in SETTINGS.items()}
    assert MergeTreeSettings.from_text(texts) == MergeTreeSettings()


# --- on a server ---------------------------------------------------------------------------------------------


async def test_it_is_kept_over_restarts_and_of_one_replica_only(cluster: Cluster) -> None:
    r1, r2 = await cluster.start("r1"), await cluster.start("r2")
    await cluster.create_table()
    await r1.server.execute(modify(old_parts_lifetime="7", merge_selector_base="3"))
    await r1.server.execute(reset("merge_selector_base"))
    assert r1.table().state.structure.settings == MergeTreeSettings(old_parts_lifetime=7)
    assert r2.table().state.structure.settings == MergeTreeSettings()
    await cluster.stop("r1")
    r1 = await cluster.start("r1")
    await cluster.writable()
    assert r1.table().definition.settings == {"old_parts_lifetime": "7"}
    assert r1.table().state.structure.settings == MergeTreeSettings(old_parts_lifetime=7)


async def test_a_refused_one_changes_nothing(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table()
    for command in (
        modify(old_parts_lifetime="7", nosuch="1"),
        modify(old_parts_lifetime="7", index_granularity="1"),
    ):
        with pytest.raises(ClickHouseError):
            await r1.server.execute(command)
    assert r1.table().definition.settings == {}
    with pytest.raises(UnknownTable):
        await r1.server.execute(AlterSettings("default", "u", {"old_parts_lifetime": "7"}))


async def test_a_read_only_table_is_not_altered(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table()
    r1.table().state.become_readonly("a test says so")
    with pytest.raises(TableIsReadOnly):
        await r1.server.execute(modify(old_parts_lifetime="7"))
    assert r1.table().definition.settings == {}


# --- who reads settings sees them at once --------------------------------------------------------------------


async def test_inserts_are_refused_by_the_new_limit(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table(settings=CALM)
    await r1.insert(rows(2))
    await r1.server.execute(modify(parts_to_throw_insert="1"))
    with pytest.raises(TooManyParts):
        await r1.insert(rows(4))
    await r1.server.execute(reset("parts_to_throw_insert"))
    await r1.insert(rows(4))


async def test_deduplication_goes_off_and_on(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table(settings=CALM)
    await r1.server.execute(modify(replicated_deduplication_window="0"))
    for _ in range(2):
        await r1.insert(rows(2))
    await r1.server.execute(reset("replicated_deduplication_window"))
    for _ in range(2):
        await r1.insert(rows(2))
    assert await r1.count() == 3


async def test_merges_are_looked_for_by_the_new_settings(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table(settings=CALM | {"merge_selector_base": "1000"})
    for key in (2, 4, 6):
        await r1.insert(rows(key))
    await asyncio.sleep(0.1)
    assert len(await r1.active_parts()) == 3
    await r1.server.execute(modify(merge_selector_base="2", min_age_to_force_merge_seconds="0"))
    await eventually(lambda: len(r1.table().state.store.active_parts()) == 1)


async def test_a_sleeping_cleanup_wakes(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table(settings=CALM | {"merge_selector_base": "2"})
    await r1.insert(rows(2))
    await r1.insert(rows(4))
    await r1.server.execute(modify(merge_selecting_sleep_ms="1"))
    await eventually(lambda: len(r1.table().state.store.active_parts()) == 1)
    assert len(r1.table().state.store.parts()) == 3
    await r1.server.execute(modify(old_parts_lifetime="0"))
    await eventually(lambda: len(r1.table().state.store.parts()) == 1)


async def test_parts_are_synced_from_then_on(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table(settings={"fsync_after_insert": "0"})
    assert not r1.table().state.store.fsync
    await r1.server.execute(modify(fsync_after_insert="1"))
    assert r1.table().state.store.fsync
    await r1.server.execute(modify(fsync_after_insert="0"))
    assert not r1.table().state.store.fsync
