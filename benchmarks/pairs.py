"""The pairs that can be compared here: real ClickHouse, ours on the same ZooKeeper, ours on our coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.clickhouse_pair import ClickHousePair
from benchmarks.our_pair import OurPair
from benchmarks.pair import Pair
from benchmarks.processes import NotInstalled
from benchmarks.report import Row
from benchmarks.zookeeper import ZooKeeper


@dataclass(frozen=True, slots=True)
class Pairs:
    """`ours` are those of ours that run; `real` is the one to compare with, or None, and `why_not` says why."""

    ours: tuple[Pair, ...]
    real: Pair | None
    why_not: str

    @property
    def all(self) -> tuple[Pair, ...]:
        return self.ours if self.real is None else (self.real, *self.ours)

    def missing(self) -> list[Row]:
        """The row that says why there is nothing to compare with; none when there is something."""
        return [] if self.real is not None else [Row("  beside ClickHouse", "", self.why_not)]


@contextmanager
def pairs() -> Iterator[Pairs]:
    """Start all that is installed; everything is stopped, and its folder gone, afterwards."""
    with TemporaryDirectory(prefix="chsim-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        ours: list[Pair] = []
        real: Pair | None = None
        why_not = ""
        try:
            zookeeper = stack.enter_context(ZooKeeper(folder / "zookeeper"))
            ours.append(stack.enter_context(OurPair(folder / "ours", zookeeper)))
            real = stack.enter_context(ClickHousePair(folder / "clickhouse", zookeeper))
        except NotInstalled as missing:
            why_not = str(missing)
        ours.append(stack.enter_context(OurPair(folder / "embedded", None)))
        yield Pairs(tuple(ours), real, why_not)
