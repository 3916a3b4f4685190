"""Listings for people: a table where it fits the terminal, else one value a line; znodes as a tree."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from clickhouse_sim.cli.listing import Branch, Listing
from clickhouse_sim.cli.record_formats import Vertical
from clickhouse_sim.cli.values import is_number, shown

_WIDTH_OF_A_FILE = 200
_READABLE = 28
"""A column is not made narrower than this, or than its longest value."""


def console_of(stream: TextIO) -> Console:
    """A console that writes no escape codes where NO_COLOR is set."""
    return Console(
        file=stream,
        width=None if stream.isatty() else _WIDTH_OF_A_FILE,
        highlight=False,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
    )


def is_plain(stream: TextIO) -> bool:
    """Whether nothing may move on the stream: it is no terminal, a dumb one, or NO_COLOR is set."""
    return not stream.isatty() or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in (None, "", "dumb")


def picture(listing: Listing, width: int) -> tuple[RenderableType, list[str]]:
    """The listing on a terminal of that width, and what is to be said beside it."""
    if not listing.rows:
        return Group(), listing.narration
    if listing.tree:
        return _unwrapped("\n".join(_branch(each, width) for each in listing.tree)), listing.narration
    grid = _Grid(list(listing.columns), [[shown(value, listing.null) for value in row] for row in listing.rows])
    numeric = [
        column
        for index, column in enumerate(listing.columns)
        if all(row[index] is None or is_number(row[index]) for row in listing.rows)
    ]
    fitting = _without_spare(grid, listing.spare, width)
    if fitting is None:
        return _unwrapped(_one_value_a_line(grid)), listing.narration
    left_out = [column for column in grid.columns if column not in fitting.columns]
    notes = [f"Left out for the width: {', '.join(left_out)}; --format vertical shows all."] if left_out else []
    return _table(fitting, numeric), [*listing.narration, *notes]


@dataclass(frozen=True, slots=True)
class _Grid:
    """Columns and their cells as text."""

    columns: list[str]
    rows: list[list[str]]

    @property
    def widths(self) -> list[int]:
        return [
            max(cell_len(line) for cell in (column, *(row[index] for row in self.rows)) for line in cell.split("\n"))
            for index, column in enumerate(self.columns)
        ]

    def fits(self, width: int) -> bool:
        return sum(min(each, _READABLE) + 3 for each in self.widths) + 1 <= width

    def without(self, column: str) -> _Grid:
        gone = self.columns.index(column)
        return _Grid(_but(self.columns, gone), [_but(row, gone) for row in self.rows])

    def says_nothing(self, column: str) -> bool:
        index = self.columns.index(column)
        return all(row[index] == "" for row in self.rows)


def _but(items: list[str], index: int) -> list[str]:
    return items[:index] + items[index + 1 :]


def _without_spare(grid: _Grid, spare: Sequence[str], width: int) -> _Grid | None:
    """The grid, or as much of it as fits, in a readable width; None when that cannot be."""
    silent = [column for column in grid.columns if spare and grid.says_nothing(column)]
    leaving = [*silent, *(column for column in spare if column not in silent)]
    while not grid.fits(width):
        if not leaving or len(grid.columns) == 1:
            return None
        grid = grid.without(leaving.pop(0))
    return grid


def _table(grid: _Grid, numeric: Sequence[str]) -> Table:
    table = Table(box=box.ROUNDED, header_style="bold")
    for column in grid.columns:
        table.add_column(Text(column), justify="right" if column in numeric else "left", overflow="fold")
    for row in grid.rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _one_value_a_line(grid: _Grid) -> str:
    writer = Vertical()
    return (writer.begin(grid.columns) + "".join(map(writer.row, grid.rows))).rstrip("\n")


def _branch(branch: Branch, width: int) -> str:
    """Its line: of what stands beside the name the first line, and `…` for whatever is left away."""
    first, *more = shown(branch.beside).split("\n", 1)
    line = f"{'  ' * branch.depth}{branch.name}{'  ' if first else ''}{first}".expandtabs(1)
    if cell_len(line) > width:
        return set_cell_size(line, width - 1) + "…"
    return f"{line[: width - 2]} …" if more and more[0] else line


def _unwrapped(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ignore")
