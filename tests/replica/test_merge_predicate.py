from collections.abc import Mapping, Sequence
from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.merge_predicate import (
    KeeperMergePredicate,
    LocalMergePredicate,
    parse_block_number_locks,
    ranges,
    whole_partition,
)
from replica.merge_selector import PartToMerge
from replica.part_name import PartName
from replica.part_set import PartSet

RANGE = "all_0_9_999999999_999999999"


def name(text: str) -> PartName:
    return PartName.parse(text)


def parts(text: str) -> PartSet:
    return PartSet(map(name, text.split()))


def local(virtual: str, mutations: Sequence[int] = ()) -> LocalMergePredicate:
    return LocalMergePredicate(parts(virtual), {"all": mutations})


def keeper(
    before: str,
    after: str | None = None,
    committing: Mapping[str, Sequence[int]] | Sequence[int] = (),
    quorum: str | None = None,
    mutations: Sequence[int] = (),
) -> KeeperMergePredicate:
    numbers = committing if isinstance(committing, Mapping) else {"all": committing}
    return KeeperMergePredicate(
        parts(before),
        numbers,
        parts(before if after is None else after),
        None if quorum is None else name(quorum),
        {"all": mutations},
    )


def names(found: list[list[PartToMerge]] | list[PartToMerge] | str) -> str:
    if isinstance(found, str):
        return found
    return " | ".join(" ".join(str(p.name) for p in (each if isinstance(each, list) else [each])) for each in found)


def active(text: str) -> list[PartToMerge]:
    return [PartToMerge(name(each), 1, 0.0) for each in text.split()]


# --- one part ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("predicate", [local, keeper])
def test_a_part_that_another_entry_uses(predicate: type) -> None:
    assert predicate("all_0_0_0").why_not_part(name("all_0_0_0")) is None
    assert predicate("all_0_4_1").why_not_part(name("all_0_0_0")) == (
        "Part all_0_0_0 has already been assigned a merge into all_0_4_1"
    )
    assert predicate(RANGE).why_not_part(name("all_0_0_0")) == (
        f"Part all_0_0_0 has already been assigned a merge into {RANGE}"
    )


def test_a_part_that_the_queue_does_not_know() -> None:
    assert local("all_1_1_0").why_not_part(name("all_0_0_0")) == (
        "Part all_0_0_0 does not contain in snapshot of virtual parts"
    )
    assert keeper("all_0_0_0", "all_1_1_0").why_not_part(name("all_0_0_0")) == (
        "Part all_0_0_0 does not contain in snapshot of virtual parts"
    )


def test_a_part_that_came_only_with_the_pull() -> None:
    late = keeper("all_0_0_0", "all_0_0_0 all_1_1_0")
    assert late.why_not_part(name("all_0_0_0")) is None
    assert late.why_not_part(name("all_1_1_0")) == (
        "Part all_1_1_0 does not contain in snapshot of previous virtual parts"
    )


def test_a_merge_that_came_only_with_the_pull() -> None:
    assert keeper("all_0_0_0 all_1_1_0", "all_0_1_1").why_not_part(name("all_0_0_0")) == (
        "Part all_0_0_0 has already been assigned a merge into all_0_1_1"
    )


def test_a_part_whose_quorum_is_waited_for() -> None:
    waiting = keeper("all_0_0_0 all_1_1_0", quorum="all_1_1_0")
    assert waiting.why_not_part(name("all_0_0_0")) is None
    assert waiting.why_not_part(name("all_1_1_0")) == "Quorum insert for part all_1_1_0 is currently in progress"


def test_a_partition_that_nobody_asked_about() -> None:
    assert keeper("b_0_0_0").why_not_part(name("b_0_0_0")) == "Uncommitted blocks were not loaded for partition b"
    assert keeper("b_0_0_0", committing={"b": ()}).why_not_part(name("b_0_0_0")) is None


# --- two neighbours ------------------------------------------------------------------------------------------

LEFT, RIGHT = name("all_0_2_1"), name("all_6_6_0")


@pytest.mark.parametrize(
    ("committing", "number"), [([3], 3), ([5], 5), ([1, 4, 5, 9], 4), ([0, 2], None), ([2, 6], None), ([7], None)]
)
def test_a_block_that_is_being_inserted(committing: list[int], number: int | None) -> None:
    found = keeper("all_0_2_1 all_6_6_0", committing=committing).why_not_pair(LEFT, RIGHT)
    if number is None:
        assert found is None
    else:
        assert found == f"Block number {number} is still being inserted between parts all_0_2_1 and all_6_6_0"


def test_blocks_of_other_partitions_do_not_count() -> None:
    assert keeper("all_0_2_1", committing={"all": (), "b": (4,)}).why_not_pair(LEFT, RIGHT) is None


@pytest.mark.parametrize("predicate", [local, keeper])
def test_parts_between_that_are_not_here(predicate: type) -> None:
    virtual = "all_0_2_1 all_3_3_0 all_4_5_1 all_6_6_0 b_4_4_0"
    assert predicate(virtual).why_not_pair(LEFT, RIGHT) == (
        "There are 2 parts (from all_3_3_0 to all_4_5_1) that are still not present or being processed by other "
        "background process on this replica between all_0_2_1 and all_6_6_0"
    )
    assert predicate("all_0_2_1 all_6_6_0 b_4_4_0").why_not_pair(LEFT, RIGHT) is None
    assert predicate("all_0_2_1 all_3_6_7").why_not_pair(LEFT, name("all_3_3_0")) is None


def test_a_part_between_that_came_only_with_the_pull() -> None:
    pulled = keeper("all_0_2_1 all_6_6_0", "all_0_2_1 all_4_4_0 all_6_6_0")
    assert str(pulled.why_not_pair(LEFT, RIGHT)).startswith("There are 1 parts (from all_4_4_0 to all_4_4_0)")


@pytest.mark.parametrize("predicate", [local, keeper])
def test_parts_with_different_mutations(predicate: type) -> None:
    left, right = name("all_0_2_1_7"), name("all_3_3_0")
    known = predicate("all_0_2_1_7", mutations=(5, 7, 9))
    assert known.why_not_pair(left, right) == (
        "Current mutation versions of parts all_0_2_1_7 and all_3_3_0 differ: 7 and 0 respectively"
    )
    assert known.why_not_pair(left, name("all_8_8_0")) is None  # inserted after the mutation
    assert str(known.why_not_pair(left, name("all_9_9_0"))).endswith("7 and 9 respectively")
    # Mutations that are done with and forgotten do not count.
    assert predicate("all_0_2_1_7").why_not_pair(left, right) is None


@pytest.mark.parametrize("predicate", [local, keeper])
def test_parts_of_two_partitions(predicate: type) -> None:
    assert predicate("").why_not_pair(name("all_0_0_0"), name("b_1_1_0")) == (
        "Parts all_0_0_0 and b_1_1_0 belong to different partitions"
    )


# --- ranges --------------------------------------------------------------------------------------------------


def test_ranges_end_at_partitions_at_parts_in_use_and_at_blocks_between() -> None:
    virtual = "all_0_0_0 all_1_1_0 all_2_3_1 all_4_4_0 all_5_5_0 all_7_7_0 b_0_0_0"
    here = active("b_0_0_0 all_4_4_0 all_0_0_0 all_1_1_0 all_2_2_0 all_3_3_0 all_5_5_0 all_7_7_0")
    predicate = keeper(virtual, committing={"all": (6,), "b": ()})
    assert names(ranges(here, predicate)) == "all_0_0_0 all_1_1_0 | all_4_4_0 all_5_5_0 | all_7_7_0 | b_0_0_0"
    assert ranges([], predicate) == []


def test_a_part_in_use_ends_a_range_even_if_its_neighbours_would_pass_as_a_pair() -> None:
    predicate = keeper("all_0_0_0 all_1_1_0 all_2_2_0", quorum="all_1_1_0")
    here = active("all_0_0_0 all_1_1_0 all_2_2_0")
    assert names(ranges(here, predicate)) == "all_0_0_0 | all_2_2_0"
    gone = LocalMergePredicate(parts("all_0_0_0 all_2_2_0"))
    assert names(ranges(here, gone)) == "all_0_0_0 | all_2_2_0"


@given(st.sets(st.integers(0, 12)), st.sets(st.integers(0, 12)), st.sets(st.integers(0, 12)))
def test_everything_usable_is_in_one_range_and_no_range_spans_a_block(
    here: set[int], elsewhere: set[int], committing: set[int]
) -> None:
    committing -= here | elsewhere
    known = PartSet(PartName.inserted("all", number) for number in sorted(here | elsewhere))
    predicate = KeeperMergePredicate(known, {"all": sorted(committing)}, known)
    found = ranges([PartToMerge(PartName.inserted("all", n), 1, 0.0) for n in sorted(here)], predicate)
    numbers = [[part.name.min_block for part in each] for each in found]
    assert list(chain.from_iterable(numbers)) == sorted(here)
    between = (committing | elsewhere) - here
    for each in numbers:
        assert not between & set(range(each[0], each[-1] + 1))
    for left, right in pairwise(numbers):
        assert between & set(range(left[-1] + 1, right[0]))


def test_a_whole_partition_or_the_first_reason() -> None:
    here = active("b_3_3_0 all_5_5_0 all_0_2_1")
    everything = "all_0_2_1 all_5_5_0 b_3_3_0"
    assert names(whole_partition("all", here, keeper(everything), final=False)) == "all_0_2_1 | all_5_5_0"
    assert names(whole_partition("b", here, local(everything), final=True)) == "b_3_3_0"
    assert whole_partition("c", here, local(""), final=True) == "There are no parts inside partition"
    assert whole_partition("all", here, keeper("all_0_2_1 all_5_5_0", committing=(4,)), final=True) == (
        "Block number 4 is still being inserted between parts all_0_2_1 and all_5_5_0"
    )
    assert whole_partition("all", here, keeper("all_0_2_1 all_5_6_1"), final=True) == (
        "Part all_5_5_0 has already been assigned a merge into all_5_6_1"
    )
    assert whole_partition("b", here, local(everything), final=False) == "There is only one part inside partition"


def test_block_numbers_from_names_of_znodes() -> None:
    found = parse_block_number_locks(
        ["block-0000000012", "block-0000000007", "block-", "lock-3", "block-x", "block-1/2"]
    )
    assert found == (7, 12)
    assert parse_block_number_locks([]) == ()
