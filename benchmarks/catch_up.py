"""A replica that was away for many one-row inserts, started again: how long until it has every row?

Nothing merges meanwhile, so every part is fetched by itself. The seconds count from the start of its process.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing

from benchmarks.blocks import Block
from benchmarks.insert import seconds_of_inserts
from benchmarks.pair import Pair
from benchmarks.pairs import pairs
from benchmarks.processes import wait_until
from benchmarks.report import Row, compared

_CLIENTS = 4
_SECONDS = 600.0


def catch_up(absent_for: int) -> list[Row]:
    """`absent_for` is how many inserts the replica misses."""
    with pairs() as measured:
        # Not in turns but one after the other: nobody else works while one of them catches up.
        seconds = {pair.name: _seconds_to_catch_up(pair, absent_for) for pair in measured.all}
        theirs = None if measured.real is None else seconds[measured.real.name]
        beside = "" if measured.real is None else measured.real.name
        rows = [
            compared(
                f"catch up after {absent_for:,} one-row inserts, on {pair.name}",
                seconds[pair.name],
                beside,
                theirs,
                "{:,.1f} s",
                False,
            )
            for pair in measured.ours
        ]
        return [*rows, *measured.missing()]


def _seconds_to_catch_up(pair: Pair, absent_for: int) -> float:
    pair.stop(1)
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(pair.connect(0))) for _ in range(_CLIENTS)]
        blocks = [Block(number, 1) for number in range(absent_for)]
        seconds_of_inserts([(each, blocks[start::_CLIENTS]) for start, each in enumerate(connections)])
    started = time.perf_counter()
    pair.start(1)
    wait_until(lambda: pair.rows(1) >= absent_for, f"{pair.name}: the absent replica has all rows", _SECONDS)
    return time.perf_counter() - started
