"""What can be asked of a server, and what it answers, as frozen values that cross the wire as JSON.

`to_json` and `from_json` know every class named in `_KINDS`; a JSON object carries its class name under `kind`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from replica.errors import BadArguments

# --- questions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column as DDL gives it: type and DEFAULT expression as ClickHouse text."""

    name: str
    type: str
    default: str | None = None


class Engine(StrEnum):
    """The engine of a table."""

    REPLICATED_MERGE_TREE = "ReplicatedMergeTree"
    MERGE_TREE = "MergeTree"


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE … ENGINE = ReplicatedMergeTree(zookeeper_path, replica_name), or MergeTree, which has neither.

    Expressions are ClickHouse text; an empty `partition_by` means no partitions, an empty `primary_key` the
    sorting key. `zookeeper_path` and `replica_name` still hold their macros (`{shard}`, `{replica}`,
    `{database}`, `{table}`, `{uuid}`), which each server fills in for itself.
    """

    database: str
    table: str
    columns: tuple[ColumnDefinition, ...]
    zookeeper_path: str
    replica_name: str
    order_by: str
    partition_by: str = ""
    primary_key: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    if_not_exists: bool = False
    uuid: str = ""
    engine: Engine = Engine.REPLICATED_MERGE_TREE


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE MATERIALIZED VIEW … TO target AS SELECT … FROM source.

    `select` is run over every block that is inserted into the source, its rows go into the target. `columns` are what
    it gives, with the types that the target has for them: the server fills them in.
    """

    database: str
    table: str
    target_database: str
    target_table: str
    source_database: str
    source_table: str
    select: str
    columns: tuple[ColumnDefinition, ...] = ()
    if_not_exists: bool = False
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class CreateAlias:
    """CREATE TABLE … ENGINE = Alias(target): a second name of a table. `arguments` are the engine's as written."""

    database: str
    table: str
    target_database: str
    target_table: str
    arguments: tuple[str, ...]
    if_not_exists: bool = False
    uuid: str = ""


Dependent = CreateView | CreateAlias
Definition = CreateTable | Dependent


@dataclass(frozen=True, slots=True)
class DescribeTable:
    """Answers one row a column: {name, type, default_type, default_expression}."""

    database: str
    table: str


@dataclass(frozen=True, slots=True)
class ShowCreateTable:
    """Answers one row: {statement}, the CREATE TABLE that makes the table again."""

    database: str
    table: str


@dataclass(frozen=True, slots=True)
class OptimizeTable:
    """OPTIMIZE TABLE: one row for each partition that was looked at: {partition_id, new_part, reason}.

    `partition` is the text of a value, `partition_id` an id; both empty: every partition. Returns when this replica
    has carried out what was assigned.
    """

    database: str
    table: str
    partition: str = ""
    partition_id: str = ""
    final: bool = False
    deduplicate: bool = False
    deduplicate_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListTables:
    """Answers one row a table: {database, name, engine}; the system tables are among them."""


@dataclass(frozen=True, slots=True)
class DropTable:
    """DROP TABLE: answers no rows, when the table has left this server and its replica's znodes are gone.

    It drops views and aliases, too; DROP VIEW, with `only_view`, nothing else than views.
    """

    database: str
    table: str
    if_exists: bool = False
    only_view: bool = False


@dataclass(frozen=True, slots=True)
class AlterSettings:
    """ALTER TABLE … MODIFY SETTING or RESET SETTING, of the table on this server; no rows.

    The settings in `modified` get these values, those in `reset` lose theirs and have the default again.
    """

    database: str
    table: str
    modified: Mapping[str, str] = field(default_factory=dict)
    reset: tuple[str, ...] = ()


AlterCommand = AlterSettings


@dataclass(frozen=True, slots=True)
class DropPartition:
    """ALTER TABLE … DROP or DETACH PARTITION, TRUNCATE TABLE: no rows.

    `partition` is the text of a value, `partition_id` an id; both empty: every partition. `alter_sync`, here and
    below: 0 answers when it is in the log, 1 when this replica has carried it out, 2 when all have.
    """

    database: str
    table: str
    partition: str = ""
    partition_id: str = ""
    detach: bool = False
    alter_sync: int = 1


@dataclass(frozen=True, slots=True)
class DropPart:
    """ALTER TABLE … DROP or DETACH PART: no rows."""

    database: str
    table: str
    part: str
    detach: bool = False
    alter_sync: int = 1


@dataclass(frozen=True, slots=True)
class AttachPartition:
    """ALTER TABLE … ATTACH PARTITION, or PART where `part` names one, from this server's `detached/`; no rows."""

    database: str
    table: str
    partition: str = ""
    partition_id: str = ""
    part: str = ""


@dataclass(frozen=True, slots=True)
class DropDetached:
    """ALTER TABLE … DROP DETACHED PARTITION, or PART where `part` names a folder in `detached/`; no rows."""

    database: str
    table: str
    partition: str = ""
    partition_id: str = ""
    part: str = ""
    allow_drop_detached: bool = False


@dataclass(frozen=True, slots=True)
class ForgetPartition:
    """ALTER TABLE … FORGET PARTITION: its block numbers begin anew; no rows."""

    database: str
    table: str
    partition: str = ""
    partition_id: str = ""


@dataclass(frozen=True, slots=True)
class ReplacePartition:
    """ALTER TABLE … REPLACE PARTITION FROM, or ATTACH PARTITION FROM unless `replace`: no rows."""

    database: str
    table: str
    from_database: str
    from_table: str
    partition: str = ""
    partition_id: str = ""
    replace: bool = True
    alter_sync: int = 1


@dataclass(frozen=True, slots=True)
class MovePartition:
    """ALTER TABLE … MOVE PARTITION TO TABLE: no rows."""

    database: str
    table: str
    to_database: str
    to_table: str
    partition: str = ""
    partition_id: str = ""
    alter_sync: int = 1


PartitionCommand = (
    DropPartition | DropPart | AttachPartition | DropDetached | ForgetPartition | ReplacePartition | MovePartition
)


@dataclass(frozen=True, slots=True)
class DropReplica:
    """SYSTEM DROP REPLICA: takes the znodes of `replica`, another one of the table that is not active; no rows."""

    database: str
    table: str
    replica: str


class Action(StrEnum):
    """What SYSTEM STOP and START hold and let go."""

    MERGES = "MERGES"
    FETCHES = "FETCHES"
    REPLICATION_QUEUES = "REPLICATION QUEUES"
    PULLING_REPLICATION_LOG = "PULLING REPLICATION LOG"


@dataclass(frozen=True, slots=True)
class SwitchAction:
    """SYSTEM STOP or START, on this server: for one table, or for all of them when `table` is empty; no rows."""

    action: Action
    stop: bool
    database: str = ""
    table: str = ""


class SyncMode(StrEnum):
    """What SYSTEM SYNC REPLICA waits for, after it has copied the log."""

    DEFAULT = "DEFAULT"  # the entries that the queue has at that moment
    STRICT = "STRICT"  # an empty queue
    LIGHTWEIGHT = "LIGHTWEIGHT"  # of those entries the ones that bring or drop parts: no merges
    PULL = "PULL"  # nothing


@dataclass(frozen=True, slots=True)
class SyncReplica:
    """SYSTEM SYNC REPLICA: no rows."""

    database: str
    table: str
    mode: SyncMode = SyncMode.DEFAULT


@dataclass(frozen=True, slots=True)
class RestartReplica:
    """SYSTEM RESTART REPLICA: everything of the table ends on this server and begins anew; no rows."""

    database: str
    table: str


@dataclass(frozen=True, slots=True)
class RestoreReplica:
    """SYSTEM RESTORE REPLICA: makes the znodes again, that are gone, from what this server has; no rows."""

    database: str
    table: str


SystemCommand = DropReplica | SwitchAction | SyncReplica | RestartReplica | RestoreReplica
Question = DescribeTable | ShowCreateTable | ListTables
Command = Definition | DropTable | Question | OptimizeTable | AlterCommand | PartitionCommand | SystemCommand

# --- inserts -------------------------------------------------------------------------------------------------


class DeduplicateInsert(StrEnum):
    """Values of the setting `deduplicate_insert`."""

    ENABLE = "enable"
    DISABLE = "disable"
    BACKWARD_COMPATIBLE_CHOICE = "backward_compatible_choice"


class DeduplicateInsertSelect(StrEnum):
    """Values of the setting `deduplicate_insert_select`."""

    ENABLE_WHEN_POSSIBLE = "enable_when_possible"
    FORCE_ENABLE = "force_enable"
    DISABLE = "disable"
    ENABLE_EVEN_FOR_BAD_QUERIES = "enable_even_for_bad_queries"


class RowSource(StrEnum):
    """Where the rows of an INSERT come from; a stable SELECT gives the same rows in the same order again."""

    DATA = "data"
    STABLE_SELECT = "stable SELECT"
    UNSTABLE_SELECT = "unstable SELECT"


@dataclass(frozen=True, slots=True)
class InsertOptions:
    """The settings of one INSERT statement, under ClickHouse's names; `row_source` is none of them."""

    insert_deduplication_token: str = ""
    insert_deduplicate: bool = True
    deduplicate_insert: DeduplicateInsert = DeduplicateInsert.ENABLE
    async_insert_deduplicate: bool = False
    deduplicate_insert_select: DeduplicateInsertSelect = DeduplicateInsertSelect.ENABLE_WHEN_POSSIBLE
    deduplicate_blocks_in_dependent_materialized_views: bool = True
    row_source: RowSource = RowSource.DATA


class InsertStatus(StrEnum):
    """How one part of an insert ended. A retry of the same block is safe after every one of them."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    NOT_STORED = "not stored"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PartOutcome:
    """What became of the rows of one partition of one inserted block.

    `part_name` is the part that was made, or for a duplicate the part that held the rows when they were inserted (""
    when its znode went away meanwhile). `block_id` is the deduplication id, "" when there was none; of several they
    are joined by commas. `error` says why, for NOT_STORED and UNKNOWN.

    Of the `rows`, `removed_rows` were not stored because they are there already: in the parts `duplicate_of`, since
    `duplicate_since` (seconds since 1970, when the earliest of their ids was made; 0 if unknown), or twice in this
    very block. Each time the part was written anew without some of them counts as one of the `rewrites`.
    """

    partition_id: str
    status: InsertStatus
    rows: int
    part_name: str = ""
    block_id: str = ""
    error: str = ""
    removed_rows: int = 0
    rewrites: int = 0
    duplicate_of: str = ""
    duplicate_since: float = 0.0
    warning: str = ""


@dataclass(frozen=True, slots=True)
class ViewOutcome:
    """What became of the rows that one block gave to the target of a view.

    `views` are those on the way, the one that writes last; `table` is where it writes. With an `error` its SELECT
    failed, or it was not tried.
    """

    views: tuple[str, ...]
    table: str
    parts: tuple[PartOutcome, ...] = ()
    deduplication: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class BlockOutcome:
    """What became of one inserted block: one entry a partition, in order of first appearance.

    `deduplication` says in one line whether the block was to be deduplicated and which setting decided that;
    `data_hash_computations` how often data were hashed for it. `views` are the tables that it reached through
    materialized views.
    """

    source_number: int
    rows: int
    parts: tuple[PartOutcome, ...]
    deduplication: str = ""
    data_hash_computations: int = 0
    views: tuple[ViewOutcome, ...] = ()

    @property
    def status(self) -> InsertStatus:
        """The worst of all parts: unknown, then not stored, then stored; duplicate only if all are."""
        statuses = {part.status for part in (*self.parts, *(part for view in self.views for part in view.parts))}
        if any(view.error for view in self.views):
            statuses.add(InsertStatus.NOT_STORED)
        for status in (InsertStatus.UNKNOWN, InsertStatus.NOT_STORED, InsertStatus.STORED):
            if status in statuses:
                return status
        return InsertStatus.DUPLICATE if statuses else InsertStatus.STORED


# --- JSON ----------------------------------------------------------------------------------------------------

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(CreateTable, CreateView, CreateAlias, DropTable, DescribeTable, ShowCreateTable, OptimizeTable, ListTables),
        *(AlterSettings, DropReplica, SwitchAction, SyncReplica, RestartReplica, RestoreReplica),
        *(DropPartition, DropPart, AttachPartition, DropDetached, ForgetPartition, ReplacePartition, MovePartition),
        *(InsertOptions, BlockOutcome),
    )
}

_INSERT_CHOICES: dict[str, type[StrEnum]] = {
    "deduplicate_insert": DeduplicateInsert,
    "deduplicate_insert_select": DeduplicateInsertSelect,
    "row_source": RowSource,
}


def to_json(value: Any) -> str:
    """The JSON text of a command, of insert options or of an outcome."""
    return json.dumps({"kind": type(value).__name__, **asdict(value)})


def from_json(text: str | bytes) -> Any:
    """The value that `to_json` wrote. Raises BadArguments for anything else."""
    try:
        record = json.loads(text)
        kind = _KINDS[record.pop("kind")]
        if kind in (CreateTable, CreateView):
            record["columns"] = tuple(ColumnDefinition(**column) for column in record["columns"])
        if kind is CreateTable:
            record["engine"] = Engine(record.get("engine", Engine.REPLICATED_MERGE_TREE))
        if kind is CreateAlias:
            record["arguments"] = tuple(record["arguments"])
        if kind is OptimizeTable:
            record["deduplicate_by"] = tuple(record["deduplicate_by"])
        if kind is AlterSettings:
            record["reset"] = tuple(record["reset"])
        if kind is SwitchAction:
            record["action"] = Action(record["action"])
        if kind is SyncReplica:
            record["mode"] = SyncMode(record["mode"])
        if kind is InsertOptions:
            record |= {name: of(record[name]) for name, of in _INSERT_CHOICES.items() if name in record}
        if kind is BlockOutcome:
            record["parts"] = _parts(record["parts"])
            record["views"] = tuple(
                ViewOutcome(**{**each, "views": tuple(each["views"]), "parts": _parts(each["parts"])})
                for each in record.get("views", ())
            )
        return kind(**record)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise BadArguments(f"not a command that this server knows: {problem}") from problem


def _parts(records: list[dict[str, Any]]) -> tuple[PartOutcome, ...]:
    return tuple(PartOutcome(**{**part, "status": InsertStatus(part["status"])}) for part in records)
