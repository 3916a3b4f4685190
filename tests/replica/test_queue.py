import pytest

from replica.errors import LogicalError
from replica.log_entry import EntryType, LogEntry, ReplacedPart, ReplaceRange
from replica.part_name import PartName
from replica.queue import QueuedEntry, ReplicationQueue


def name(text: str) -> PartName:
    return PartName.parse(text)


def get(part: str, create_time: int = 100) -> LogEntry:
    return LogEntry(EntryType.GET_PART, create_time, "r1", new_part=name(part))


def merge(part: str, *sources: str) -> LogEntry:
    return LogEntry(EntryType.MERGE_PARTS, 100, "r1", new_part=name(part), source_parts=tuple(map(name, sources)))


def drop(part: str) -> LogEntry:
    kind = EntryType.DROP_RANGE if name(part).is_fake_drop_range else EntryType.DROP_PART
    return LogEntry(kind, 100, "r1", new_part=name(part))


def replace_range(drop_range: str, *new_parts: str) -> LogEntry:
    parts = tuple(ReplacedPart(name("src_0_0_0"), name(part), "AB") for part in new_parts)
    return LogEntry(EntryType.REPLACE_RANGE, 100, "r1", replace_range=ReplaceRange(name(drop_range), "d", "t", parts))


def queue_of(*entries: LogEntry, parts: str = "") -> ReplicationQueue:
    queue = ReplicationQueue(map(name, parts.split()))
    for number, entry in enumerate(entries):
        queue.insert(f"queue-{number:010}", entry)
        queue.check_invariant()
    return queue


def nth(queue: ReplicationQueue, number: int) -> QueuedEntry:
    return queue[f"queue-{number:010}"]


def order(queue: ReplicationQueue) -> list[int]:
    return [int(queued.znode_name[-10:]) for queued in queue]


def virtual(queue: ReplicationQueue) -> list[str]:
    return [str(part) for part in queue.virtual_parts]


def current(queue: ReplicationQueue) -> list[str]:
    return [str(part) for part in queue.current_parts]


def run(queue: ReplicationQueue, number: int) -> None:
    queued = nth(queue, number)
    queue.start(queued, 1)
    queue.check_invariant()
    assert queue.remove(queued)
    queue.check_invariant()
    queue.finish_attempt(queued)
    queue.check_invariant()


RANGE = "all_0_5_999999999_999999999"


# --- insert --------------------------------------------------------------------------------------------------


def test_entries_that_drop_go_to_the_front_and_others_to_the_tail() -> None:
    queue = queue_of(get("all_0_0_0"), drop("b_0_5_999999999"), get("all_1_1_0"), drop("c_0_0_0"))
    assert order(queue) == [3, 1, 0, 2]
    queue.insert("queue-0000000004", replace_range("d_0_5_999999999", "d_6_6_0"))
    queue.insert("queue-0000000005", replace_range("e_0_0_0", "e_6_6_0"))
    assert order(queue) == [4, 3, 1, 0, 2, 5]
    assert len(queue) == 6
    assert "queue-0000000005" in queue
    assert "queue-0000000006" not in queue


def test_virtual_parts_grow_on_insert_and_current_parts_on_success() -> None:
    queue = queue_of(get("all_1_1_0"), merge("all_0_1_1", "all_0_0_0", "all_1_1_0"), parts="all_0_0_0 b_0_0_0")
    assert virtual(queue) == ["all_0_1_1", "b_0_0_0"]
    assert current(queue) == ["all_0_0_0", "b_0_0_0"]
    run(queue, 0)
    assert current(queue) == ["all_0_0_0", "all_1_1_0", "b_0_0_0"]
    run(queue, 1)
    assert current(queue) == virtual(queue) == ["all_0_1_1", "b_0_0_0"]


def test_a_merge_may_be_done_before_its_sources() -> None:
    queue = queue_of(get("all_0_0_0"), get("all_1_1_0"), merge("all_0_1_1", "all_0_0_0", "all_1_1_0"))
    run(queue, 2)
    assert current(queue) == ["all_0_1_1"]
    run(queue, 0)
    run(queue, 1)
    assert current(queue) == virtual(queue) == ["all_0_1_1"]


def test_a_znode_is_inserted_once_and_intersections_are_refused() -> None:
    queue = queue_of(get("all_0_0_0"), merge("all_0_1_1"))
    with pytest.raises(LogicalError, match="already in the queue"):
        queue.insert("queue-0000000000", get("all_5_5_0"))
    with pytest.raises(LogicalError, match="intersects previous part all_0_1_1"):
        queue.insert("queue-0000000002", merge("all_1_2_1"))


def test_initialize_forgets() -> None:
    queue = queue_of(get("all_0_0_0"), drop("all_7_7_0"))
    queue.add_drop_replace_intent(name(RANGE))
    queue.start(nth(queue, 1), 1)
    queue.initialize([name("all_3_3_0")])
    assert (list(queue), current(queue), virtual(queue)) == ([], ["all_3_3_0"], ["all_3_3_0"])
    assert (queue.future_parts, queue.pending_drop_parts, queue.executing_drop_ranges) == ({}, (), ())
    assert queue.drop_replace_intents == ()
    assert not queue.take_insert_time_changes()


# --- attempts ------------------------------------------------------------------------------------------------


def test_an_attempt_is_counted_when_it_starts() -> None:
    queue = queue_of(get("all_0_0_0"))
    queued = nth(queue, 0)
    queue.start(queued, 7.5)
    assert (queued.currently_executing, queued.num_tries, queued.last_attempt_time) == (True, 1, 7.5)
    assert queue.future_parts == {name("all_0_0_0"): queued}
    queue.fail(queued, "no replica", 8.5)
    queue.finish_attempt(queued)
    assert (queued.currently_executing, queued.last_exception, queued.last_exception_time) == (
        False,
        "no replica",
        8.5,
    )
    assert queue.future_parts == {}
    queue.start(queued, 9.0)
    assert queued.num_tries == 2
    assert queued.last_exception == "no replica"


def test_a_part_is_made_by_one_attempt_at_a_time() -> None:
    queue = queue_of(get("all_0_0_0"), get("all_0_0_0"))
    queue.start(nth(queue, 0), 1)
    for number in (0, 1):
        with pytest.raises(LogicalError, match="already tagged future part all_0_0_0"):
            queue.start(nth(queue, number), 1)
    assert not nth(queue, 1).currently_executing
    with pytest.raises(LogicalError, match="is not executing"):
        queue.finish_attempt(nth(queue, 1))


def test_ranges_are_known_while_they_execute() -> None:
    queue = queue_of(drop("b_3_3_0"), replace_range(RANGE, "all_6_6_0"), get("all_9_9_0"))
    for number in range(3):
        queue.start(nth(queue, number), 1)
    assert list(map(str, queue.executing_drop_ranges)) == ["b_3_3_0", RANGE]
    assert sorted(map(str, queue.future_parts)) == [RANGE, "all_6_6_0", "all_9_9_0"]
    queue.finish_attempt(nth(queue, 0))
    assert list(map(str, queue.executing_drop_ranges)) == [RANGE]


def test_an_entry_may_leave_the_queue_before_its_attempt_is_over() -> None:
    queue = queue_of(get("all_0_0_0"))
    queued = nth(queue, 0)
    queue.start(queued, 1)
    queue.remove(queued, successful=False)
    queue.check_invariant()
    assert queue.future_parts == {name("all_0_0_0"): queued}
    assert not queue.remove(queued)
    queue.finish_attempt(queued)
    queue.check_invariant()
    assert queue.future_parts == {}


# --- a bigger part instead -----------------------------------------------------------------------------------


def test_a_bigger_part_that_is_pulled_may_be_taken() -> None:
    queue = queue_of(get("all_0_0_0"), get("all_1_1_0"), merge("all_0_1_1", "all_0_0_0", "all_1_1_0"))
    first = nth(queue, 0)
    queue.start(first, 1)
    assert queue.take_actual_part(first, name("all_0_0_0")) is None
    assert first.actual_new_parts == []
    assert queue.take_actual_part(first, name("all_0_1_1")) is None
    assert first.actual_new_parts == [name("all_0_1_1")]
    assert queue.future_parts == {name("all_0_0_0"): first, name("all_0_1_1"): first}
    queue.check_invariant()
    assert queue.remove(first)
    queue.finish_attempt(first)
    # Only the entry's own part counts as done, so that virtual = current + queue stays true.
    assert current(queue) == ["all_0_0_0"]
    assert first.actual_new_parts == []
    assert queue.future_parts == {}
    queue.check_invariant()


def test_a_bigger_part_that_is_not_pulled_is_refused() -> None:
    queue = queue_of(get("all_0_0_0"))
    queue.start(nth(queue, 0), 1)
    assert queue.take_actual_part(nth(queue, 0), name("all_0_1_1")) == (
        "Log entry for part all_0_1_1 or covering part is not pulled from log to queue yet."
    )
    assert list(map(str, queue.future_parts)) == ["all_0_0_0"]


def test_a_bigger_part_over_a_pending_drop_part_is_refused() -> None:
    queue = queue_of(get("all_0_0_0"), drop("all_1_1_0"), merge("all_0_2_1"), parts="all_1_1_0")
    queue.start(nth(queue, 0), 1)
    assert queue.take_actual_part(nth(queue, 0), name("all_0_2_1")) == (
        "Has DROP_PART affecting entry all_1_1_0 producing part all_0_2_1. Will postpone it's execution."
    )


def test_a_bigger_part_that_another_attempt_makes_is_refused() -> None:
    queue = queue_of(get("all_0_0_0"), merge("all_0_1_1"))
    queue.start(nth(queue, 0), 1)
    queue.start(nth(queue, 1), 1)
    assert queue.take_actual_part(nth(queue, 0), name("all_0_1_1")) == (
        "Not executing log entry queue-0000000000 of type GET_PART for part all_0_0_0 (actual part all_0_1_1)"
        "because another log entry queue-0000000001 of type MERGE_PARTS for the same part (all_0_1_1) "
        "is being processed."
    )


def test_older_attempts_below_a_bigger_part_are_waited_for_and_newer_ones_forbid_it() -> None:
    queue = queue_of(get("all_0_0_0"), get("all_1_1_0"), get("all_2_2_0"), merge("all_0_2_1"), get("all_3_3_0"))
    for number in (0, 1, 4):
        queue.start(nth(queue, number), 1)
    assert queue.take_actual_part(nth(queue, 1), name("all_0_2_1")) is None
    assert queue.executing_below(nth(queue, 1), name("all_0_2_1")) == [nth(queue, 0)]
    queue = queue_of(get("all_0_0_0"), get("all_1_1_0"), merge("all_0_1_1"))
    queue.start(nth(queue, 0), 1)
    queue.start(nth(queue, 1), 1)
    assert queue.take_actual_part(nth(queue, 0), name("all_0_1_1")) == (
        "Not executing log entry queue-0000000000 for part all_0_1_1 because it is not disjoint with part all_1_1_0 "
        "that is currently executing and another entry queue-0000000001 is newer."
    )
    assert nth(queue, 0).actual_new_parts == []


# --- dropping ------------------------------------------------------------------------------------------------


def drop_inside(queue: ReplicationQueue, number: int) -> list[int]:
    """What the execution of a drop does to the queue: remove what it makes needless, then itself."""
    entry = nth(queue, number).entry
    assert entry.drop_range is not None
    inside = queue.entries_inside(entry.drop_range, entry)
    for queued in inside:
        assert queue.remove(queued, successful=False)
        assert queued.removed_by_other_entry
    run(queue, number)
    return [int(queued.znode_name[-10:]) for queued in inside]


def test_a_drop_range_stands_for_what_it_covers_until_it_is_done() -> None:
    queue = queue_of(
        get("all_1_1_0"),
        merge("all_0_1_1", "all_0_0_0", "all_1_1_0"),
        drop(RANGE),
        get("all_6_6_0"),
        parts="all_0_0_0",
    )
    assert virtual(queue) == [RANGE, "all_6_6_0"]
    assert drop_inside(queue, 2) == [0, 1]
    assert (virtual(queue), current(queue)) == (["all_6_6_0"], [])
    run(queue, 3)
    assert current(queue) == ["all_6_6_0"]


def test_leaving_a_needless_entry_behind_breaks_the_invariant() -> None:
    queue = queue_of(get("all_1_1_0"), drop(RANGE))
    queue.remove(nth(queue, 1))
    with pytest.raises(LogicalError, match="expected all_1_1_0"):
        queue.check_invariant()


def test_a_wider_range_may_be_done_before_a_narrower_one() -> None:
    queue = queue_of(drop("all_0_3_999999999_999999999"), drop(RANGE), parts="all_0_0_0")
    assert order(queue) == [1, 0]
    drop_inside(queue, 1)
    drop_inside(queue, 0)
    assert virtual(queue) == current(queue) == []


def test_a_drop_part_leaves_the_virtual_parts_at_once_and_the_current_ones_when_done() -> None:
    queue = queue_of(drop("all_0_1_1"), parts="all_0_1_1 all_2_2_0")
    assert list(map(str, queue.pending_drop_parts)) == ["all_0_1_1"]
    assert (virtual(queue), current(queue)) == (["all_2_2_0"], ["all_0_1_1", "all_2_2_0"])
    drop_inside(queue, 0)
    assert queue.pending_drop_parts == ()
    assert virtual(queue) == current(queue) == ["all_2_2_0"]


def test_a_drop_part_drops_what_the_part_covers() -> None:
    queue = queue_of(drop("all_0_1_1"), parts="all_0_0_0 all_1_1_0 all_2_2_0")
    assert virtual(queue) == ["all_2_2_0"]
    drop_inside(queue, 0)
    assert current(queue) == ["all_2_2_0"]


def test_a_drop_part_that_is_removed_drops_nothing_more() -> None:
    queue = queue_of(drop("all_0_1_1"))
    queue.remove(nth(queue, 0), successful=False)
    assert queue.pending_drop_parts == ()


def test_replace_range() -> None:
    queue = queue_of(get("all_1_1_0"), replace_range(RANGE, "all_6_6_0", "all_7_7_1"), parts="all_0_0_0")
    assert virtual(queue) == [RANGE, "all_6_6_0", "all_7_7_1"]
    assert drop_inside(queue, 1) == [0]
    assert virtual(queue) == current(queue) == ["all_6_6_0", "all_7_7_1"]


def test_a_replace_range_that_drops_nothing() -> None:
    queue = queue_of(replace_range("all_0_0_0", "all_6_6_0"), parts="all_0_0_0")
    run(queue, 0)
    assert virtual(queue) == current(queue) == ["all_0_0_0", "all_6_6_0"]


def test_a_replace_range_goes_only_whole_and_only_under_a_covering_entry() -> None:
    inside, reaching_out = (
        replace_range("all_0_2_999999999_999999999", "all_3_3_0"),
        replace_range("all_0_2_999999999_999999999", "all_4_4_0", "all_6_6_0"),
    )
    outside = replace_range("all_0_0_0", "all_7_7_0")
    covering = drop(RANGE)
    queue = queue_of(inside, reaching_out, outside, get("b_1_1_0"))
    assert queue.entries_inside(name(RANGE), covering) == [nth(queue, 0)]
    assert queue.entries_inside(name(RANGE)) == []
    assert queue.entries_inside(name("all_0_2_999999999_999999999"), inside) == []


def test_the_znode_of_a_removed_entry_is_removed_once() -> None:
    queue = queue_of(get("all_0_0_0"))
    queued = nth(queue, 0)
    assert queue.remove(queued)
    with pytest.raises(LogicalError, match="Can't find queue-0000000000"):
        queue.remove(queued)


# --- times and siblings --------------------------------------------------------------------------------------


def test_insert_times_follow_fetches_and_attaches_only() -> None:
    attach = LogEntry(EntryType.ATTACH_PART, 30, new_part=name("all_8_8_0"))
    queue = queue_of(get("all_0_0_0", 50), merge("all_0_1_1"), attach)
    assert queue.min_unprocessed_insert_time == 30
    queue.expect_inserts([merge("b_0_1_1"), get("b_0_0_0", 20)])
    assert queue.take_insert_time_changes().min_unprocessed == 20
    queue.remove(nth(queue, 1))
    assert not queue.take_insert_time_changes()
    queue.remove(nth(queue, 2), successful=False)
    changes = queue.take_insert_time_changes()
    assert (changes.min_unprocessed, changes.max_processed) == (50, 30)
    queue.remove(nth(queue, 0))
    assert (queue.min_unprocessed_insert_time, queue.max_processed_insert_time) == (0, 50)


def test_siblings_before_the_merge_move_to_the_tail() -> None:
    queue = queue_of(
        get("all_0_0_0"),
        get("b_0_0_0"),
        get("all_1_1_0"),
        merge("all_0_2_1", "all_0_0_0", "all_1_1_0", "all_2_2_0"),
        get("all_2_2_0"),
    )
    assert list(map(str, queue.move_siblings_to_tail(name("all_1_1_0")))) == ["all_0_0_0", "all_1_1_0", "all_2_2_0"]
    assert order(queue) == [1, 3, 4, 0, 2]
    assert queue.move_siblings_to_tail(name("b_0_0_0")) == ()
    assert order(queue) == [1, 3, 4, 0, 2]


def test_entries_show_what_the_system_table_needs() -> None:
    queue = queue_of(get("all_0_0_0"), replace_range("all_0_0_0", "all_6_6_0"))
    assert [queued.new_part_name for queued in queue] == ["all_0_0_0", ""]
    queue.postpone(nth(queue, 0), "why", 3)
    queue.postpone(nth(queue, 0), "why not", 4)
    queued = nth(queue, 0)
    assert (queued.num_postponed, queued.postpone_reason, queued.last_postpone_time) == (2, "why not", 4)


def test_the_invariant_sees_a_part_that_an_attempt_forgot() -> None:
    queue = queue_of(get("all_0_0_0"))
    queue.start(nth(queue, 0), 1)
    nth(queue, 0).currently_executing = False
    with pytest.raises(LogicalError, match="found all_0_0_0"):
        queue.check_invariant()
