"""All output: data to stdout, as tables for people or as JSON lines for programs; narration to stderr."""

from __future__ import annotations

import datetime
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console

PRETTY = "pretty"
JSONL = "jsonl"
_WIDTH_OF_A_FILE = 200


@dataclass(frozen=True, slots=True)
class Renderer:
    """Writes in one format: `pretty` or `jsonl`."""

    format: str

    @classmethod
    def chosen(cls, output_format: str | None) -> Renderer:
        """The format asked for, else pretty on a terminal and JSON lines in a pipe."""
        return cls(output_format or (PRETTY if sys.stdout.isatty() else JSONL))

    @property
    def is_pretty(self) -> bool:
        return self.format == PRETTY

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Rows under named columns."""
        if self.is_pretty:
            self._pretty_table(columns, list(rows))
            return
        for row in rows:
            click.echo(json.dumps(dict(zip(columns, map(_plain, row), strict=True)), ensure_ascii=False))

    def record(self, values: Mapping[str, Any], sentence: str) -> None:
        """One thing that happened: a sentence for people, the values for programs."""
        click.echo(sentence if self.is_pretty else json.dumps(_plain(values), ensure_ascii=False))

    @contextmanager
    def progress(self, what: str) -> Iterator[_Progress]:
        """A running count on stderr, where that is a terminal."""
        if not sys.stderr.isatty():
            yield _Progress()
            return
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(
            *columns, console=_console(sys.stderr), transient=True, redirect_stdout=sys.stdout.isatty()
        ) as bar:
            task = bar.add_task(what)
            yield _Progress(lambda rows: bar.update(task, description=f"{what}: {rows:,} rows"))

    def _pretty_table(self, columns: Sequence[str], rows: list[Sequence[Any]]) -> None:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.ROUNDED, header_style="bold")
        for index, column in enumerate(columns):
            is_number = bool(rows) and all(_is_number(row[index]) for row in rows)
            table.add_column(Text(column), justify="right" if is_number else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(_shown(value)) for value in row))
        _console(sys.stdout).print(table)


class _Progress:
    """Takes the number of rows done so far."""

    def __init__(self, show: Callable[[int], None] = lambda rows: None) -> None:
        self.reached = show


def narrate(sentence: str) -> None:
    """Tell people what happens; never data."""
    click.echo(sentence, err=True)


def complain(sentence: str) -> None:
    """Say what went wrong."""
    click.echo(f"Error: {sentence}", err=True)


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    return Console(file=stream, width=None if stream.isatty() else _WIDTH_OF_A_FILE, highlight=False)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _plain(value: Any) -> Any:
    """The value as JSON has it: times as ClickHouse writes them, numbers that JSON lacks as null."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case bytes():
            return value.decode("utf-8", "replace")
        case datetime.datetime():
            return value.isoformat(sep=" ", timespec="milliseconds" if value.microsecond else "seconds")
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
    return str(value)


def _shown(value: Any) -> str:
    plain = _plain(value)
    match plain:
        case None:
            return "NULL" if value is None else str(value)
        case bool():
            return "true" if plain else "false"
        case list() | dict():
            return json.dumps(plain, ensure_ascii=False)
    return str(plain)
