import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.merge_selector import PartRange, PartToMerge, Run, allowed, max_parts_to_merge, score, select_merge
from replica.part_name import PartName
from replica.settings import MergeTreeSettings

MIB = 1 << 20
GIB = 1 << 30
DAY = 86400.0
DEFAULT = MergeTreeSettings()


def neighbours(*sizes: int, age: float = 0.0, first: int = 0, partition: str = "all") -> list[PartToMerge]:
    return [PartToMerge(PartName.inserted(partition, first + n), size, age) for n, size in enumerate(sizes)]


def blocks(chosen: list[PartToMerge] | None) -> tuple[int, int] | None:
    return None if chosen is None else (chosen[0].name.min_block, chosen[-1].name.max_block)


def chosen(*sizes: int, max_bytes: int = 150 * GIB, age: float = 0.0, **settings: int) -> tuple[int, int] | None:
    return blocks(select_merge([neighbours(*sizes, age=age)], max_bytes, MergeTreeSettings(**settings)))


# --- worked by hand ------------------------------------------------------------------------------------------


def test_score() -> None:
    assert score(5, 25 * MIB, 0) == pytest.approx(50 * MIB / 3.1)
    # The part on the left is as large as the result: a quarter less. Twice or half as large: nothing.
    assert score(5, 25 * MIB, 25 * MIB) == pytest.approx(0.75 * 50 * MIB / 3.1)
    assert score(5, 25 * MIB, 50 * MIB) == pytest.approx(50 * MIB / 3.1)
    assert score(5, 25 * MIB, 22 * MIB) == pytest.approx(50 * MIB / 3.1)  # not larger than 0.9 of the sum
    # A quarter of a doubling apart: half of the discount.
    assert score(2, 10**9, round(10**9 * 2**0.25)) == pytest.approx((0.75 + 0.125) * (10**9 + 10 * MIB) / 0.1)
    assert score(2, 0, 1) == pytest.approx(10 * MIB / 0.1)


def ok(
    count: int, total: int, largest: int, age: float = 0.0, parts: int = 0, base: int = 5, **settings: int
) -> bool:
    return allowed(Run(0, count, total, largest, age), parts, MergeTreeSettings(**settings), base)


def test_young_and_few_parts_must_be_five_times_the_largest() -> None:
    # (sum + 6 × 5 MiB) / (largest + 5 MiB): with equal parts it is their number.
    assert ok(5, 500 * MIB, 100 * MIB)
    assert not ok(4, 400 * MIB, 100 * MIB)
    assert ok(6, 495 * MIB, 100 * MIB)  # exactly 525 / 105
    assert not ok(6, 495 * MIB - 1, 100 * MIB)


def test_a_large_number_of_parts_lowers_the_base() -> None:
    # 30 parts are half the way from 10 to 50: the base is 3.5.
    assert not ok(3, 300 * MIB, 100 * MIB, parts=30)
    assert ok(4, 400 * MIB, 100 * MIB, parts=30)
    assert ok(2, 200 * MIB, 100 * MIB, parts=50)
    assert not ok(4, 400 * MIB, 100 * MIB, parts=10)
    assert not ok(2, 200 * MIB - 1, 100 * MIB, parts=1000)  # it is never below 2


def test_age_lowers_the_base_sooner_for_small_merges() -> None:
    # Below 1 MiB: from 10 s to an hour. Half of that time: 3.5.
    assert not ok(4, 4, 1, age=10)
    assert ok(4, 4, 1, age=1805)
    assert not ok(3, 3, 1, age=1805)
    assert ok(2, 2, 1, age=3600)
    # From 100 GiB on: to 30 days.
    assert not ok(2, 200 * GIB, 100 * GIB, age=30 * DAY - 1)
    assert ok(2, 200 * GIB, 100 * GIB, age=30 * DAY)
    # Between, by the logarithm of the sum.
    middle = round(math.exp((math.log(1 + MIB) + math.log(1 + 100 * GIB)) / 2)) - 1
    assert not ok(2, middle, middle // 2, age=(3600 + 30 * DAY) / 2 - 60)
    assert ok(2, middle, middle // 2, age=(3600 + 30 * DAY) / 2 + 60)


def test_age_and_number_of_parts_add_up() -> None:
    assert ok(2, 2, 1, age=1805, parts=30)
    assert not ok(2, 2, 1, age=1700, parts=30)


def test_old_parts_are_merged_whatever_their_sizes() -> None:
    assert ok(2, 101 * MIB, 100 * MIB, age=60, min_age_to_force_merge_seconds=60, min_parts_to_merge_at_once=3)
    assert not ok(2, 101 * MIB, 100 * MIB, age=59, min_age_to_force_merge_seconds=60)


def test_the_least_number_of_parts() -> None:
    assert not ok(5, 5, 1, min_parts_to_merge_at_once=6)
    assert ok(6, 6, 1, min_parts_to_merge_at_once=6)


def test_the_choice() -> None:
    assert chosen(1, 1, 1, 1) is None
    assert chosen(1, 1, 1, 1, 1) == (0, 4)
    assert chosen(GIB, 1, 1, 1, 1, 1) == (1, 5)
    assert chosen() is None
    assert blocks(select_merge([], GIB, DEFAULT)) is None


def test_a_merge_of_no_bytes_is_no_merge() -> None:
    assert chosen(*[10] * 8, max_bytes=0) is None
    assert chosen(*[10] * 8, max_bytes=49) is None
    assert chosen(*[10] * 8, max_bytes=50) == (3, 7)
    assert chosen(*[10] * 8, max_bytes=80) == (0, 7)


def test_equally_good_choices() -> None:
    parts = neighbours(*[10] * 8)
    assert blocks(select_merge([parts], 60, DEFAULT)) == (2, 7)
    later = neighbours(*[10] * 8, partition="b", first=100)
    assert blocks(select_merge([parts, later], 60, DEFAULT)) == (102, 107)
    assert blocks(select_merge([later, parts], 60, DEFAULT)) == (2, 7)


def test_a_tiny_last_part_waits_for_others_of_its_size() -> None:
    # Only the tiny part makes the merge balanced: (495 + 6 × 5) / 105 is 5. Then it is made without it.
    sizes = (100 * MIB, 100 * MIB, 100 * MIB, 100 * MIB, 95 * MIB, 1)
    assert chosen(*sizes) == (0, 4)
    assert chosen(*sizes, merge_selector_enable_heuristic_to_remove_small_parts_at_right=0) == (0, 5)
    assert chosen(*sizes[:-1]) is None
    # Tiny is below one hundredth of the whole; of the last three, 1 is more.
    assert chosen(33, 33, 33, 1, age=100, min_age_to_force_merge_seconds=100) == (0, 3)
    assert chosen(34, 33, 33, 1, age=100, min_age_to_force_merge_seconds=100) == (1, 3)
    # Two parts always stay.
    assert chosen(GIB, 1, age=100, min_age_to_force_merge_seconds=100) == (0, 1)


def test_at_most_so_many_parts() -> None:
    off = {"merge_selector_enable_heuristic_to_lower_max_parts_to_merge_at_once": 0}
    assert chosen(*[1] * 20, max_parts_to_merge_at_once=7, **off) == (13, 19)
    assert chosen(*[1] * 120, **off) == (20, 119)
    off["merge_selector_enable_heuristic_to_remove_small_parts_at_right"] = 0  # each is below one hundredth
    assert chosen(*[1] * 120, max_parts_to_merge_at_once=0, **off) == (0, 119)
    # As the real engine did with 150 equal parts.
    assert chosen(*[1] * 150) == (51, 149)


def test_fewer_parts_as_inserts_come_close_to_being_refused() -> None:
    assert max_parts_to_merge(5, DEFAULT, 5) == 100
    assert max_parts_to_merge(150, DEFAULT, 5) == 99
    assert max_parts_to_merge(2000, DEFAULT, 5) == int(5 + 95 * (1 - (1995 / 2995) ** 5)) == 87
    assert max_parts_to_merge(3000, DEFAULT, 5) == max_parts_to_merge(9000, DEFAULT, 5) == 5
    assert max_parts_to_merge(9000, MergeTreeSettings(max_parts_to_merge_at_once=3), 5) == 3
    # With three parts, the exact arithmetic of doubles decides; so does the real engine.
    assert max_parts_to_merge(3, MergeTreeSettings(max_parts_to_merge_at_once=2), 1) == 2
    assert max_parts_to_merge(4, MergeTreeSettings(max_parts_to_merge_at_once=2), 1) == 1


def test_only_the_last_parts_of_a_long_range_are_looked_at() -> None:
    parts = neighbours(*[1] * 12, *[GIB] * 3)
    assert blocks(select_merge([parts], MIB, DEFAULT)) == (0, 11)
    assert blocks(select_merge([parts], MIB, MergeTreeSettings(merge_selector_window_size=8))) == (7, 11)
    assert blocks(select_merge([parts], MIB, MergeTreeSettings(merge_selector_window_size=7))) is None


def test_optimize_hardly_asks_for_balance() -> None:
    parts = neighbours(100 * MIB, 1)
    assert select_merge([parts], GIB, DEFAULT) is None
    assert blocks(select_merge([parts], GIB, DEFAULT, aggressive=True)) == (0, 1)
    assert select_merge([parts], 100 * MIB, DEFAULT, aggressive=True) is None


# --- against every range there is ----------------------------------------------------------------------------

parts_of_a_range = st.lists(
    st.tuples(
        st.one_of(st.sampled_from([0, 1, MIB, 10 * MIB, 100 * MIB]), st.integers(0, 3 * GIB)),
        st.one_of(st.sampled_from([0.0, 20.0, 4000.0]), st.floats(0, 60 * DAY)),
    ),
    max_size=9,
)
settings = st.builds(
    MergeTreeSettings,
    max_parts_to_merge_at_once=st.sampled_from([0, 2, 4, 100]),
    min_parts_to_merge_at_once=st.sampled_from([0, 3]),
    min_age_to_force_merge_seconds=st.sampled_from([0, 1000]),
    merge_selector_base=st.integers(1, 8),
    merge_selector_window_size=st.sampled_from([3, 1000]),
    merge_selector_enable_heuristic_to_remove_small_parts_at_right=st.sampled_from([0, 1]),
)


def every_run(parts: PartRange, max_bytes: int, of: MergeTreeSettings) -> list[tuple[float, list[PartToMerge]]]:
    found = []
    longest = max_parts_to_merge(len(parts), of, of.merge_selector_base)
    for begin in range(len(parts)):
        for end in range(begin + 2, len(parts) + 1):
            inside = parts[begin:end]
            sizes = [part.bytes for part in inside]
            run = Run(begin, end, sum(sizes), max(sizes), min(part.age for part in inside))
            if (
                begin >= len(parts) - of.merge_selector_window_size
                and (longest == 0 or end - begin <= longest)
                and run.bytes <= max_bytes
                and allowed(run, len(parts), of, of.merge_selector_base)
            ):
                kept = list(inside)
                if of.merge_selector_enable_heuristic_to_remove_small_parts_at_right:
                    while len(kept) > 2 and kept[-1].bytes < run.bytes * 0.01:
                        kept.pop()
                found.append((score(len(kept), run.bytes, parts[begin - 1].bytes if begin else 0), kept))
    return found


@given(st.lists(parts_of_a_range, max_size=3), st.integers(0, 5 * GIB), settings)
def test_no_legal_range_has_a_better_score(
    contents: list[list[tuple[int, float]]], max_bytes: int, of: MergeTreeSettings
) -> None:
    ranges = [
        [PartToMerge(PartName.inserted(f"p{number}", n), size, age) for n, (size, age) in enumerate(content)]
        for number, content in enumerate(contents)
    ]
    everything = [run for parts in ranges for run in every_run(parts, max_bytes, of)]
    expected = None
    if everything:
        best = min(run_score for run_score, _ in everything)
        expected = [run for run_score, run in everything if run_score == best][-1]
    found = select_merge(ranges, max_bytes, of)
    assert found == expected
    if found is not None:
        assert len(found) >= 2
        assert sum(part.bytes for part in found) <= max_bytes


def test_a_merge_that_makes_a_neighbour_of_the_size_of_the_part_on_its_left_is_preferred() -> None:
    # Two pairs of equal cost; only the second makes about as much as there is on its left: 22 MiB beside 20 MiB.
    sizes = (10 * MIB, 10 * MIB, GIB, 20 * MIB, 11 * MIB, 11 * MIB, GIB)
    settings = {"merge_selector_base": 1, "max_parts_to_merge_at_once": 2, "max_bytes": 25 * MIB}
    off = {"merge_selector_enable_heuristic_to_lower_max_parts_to_merge_at_once": 0}
    assert chosen(*sizes, **settings, **off) == (4, 5)
    assert chosen(*sizes[:3], GIB, *sizes[4:], **settings, **off) == (0, 1)
