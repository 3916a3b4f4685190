"""`scripts/bench [NAMES]`: run benches and show what they found as one table."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType

import click

from benchmarks import machine
from benchmarks.processes import NotMeasured
from benchmarks.report import Row, show

_NAMES = ("hash", "cli", "simulate", "dedupe", "insert", "catch-up")


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(_NAMES))
@click.option(
    "--inserts",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="insert: one-row blocks of each client in each round.",
)
@click.option(
    "--absent-for",
    type=click.IntRange(min=1),
    default=2000,
    show_default=True,
    help="catch-up: inserts that the replica misses.",
)
def main(names: tuple[str, ...], inserts: int, absent_for: int) -> None:
    """Measure speed, side by side; without NAMES everything.

    What is not installed here is named with the way to install it. Everything listens on loopback only, lies in
    temporary folders, and is stopped and removed in the end.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    on = machine.description()
    rows: list[Row] = []
    status = 0
    try:
        for name in names or _NAMES:
            click.echo(f"{name} …", err=True)
            try:
                rows += _bench(name, inserts, absent_for)()
            except NotMeasured as problem:
                rows.append(Row(name, "failed", str(problem)))
                status = 1
    except KeyboardInterrupt:
        click.echo("Interrupted; everything is stopped.", err=True)
        status = 130
    if rows:
        show(rows, on)
    sys.exit(status)


def _bench(name: str, inserts: int, absent_for: int) -> Callable[[], list[Row]]:
    """Each is imported when it runs: a bench measures no import of another."""
    match name:
        case "hash":
            from benchmarks.hashing import hashing

            return hashing
        case "cli":
            from benchmarks.start_up import cli

            return cli
        case "simulate":
            from benchmarks.simulation import simulation

            return simulation
        case "dedupe":
            from benchmarks.dedupe import dedupe

            return dedupe
        case "insert":
            from benchmarks.insert import insert

            return lambda: insert(inserts)
        case _:
            from benchmarks.catch_up import catch_up

            return lambda: catch_up(absent_for)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Once: what is being stopped then is not to be interrupted again."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
