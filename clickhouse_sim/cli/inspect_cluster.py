"""What `chsim queue`, `log` and `parts` tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clickhouse_sim.cli.ask import system_rows
from clickhouse_sim.cli.listing import Listing
from clickhouse_sim.cluster import znodes
from clickhouse_sim.cluster.cluster import Cluster
from clickhouse_sim.cluster.folder import ClusterFolder
from clickhouse_sim.cluster.runtime import Condition
from clickhouse_sim.sql.statements import parse_table_name
from coordinator.api import Session
from replica.errors import UnknownTable

_QUEUE_COLUMNS = (
    "replica",
    "table",
    "node_name",
    "type",
    "new_part_name",
    "source_replica",
    "is_currently_executing",
    "num_tries",
    "last_exception",
    "num_postponed",
    "postpone_reason",
    "told_by",
)
_QUEUE_SPARE = (
    "told_by",
    "source_replica",
    "node_name",
    "num_postponed",
    "num_tries",
    "table",
    "is_currently_executing",
)
_LOG_COLUMNS = ("table", "entry", "create_time", "source_replica", "type", "new_part", "detail")
_LOG_SPARE = ("create_time", "source_replica", "table", "detail")
_PART_COLUMNS = ("partition_id", "name", "rows", "active", "level", "bytes_on_disk")
_PART_SPARE = ("partition_id", "level", "bytes_on_disk", "table")


@dataclass(frozen=True, slots=True)
class _Table:
    """A table as one replica has it, and where both are among the znodes."""

    database: str
    name: str
    zookeeper_path: str
    replica_name: str


def queue_listing(table: str | None, replica: str | None, folder: Path) -> Listing:
    """The queues of the living replicas, asked of them, and those of the others, read from their znodes."""
    cluster = Cluster(ClusterFolder(folder))
    living = _living(cluster, replica)
    known = {name: _tables_of(address) for name, address in cluster.living_replicas().items()}
    rows = [row for name, address in living.items() for row in _asked_queue(name, address, table)]
    dead = [] if replica in living else _dead_queues(cluster, table, replica, known)
    _require_known(table, known.values(), dead)
    rows += [row for queue in dead for row in queue.rows()]
    return Listing(
        _QUEUE_COLUMNS,
        rows,
        key=("replica", "table", "node_name"),
        spare=_QUEUE_SPARE,
        notes=[*(queue.note() for queue in dead), *_lacking(known, table, replica)],
        when_empty="No entry waits in a queue.",
    )


def log_listing(table: str | None, folder: Path) -> Listing:
    """The shared log of one table, or of all."""
    cluster = Cluster(ClusterFolder(folder))
    known = [each for address in cluster.living_replicas().values() for each in _tables_of(address)]

    async def read(session: Session) -> list[tuple[str, list[znodes.DecodedEntry]]]:
        paths = _matching(table, await znodes.tables(session), known)
        return [(path, await znodes.entries(session, f"{path}/log")) for path in paths]

    logs = znodes.with_session(cluster.coordinator_address(), read)
    if table is not None and not logs:
        raise UnknownTable(f"no table {table} has znodes")
    rows = [_log_row(path, entry) for path, entries in logs for entry in entries]
    return Listing(_LOG_COLUMNS, rows, key=("table", "entry"), spare=_LOG_SPARE, when_empty="The log has no entries.")


def parts_listing(table: str | None, replica: str | None, folder: Path) -> Listing:
    """system.parts of each living replica."""
    cluster = Cluster(ClusterFolder(folder))
    living = _living(cluster, replica) or dict([cluster.chosen_replica(replica)])
    known = {name: _tables_of(address) for name, address in living.items()}
    _require_known(table, known.values(), [])
    rows = [
        (name, f"{part['database']}.{part['table']}", *(part[column] for column in _PART_COLUMNS))
        for name, address in living.items()
        for part in system_rows(address, "parts")
        if _is_asked_for(table, part)
    ]
    columns = ("replica", "table", *_PART_COLUMNS)
    return Listing(
        columns,
        rows,
        key=("replica", "table", "name"),
        spare=_PART_SPARE,
        notes=_lacking(known, table, replica),
        when_empty="There are no parts.",
    )


# --- what living replicas say --------------------------------------------------------------------------------


def _living(cluster: Cluster, replica: str | None) -> dict[str, str]:
    """The living replicas, of which only the named one when one is named. Raises UnknownMember."""
    if replica is not None:
        cluster.folder.require_replica(replica)
    return {name: address for name, address in cluster.living_replicas().items() if replica in (None, name)}


def _tables_of(address: str) -> list[_Table]:
    return [
        _Table(row["database"], row["table"], row["zookeeper_path"], row["replica_name"])
        for row in system_rows(address, "replicas")
    ]


def _lacking(known: dict[str, list[_Table]], table: str | None, replica: str | None) -> list[str]:
    """Which living replica has no table that another has: one that lost its folder must not look healthy."""
    names = {name: {(each.database, each.name) for each in tables} for name, tables in known.items()}
    asked = sorted(set[tuple[str, str]]().union(*names.values()))
    if table is not None:
        asked = [each for each in asked if each == parse_table_name(table)]
    return [
        f"{name} has no table {'.'.join(each)}: it is on {', '.join(sorted(n for n in names if each in names[n]))}."
        for name in names
        if replica in (None, name)
        for each in asked
        if each not in names[name]
    ]


def _asked_queue(name: str, address: str, table: str | None) -> Iterator[tuple[Any, ...]]:
    for row in system_rows(address, "replication_queue"):
        if _is_asked_for(table, row):
            told = {**row, "replica": name, "table": f"{row['database']}.{row['table']}", "told_by": "replica"}
            yield tuple(told[column] for column in _QUEUE_COLUMNS)


def _is_asked_for(table: str | None, row: dict[str, Any]) -> bool:
    return table is None or parse_table_name(table) == (row["database"], row["table"])


# --- what znodes say -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _DeadQueue:
    table_path: str
    replica: str
    condition: Condition
    entries: list[znodes.DecodedEntry]
    unheard: int

    def note(self) -> str:
        state = "is paused" if self.condition is Condition.PAUSED else "is not running"
        return (
            f"{self.replica} {state}: its queue of {self.table_path} is read from znodes (tries and reasons"
            f" were in its memory). Entries of the log that it has not copied yet: {self.unheard}."
        )

    def rows(self) -> Iterator[tuple[Any, ...]]:
        for each in self.entries:
            told = {
                "replica": self.replica,
                "table": self.table_path,
                "node_name": each.znode,
                "type": each.type or each.problem,
                "new_part_name": each.new_part,
                "source_replica": each.entry.source_replica if each.entry else "",
                "told_by": "znodes",
            }
            yield tuple(told.get(column) for column in _QUEUE_COLUMNS)


def _dead_queues(
    cluster: Cluster, table: str | None, replica: str | None, known: dict[str, list[_Table]]
) -> list[_DeadQueue]:
    """The queues of replicas that no living server says are its own."""
    if len(known) == len(cluster.folder.settings().replica_names):
        return []
    conditions = {state.name: state.condition for state in cluster.status()}
    alive = {(each.zookeeper_path, each.replica_name) for tables in known.values() for each in tables}

    async def read(session: Session) -> list[_DeadQueue]:
        paths = _matching(table, await znodes.tables(session), [each for tables in known.values() for each in tables])
        return [
            _DeadQueue(
                path,
                name,
                conditions.get(name, Condition.STOPPED),
                await znodes.entries(session, f"{path}/replicas/{name}/queue"),
                await znodes.unheard(session, path, name),
            )
            for path in paths
            for name in await znodes.replicas(session, path)
            if (path, name) not in alive and replica in (None, name)
        ]

    return znodes.with_session(cluster.coordinator_address(), read)


def _matching(table: str | None, paths: list[str], known: Iterable[_Table]) -> list[str]:
    """The paths of the tables that are meant: a name as replicas know it, else the last word of a path."""
    if table is None:
        return paths
    database, name = parse_table_name(table)
    named = {each.zookeeper_path for each in known if (each.database, each.name) == (database, name)}
    return [path for path in paths if path in named or (not named and path.rpartition("/")[2] == name)]


def _require_known(table: str | None, known: Iterable[list[_Table]], dead: list[_DeadQueue]) -> None:
    if table is None or dead:
        return
    wanted = parse_table_name(table)
    if not any((each.database, each.name) == wanted for tables in known for each in tables):
        raise UnknownTable(f"no replica has a table {'.'.join(wanted)}")


def _log_row(path: str, each: znodes.DecodedEntry) -> tuple[Any, ...]:
    entry = each.entry
    created = datetime.fromtimestamp(entry.create_time, UTC).replace(tzinfo=None) if entry else None
    source = entry.source_replica if entry else ""
    return (path, each.znode, created, source, each.type, each.new_part, each.detail)
