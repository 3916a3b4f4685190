"""How far an insert is, on stderr, where that is a terminal on which things may move."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from clickhouse_sim.cli.narration import counted

Advance = Callable[[int, int, int], None]
"""Takes how many rows, blocks and duplicate blocks there were so far."""


@contextmanager
def insert_progress(what: str) -> Iterator[Advance]:
    """A bar with rows, rows a second, blocks and duplicates; gone when the insert ends."""
    if not sys.stderr.isatty():
        yield lambda rows, blocks, duplicates: None
        return
    from clickhouse_sim.cli.pretty import console_of, is_plain

    if is_plain(sys.stderr):
        yield lambda rows, blocks, duplicates: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=12), TimeElapsedColumn())
    begun = time.monotonic()
    with Progress(
        *columns, console=console_of(sys.stderr), transient=True, redirect_stdout=sys.stdout.isatty()
    ) as bar:
        task = bar.add_task(what, total=None)

        def advance(rows: int, blocks: int, duplicates: int) -> None:
            rate = rows / max(time.monotonic() - begun, 1e-3)
            counts = f"{counted(rows, 'row')}, {rate:,.0f} rows/s, {counted(blocks, 'block')}, {duplicates} duplicate"
            bar.update(task, description=f"{what}: {counts}")

        yield advance
