"""All output of data: to stdout, as tables for people or in a format for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from clickhouse_sim.cli.listing import Listing
from clickhouse_sim.cli.narration import narrate
from clickhouse_sim.cli.options import JSONL, PRETTY
from clickhouse_sim.cli.record_formats import RECORD_FORMATS
from clickhouse_sim.cli.values import json_text, output_bytes

Tell = Callable[[Mapping[str, Any], str], None]
"""Takes one thing that happened: its values for programs, a sentence for people."""


@dataclass(frozen=True, slots=True)
class Renderer:
    """Writes in one of `options.FORMATS`."""

    format: str

    @classmethod
    def chosen(cls, output_format: str | None) -> Renderer:
        """The format asked for, else pretty on a terminal and JSON lines in a pipe."""
        return cls(output_format or (PRETTY if sys.stdout.isatty() else JSONL))

    @property
    def is_pretty(self) -> bool:
        return self.format == PRETTY

    def listing(self, listing: Listing) -> None:
        """The rows as one document, and what is to be said beside them."""
        if self.is_pretty:
            self._pretty(listing)
            return
        writer = RECORD_FORMATS[self.format]()
        _print(writer.begin(listing.columns))
        for row in listing.rows:
            _print(writer.row(row))
        _print(writer.end())
        for sentence in listing.narration:
            narrate(sentence)

    def record(self, values: Mapping[str, Any], sentence: str) -> None:
        """One thing, a document of its own."""
        if self.format == "json":
            _print(f"{json_text(values)}\n")
            return
        with self.records() as tell:
            tell(values, sentence)

    @contextmanager
    def records(self) -> Iterator[Tell]:
        """One document of things with the same values, each of them printed when it is told."""
        if self.is_pretty:
            yield lambda values, sentence: click.echo(sentence)
            return
        writer = RECORD_FORMATS[self.format]()
        begun = False

        def tell(values: Mapping[str, Any], sentence: str) -> None:
            nonlocal begun
            if not begun:
                _print(writer.begin(list(values)))
                begun = True
            _print(writer.row(list(values.values())))

        try:
            yield tell
        finally:
            _print(("" if begun else writer.begin(())) + writer.end() if begun or self.format == "json" else "")

    def _pretty(self, listing: Listing) -> None:
        from clickhouse_sim.cli.pretty import console_of, picture

        console = console_of(sys.stdout)
        shown, notes = picture(listing, console.width)
        if listing.rows:
            console.print(shown, crop=False)
        for sentence in notes:
            narrate(sentence)


def _print(text: str) -> None:
    click.echo(output_bytes(text), nl=False)
