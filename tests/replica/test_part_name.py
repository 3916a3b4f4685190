import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import BadDataPartName, LogicalError
from replica.part_name import LEGACY_MAX_LEVEL, MAX_LEVEL, PartName

blocks = st.integers(0, 8)
levels = st.integers(0, 3) | st.just(MAX_LEVEL)


@st.composite
def part_names(draw: st.DrawFn) -> PartName:
    low, high = sorted((draw(blocks), draw(blocks)))
    return PartName(draw(st.sampled_from(["all", "202401"])), low, high, draw(levels), draw(st.integers(0, 2)))


def name(text: str) -> PartName:
    return PartName.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "all_0_0_0",
        "202401_3_7_2",
        "202401_3_7_2_9",
        "-1_0_0_0",
        "201801-1--1_0_0_0",
        "02ef7204279c04e4c4d22971331208d9_0_12_3",
        "patch-02ef7204279c04e4c4d22971331208d9-all_5_5_0_5",
        "202401_0_17_999999999_999999999",
        "201805_0_2_4294967295",
        "all_-5_-3_1",
        f"all_0_{2**63 - 1}_0",
    ],
)
def test_a_name_prints_as_it_was_read(text: str) -> None:
    assert str(PartName.parse(text)) == text
    assert PartName.try_parse(text) == PartName.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "all",
        "all_0_0",
        "_0_0_0",
        "all_1_0_0",
        "all_0_0_0_",
        "all_0_0_0_0",
        "all_0_0_0_1_2",
        "all_00_0_0",
        "all_0_0_+1",
        "all_0_0_0\n",
        "all_0_0_٣",
        "all_0_0_4294967296",
        "all_0_0_-1",
        f"all_0_{2**63}_0",
        f"all_0_0_0_{2**63}",
        "../all_0_0_0",
        "a/b_0_0_0",
        ".._0_0_0",
        "a b_0_0_0",
        "a\0_0_0_0",
        "ä_0_0_0",
        "20180101_20180111_0_0_0",
        "20180101_20180131_0_2_999999999",
        "all_99999999999999999999999999_0_0",
    ],
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadDataPartName, match=r"^Unexpected part name: ") as caught:
        PartName.parse(text)
    assert caught.value.message.startswith(f"Unexpected part name: {text}")
    assert PartName.try_parse(text) is None


def test_a_refused_name_in_the_old_month_syntax_says_so() -> None:
    with pytest.raises(BadDataPartName, match="month syntax"):
        PartName.parse("20180101_20180111_0_0_0")
    assert PartName.parse("20180101_20180111_20180112_1_7").partition_id == "20180101"


def test_no_part_can_be_made_that_has_no_name() -> None:
    for wrong in (("a/b", 0, 0, 0), ("all", 1, 0, 0), ("all", 0, 0, -1), ("all", 0, 0, 0, -1)):
        with pytest.raises(BadDataPartName):
            PartName(*wrong)  # type: ignore[arg-type]


def test_the_legacy_level_counts_as_the_greatest_level() -> None:
    legacy = name("201805_0_2_4294967295")
    assert legacy.level == MAX_LEVEL
    assert legacy.is_fake_drop_range
    assert legacy == name("201805_0_2_999999999")
    assert hash(legacy) == hash(name("201805_0_2_999999999"))
    assert str(PartName("201805", 0, 2, LEGACY_MAX_LEVEL)) == "201805_0_2_4294967295"


def test_names_that_arise() -> None:
    assert str(PartName.inserted("202401", 7)) == "202401_7_7_0"
    assert str(PartName.drop_range("202401", 17)) == "202401_0_17_999999999_999999999"
    assert PartName.drop_range("202401", 17).is_fake_drop_range
    assert not name("202401_0_17_1").is_fake_drop_range


def test_derived_numbers() -> None:
    assert name("all_3_7_2").blocks_count == 5
    assert name("all_3_7_2").data_version == 3
    assert name("all_3_7_2_9").data_version == 9


@pytest.mark.parametrize(
    ("outer", "inner", "contains"),
    [
        ("all_0_5_2", "all_0_5_2", True),
        ("all_0_5_3", "all_0_4_2", True),
        ("all_0_5_2", "all_0_4_2", False),
        ("all_0_5_2", "all_0_5_1", True),
        ("all_0_5_1", "all_0_5_2", False),
        ("all_0_5_2_7", "all_0_5_2", True),
        ("all_0_5_2", "all_0_5_2_7", False),
        ("all_0_5_3", "all_0_4_2_7", False),
        ("all_1_5_3", "all_0_4_2", False),
        ("b_0_5_3", "all_0_4_2", False),
        ("all_0_5_999999999_999999999", "all_0_3_999999999_999999999", True),
        ("all_0_5_4294967295", "all_0_3_999999999", True),
        ("all_0_5_999999999_999999999", "all_0_5_7_1000000000", False),
    ],
)
def test_containment_needs_blocks_level_and_mutation(outer: str, inner: str, contains: bool) -> None:
    assert name(outer).contains(name(inner)) is contains


@given(part_names(), part_names())
def test_relations_exclude_each_other(one: PartName, other: PartName) -> None:
    nested = one.contains(other) or other.contains(one)
    assert one.is_disjoint(other) == other.is_disjoint(one)
    assert one.intersects(other) == other.intersects(one)
    assert [nested, one.is_disjoint(other), one.intersects(other)].count(True) == 1


@given(part_names(), part_names(), part_names())
def test_containment_is_an_order(one: PartName, two: PartName, three: PartName) -> None:
    assert one.contains(one)
    if one.contains(two) and two.contains(one):
        assert one == two
    if one.contains(two) and two.contains(three):
        assert one.contains(three)


@given(part_names(), part_names())
def test_names_sort_by_their_numbers(one: PartName, other: PartName) -> None:
    def numbers(part: PartName) -> tuple[str, int, int, int, int]:
        return part.partition_id, part.min_block, part.max_block, part.level, part.mutation

    assert (one < other) == (numbers(one) < numbers(other))


def test_the_result_of_a_merge() -> None:
    merged = PartName.merged([name("all_0_4_1_8"), name("all_5_5_0"), name("all_9_9_0_11")])
    assert str(merged) == "all_0_9_2_11"
    assert str(PartName.merged([name("all_3_3_0")])) == "all_3_3_1"


@pytest.mark.parametrize(
    "sources", ["", "all_0_0_0 b_1_1_0", "all_1_1_0 all_0_0_0", "all_0_2_1 all_2_2_0", "all_0_0_0 all_0_0_0"]
)
def test_only_parts_of_one_partition_in_their_order_can_be_merged(sources: str) -> None:
    with pytest.raises(LogicalError, match="no range to merge"):
        PartName.merged([name(source) for source in sources.split()])


@given(st.lists(part_names(), min_size=1, max_size=4))
def test_the_result_of_a_merge_contains_its_sources(parts: list[PartName]) -> None:
    sources: list[PartName] = []
    for part in sorted(part for part in parts if not part.is_fake_drop_range):
        if not sources or (part.partition_id == sources[-1].partition_id and part.min_block > sources[-1].max_block):
            sources.append(part)
    if sources:
        merged = PartName.merged(sources)
        assert all(merged.contains(source) and not source.contains(merged) for source in sources)
