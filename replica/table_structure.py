"""What a table is: its columns, keys and settings, and their text in the coordination service.

All replicas must agree on it: a joining replica compares it with the `metadata` and `columns` znodes
(ClickHouse: ReplicatedMergeTreeTableMetadata.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass

from replica.commands import CreateTable
from replica.errors import IncompatibleColumns, MetadataMismatch, ThereIsNoColumn
from replica.expression import Key, check_defaults, check_primary_key, compile_key
from replica.partition import PartitionKey
from replica.schema import TableSchema
from replica.settings import MergeTreeSettings


@dataclass(frozen=True, slots=True)
class TableStructure:
    """Columns, keys and settings, compiled."""

    schema: TableSchema
    sorting_key: Key
    primary_key: Key
    partition_key: PartitionKey
    settings: MergeTreeSettings

    @staticmethod
    def from_definition(definition: CreateTable) -> TableStructure:
        """Raises the ClickHouseError of whatever is wrong in the definition; does nothing else."""
        schema = check_defaults(TableSchema.from_definitions(definition.columns))
        settings = MergeTreeSettings.from_text(definition.settings)
        nullable, floats = bool(settings.allow_nullable_key), bool(settings.allow_floating_point_partition_key)
        sorting_key = compile_key(definition.order_by, schema, nullable)
        primary_key = compile_key(definition.primary_key, schema, nullable) if definition.primary_key else sorting_key
        check_primary_key(primary_key, sorting_key)
        partition_key = PartitionKey.compile(definition.partition_by, schema, nullable, floats)
        return TableStructure(schema, sorting_key, primary_key, partition_key, settings)

    @property
    def columns_text(self) -> str:
        return self.schema.to_text()

    @property
    def metadata_text(self) -> str:
        """Lines in ClickHouse's fixed order; a sorting key of its own comes only beside a different primary key."""
        lines = [
            "metadata format version: 1",
            "date column: ",
            "sampling expression: ",
            f"index granularity: {self.settings.index_granularity}",
            "mode: 0",
            "sign column: ",
            f"primary key: {self.primary_key.text}",
            "data format version: 1",
            f"partition key: {self.partition_key.text}",
        ]
        if self.sorting_key.text != self.primary_key.text:
            lines.append(f"sorting key: {self.sorting_key.text}")
        lines += ["granularity bytes: 10485760", "merge parameters format version: 2"]
        return "".join(f"{line}\n" for line in lines)

    def check_deduplicate_by(self, names: tuple[str, ...]) -> None:
        """Raises NoSuchColumnInTable, and ThereIsNoColumn when a column of a key is not among the names."""
        for name in names:
            self.schema.column(name)
        keys = (self.sorting_key, self.primary_key, self.partition_key.key)
        used = {column for key in keys for expression in key.expressions for column in expression.columns}
        if missing := [name for name in self.schema.names if name in used and name not in names]:
            raise ThereIsNoColumn(
                "DEDUPLICATE BY must name all columns of ORDER BY, PRIMARY KEY and PARTITION BY, "
                f"and {', '.join(missing)} is missing"
            )

    def check_same(self, metadata_text: str, columns_text: str, where: str) -> None:
        """Raises IncompatibleColumns or MetadataMismatch, with the columns or the first line that differ."""
        if columns_text != self.columns_text:
            raise IncompatibleColumns(
                f"The table at {where} has other columns: {_other_columns(columns_text, self.columns_text)}"
            )
        if metadata_text != self.metadata_text:
            raise MetadataMismatch(
                f"The table at {where} is of another kind: {_first_difference(metadata_text, self.metadata_text)}"
            )


def _other_columns(theirs: str, ours: str) -> str:
    """Which columns are only there, only here, or declared otherwise; both texts begin with a version and a count."""
    their_columns, our_columns = theirs.splitlines()[2:], ours.splitlines()[2:]
    only_theirs = [line for line in their_columns if line not in our_columns]
    only_ours = [line for line in our_columns if line not in their_columns]
    if only_theirs and only_ours:
        return f"it has {_listed(only_theirs)}, the statement {_listed(only_ours)}"
    if only_theirs:
        return f"it has also {_listed(only_theirs)}, which the statement lacks"
    if only_ours:
        return f"it has no {_listed(only_ours)}, which the statement has"
    return f"they come in another order: {_listed(their_columns)} there, {_listed(our_columns)} in the statement"


def _listed(columns: list[str]) -> str:
    return ", ".join(line.replace("\t", " ") for line in columns)


def _first_difference(theirs: str, ours: str) -> str:
    their_lines, our_lines = theirs.splitlines(), ours.splitlines()
    for their_line, our_line in zip(their_lines, our_lines, strict=False):
        if their_line != our_line:
            return f"it says {their_line!r}, the statement {our_line!r}"
    return f"it has {len(their_lines)} lines, the statement makes {len(our_lines)}"
