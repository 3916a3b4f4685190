"""The materialized views and aliases of one server: what they are, and where an insert goes through them.

ClickHouse: StorageMaterializedView.cpp, StorageAlias.cpp, InsertDependenciesBuilder.cpp. A view takes the blocks that
are inserted under the name of its source, on this server; what a replica fetches or merges concerns no view.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from replica.commands import ColumnDefinition, CreateAlias, CreateView, Dependent
from replica.environment import QueryEngine
from replica.errors import (
    BadArguments,
    NotImplementedInModel,
    SupportIsDisabled,
    ThereIsNoColumn,
    TooDeepRecursion,
    UnknownTable,
)
from replica.insert.dependents import Dependent as Target
from replica.insert.dependents import Passage, Route
from replica.plain_table import PlainTable
from replica.quoting import did_you_mean
from replica.schema import TableSchema, conform
from replica.table import ReplicatedTable

Table = ReplicatedTable | PlainTable
Name = tuple[str, str]
"""Database and name."""


class Views:
    """Over the tables of a server, which come and go by themselves: a target may be missing for a while."""

    def __init__(self, tables: Mapping[Name, Table], engine: QueryEngine | None) -> None:
        self._tables = tables
        self._engine = engine
        self._definitions: dict[Name, Dependent] = {}

    def __contains__(self, name: Name) -> bool:
        return name in self._definitions

    def __iter__(self) -> Iterator[Dependent]:
        """In order of name."""
        return iter([definition for _, definition in sorted(self._definitions.items())])

    def get(self, name: Name) -> Dependent | None:
        return self._definitions.get(name)

    def add(self, definition: Dependent) -> None:
        self._definitions[definition.database, definition.table] = definition

    def remove(self, definition: Dependent) -> None:
        del self._definitions[definition.database, definition.table]

    # --- CREATE ------------------------------------------------------------------------------------------------

    def checked(self, definition: Dependent) -> Dependent:
        """The definition, of a view with its columns. Raises the ClickHouseError of whatever is wrong in it."""
        if isinstance(definition, CreateAlias):
            return self._checked_alias(definition)
        if self._engine is None:
            raise SupportIsDisabled("This server has no query engine, and no materialized views without one")
        source = (definition.source_database, definition.source_table)
        source_schema = self.storage(source).state.structure.schema
        target_name = (definition.target_database, definition.target_table)
        if isinstance(self.get(target_name), CreateView):
            raise NotImplementedInModel(
                f"{'.'.join(target_name)} is a view: name its target, {self.storage(target_name).state.full_name}"
            )
        target = self.storage(target_name).state.structure.schema
        empty = source_schema.arrow_schema.empty_table()
        selected = self._engine.select(definition.select, source, empty, source_schema)
        for name in selected.column_names:
            if name not in target:
                raise ThereIsNoColumn(
                    f"SELECT query outputs column with name {name!r}, which is not found in the target table "
                    f"{'.'.join(target_name)}.{did_you_mean(name, target.names)} Use AS to give it the name of one"
                )
        conform(_one_empty_chunk(selected.schema), target)
        columns = tuple(ColumnDefinition(name, target.column(name).type.text) for name in selected.column_names)
        return replace(definition, columns=columns)

    def _checked_alias(self, definition: CreateAlias) -> CreateAlias:
        target = (definition.target_database, definition.target_table)
        if target == (definition.database, definition.table):
            raise BadArguments("Alias table cannot refer to itself")
        match self.get(target):
            case CreateAlias():
                raise BadArguments(f"Alias table cannot refer to another Alias table, and {'.'.join(target)} is one")
            case CreateView():
                raise NotImplementedInModel(f"{'.'.join(target)} is a view: an Alias of the model is one of a table")
        return definition

    # --- what a name stands for --------------------------------------------------------------------------------

    def storage(self, name: Name) -> Table:
        """The table that has the rows of a table, of an alias, or of a view. Raises UnknownTable."""
        match self.get(name):
            case CreateView() as view:
                return self._target(view)
            case CreateAlias() as alias:
                name = (alias.target_database, alias.target_table)
        if name not in self._tables:
            known = [each for _, each in (*self._tables, *self._definitions)]
            raise UnknownTable(f"Table {'.'.join(name)} does not exist.{did_you_mean(name[1], known)}")
        return self._tables[name]

    def schema(self, name: Name) -> TableSchema:
        """The columns of a table, an alias or a view. Raises UnknownTable."""
        definition = self.get(name)
        if isinstance(definition, CreateView):
            return TableSchema.from_definitions(definition.columns)
        return self.storage(name).state.structure.schema

    def columns(self, definition: Dependent) -> tuple[ColumnDefinition, ...]:
        """Those that its CREATE statement shows; none of an alias whose target is missing."""
        if isinstance(definition, CreateView):
            return definition.columns
        try:
            columns = self.schema((definition.database, definition.table)).columns
        except UnknownTable:
            return ()
        return tuple(ColumnDefinition(each.name, each.type.text, each.default) for each in columns)

    def _target(self, view: CreateView) -> Table:
        name = (view.target_database, view.target_table)
        try:
            return self.storage(name)
        except UnknownTable:
            raise UnknownTable(
                f"Target table {'.'.join(name)} of view {view.database}.{view.table} does not exist: create it, or "
                "drop the view"
            ) from None

    # --- INSERT ------------------------------------------------------------------------------------------------

    def route(self, name: Name) -> Route:
        """What follows when a block is inserted under this name.

        Raises UnknownTable when a target is missing, TooDeepRecursion when views lead back to where they came from.
        """
        definition = self.get(name)
        if isinstance(definition, CreateView):
            source_id = definition.uuid
            name = (definition.target_database, definition.target_table)
        else:
            source_id = "empty"
        inserted = self.storage(name).state.structure.schema
        return Route(tuple(self._behind(name, inserted, (), (".".join(name),))), source_id)

    def _behind(
        self, name: Name, inserted: TableSchema, passages: tuple[Passage, ...], trail: tuple[str, ...]
    ) -> Iterator[Target]:
        """The targets of the views on a name, and on the table that it is an alias of; each with those behind it."""
        for source in self._names_of(name):
            for view in self:
                if isinstance(view, CreateView) and (view.source_database, view.source_table) == source:
                    target = (view.target_database, view.target_table)
                    further = (*passages, self._passage(view, source))
                    onward = (*trail, f"{view.database}.{view.table}", ".".join(target))
                    if onward[-1] in trail:
                        raise TooDeepRecursion(
                            f"Dependencies of the table {trail[0]} are cyclic: {' -> '.join(onward)}. "
                            "Drop one of the views"
                        )
                    yield Target(self._target(view).state, inserted, further)
                    yield from self._behind(target, inserted, further, onward)

    def _names_of(self, name: Name) -> list[Name]:
        definition = self.get(name)
        if isinstance(definition, CreateAlias):
            return [name, (definition.target_database, definition.target_table)]
        return [name]

    def _passage(self, view: CreateView, source: Name) -> Passage:
        if self._engine is None:
            raise SupportIsDisabled("This server has no query engine, and no materialized views without one")
        return Passage(
            self._engine,
            f"{view.database}.{view.table}",
            view.select,
            source,
            self.storage(source).state.structure.schema,
            self._target(view).state.structure.schema,
            through_alias=isinstance(self.get((view.target_database, view.target_table)), CreateAlias),
        )


def _one_empty_chunk(schema: pa.Schema) -> pa.Table:
    """No rows, but something to convert: whether the types fit shows in it."""
    return pa.table([pa.chunked_array([pa.array([], field.type)]) for field in schema], schema=schema)
