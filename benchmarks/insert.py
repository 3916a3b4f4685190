"""Inserts through one of two replicas, beside real ClickHouse on the same ZooKeeper.

A rate is blocks acknowledged in the time from the first request to the last answer. Coordinator requests are the
packets that the service received from before the first request until a second after the other replica had all
rows, less what it receives in that time when nothing happens (pings among it).
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from benchmarks.blocks import Block
from benchmarks.pair import Connection, Pair
from benchmarks.pairs import Pairs, pairs
from benchmarks.processes import NotMeasured, wait_until
from benchmarks.report import Row, compared

_ROUNDS = 3
_IDLE_SECONDS = 5.0
_SETTLE_SECONDS = 1.0
_EVEN_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Load:
    """`clients` clients, each inserting `blocks` blocks of `rows` rows one after the other."""

    rows: int
    clients: int
    blocks: int

    @property
    def title(self) -> str:
        rows = f"{self.rows // 1000}k-row" if self.rows >= 1000 else f"{self.rows}-row"
        return f"insert {rows} blocks, {self.clients} client{'s' * (self.clients > 1)}"

    def total_rows(self) -> int:
        return self.rows * self.clients * self.blocks


@dataclass(frozen=True, slots=True)
class Figures:
    """Blocks a second, and coordinator requests a block."""

    rate: float
    requests: float


def insert(one_row_blocks: int) -> list[Row]:
    """`one_row_blocks` is how many one-row blocks each client inserts in a round."""
    loads = (
        Load(1, 1, one_row_blocks),
        Load(1, 4, one_row_blocks),
        Load(100_000, 1, 4),
        Load(100_000, 4, 2),
    )
    with pairs() as compared_pairs:
        figures = _measure(compared_pairs.all, loads)
        rows = [row for load in loads for row in _rows_of(load, compared_pairs, figures)]
        return [*rows, *compared_pairs.missing()]


def _measure(all_pairs: Sequence[Pair], loads: Sequence[Load]) -> dict[tuple[str, Load], Figures]:
    """Medians over the rounds, after a warm-up. Within a round the pairs take turns."""
    keys = {pair.name: _Keys() for pair in all_pairs}
    for pair in all_pairs:
        for rows in sorted({load.rows for load in loads}):
            _run(pair, Load(rows, 1, 4), keys[pair.name], idle_rate=0.0)
    idle = _idle_rates(all_pairs)
    found: dict[tuple[str, Load], list[Figures]] = defaultdict(list)
    for _ in range(_ROUNDS):
        for load in loads:
            for pair in all_pairs:
                found[pair.name, load].append(_run(pair, load, keys[pair.name], idle[pair.name]))
    return {
        which: Figures(statistics.median(f.rate for f in runs), statistics.median(f.requests for f in runs))
        for which, runs in found.items()
    }


def _idle_rates(all_pairs: Sequence[Pair]) -> dict[str, float]:
    """Packets a second that each pair's service receives while nothing is inserted."""
    before = [pair.requests() for pair in all_pairs]
    time.sleep(_IDLE_SECONDS)
    return {
        pair.name: (pair.requests() - count) / _IDLE_SECONDS for pair, count in zip(all_pairs, before, strict=True)
    }


class _Keys:
    """Blocks with keys that no block had before."""

    def __init__(self) -> None:
        self._next = 0

    def blocks(self, count: int, rows: int) -> Iterator[Block]:
        for _ in range(count):
            yield Block(self._next, rows)
            self._next += rows


def _run(pair: Pair, load: Load, keys: _Keys, idle_rate: float) -> Figures:
    rows_before, requests_before, began = pair.rows(0), pair.requests(), time.monotonic()
    with ExitStack() as stack:
        work: list[tuple[Connection, list[Block]]] = []
        for _ in range(load.clients):
            connection = stack.enter_context(closing(pair.connect(0)))
            blocks = list(keys.blocks(load.blocks, load.rows))
            for block in blocks:
                connection.prepare(block)
            work.append((connection, blocks))
        seconds = seconds_of_inserts(work)
    expected = rows_before + load.total_rows()
    wait_until(lambda: pair.rows(1) == expected, f"{pair.name}: the other replica has all rows", _EVEN_SECONDS)
    time.sleep(_SETTLE_SECONDS)
    requests = pair.requests() - requests_before - idle_rate * (time.monotonic() - began)
    count = load.clients * load.blocks
    return Figures(count / seconds, requests / count)


def seconds_of_inserts(work: Sequence[tuple[Connection, Sequence[Block]]]) -> float:
    """Have each connection insert its blocks, all connections at once. Raises what one of them raised."""
    ready = threading.Barrier(len(work) + 1)
    problems: list[Exception] = []

    def client(connection: Connection, blocks: Sequence[Block]) -> None:
        ready.wait()
        try:
            for block in blocks:
                connection.insert(block)
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=client, args=each, daemon=True) for each in work]
    for thread in threads:
        thread.start()
    ready.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    if problems:
        raise NotMeasured(f"an insert failed: {problems[0]}") from problems[0]
    return seconds


def _rows_of(load: Load, measured: Pairs, figures: dict[tuple[str, Load], Figures]) -> Iterator[Row]:
    real = None if measured.real is None else figures[measured.real.name, load]
    beside = "" if measured.real is None else measured.real.name
    for pair in measured.ours:
        ours = figures[pair.name, load]
        title = f"{load.title}, on {pair.name}"
        yield compared(title, ours.rate, beside, real.rate if real else None, "{:,.1f} /s", True)
        title = "  coordinator requests a block"
        yield compared(title, ours.requests, beside, real.requests if real else None, "{:,.1f}", False)
