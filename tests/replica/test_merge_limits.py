import pytest

from replica.merge_limits import max_bytes_to_merge, max_bytes_to_mutate
from replica.settings import MergeTreeSettings

MIB = 1 << 20
GIB = 1 << 30
DEFAULT = MergeTreeSettings()


def to_merge(busy: int, capacity: int = 32, disk: int | None = None, **settings: int) -> int:
    return max_bytes_to_merge(busy, capacity, disk, MergeTreeSettings(**settings))


def test_with_slots_free_any_merge_may_begin() -> None:
    assert to_merge(0) == to_merge(24) == 150 * GIB == 161061273600
    assert to_merge(992, 1000) == 150 * GIB
    assert to_merge(993, 1000) < 150 * GIB


@pytest.mark.parametrize(
    ("free", "gib"),
    [(7, 33.8), (6, 7.61), (5, 1.703), (4, 0.383), (3, 0.0864), (2, 19.8 / 1024), (1, 4.43 / 1024), (0, 1 / 1024)],
)
def test_fewer_slots_allow_only_smaller_merges(free: int, gib: float) -> None:
    assert to_merge(32 - free) == pytest.approx(gib * GIB, rel=0.005)
    assert to_merge(1000 - free, 1000) == to_merge(32 - free)


def test_a_pool_that_does_one_thing_or_less_is_never_short() -> None:
    assert [to_merge(busy, 4) for busy in (0, 1)] == [150 * GIB] * 2
    assert to_merge(2, 4) == to_merge(30)
    assert to_merge(33) == MIB  # more than full counts as full


def test_settings_of_the_limits() -> None:
    assert to_merge(32, max_bytes_to_merge_at_min_space_in_pool=0) == 1
    assert (
        to_merge(32, max_bytes_to_merge_at_min_space_in_pool=7 * GIB, max_bytes_to_merge_at_max_space_in_pool=5) == 5
    )
    assert to_merge(0, max_bytes_to_merge_at_max_space_in_pool=0) == 0
    assert to_merge(32, max_bytes_to_merge_at_max_space_in_pool=0) == 0
    assert to_merge(32, number_of_free_entries_in_pool_to_lower_max_size_of_merge=0) == 150 * GIB
    lowered = to_merge(30, number_of_free_entries_in_pool_to_lower_max_size_of_merge=4)
    assert lowered == to_merge(28)  # half the way, either way


def test_a_merge_takes_half_of_the_free_space() -> None:
    assert to_merge(0, disk=10 * GIB + 1) == 5 * GIB
    assert to_merge(32, disk=10 * GIB) == MIB
    assert to_merge(0, disk=0) == 0


def test_mutations() -> None:
    def to_mutate(busy: int, disk: int | None = None, **settings: int) -> int | None:
        return max_bytes_to_mutate(busy, 32, disk, MergeTreeSettings(**settings))

    assert [to_mutate(busy) for busy in (0, 12, 13, 32)] == [None, None, 0, 0]
    assert to_mutate(0, 1100) == 1000
    assert [to_mutate(busy, max_number_of_mutations_for_replica=3) for busy in (2, 3)] == [None, 0]
    assert max_bytes_to_mutate(1, 4, None, DEFAULT) is None
    assert max_bytes_to_mutate(2, 4, None, DEFAULT) == 0
