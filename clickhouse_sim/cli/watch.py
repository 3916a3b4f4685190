"""Look again and again, until Ctrl-C: `--watch`.

On a terminal the listing is redrawn in its place. In a pipe, or where nothing may move, only what changed is printed:
for programs a record for each row that is new, changed or gone, for people the whole listing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import click

from clickhouse_sim.cli.failures import INTERRUPTED, UNREACHABLE, failure_of
from clickhouse_sim.cli.listing import Listing
from clickhouse_sim.cli.narration import narrate
from clickhouse_sim.cli.render import Renderer

Look = Callable[[], Listing]
_Row = tuple[Any, ...]


def show(look: Look, renderer: Renderer, watch: float | None) -> None:
    """Print what there is to see, once or every `watch` seconds.

    What cannot be reached at the first look is an error; what cannot be reached later is told, and looked for again.
    """
    if watch is None:
        renderer.listing(look())
        return
    first = look()
    try:
        if not renderer.is_pretty:
            _tell_changes(_looks(first, look, watch), renderer)
        elif _is_still():
            _reprint(_looks(first, look, watch), renderer)
        else:
            _redraw(_looks(first, look, watch))
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None


def changes(before: dict[_Row, _Row], now: dict[_Row, _Row]) -> Iterator[tuple[str, _Row]]:
    """What became of rows by their keys: each that is `gone`, then each that is `new` or `changed`, in order."""
    yield from (("gone", row) for key, row in before.items() if key not in now)
    for key, row in now.items():
        if key not in before:
            yield "new", row
        elif before[key] != row:
            yield "changed", row


def _looks(first: Listing, look: Look, seconds: float) -> Iterator[Listing]:
    """One listing after another. One that cannot be had is the last one, with the reason as its note."""
    latest = first
    yield latest
    while True:
        time.sleep(seconds)
        try:
            latest = look()
        except Exception as problem:
            failure = failure_of(problem)
            if failure is None or failure.exit_code != UNREACHABLE:
                raise
            yield replace(latest, notes=[f"Cannot be seen now: {failure.sentence}"])
        else:
            yield latest


def _tell_changes(looks: Iterator[Listing], renderer: Renderer) -> None:
    before: dict[_Row, _Row] = {}
    said: list[str] = []
    with renderer.records() as tell:
        for listing in looks:
            now = _by_key(listing)
            for change, row in changes(before, now):
                tell({"change": change, **dict(zip(listing.columns, row, strict=True))}, "")
            if listing.narration != said:
                for sentence in listing.narration:
                    narrate(sentence)
            before, said = now, listing.narration


def _reprint(looks: Iterator[Listing], renderer: Renderer) -> None:
    before: Listing | None = None
    for listing in looks:
        if before is None or (before.rows, before.notes) != (listing.rows, listing.notes):
            renderer.listing(listing)
        before = listing


def _redraw(looks: Iterator[Listing]) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from clickhouse_sim.cli.pretty import console_of, picture

    console = console_of(sys.stdout)
    with Live(console=console, auto_refresh=False, redirect_stderr=False) as live:
        for listing in looks:
            shown, notes = picture(listing, console.width)
            live.update(Group(shown, *(Text(note) for note in notes)), refresh=True)


def _is_still() -> bool:
    from clickhouse_sim.cli.pretty import is_plain

    return is_plain(sys.stdout)


def _by_key(listing: Listing) -> dict[_Row, _Row]:
    positions = [list(listing.columns).index(column) for column in listing.key or listing.columns]
    return {tuple(str(row[index]) for index in positions): tuple(row) for row in listing.rows}
