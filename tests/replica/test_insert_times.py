from replica.insert_times import InsertTimeChanges, InsertTimes


def changes(times: InsertTimes) -> tuple[int | None, int | None]:
    taken = times.take_changes()
    return taken.min_unprocessed, taken.max_processed


def test_the_oldest_waiting_insert_is_told_once() -> None:
    times = InsertTimes()
    assert not times.take_changes()
    times.add("queue-1", 50)
    times.add("queue-2", 60)
    assert changes(times) == (50, None)
    assert changes(times) == (None, None)
    times.add("queue-3", 40)
    assert changes(times) == (40, None)


def test_it_rises_with_every_insert_that_leaves_and_ends_at_zero() -> None:
    times = InsertTimes()
    for number, create_time in enumerate([50, 60, 40]):
        times.add(f"queue-{number}", create_time)
    times.take_changes()
    times.remove("queue-1", 60)
    assert changes(times) == (None, 60)
    times.remove("queue-2", 40)
    assert changes(times) == (50, None)
    times.remove("queue-0", 50)
    assert changes(times) == (0, None)


def test_equal_times_are_told_apart_by_znode() -> None:
    times = InsertTimes()
    times.add("queue-1", 50)
    times.add("queue-2", 50)
    times.remove("queue-1", 50)
    assert times.min_unprocessed == 50
    times.remove("queue-2", 50)
    assert times.min_unprocessed == 0


def test_a_pull_lowers_it_before_its_entries_arrive() -> None:
    times = InsertTimes()
    times.expect(0)
    assert changes(times) == (None, None)
    times.expect(70)
    times.expect(0)
    assert changes(times) == (70, None)
    times.add("queue-1", 80)
    assert changes(times) == (None, None)
    times.remove("queue-1", 80)
    assert times.take_changes() == InsertTimeChanges(min_unprocessed=0, max_processed=80)


def test_it_is_raised_past_an_expected_insert_that_never_came() -> None:
    times = InsertTimes()
    times.expect(10)
    times.add("queue-1", 80)
    times.add("queue-2", 90)
    times.remove("queue-2", 90)
    assert times.min_unprocessed == 80
