import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import LogicalError
from replica.part_name import PartName
from replica.part_set import PartSet


def name(text: str) -> PartName:
    return PartName.parse(text)


def part_set(*texts: str) -> PartSet:
    return PartSet(map(name, texts))


def texts(parts: object) -> list[str]:
    return [str(part) for part in parts]  # type: ignore[attr-defined]


def test_members_are_sorted_by_partition_and_blocks() -> None:
    parts = part_set("b_10_10_0", "b_2_2_0", "a_3_3_0", "b_3_9_2")
    assert texts(parts) == ["a_3_3_0", "b_2_2_0", "b_3_9_2", "b_10_10_0"]
    assert len(parts) == 4


def test_a_part_replaces_what_it_contains() -> None:
    parts = part_set("a_0_0_0", "a_1_1_0", "a_2_5_1", "b_0_0_0")
    assert parts.add(name("a_0_1_1"))
    assert texts(parts) == ["a_0_1_1", "a_2_5_1", "b_0_0_0"]
    assert parts.add(name("a_0_1_1_9"))
    assert texts(parts) == ["a_0_1_1_9", "a_2_5_1", "b_0_0_0"]


def test_a_contained_part_changes_nothing() -> None:
    parts = part_set("a_0_5_2")
    assert not parts.add(name("a_5_5_0"))
    assert not parts.add(name("a_0_0_0"))
    assert not parts.add(name("a_0_5_2"))
    assert texts(parts) == ["a_0_5_2"]


@pytest.mark.parametrize(
    ("part", "side", "other"),
    [
        ("a_2_4_1", "previous", "a_1_3_2"),
        ("a_0_2_1", "next", "a_1_3_2"),
        ("a_0_9_2", "next", "a_1_3_2"),
        ("a_1_3_1_7", "next", "a_1_3_2"),
    ],
)
def test_an_intersecting_part_is_refused_and_nothing_changes(part: str, side: str, other: str) -> None:
    parts = part_set("a_0_0_0", "a_1_3_2", "a_9_9_0")
    with pytest.raises(LogicalError) as caught:
        parts.add(name(part))
    assert caught.value.message == (
        f"Part {part} intersects {side} part {other}. "
        "It is a bug or a result of manual intervention in the ZooKeeper data."
    )
    assert texts(parts) == ["a_0_0_0", "a_1_3_2", "a_9_9_0"]


def test_containing_and_covered() -> None:
    parts = part_set("a_0_1_1", "a_2_2_0", "a_3_7_3")
    assert parts.containing(name("a_1_1_0")) == name("a_0_1_1")
    assert parts.containing(name("a_3_7_3")) == name("a_3_7_3")
    assert parts.containing(name("a_2_7_4")) is None
    assert parts.containing(name("b_1_1_0")) is None
    assert texts(parts.covered_by(name("a_0_2_2"))) == ["a_0_1_1", "a_2_2_0"]
    assert texts(parts.covered_by(name("a_2_2_0"))) == ["a_2_2_0"]
    assert parts.covered_by(name("a_4_6_1")) == []
    assert texts(parts.covered_by(PartName.drop_range("a", 7))) == ["a_0_1_1", "a_2_2_0", "a_3_7_3"]
    assert name("a_2_2_0") in parts
    assert name("a_1_1_0") not in parts
    assert "a_2_2_0" not in parts


def test_two_ways_to_remove() -> None:
    parts = part_set("a_0_1_1", "a_2_2_0", "a_3_7_3")
    assert not parts.remove(name("a_0_7_4"))
    assert not parts.remove(name("a_0_0_0"))
    assert parts.remove(name("a_2_2_0"))
    assert texts(parts) == ["a_0_1_1", "a_3_7_3"]
    parts.remove_with_covered(name("a_4_4_0"))
    assert texts(parts) == ["a_0_1_1", "a_3_7_3"]
    parts.remove_with_covered(name("a_3_7_3"))
    assert texts(parts) == ["a_0_1_1"]
    parts.remove_with_covered(name("a_0_1_2"))
    assert texts(parts) == []


def test_a_copy_goes_its_own_way() -> None:
    parts = part_set("a_0_0_0")
    twin = parts.copy()
    twin.add(name("a_1_1_0"))
    parts.remove(name("a_0_0_0"))
    assert (texts(parts), texts(twin)) == ([], ["a_0_0_0", "a_1_1_0"])


@st.composite
def small_parts(draw: st.DrawFn) -> PartName:
    low, high = sorted((draw(st.integers(0, 9)), draw(st.integers(0, 9))))
    level, mutation = draw(st.integers(0, 3)), draw(st.integers(0, 1))
    return PartName(draw(st.sampled_from("ab")), low, high, level, mutation)


@given(st.lists(small_parts(), max_size=12), small_parts())
def test_it_agrees_with_a_plain_set_searched_part_by_part(history: list[PartName], probe: PartName) -> None:
    parts = PartSet()
    plain: set[PartName] = set()
    for part in history:
        expected = not any(member.contains(part) for member in plain)
        if any(part.intersects(member) for member in plain):
            with pytest.raises(LogicalError):
                parts.add(part)
        else:
            assert parts.add(part) is expected
            if expected:
                plain = {member for member in plain if not part.contains(member)} | {part}
        assert list(parts) == sorted(plain)
    containing = [member for member in plain if member.contains(probe)]
    assert parts.containing(probe) == (containing[0] if containing else None)
    covered = [] if containing not in ([], [probe]) else sorted(member for member in plain if probe.contains(member))
    assert parts.covered_by(probe) == covered
    parts.remove_with_covered(probe)
    assert list(parts) == sorted(plain - set(covered))
