"""What `chsim queue`, `log`, `parts` and `znodes` do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clickhouse_sim.cli.render import Renderer, narrate
from clickhouse_sim.cluster import znodes
from clickhouse_sim.cluster.cluster import Cluster
from clickhouse_sim.cluster.folder import ClusterFolder
from clickhouse_sim.sql.select import scanned
from clickhouse_sim.sql.statements import parse_table_name
from coordinator.api import Session
from replica.endpoint_client import EndpointClient
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
_LOG_COLUMNS = ("table", "entry", "create_time", "source_replica", "type", "new_part", "detail")
_PART_COLUMNS = ("partition_id", "name", "rows", "active", "level", "bytes_on_disk")
_STAT_COLUMNS = (
    "version",
    "cversion",
    "num_children",
    "ephemeral_owner",
    "ctime",
    "mtime",
    "czxid",
    "mzxid",
    "pzxid",
)


@dataclass(frozen=True, slots=True)
class _Table:
    """A table as one replica has it, and where both are among the znodes."""

    database: str
    name: str
    zookeeper_path: str
    replica_name: str


def show_queue(table: str | None, replica: str | None, folder: Path, renderer: Renderer) -> None:
    """The queues of the living replicas, asked of them, and those of the others, read from their znodes."""
    cluster = Cluster(ClusterFolder(folder))
    living = _living(cluster, replica)
    known = {name: _tables_of(address) for name, address in cluster.living_replicas().items()}
    rows = [row for name, address in living.items() for row in _asked_queue(name, address, table)]
    dead = [] if replica in living else _dead_queues(cluster, table, replica, known)
    _require_known(table, known.values(), dead)
    rows += [row for queue in dead for row in queue.rows()]
    renderer.table(_QUEUE_COLUMNS, rows)
    if not rows:
        narrate("No entry waits in a queue.")
    for queue in dead:
        narrate(
            f"{queue.replica} is not running: its queue of {queue.table_path} is read from znodes (tries and reasons"
            f" were in its memory). Of the log it has not copied {queue.unheard} entries yet."
        )


def show_log(table: str | None, folder: Path, renderer: Renderer) -> None:
    """The shared log of one table, or of all."""
    cluster = Cluster(ClusterFolder(folder))
    known = [each for address in cluster.living_replicas().values() for each in _tables_of(address)]

    async def read(session: Session) -> list[tuple[str, list[znodes.DecodedEntry]]]:
        paths = _matching(table, await znodes.tables(session), known)
        return [(path, await znodes.entries(session, f"{path}/log")) for path in paths]

    logs = znodes.with_session(cluster.coordinator_address(), read)
    if table is not None and not logs:
        raise UnknownTable(f"no table {table} has znodes")
    renderer.table(_LOG_COLUMNS, [_log_row(path, entry) for path, entries in logs for entry in entries])


def show_parts(table: str | None, replica: str | None, folder: Path, renderer: Renderer) -> None:
    """system.parts of each living replica."""
    cluster = Cluster(ClusterFolder(folder))
    living = _living(cluster, replica) or dict([cluster.chosen_replica(replica)])
    _require_known(table, (_tables_of(address) for address in living.values()), [])
    rows = [
        (name, f"{part['database']}.{part['table']}", *(part[column] for column in _PART_COLUMNS))
        for name, address in living.items()
        for part in _system_rows(address, "parts")
        if _is_asked_for(table, part)
    ]
    renderer.table(("replica", "table", *_PART_COLUMNS), rows)


def show_znodes(path: str, depth: int, stat: bool, folder: Path, renderer: Renderer) -> None:
    """The subtree below a path."""
    address = Cluster(ClusterFolder(folder)).coordinator_address()
    found = znodes.with_session(address, lambda session: znodes.subtree(session, path.rstrip("/") or "/", depth))
    columns = ("path", "data", *(_STAT_COLUMNS if stat else ()))
    renderer.table(columns, [(node.path, _text(node.data), *(_stat_row(node) if stat else ())) for node in found])


# --- what living replicas say --------------------------------------------------------------------------------


def _living(cluster: Cluster, replica: str | None) -> dict[str, str]:
    """The living replicas, of which only the named one when one is named. Raises UnknownMember."""
    if replica is not None:
        cluster.folder.require_member(replica)
    return {name: address for name, address in cluster.living_replicas().items() if replica in (None, name)}


def _system_rows(address: str, table: str) -> list[dict[str, Any]]:
    with EndpointClient(address) as client:
        rows: list[dict[str, Any]] = scanned(client.scan("system", table)).to_pylist()
    return rows


def _tables_of(address: str) -> list[_Table]:
    return [
        _Table(row["database"], row["table"], row["zookeeper_path"], row["replica_name"])
        for row in _system_rows(address, "replicas")
    ]


def _asked_queue(name: str, address: str, table: str | None) -> Iterator[tuple[Any, ...]]:
    for row in _system_rows(address, "replication_queue"):
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
    entries: list[znodes.DecodedEntry]
    unheard: int

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
    alive = {(each.zookeeper_path, each.replica_name) for tables in known.values() for each in tables}

    async def read(session: Session) -> list[_DeadQueue]:
        paths = _matching(table, await znodes.tables(session), [each for tables in known.values() for each in tables])
        return [
            _DeadQueue(
                path,
                name,
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


def _stat_row(node: znodes.Znode) -> tuple[Any, ...]:
    values = {column: getattr(node.stat, column) for column in _STAT_COLUMNS}
    for column in ("ctime", "mtime"):
        values[column] = datetime.fromtimestamp(values[column] / 1000, UTC).replace(tzinfo=None)
    return tuple(values.values())


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
