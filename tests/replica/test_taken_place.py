"""What a server says about its replica's place when another session holds it."""

from __future__ import annotations

import pytest

from replica.background.taken_place import TakenPlace
from replica.znodes import TableZnodes


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (100.0, "ends within 30 s"),
        (109.5, "ends within 21 s"),
        (129.9, "ends within 1 s"),
        (130.0, "for 30 s now, which is longer than a session outlives its server (30 s): another server runs"),
        (500.0, "for 400 s now"),
    ],
)
def test_it_counts_down_from_when_the_session_was_seen_first(now: float, told: str) -> None:
    place = TakenPlace(TableZnodes("/t").replica("r1"))
    place.reason(0xA, 100.0, 30.0)
    reason = place.reason(0xA, now, 30.0)
    assert told in reason
    assert "Replica /t/replicas/r1 appears to be already active: session 0xa holds its place" in reason


def test_another_session_counts_anew() -> None:
    place = TakenPlace(TableZnodes("/t").replica("r1"))
    place.reason(0xA, 100.0, 30.0)
    assert "ends within 30 s" in place.reason(0xB, 125.0, 30.0)
