"""The deduplication log of a table that is not replicated: its lines, its window, its files."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.dedup.local_log import Change, KnownIds, LocalLog, Record, file_name, file_number, records_of
from replica.part_name import MAX_LEVEL, PartName


@dataclass
class Files:
    """The files of a log, written whenever the log says so."""

    log: LocalLog
    texts: dict[int, str] = field(default_factory=dict)

    @staticmethod
    def of(window: int, texts: dict[int, str] | None = None) -> Files:
        files = Files(LocalLog(window, texts or {}), dict(texts or {}))
        files.write()
        return files

    def write(self) -> None:
        self.texts |= self.log.unsaved()
        for number in self.log.outdated:
            self.texts.pop(number, None)
        self.log.saved()

    def add(self, number: int, *block_ids: str, partition_id: str = "all") -> None:
        self.log.add(PartName.inserted(partition_id, number), block_ids)
        self.write()

    def drop(self, partition_id: str = "all", last: int = 99) -> None:
        self.log.drop(PartName(partition_id, 0, last, MAX_LEVEL))
        self.write()

    def resize(self, window: int) -> None:
        self.log.resize(window)
        self.write()

    def lines(self) -> dict[int, list[str]]:
        """Without the ids."""
        return {
            number: [line.rpartition("\t")[0] for line in text.splitlines()] for number, text in self.texts.items()
        }


# --- lines ---------------------------------------------------------------------------------------------------


def test_a_line_is_clickhouses() -> None:
    record = Record(Change.ADDED, PartName.parse("88_18_18_0"), "88_10619499460461868496_9553701830997749308")
    line = "1\t88_18_18_0\t88_10619499460461868496_9553701830997749308\n"
    assert record.to_line() == line
    assert list(records_of(line)) == [record]


@pytest.mark.parametrize(
    "damage",
    ["3\tall_1_1_0\tx\n", "1\tall_1_1_0\n", "1\tnonsense\tx\n", "\n", "1 all_1_1_0 x\n", "1\tall_1_1_0\tx\ty\n"],
)
def test_what_stands_before_the_damage_counts_and_nothing_behind_it(damage: str) -> None:
    good = ["1\tall_1_1_0\ta\n", "2\tall_1_1_0\ta\n", "1\tall_2_2_0\tb\n"]
    assert [record.to_line() for record in records_of("".join([*good, damage, *good]))] == good


def test_the_name_of_a_file_is_its_number() -> None:
    assert file_name(12) == "deduplication_log_12.txt"
    assert file_number("deduplication_log_12.txt") == 12
    for other in ("deduplication_log_12.txt.tmp", "deduplication_log_.txt", "deduplication_log_1.txt\n", "x"):
        assert file_number(other) is None


@given(st.integers(1, 8), st.data())
def test_a_line_torn_at_any_byte_was_never_written_and_the_next_one_is_whole(count: int, data: st.DataObject) -> None:
    before = Files.of(10)
    for number in range(count):
        before.add(number, f"all_{number}_7")
    last = Record(Change.ADDED, PartName.inserted("all", 50), "all_50_7").to_line()
    for cut in range(len(last)):
        texts = {1: before.texts[1] + last[:cut]}
        after = Files.of(10, texts)
        assert list(after.log.known(["all_50_7"])) == []
        assert len(after.log.known(f"all_{number}_7" for number in range(count))) == count
        after.add(51, "all_50_7")
        assert str(Files.of(10, after.texts).log.known(["all_50_7"])["all_50_7"]) == "all_51_51_0"


# --- as real ClickHouse 26.9 did it --------------------------------------------------------------------------


def test_a_new_table_has_an_empty_first_file_unless_it_keeps_nothing() -> None:
    assert Files.of(3).texts == {1: ""}
    assert Files.of(0).texts == {}


def test_the_next_file_begins_when_one_is_full_and_those_outnumbered_go() -> None:
    files = Files.of(2)
    for number in range(1, 4):
        files.add(number, f"all_{number}_0")
    assert files.lines() == {1: ["1\tall_1_1_0", "1\tall_2_2_0", "1\tall_3_3_0"]}
    files.add(4, "all_4_0")
    assert {number: len(lines) for number, lines in files.lines().items()} == {1: 4, 2: 0}, "1 is still needed"
    for number in range(5, 9):
        files.add(number, f"all_{number}_0")
    assert {number: len(lines) for number, lines in files.lines().items()} == {2: 4, 3: 0}


def test_ids_that_go_with_a_range_are_written_under_their_own_parts_and_fill_files_too() -> None:
    files = Files.of(3)
    for number in range(1, 5):
        files.add(number, f"all_{number}_0")
    files.drop()
    assert files.lines() == {
        1: [f"1\tall_{n}_{n}_0" for n in (1, 2, 3, 4)] + ["2\tall_2_2_0", "2\tall_3_3_0"],
        2: ["2\tall_4_4_0"],
    }, "1 had left the window already"
    assert files.log.known(f"all_{n}_0" for n in range(5)) == {}


def test_what_does_not_go_with_the_range_stays() -> None:
    files = Files.of(5)
    files.add(1, "1_0_0", partition_id="1")
    files.add(2, "2_0_0", partition_id="2")
    files.add(3, "1_1_1", partition_id="1")
    files.drop("1", last=2)
    assert list(files.log.known(["1_0_0", "2_0_0", "1_1_1"])) == ["2_0_0", "1_1_1"]


def test_a_smaller_window_forgets_the_oldest_and_begins_a_file() -> None:
    files = Files.of(3)
    for number in range(1, 4):
        files.add(number, f"all_{number}_0")
    files.resize(1)
    assert {number: len(lines) for number, lines in files.lines().items()} == {1: 3, 2: 0}
    assert list(files.log.known(f"all_{n}_0" for n in range(5))) == ["all_3_0"]


def test_with_no_window_nothing_is_known_or_written_and_later_the_file_goes_on() -> None:
    files = Files.of(1)
    files.add(26, "all_26_0")
    files.resize(0)
    assert files.log.known(["all_26_0"]) == {}
    files.add(27, "all_26_0")
    files.resize(5)
    assert files.lines() == {1: ["1\tall_26_26_0"]}
    files.add(28, "all_26_0")
    assert files.lines() == {1: ["1\tall_26_26_0", "1\tall_28_28_0"]}


def test_no_window_takes_the_files_before_the_last_one_but_not_when_it_is_loaded() -> None:
    texts = {4: "1\tall_1_1_0\ta\n", 5: "1\tall_2_2_0\tb\n"}
    assert Files.of(0, texts).texts == texts
    files = Files.of(1, texts)
    files.resize(0)
    assert list(files.texts) == [5]


def test_a_window_that_comes_after_a_start_without_one_keeps_the_lines_that_are_there() -> None:
    files = Files.of(0, {7: "1\tall_1_1_0\ta\n"})
    files.resize(4)
    files.add(2, "b")
    assert files.texts == {7: "1\tall_1_1_0\ta\n1\tall_2_2_0\tb\n"}


# --- against the obvious -------------------------------------------------------------------------------------

_ADD = st.tuples(st.just("add"), st.integers(0, 12))
_DROP = st.tuples(st.just("drop"), st.integers(0, 40))
_RESIZE = st.tuples(st.just("resize"), st.integers(0, 6))


class Obvious:
    """A list of the last ids."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.ids: list[tuple[str, int]] = []

    def add(self, block_id: str, number: int) -> None:
        self.ids = [*self.ids, (block_id, number)][-self.window :] if self.window else []

    def drop(self, last: int) -> None:
        self.ids = [each for each in self.ids if each[1] > last]

    def resize(self, window: int) -> None:
        self.window = window
        self.ids = self.ids[-window:] if window else []


@given(st.integers(0, 6), st.lists(st.one_of(_ADD, _ADD, _ADD, _DROP, _RESIZE), max_size=40))
def test_it_knows_the_last_ids_whatever_happens(window: int, steps: list[tuple[str, int]]) -> None:
    files, obvious = Files.of(window), Obvious(window)
    every_id = [f"all_{value}_0" for value in range(13)]
    for number, (what, value) in enumerate(steps, 1):
        if what == "drop":
            files.drop(last=value)
            obvious.drop(value)
        elif what == "resize":
            files.resize(value)
            obvious.resize(value)
        elif not files.log.known([block_id := f"all_{value}_0"]):
            files.add(number, block_id)
            obvious.add(block_id, number)
        expected = {block_id: PartName.inserted("all", number) for block_id, number in obvious.ids}
        assert files.log.known(every_id) == expected


@given(st.integers(1, 6), st.lists(st.one_of(_ADD, _ADD, _ADD, _DROP), max_size=60))
def test_a_start_brings_the_same_ids_back_and_after_drops_no_others(
    window: int, steps: list[tuple[str, int]]
) -> None:
    files = Files.of(window)
    every_id = [f"all_{value}_0" for value in range(13)]
    dropped = False
    for number, (what, value) in enumerate(steps, 1):
        if what == "drop":
            dropped = True
            files.drop(last=value)
        elif not files.log.known([block_id := f"all_{value}_0"]):
            files.add(number, block_id)
        again = Files.of(window, files.texts)
        assert again.texts == files.texts, "a start alone changes nothing"
        live, loaded = files.log.known(every_id), again.log.known(every_id)
        assert loaded.items() <= live.items()
        assert dropped or loaded == live
        assert all(len(text.splitlines()) <= 2 * window for text in files.texts.values())
        assert len(files.texts) <= 3


def test_an_id_that_comes_again_keeps_its_part_and_its_place() -> None:
    known = KnownIds(2)
    first, second, third = (PartName.inserted("all", number) for number in (1, 2, 3))
    known.add("a", first)
    known.add("b", second)
    known.add("a", third)
    assert list(known) == [("a", first), ("b", second)]
    known.add("c", third)
    assert list(known) == [("b", second), ("c", third)]
