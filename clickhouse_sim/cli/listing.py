"""What a command has to show: rows under named columns, and what to say beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Branch:
    """One line of a tree: how deep it stands, its name, and what stands beside it."""

    depth: int
    name: str
    beside: str


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows under named columns.

    `key` names the columns that tell a row from the others, all of them when empty. `spare` names the columns that
    a narrow terminal may go without, the least missed first; where there are some, columns that say nothing go
    before them. `null` is what people see where there is no value. `tree` is shown to people instead of a table.
    `notes` are narrated, and so is `when_empty` if there is no row.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    key: Sequence[str] = ()
    spare: Sequence[str] = ()
    null: str = ""
    tree: Sequence[Branch] = ()
    notes: Sequence[str] = ()
    when_empty: str = "No rows."

    @property
    def narration(self) -> list[str]:
        return [*([] if self.rows else [self.when_empty]), *self.notes]
