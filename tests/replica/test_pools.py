"""Slots: who takes them, who is refused, who moves from one pool to another, and how many a server has."""

from __future__ import annotations

import asyncio

import pytest

from replica.errors import BadArguments, UnknownSetting
from replica.pools import NoFreeSlot, Pool, Pools, Slot
from replica.settings import ServerSettings


def taken(pool: Pool) -> Slot:
    assert pool.try_start()
    return Slot(pool)


def test_a_slot_that_moves_is_free_where_it_was() -> None:
    merges, fetches = Pool(1), Pool(1)
    slot = taken(merges)
    slot.move_to(fetches)
    assert (merges.running, fetches.running) == (0, 1)
    slot.move_to(fetches)
    assert fetches.running == 1
    slot.give_back()
    assert (merges.running, fetches.running) == (0, 0)


def test_a_slot_that_cannot_move_stays() -> None:
    merges, fetches = Pool(1), Pool(1)
    other, slot = taken(fetches), taken(merges)
    with pytest.raises(NoFreeSlot):
        slot.move_to(fetches)
    assert (merges.running, fetches.running) == (1, 1)
    other.give_back()
    slot.move_to(fetches)
    assert (merges.running, fetches.running) == (0, 1)


def test_a_slot_that_is_freed_or_moves_away_wakes_whoever_waits() -> None:
    pools, wake_up = Pools(ServerSettings()), asyncio.Event()
    with pools.waking_when_free(wake_up):
        for pool in (pools.fetches, pools.merges_mutations, pools.common):
            wake_up.clear()
            slot = taken(pool)
            assert not wake_up.is_set()
            slot.give_back()
            assert wake_up.is_set()
        slot = taken(pools.merges_mutations)
        wake_up.clear()
        slot.move_to(pools.fetches)
        assert wake_up.is_set()
    wake_up.clear()
    slot.give_back()
    assert not wake_up.is_set()


@pytest.mark.parametrize(
    ("settings", "slots"),
    [
        ({}, (16, 32, 8)),
        ({"background_fetches_pool_size": "1"}, (1, 32, 8)),
        ({"background_pool_size": "3"}, (16, 6, 8)),
        ({"background_pool_size": "3", "background_merges_mutations_concurrency_ratio": "1.5"}, (16, 4, 8)),
        ({"background_pool_size": "1", "background_merges_mutations_concurrency_ratio": "0.1"}, (16, 1, 8)),
        ({"background_common_pool_size": "100"}, (16, 32, 100)),
    ],
)
def test_the_sizes_come_from_the_settings(settings: dict[str, str], slots: tuple[int, int, int]) -> None:
    pools = Pools(ServerSettings.from_text(settings))
    assert (pools.fetches.capacity, pools.merges_mutations.capacity, pools.common.capacity) == slots


def test_an_unknown_setting_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownSetting, match="nearest that this model knows is background_fetches_pool_size"):
        ServerSettings.from_text({"background_fetch_pool_size": "1"})


@pytest.mark.parametrize("value", ["-1", "1.5", "one", "", "٣", "1e3", "0x10", " 1", "9" * 30])
def test_a_size_is_a_whole_number(value: str) -> None:
    with pytest.raises(BadArguments, match="background_pool_size takes a whole number, not"):
        ServerSettings.from_text({"background_pool_size": value})


@pytest.mark.parametrize("value", ["nan", "inf", "-2", ".5", "2."])
def test_a_ratio_is_a_number(value: str) -> None:
    with pytest.raises(BadArguments, match="concurrency_ratio takes a number"):
        ServerSettings.from_text({"background_merges_mutations_concurrency_ratio": value})


def test_none_of_them_may_be_0_but_how_often_an_insert_is_tried_again() -> None:
    for name in ("background_fetches_pool_size", "background_common_pool_size", "receive_timeout"):
        with pytest.raises(BadArguments, match=f"{name} must be above 0"):
            ServerSettings.from_text({name: "0"})
    assert ServerSettings.from_text({"insert_keeper_max_retries": "0"}).insert_keeper_max_retries == 0
