"""What a bench has to say: rows of one table, each a figure of ours beside a figure of something else."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

ROUNDS = 7
_WIDTH = 120


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison. `ratio` is above 1 where ours is the larger figure; None where there is nothing to compare.

    `larger_is_better` says how to read the ratio; None for counts that are neither.
    """

    what: str
    ours: str
    beside: str = ""
    theirs: str = ""
    ratio: float | None = None
    larger_is_better: bool | None = None


def compared(
    what: str, ours: float, beside: str, theirs: float | None, form: str, larger_is_better: bool | None = None
) -> Row:
    """A row of two figures in one format, as `{:,.1f} s`; of ours alone when there is none of theirs."""
    if theirs is None:
        return Row(what, form.format(ours))
    return Row(what, form.format(ours), beside, form.format(theirs), ours / theirs, larger_is_better)


def in_turns(works: Sequence[Callable[[], object]], rounds: int = ROUNDS) -> list[float]:
    """Median seconds of each, after one warm-up, run alternately."""
    seconds: list[list[float]] = [[] for _ in works]
    for number in range(rounds + 1):
        for work, taken in zip(works, seconds, strict=True):
            started = time.perf_counter()
            work()
            if number:
                taken.append(time.perf_counter() - started)
    return [statistics.median(taken) for taken in seconds]


def show(rows: Sequence[Row], machine: str) -> None:
    """The table, on standard output."""
    table = Table("what", "here", "beside", "there", "ratio", "better is", title=machine)
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:,.2f}"
        better = {True: "more", False: "less", None: ""}[row.larger_is_better]
        table.add_row(row.what, row.ours, row.beside, row.theirs, ratio, better)
    Console(width=max(_WIDTH, Console().width)).print(table)
