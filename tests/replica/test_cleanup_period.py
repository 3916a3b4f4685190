"""How long a table waits between two cleanups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.background.cleanup_period import Cleaned, CleanupPeriod
from replica.settings import MergeTreeSettings


def periods(*cleaned: Cleaned, random_seconds: float = 0, **settings: int) -> list[float]:
    period = CleanupPeriod(MergeTreeSettings(**settings))
    return [period.after(each, random_seconds) for each in cleaned]


def blocks(count: float) -> Cleaned:
    """What so many points are."""
    return Cleaned(deduplication_ids=int(6 * count))


def test_points_are_about_the_inserted_blocks() -> None:
    assert Cleaned(parts=13, log_entries=13, deduplication_ids=20).points == pytest.approx(10)
    assert Cleaned().points == 0


def test_the_first_cleanup_says_nothing_about_the_next() -> None:
    assert periods(Cleaned(), Cleaned()) == [30, 300]
    assert periods(blocks(9999), random_seconds=7) == [37]


def test_the_next_cleanup_is_to_have_the_preferred_number_of_points() -> None:
    assert periods(Cleaned(), blocks(75), blocks(75), blocks(300)) == [30, 60, 120, 60]


def test_the_period_stays_within_its_bounds() -> None:
    assert periods(Cleaned(), blocks(1), blocks(15_000)) == [30, 300, 30]
    assert periods(Cleaned(), Cleaned(), cleanup_delay_period=2, max_cleanup_delay_period=9) == [2, 9]


def test_without_a_preferred_number_it_is_always_the_same() -> None:
    assert periods(Cleaned(), Cleaned(), cleanup_thread_preferred_points_per_iteration=0) == [30, 30]


@given(st.lists(st.integers(0, 10_000), max_size=8), st.integers(0, 10))
def test_it_is_bounded_whatever_was_cleaned(ids: list[int], random_seconds: int) -> None:
    for seconds in periods(*(Cleaned(deduplication_ids=count) for count in ids), random_seconds=random_seconds):
        assert 30 <= seconds <= 300 + random_seconds


def test_the_defaults_are_clickhouses() -> None:
    settings = MergeTreeSettings.from_text({})
    assert (settings.cleanup_delay_period, settings.max_cleanup_delay_period) == (30, 300)
    assert (settings.cleanup_delay_period_random_add, settings.cleanup_thread_preferred_points_per_iteration) == (
        10,
        150,
    )
