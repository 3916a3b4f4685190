"""The tables that an insert reaches through materialized views, and what its rows go through on the way.

ClickHouse: InsertDependenciesBuilder.cpp. A target never sees what another table has stored: what goes into it is
made of the inserted block, so that it can be made again without the rows of a token that is known already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from replica.dedup.info import DeduplicationInfo
from replica.dedup.tokens import ViewStep
from replica.environment import PartCodec, QueryEngine
from replica.errors import ClickHouseError
from replica.expression import complete
from replica.insert.piece import Piece, Recipe, pieces_of
from replica.schema import TableSchema, conform

if TYPE_CHECKING:
    from replica.stored_table import StoredTable


@dataclass(frozen=True, slots=True)
class Passage:
    """One view on the way: from whole rows of its source to whole rows of its target.

    `through_alias`: the view writes into an Alias of the target. What comes out there counts as a block of its own,
    whose rows cannot be followed back.
    """

    engine: QueryEngine
    view: str
    select: str
    source: tuple[str, str]
    source_schema: TableSchema
    target_schema: TableSchema
    through_alias: bool = False

    def rows(self, rows: pa.Table) -> pa.Table:
        """Raises the ClickHouseError of the SELECT or of a value that does not fit, naming the view."""
        if not rows.num_rows:
            return self.target_schema.arrow_schema.empty_table()
        try:
            selected = self.engine.select(self.select, self.source, rows, self.source_schema)
            return complete(conform(selected, self.target_schema), self.target_schema)
        except ClickHouseError as problem:
            raise type(problem)(f"{problem.message}: while pushing to view {self.view}") from problem


@dataclass(frozen=True, slots=True)
class Dependent:
    """The target of the last of some passages. `inserted` is the schema of the table where the rows come in."""

    state: StoredTable
    inserted: TableSchema
    passages: tuple[Passage, ...]

    @property
    def views(self) -> tuple[str, ...]:
        return tuple(passage.view for passage in self.passages)

    def info(self, source: DeduplicationInfo) -> DeduplicationInfo:
        """The tokens of the inserted block, as this target knows them."""
        steps = tuple(ViewStep(view) for view in self.views)
        return source.passed(steps, self.state.structure.settings.insert_deduplication_version)

    def pieces(self, info: DeduplicationInfo, codec: PartCodec, *, deduplicated: bool) -> list[Piece]:
        """The parts that the block makes here, as `pieces_of`. Raises as `Passage.rows`."""
        derive: Callable[[pa.Table], pa.Table] = partial(complete, schema=self.inserted)
        for passage in self.passages:
            derive = partial(_then, derive, passage)
            if passage.through_alias:
                info = info.reanchored(derive(info.block))
                derive = partial(complete, schema=passage.target_schema)
        recipe = Recipe(self.state.structure, codec, derive, row_by_row=False)
        return pieces_of(recipe, info, deduplicated=deduplicated)


@dataclass(frozen=True, slots=True)
class Route:
    """What follows when a block goes into a table: the targets behind views, in order.

    `source_id` is the UUID of the view when the INSERT names a view, whose target the table then is.
    """

    dependents: tuple[Dependent, ...] = ()
    source_id: str = "empty"


DIRECT = Route()


def _then(before: Callable[[pa.Table], pa.Table], passage: Passage, block: pa.Table) -> pa.Table:
    return passage.rows(before(block))
