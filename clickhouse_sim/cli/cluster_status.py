"""What `chsim status` tells, in bounded time: nobody is asked for longer than a few seconds, and all at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clickhouse_sim.cli.ask import system_rows
from clickhouse_sim.cli.listing import Listing
from clickhouse_sim.cluster import znodes
from clickhouse_sim.cluster.cluster import Cluster
from clickhouse_sim.cluster.errors import ClusterUnreachable
from clickhouse_sim.cluster.folder import ClusterFolder
from clickhouse_sim.cluster.runtime import MemberState
from coordinator.api import CoordinationError, Session
from replica.errors import ClickHouseError
from replica.quoting import string_literal

ANSWER_SECONDS = 2.0
SILENT = "does not answer"
_MANY = 100

_COLUMNS = (
    "name",
    "state",
    "pid",
    "endpoint",
    "interserver",
    "tables",
    "queue_size",
    "lag",
    "readonly",
    "pulling",
    "log",
)


@dataclass(frozen=True, slots=True)
class _Backlog:
    """What one replica of one table has still to do, by its znodes: entries in its queue, and not yet copied; whether
    the log is kept for it while it is away."""

    table_path: str
    replica: str
    queued: int
    unheard: int
    is_waited_for: bool


def status_listing(folder: Path) -> Listing:
    """One row a member: what it does, where it listens, how far its tables are behind, which are read-only or do not
    copy the log any more, and why.

    The lag of a replica is the number of log entries that it has not copied into its queue, and of those in it.
    It is read from the znodes, so that it is known of the dead as well; without a coordinator it is not known.
    """
    cluster = Cluster(ClusterFolder(folder))
    members = cluster.status()
    replicas = set(cluster.folder.settings().replica_names)
    with ThreadPoolExecutor(len(members)) as threads:
        backlogs = threads.submit(_backlogs, cluster)
        asked = {each.name: threads.submit(_tables_of, each) for each in members if each.name in replicas}
        told = {name: answer.result() for name, answer in asked.items()}
        known = backlogs.result()
    rows = [
        _replica_row(each, told[each.name], known)
        if each.name in replicas
        else _coordinator_row(each, answered=known is not None)
        for each in members
    ]
    spare = ("log", "interserver", "pid", "tables", "endpoint")
    cuts = [f"Cut: {one} and {other}. Mend it with: chsim heal" for one, other in cluster.folder.cuts()]
    return Listing(_COLUMNS, rows, key=("name",), spare=spare, notes=[*cuts, *_what_grows(known or [])])


def _what_grows(backlogs: Sequence[_Backlog]) -> list[str]:
    """Where znodes pile up: each entry that a replica does not copy or carry out is one."""
    notes = [
        f"{each.replica} is away, and the log of {each.table_path} keeps {each.unheard} entries for it: start it, or "
        f"give it up with SYSTEM DROP REPLICA {string_literal(each.replica)} FROM TABLE on another one."
        for each in backlogs
        if each.is_waited_for and each.unheard >= _MANY
    ]
    notes += [
        f"{each.replica} has {each.queued} entries in its queue of {each.table_path}: chsim queue tells why."
        for each in backlogs
        if each.queued >= _MANY
    ]
    return notes


def _tables_of(member: MemberState) -> list[dict[str, Any]] | None:
    """What the replica says of its tables in system.replicas, None when it does not serve or not answer."""
    if not member.running:
        return None
    try:
        return system_rows(member.endpoint, "replicas", ANSWER_SECONDS)
    except ClickHouseError:
        return None


def _backlogs(cluster: Cluster) -> list[_Backlog] | None:
    """Of every replica of every table; None when the coordinator does not answer."""

    async def read(session: Session) -> list[_Backlog]:
        return [
            _Backlog(
                path,
                name,
                await znodes.queue_length(session, path, name),
                await znodes.unheard(session, path, name),
                await znodes.is_waited_for(session, path, name),
            )
            for path in await znodes.tables(session)
            for name in await znodes.replicas(session, path)
        ]

    try:
        return znodes.with_session(cluster.coordinator_address(), read, ANSWER_SECONDS, bounded=True)
    except (ClusterUnreachable, CoordinationError):
        return None


def _coordinator_row(member: MemberState, *, answered: bool) -> Sequence[Any]:
    state = SILENT if member.running and not answered else member.condition.value
    return (member.name, state, member.pid, member.endpoint, None, None, None, None, None, None, member.log)


def _replica_row(
    member: MemberState, tables: list[dict[str, Any]] | None, backlogs: list[_Backlog] | None
) -> Sequence[Any]:
    state = SILENT if member.running and tables is None else member.condition.value
    own = None if backlogs is None else _own(member, tables, backlogs)
    if tables is not None:
        queued: int | None = sum(table["queue_size"] for table in tables)
        count: int | None = len(tables)
    else:
        queued = None if own is None else sum(each.queued for each in own)
        count = None if own is None else len(own)
    lag = None if own is None else sum(each.queued + each.unheard for each in own)
    readonly = None if tables is None else "; ".join(map(_why_readonly, filter(_is_readonly, tables)))
    pulling = None if tables is None else "; ".join(map(_why_not_pulled, filter(_is_stuck, tables)))
    addresses = (member.endpoint, member.interserver)
    return (member.name, state, member.pid, *addresses, count, queued, lag, readonly, pulling, member.log)


def _own(member: MemberState, tables: list[dict[str, Any]] | None, backlogs: list[_Backlog]) -> list[_Backlog]:
    """The member's among all: those that it names itself, else those of its name."""
    if tables is None:
        return [each for each in backlogs if each.replica == member.name]
    named = {(table["zookeeper_path"], table["replica_name"]) for table in tables}
    return [each for each in backlogs if (each.table_path, each.replica) in named]


def _is_readonly(table: dict[str, Any]) -> bool:
    return bool(table["is_readonly"])


def _why_readonly(table: dict[str, Any]) -> str:
    return f"{table['table']}: {table['zookeeper_exception'] or 'no reason is told'}"


def _is_stuck(table: dict[str, Any]) -> bool:
    """Whether entries wait in the log since a pull failed: the exception itself stays after the next good one."""
    failed = bool(table["last_queue_update_exception"]) and not _is_readonly(table)
    return failed and bool(table["log_pointer"] <= table["log_max_index"])


def _why_not_pulled(table: dict[str, Any]) -> str:
    return f"{table['table']}: {table['last_queue_update_exception']}"
