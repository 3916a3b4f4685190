from dataclasses import replace

import pytest

from replica.log_entry import EntryType, LogEntry, ReplacedPart, ReplaceRange
from replica.part_name import PartName
from replica.queue import QueuedEntry, ReplicationQueue
from replica.selection import Limits, backoff_ms, select, why_postponed

NOW = 1_000_000.0
FREE = Limits()


def name(text: str) -> PartName:
    return PartName.parse(text)


def making(kind: EntryType, part: str, *sources: str) -> LogEntry:
    return LogEntry(kind, 100, "r1", new_part=name(part), source_parts=tuple(map(name, sources)))


def get(part: str) -> LogEntry:
    return making(EntryType.GET_PART, part)


def attach(part: str) -> LogEntry:
    return making(EntryType.ATTACH_PART, part)


def merge(part: str, *sources: str) -> LogEntry:
    return making(EntryType.MERGE_PARTS, part, *sources)


def mutate(part: str, source: str) -> LogEntry:
    return making(EntryType.MUTATE_PART, part, source)


def drop(part: str) -> LogEntry:
    return making(EntryType.DROP_RANGE if name(part).is_fake_drop_range else EntryType.DROP_PART, part)


def replace_range(drop_range: str, *new_parts: str) -> LogEntry:
    parts = tuple(ReplacedPart(name("src_0_0_0"), name(part), "AB") for part in new_parts)
    return LogEntry(EntryType.REPLACE_RANGE, 100, replace_range=ReplaceRange(name(drop_range), "d", "t", parts))


def queue_of(*entries: LogEntry, parts: str = "", running: tuple[int, ...] = ()) -> ReplicationQueue:
    queue = ReplicationQueue(map(name, parts.split()))
    for number, entry in enumerate(entries):
        queue.insert(f"queue-{number}", entry)
    for number in running:
        queue.start(queue[f"queue-{number}"], NOW)
    return queue


def reason(queue: ReplicationQueue, number: int, limits: Limits = FREE, now: float = NOW) -> str | None:
    return why_postponed(queue, queue[f"queue-{number}"], now, limits)


RANGE = "all_0_5_999999999_999999999"


# --- the walk ------------------------------------------------------------------------------------------------


def order(queue: ReplicationQueue) -> list[str]:
    return [queued.znode_name for queued in queue]


def test_the_first_that_may_run_is_moved_to_the_tail() -> None:
    queue = queue_of(get("all_0_0_0"), get("all_1_1_0"), get("all_2_2_0"), running=(0,))
    assert select(queue, NOW, FREE) is queue["queue-1"]
    assert order(queue) == ["queue-0", "queue-2", "queue-1"]
    assert not queue["queue-1"].currently_executing
    assert [queued.num_postponed for queued in queue] == [0, 0, 0]


def test_those_refused_on_the_way_are_told_why_and_the_rest_is_not_looked_at() -> None:
    queue = queue_of(
        get("all_0_0_0"),
        merge("all_0_1_1", "all_0_0_0"),
        get("b_0_0_0"),
        merge("all_0_2_2", "all_0_0_0"),
        running=(0,),
    )
    assert select(queue, NOW, FREE) is queue["queue-2"]
    refused, untouched = queue["queue-1"], queue["queue-3"]
    assert (refused.num_postponed, refused.last_postpone_time) == (1, NOW)
    assert refused.postpone_reason == reason(queue, 1)
    assert (untouched.num_postponed, untouched.postpone_reason) == (0, "")
    queue.start(queue["queue-2"], NOW)
    assert select(queue, NOW, FREE) is None
    assert (refused.num_postponed, untouched.num_postponed) == (2, 1)


def test_a_reason_stays_when_the_entry_runs_after_all() -> None:
    queue = queue_of(get("all_0_0_0"))
    assert select(queue, NOW, Limits(fetches_blocked=True)) is None
    assert select(queue, NOW, FREE) is queue["queue-0"]
    assert queue["queue-0"].postpone_reason.endswith("cancelled now.")


def test_nothing_to_do() -> None:
    assert select(queue_of(), NOW, FREE) is None


def test_nobody_looks_at_an_entry_that_pauses() -> None:
    queue = queue_of(get("all_0_0_0"), get("all_1_1_0"))
    queue["queue-0"].paused_until = NOW + 1
    assert select(queue, NOW, Limits(fetches_blocked=True)) is None
    assert [queued.num_postponed for queued in queue] == [0, 1]
    assert select(queue, NOW, FREE) is queue["queue-1"]
    assert select(queue, NOW + 1, FREE) is queue["queue-0"]


# --- 1: after a failure --------------------------------------------------------------------------------------


def failed(kind: EntryType, tries: int) -> QueuedEntry:
    return QueuedEntry("queue-0", making(kind, "all_0_0_0"), num_tries=tries, last_exception_time=NOW)


def test_an_entry_that_failed_waits_twice_as_long_with_every_try() -> None:
    queue = queue_of(get("all_0_0_0"))
    queued = queue["queue-0"]
    queued.num_tries, queued.last_exception_time = 10, NOW
    assert reason(queue, 0, now=NOW + 0.5) == (
        "Not executing log entry queue-0 of type GET_PART because recently it has failed. "
        "According to exponential backoff policy, put aside this log entry for 524 ms."
    )
    assert reason(queue, 0, now=NOW + 1.023) is not None
    assert reason(queue, 0, now=NOW + 1.024) is None


def test_tries_without_a_failure_do_not_wait() -> None:
    queue = queue_of(get("all_0_0_0"))
    queue["queue-0"].num_tries = 60
    assert reason(queue, 0) is None


@pytest.mark.parametrize(
    ("kind", "setting", "default"),
    [
        (EntryType.GET_PART, "max_postpone_time_for_failed_replicated_fetches_ms", 60_000),
        (EntryType.MERGE_PARTS, "max_postpone_time_for_failed_replicated_merges_ms", 60_000),
        (EntryType.MUTATE_PART, "max_postpone_time_for_failed_mutations_ms", 300_000),
        (EntryType.ATTACH_PART, "max_postpone_time_for_failed_replicated_tasks_ms", 300_000),
        (EntryType.DROP_PART, "max_postpone_time_for_failed_replicated_tasks_ms", 300_000),
    ],
)
def test_each_type_has_its_own_longest_wait(kind: EntryType, setting: str, default: int) -> None:
    for tries in (20, 63, 64, 1000):
        assert backoff_ms(failed(kind, tries), NOW, FREE) == default
    assert backoff_ms(failed(kind, 3), NOW, FREE) == 8
    assert backoff_ms(failed(kind, 20), NOW, Limits(**{setting: 5})) == 5  # type: ignore[arg-type]
    assert backoff_ms(failed(kind, 20), NOW - 1, Limits(**{setting: 0})) == 0  # type: ignore[arg-type]


# --- 2: other work on the same blocks ------------------------------------------------------------------------


def test_the_same_part_is_being_made() -> None:
    queue = queue_of(get("all_0_0_0"), attach("all_0_0_0"), running=(0,))
    assert reason(queue, 1) == (
        "Not executing log entry queue-1 of type ATTACH_PART for part all_0_0_0 (actual part all_0_0_0)"
        "because another log entry queue-0 of type GET_PART for the same part (all_0_0_0) is being processed."
    )


def test_an_overlapping_part_is_being_made() -> None:
    queue = queue_of(get("all_0_0_0"), get("all_1_1_0"), merge("all_0_1_1"), running=(1, 0))
    # No source is named here, so that only the overlap speaks; the first by name is told.
    assert reason(queue, 2) == (
        "Not executing log entry queue-2 for part all_0_1_1 "
        "because it is not disjoint with part all_0_0_0 that is currently executing."
    )
    queue = queue_of(get("all_0_0_0"), merge("all_0_1_1"), get("b_0_0_0"), running=(1,))
    assert reason(queue, 0) is not None
    assert reason(queue, 2) is None


def test_a_range_may_be_dropped_while_parts_inside_are_being_made() -> None:
    queue = queue_of(get("all_0_0_0"), get("all_6_6_0"), drop(RANGE), running=(0, 1))
    assert reason(queue, 2) is None
    queue = queue_of(get("all_0_0_0"), merge("all_5_6_1"), running=(1,))
    queue.add_drop_replace_intent(name("b_0_9_999999999"))
    # One that reaches out of the range is waited for.
    ranged = QueuedEntry("queue-9", drop(RANGE))
    assert why_postponed(queue, ranged, NOW, FREE) == (
        f"Not executing log entry queue-9 for part {RANGE} "
        "because it is not disjoint with part all_5_6_1 that is currently executing."
    )


def test_every_new_part_of_a_replace_range_is_looked_at() -> None:
    queue = queue_of(get("all_7_7_0"), replace_range("all_0_0_0", "all_6_6_0", "all_7_7_0"), running=(0,))
    assert reason(queue, 1) == (
        "Not executing log entry queue-1 of type REPLACE_RANGE for part  (actual part all_7_7_0)"
        "because another log entry queue-0 of type GET_PART for the same part (all_7_7_0) is being processed."
    )


def test_a_drop_or_replace_is_about_to_be_logged() -> None:
    queue = queue_of(get("all_0_0_0"), get("all_6_6_0"))
    queue.add_drop_replace_intent(name(RANGE))
    assert reason(queue, 0) == (
        "Not executing queue-0 of type GET_PART for part all_0_0_0 (actual part all_0_0_0)"
        f"because there is a drop or replace intent with part name {RANGE}."
    )
    assert reason(queue, 1) is None
    queue.remove_drop_replace_intent(name(RANGE))
    assert reason(queue, 0) is None


# --- 3 and 4: what is going to be dropped --------------------------------------------------------------------


def test_a_part_that_overlaps_a_pending_drop_part_waits() -> None:
    queue = queue_of(drop("all_1_1_0"), merge("all_0_2_1"), get("all_3_3_0"), parts="all_0_0_0 all_1_1_0 all_2_2_0")
    assert reason(queue, 1) == (
        "Has DROP_PART affecting entry all_1_1_0 producing part all_0_2_1. Will postpone it's execution."
    )
    assert reason(queue, 2) is None
    assert reason(queue, 0) is None


def test_ranges_do_not_wait_for_a_pending_drop_part() -> None:
    queue = queue_of(drop("all_1_1_0"), drop(RANGE), drop("all_1_1_0"))
    assert reason(queue, 1) is None
    assert reason(queue, 2) is None
    queue = queue_of(drop("all_1_1_0"), replace_range(RANGE, "all_6_6_0"))
    assert reason(queue, 1) is None


def test_a_part_in_a_range_that_will_be_dropped_is_not_made() -> None:
    queue = queue_of(get("all_0_0_0"), merge("all_0_1_1"), drop(RANGE), get("all_6_6_0"))
    for number, part in ((0, "all_0_0_0"), (1, "all_0_1_1")):
        assert reason(queue, number) == (
            f"Not executing queue-{number} because it produces part {part} that is going to be dropped by {RANGE}"
        )
    assert reason(queue, 2) is None
    assert reason(queue, 3) is None


# --- 5 to 7: fetches and merges ------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", [get("all_0_0_0"), attach("all_0_0_0")])
def test_fetches_have_limits(entry: LogEntry) -> None:
    queue = queue_of(entry)
    assert reason(queue, 0, Limits(fetches_executing=7, max_fetches=8)) is None
    assert reason(queue, 0, Limits(fetches_executing=8, max_fetches=8)) == (
        "Not executing fetch of part all_0_0_0 because 8 fetches already executing, max 8."
    )
    assert reason(queue, 0, Limits(fetches_executing=8, max_fetches=8, fetches_blocked=True)) == (
        "Not executing fetch of part all_0_0_0 because replicated fetches are cancelled now."
    )


def test_limits_of_fetches_do_not_hold_merges_and_drops() -> None:
    queue = queue_of(merge("all_0_1_1"), drop("b_0_3_999999999"), replace_range("c_0_0_0", "c_1_1_0"))
    full = Limits(fetches_executing=16, fetches_blocked=True)
    assert [reason(queue, number, full) for number in range(3)] == [None, None, None]


def test_a_merge_that_would_be_fetched_has_the_limits_of_fetches_and_not_those_of_merges() -> None:
    queue = queue_of(merge("all_0_1_1", "all_0_0_0"), merge("all_2_3_1", "all_2_2_0"))
    fetched = Limits(is_fetch=lambda queued: queued.znode_name == "queue-0", fetches_executing=1, max_fetches=1)
    assert reason(queue, 0, fetched) == (
        "Not executing fetch of part all_0_1_1 because 1 fetches already executing, max 1."
    )
    assert reason(queue, 1, fetched) is None
    sizes = {name("all_0_0_0"): 9, name("all_2_2_0"): 9}
    small = replace(fetched, fetches_executing=0, part_bytes=sizes, max_source_parts_bytes_for_merge=1)
    assert reason(queue, 0, small) is None
    assert "source parts size" in str(reason(queue, 1, small))


@pytest.mark.parametrize("entry", [merge("all_0_1_1", "all_0_0_0", "all_1_1_0"), mutate("all_0_0_0_5", "all_0_0_0")])
def test_merges_can_be_stopped(entry: LogEntry) -> None:
    queue = queue_of(entry)
    assert reason(queue, 0) is None
    assert reason(queue, 0, Limits(merges_blocked=True)) == (
        f"Not executing log entry queue-0 of type {entry.type} for part {entry.new_part} "
        "because merges and mutations are cancelled now."
    )


def test_stopped_merges_do_not_hold_others() -> None:
    queue = queue_of(get("all_0_0_0"), drop("b_0_3_999999999"))
    assert [reason(queue, number, Limits(merges_blocked=True)) for number in range(2)] == [None, None]


def test_a_merge_waits_for_a_source_that_is_being_made() -> None:
    # Where the source lies outside the new part, no check but this one can see it.
    queue = queue_of(get("b_0_0_0"), merge("all_0_1_1", "all_0_0_0", "b_0_0_0"), running=(0,))
    assert reason(queue, 1) == (
        "Not executing log entry queue-1 of type MERGE_PARTS for part all_0_1_1 because part b_0_0_0 is "
        "not ready yet (log entry for that part is being processed)."
    )
    queue.finish_attempt(queue["queue-0"])
    # Whether a source is there does not matter: a merge without its sources fetches.
    assert reason(queue, 1) is None


# --- 12: sizes -----------------------------------------------------------------------------------------------

GIB = 1 << 30
SIZES = {name("all_0_0_0"): GIB, name("all_1_1_0"): GIB // 2}


def test_a_merge_waits_until_it_is_not_too_large() -> None:
    queue = queue_of(merge("all_0_2_1", "all_0_0_0", "all_1_1_0", "all_2_2_0"))
    assert reason(queue, 0, Limits(part_bytes=SIZES, max_source_parts_bytes_for_merge=3 * GIB // 2)) is None
    assert reason(queue, 0, Limits(part_bytes=SIZES, max_source_parts_bytes_for_merge=GIB)) == (
        "Not executing log entry queue-0 of type MERGE_PARTS for part all_0_2_1 because source parts size (1.50 GiB) "
        "is greater than the current maximum (1.00 GiB)."
    )


def test_only_parts_that_are_here_have_a_size() -> None:
    queue = queue_of(merge("all_1_2_1", "all_1_1_0", "all_2_2_0"))
    assert reason(queue, 0, Limits(part_bytes=SIZES, max_source_parts_bytes_for_merge=GIB)) is None
    assert reason(queue, 0, Limits(max_source_parts_bytes_for_merge=0)) is None


def test_with_the_largest_maximum_a_merge_may_be_of_any_size() -> None:
    queue = queue_of(merge("all_0_1_1", "all_0_0_0", "all_1_1_0"), mutate("b_0_0_0_5", "all_0_0_0"))
    lowered = Limits(
        part_bytes=SIZES,
        max_source_parts_bytes_for_merge=GIB,
        max_bytes_to_merge_at_max_space_in_pool=GIB,
        max_source_part_bytes_for_mutation=GIB - 1,
    )
    assert reason(queue, 0, lowered) is None
    assert str(reason(queue, 1, lowered)).endswith(
        "because source parts size (1.00 GiB) is greater than the current maximum (1024.00 MiB)."
    )


def test_the_limit_of_mutations_is_their_own() -> None:
    queue = queue_of(mutate("all_0_0_0_5", "all_0_0_0"), get("b_0_0_0"))
    assert reason(queue, 0, Limits(part_bytes=SIZES, max_source_parts_bytes_for_merge=1)) is None
    assert reason(queue, 0, Limits(part_bytes=SIZES, max_source_part_bytes_for_mutation=GIB)) is None
    assert reason(queue, 0, Limits(part_bytes=SIZES, max_source_part_bytes_for_mutation=0)) is not None
    none = Limits(part_bytes=SIZES, max_source_parts_bytes_for_merge=0, max_source_part_bytes_for_mutation=0)
    assert reason(queue, 1, none) is None


# --- 16 and 17: drops among each other -----------------------------------------------------------------------


def test_overlapping_ranges_are_dropped_one_after_the_other() -> None:
    narrow = "all_0_3_999999999_999999999"
    queue = queue_of(drop(narrow), drop(RANGE), drop("all_2_2_0"), drop("b_0_5_999999999"), running=(0,))
    assert reason(queue, 1) == (
        f"Not executing log entry queue-1 of type DROP_RANGE for part {RANGE} because another DROP_RANGE or "
        f"REPLACE_RANGE entry with not disjoint range {narrow} is currently executing."
    )
    assert reason(queue, 2) == (
        "Not executing log entry queue-2 of type DROP_PART for part all_2_2_0 because another DROP_RANGE or "
        f"REPLACE_RANGE entry with not disjoint range {narrow} is currently executing."
    )
    assert reason(queue, 3) is None
    queue.finish_attempt(queue["queue-0"])
    assert reason(queue, 1) is None


def test_a_drop_part_waits_for_the_replace_range_that_makes_the_part() -> None:
    queue = queue_of(replace_range("all_0_0_0", "all_6_6_0", "all_7_7_0"), drop("all_7_7_0"), drop("all_5_5_0"))
    assert reason(queue, 1) == (
        "Not executing log entry queue-1 of type DROP_PART for part all_7_7_0 "
        "because it probably depends on queue-0 (REPLACE_RANGE)."
    )
    assert reason(queue, 2) is None
    queue.remove(queue["queue-0"])
    assert reason(queue, 1) is None


# --- the order -----------------------------------------------------------------------------------------------


def test_the_first_check_that_refuses_gives_the_reason() -> None:
    queue = queue_of(
        drop("all_1_1_0"),
        get("all_0_0_0"),
        merge("all_0_2_1", "all_0_0_0"),
        drop(RANGE),
        parts="all_1_1_0 all_2_2_0",
        running=(1,),
    )
    queued = queue["queue-2"]
    stopped = Limits(merges_blocked=True)
    queued.num_tries, queued.last_exception_time = 5, NOW
    assert "recently it has failed" in str(reason(queue, 2, stopped))
    queued.last_exception_time = 0
    assert "not disjoint with part all_0_0_0" in str(reason(queue, 2, stopped))
    queue.finish_attempt(queue["queue-1"])
    assert "Has DROP_PART" in str(reason(queue, 2, stopped))
    queue.remove(queue["queue-0"])
    assert "going to be dropped" in str(reason(queue, 2, stopped))
    queue.remove(queue["queue-3"])
    queue.insert("queue-4", get("x_0_0_0"))
    assert "merges and mutations are cancelled" in str(reason(queue, 2, stopped))


def test_the_later_checks_have_their_order_too() -> None:
    dropped = queue_of(get("all_0_0_0"), drop(RANGE))
    assert "going to be dropped" in str(reason(dropped, 0, Limits(fetches_blocked=True)))

    queue = queue_of(get("b_0_0_0"), merge("all_0_1_1", "all_0_0_0", "b_0_0_0"), running=(0,))
    everything = Limits(
        is_fetch=lambda queued: True,
        fetches_blocked=True,
        merges_blocked=True,
        part_bytes=SIZES,
        max_source_parts_bytes_for_merge=1,
    )
    assert "fetches are cancelled" in str(reason(queue, 1, everything))
    merging = replace(everything, is_fetch=lambda queued: False)
    assert "merges and mutations are cancelled" in str(reason(queue, 1, merging))
    merging = replace(merging, merges_blocked=False)
    assert "is not ready yet" in str(reason(queue, 1, merging))
    queue.finish_attempt(queue["queue-0"])
    assert "greater than the current maximum" in str(reason(queue, 1, merging))

    drops = queue_of(drop(RANGE), replace_range("c_0_0_0", "all_2_2_0"), drop("all_2_2_0"), running=(0,))
    assert "another DROP_RANGE or REPLACE_RANGE" in str(reason(drops, 2))
    drops.finish_attempt(drops["queue-0"])
    assert "probably depends on queue-1" in str(reason(drops, 2))
