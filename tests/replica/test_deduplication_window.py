"""Which deduplication ids are forgotten, and how they go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.api import RequestRefused
from replica.background.deduplication_window import DeduplicationId, DeduplicationWindow, outside_window
from replica.settings import MergeTreeSettings
from tests.replica.cluster import QUICK_CLEANUP, ROOT, Cluster, rows
from tests.replica.idle import IdleReplica, idle_replica

IDS = f"{ROOT}/deduplication_hashes"


def id_of(name: str, created: int) -> DeduplicationId:
    return DeduplicationId(name, created, 0)


def outside(created: dict[str, int], size: int, seconds: int) -> list[str]:
    ids = [id_of(name, time) for name, time in created.items()]
    return [each.name for each in outside_window(ids, size, seconds)]


def test_the_newest_are_kept_up_to_the_size() -> None:
    assert outside({"a": 3, "b": 1, "c": 2, "d": 4}, 2, 3600) == ["c", "b"]
    assert outside({"a": 3, "b": 1}, 2, 3600) == []


def test_equally_new_ones_are_kept_by_the_greater_name() -> None:
    assert outside({"a": 7, "c": 7, "b": 7}, 2, 3600) == ["a"]


def test_age_counts_from_the_newest_and_the_very_threshold_is_kept() -> None:
    assert outside({"new": 61_000, "just": 1_000, "old": 999}, 10, 60) == ["old"]
    assert outside({"alone": 0}, 10, 0) == []


def test_a_window_of_nothing_forgets_all() -> None:
    assert outside({"a": 1, "b": 2}, 0, 3600) == ["b", "a"]
    assert outside({}, 0, 0) == []


created_ids = st.dictionaries(st.text("abc", max_size=4), st.integers(0, 20_000), max_size=20)


@given(created_ids, st.integers(0, 25), st.integers(0, 20))
def test_what_is_kept_is_newer_than_what_goes_and_fills_the_window(
    created: dict[str, int], size: int, seconds: int
) -> None:
    gone = outside(created, size, seconds)
    kept = sorted(set(created) - set(gone))
    assert len(kept) <= size
    assert all((created[new], new) > (created[old], old) for new in kept for old in gone)
    newest = max(created.values(), default=0)
    assert all(newest - created[name] <= 1000 * seconds for name in kept)
    for name in gone:  # none went without need
        assert len(kept) == size or newest - created[name] > 1000 * seconds
    remaining = {name: created[name] for name in kept}
    assert outside(remaining, size, seconds) == []


# --- in the coordination service -----------------------------------------------------------------------------


@pytest.fixture
async def r1(cluster: Cluster) -> AsyncIterator[IdleReplica]:
    settings = {"replicated_deduplication_window": "2"}
    async with idle_replica(cluster, "r1", settings=settings) as replica:
        yield replica


async def make(r1: IdleReplica, *names: str) -> None:
    for name in names:
        await r1.session.create(f"{IDS}/{name}", b"all_0_0_0")


async def test_only_the_window_remains(r1: IdleReplica) -> None:
    await make(r1, "b", "c", "d", "e")
    await DeduplicationWindow(r1.state, r1.session).forget_outside()
    stats = {name: await r1.session.exists(f"{IDS}/{name}") for name in await r1.session.children(IDS)}
    assert list(stats) == ["d", "e"]


async def test_only_unknown_ids_are_asked_about(r1: IdleReplica) -> None:
    asked: list[list[str]] = []
    get_many = r1.session.get_many

    async def noted(paths):  # type: ignore[no-untyped-def]
        asked.append([path.rsplit("/", 1)[1] for path in paths])
        return await get_many(paths)

    r1.session.get_many = noted  # type: ignore[method-assign]
    window = DeduplicationWindow(r1.state, r1.session)
    await make(r1, "a", "b", "c")
    await window.forget_outside()
    await window.forget_outside()
    await make(r1, "d")
    await window.forget_outside()
    assert asked == [["a", "b", "c"], ["d"]]
    assert await r1.session.children(IDS) == ["c", "d"]


async def test_an_id_that_changed_since_it_was_looked_at_is_not_removed_but_looked_at_again(r1: IdleReplica) -> None:
    window = DeduplicationWindow(r1.state, r1.session)
    await make(r1, "a", "b")
    await window.forget_outside()
    await r1.session.set(f"{IDS}/a", b"all_1_1_0")
    await make(r1, "c")
    await window.forget_outside()
    assert await r1.session.children(IDS) == ["a", "b", "c"]
    await window.forget_outside()
    assert await r1.session.children(IDS) == ["b", "c"]


async def test_an_id_that_another_replica_removed_is_forgotten(r1: IdleReplica) -> None:
    window = DeduplicationWindow(r1.state, r1.session)
    await make(r1, "a", "b", "c")
    r1.after("get_many", lambda: r1.session.delete(f"{IDS}/a"))
    await window.forget_outside()
    await window.forget_outside()
    assert await r1.session.children(IDS) == ["b", "c"]


async def test_an_id_that_cannot_be_removed_does_not_hold_up_the_others(
    r1: IdleReplica, caplog: pytest.LogCaptureFixture
) -> None:
    await make(r1, "a", "b", "c", "d")
    delete = r1.session.delete

    async def refusing(path: str, version: int) -> None:
        if path.endswith("/b"):
            raise RequestRefused(path)
        await delete(path, version)

    r1.session.delete = refusing  # type: ignore[assignment]
    await DeduplicationWindow(r1.state, r1.session).forget_outside()
    assert await r1.session.children(IDS) == ["b", "c", "d"]
    assert f"{IDS}/b" in caplog.text


async def test_a_block_is_a_duplicate_until_its_id_is_forgotten(cluster: Cluster) -> None:
    r1 = await cluster.start("r1")
    await cluster.create_table(settings={**QUICK_CLEANUP, "replicated_deduplication_window": "1"}, partition_by="")
    session = await cluster.session()
    await r1.insert(rows(1))
    assert (await r1.insert(rows(1))).status == "duplicate"
    await r1.insert(rows(2))
    async with asyncio.timeout(20):
        while len(await session.children(IDS)) > 1:
            await asyncio.sleep(0.01)
    assert (await r1.insert(rows(1))).status == "stored"


def test_the_window_is_ten_thousand_ids_of_an_hour() -> None:
    settings = MergeTreeSettings.from_text({})
    assert settings.replicated_deduplication_window == 10000
    assert settings.replicated_deduplication_window_seconds == 3600
