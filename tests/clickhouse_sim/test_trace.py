"""The trace: one hash over all that happened, and the lines to look at."""

from __future__ import annotations

from clickhouse_sim.simulation.trace import Difference, Trace, first_difference


def traced(*lines: str, keep: bool = False) -> Trace:
    trace = Trace(lambda: 1.5, keep_lines=keep)
    for line in lines:
        trace.note("r1", line)
    return trace


def test_equal_events_give_equal_hashes_in_any_batches() -> None:
    one, other = traced("a", "b"), traced("a")
    other.digest()
    other.note("r1", "b")
    assert one.digest() == other.digest()
    many = [str(number) for number in range(2500)]
    assert traced(*many).digest() == traced(*many).digest() != traced(*many[:-1]).digest()


def test_order_and_borders_count() -> None:
    assert len({traced(*lines).digest() for lines in (("a", "b"), ("b", "a"), ("ab",), ("a\nb",))}) == 4


def test_lines_are_kept_on_request() -> None:
    trace = traced("disk write x", keep=True)
    trace.choice("ready", 3, 2)
    assert trace.lines == ["1.500000 r1 disk write x", "choice ready 2/3"]
    assert traced("a").lines == []


def test_the_first_difference_is_shown() -> None:
    assert first_difference(["a", "b"], ["a", "b"]) is None
    assert first_difference(["a", "b", "c"], ["a", "x", "c"]) == Difference(1, "b", "x")
    assert first_difference(["a"], ["a", "b"]) == Difference(1, None, "b")
