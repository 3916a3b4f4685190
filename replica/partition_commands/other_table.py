"""The other table of a statement, and whether its parts can be parts of this one."""

from __future__ import annotations

from replica.errors import BadArguments, IncompatibleColumns, UnknownTable
from replica.quoting import did_you_mean
from replica.table_state import TableState


def other_table(state: TableState, database: str, name: str) -> TableState:
    """A table of the same server. Raises UnknownTable."""
    tables = state.server.tables
    if (database, name) not in tables:
        known = [each for _, each in sorted(tables)]
        raise UnknownTable(f"Table {database}.{name} does not exist.{did_you_mean(name, known)}")
    return tables[database, name]


def check_same_structure(one: TableState, other: TableState) -> None:
    """Raises IncompatibleColumns or BadArguments unless parts of one table can be parts of the other."""
    mine, theirs = one.structure, other.structure
    if [(each.name, each.type) for each in mine.schema.columns] != [
        (each.name, each.type) for each in theirs.schema.columns
    ]:
        raise IncompatibleColumns(f"Tables {one.full_name} and {other.full_name} have different structure")
    for what, my_text, their_text in (
        ("ordering", mine.sorting_key.text, theirs.sorting_key.text),
        ("partition key", mine.partition_key.text, theirs.partition_key.text),
        ("primary key", mine.primary_key.text, theirs.primary_key.text),
    ):
        if my_text != their_text:
            raise BadArguments(f"Tables {one.full_name} and {other.full_name} have different {what}")
