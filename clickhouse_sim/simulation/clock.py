"""The simulated wall clock: virtual time since the first of January 2026, as far off as the machine's clock is."""

from __future__ import annotations

from collections.abc import Callable

EPOCH = 1_767_225_600.0  # 2026-01-01 00:00:00 UTC


class SimulatedClock:
    """`time` gives virtual seconds (a loop's `time`), `skew_seconds` how far this clock is ahead; may be changed."""

    def __init__(self, time: Callable[[], float], skew_seconds: float = 0.0) -> None:
        self._time = time
        self.skew_seconds = skew_seconds

    def now(self) -> float:
        return EPOCH + self._time() + self.skew_seconds
