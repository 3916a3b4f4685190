"""Two clusters that run the same script: ours as processes, and real ClickHouse 18.16 on a real ZooKeeper."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from kazoo.client import KazooClient

from benchmarks.clickhouse_server import ClickHouseServer
from benchmarks.processes import NotMeasured
from benchmarks.zookeeper import ZooKeeper
from clickhouse_sim.cluster.cluster import Cluster
from clickhouse_sim.cluster.endpoint_client import EndpointClient
from clickhouse_sim.cluster.folder import ClusterFolder
from clickhouse_sim.sql.insert import InsertValues
from clickhouse_sim.sql.optimize import Optimization
from clickhouse_sim.sql.run import optimize, schema_of
from clickhouse_sim.sql.statements import parse_statements
from replica.commands import InsertStatus
from replica.errors import ClickHouseError
from replica.log_entry import LogEntry
from replica.part_log import error_code
from tests.clickhouse_18.twin_script import REPLICAS, Act, Step
from tests.clickhouse_18.version_differences import setting_here

_SECONDS = 60.0
_POLL_SECONDS = 0.02
_CREATE = (
    "CREATE TABLE t (d Date, k UInt64, s String) ENGINE = ReplicatedMergeTree('{root}', '{{replica}}') "
    "PARTITION BY toYYYYMM(d) ORDER BY k SETTINGS max_replicated_merges_in_queue = 0"
)

Row = tuple[str, int, str]


@dataclass(frozen=True)
class Outcome:
    """What came of one step: the entries it added to the log, and the code of the error, 0 for none."""

    step: Step
    entries: list[LogEntry]
    error: int


@dataclass(frozen=True)
class End:
    """What is there at the end; by replica what one replica has."""

    outcomes: list[Outcome]
    active_parts: dict[str, list[str]]
    rows: dict[str, list[Row]]


class Refused(Exception):
    """A statement that was answered with an error of this code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class TwinCluster(Protocol):
    """A cluster of the two replicas, and who coordinates it."""

    def coordinator(self) -> str:
        """Its `host:port`."""
        ...

    def execute(self, replica: str, sql: str, settings: dict[str, int]) -> None:
        """Raises Refused."""
        ...

    def is_readonly(self, replica: str) -> bool: ...

    def active_parts(self, replica: str) -> list[str]: ...

    def rows(self, replica: str) -> list[Row]: ...

    def kill(self, replica: str) -> None: ...

    def start(self, replica: str) -> None: ...


# --- a run ---------------------------------------------------------------------------------------------------

_roots = itertools.count(1)


class TwinRun:
    """One script on one cluster, on a table of its own."""

    def __init__(self, cluster: TwinCluster, zookeeper: KazooClient) -> None:
        self._cluster = cluster
        self._zookeeper = zookeeper
        self._root = f"/twins/{next(_roots)}/t"
        self._living: list[str] = []
        self._killed: set[str] = set()

    def run(self, steps: list[Step]) -> End:
        try:
            for replica in REPLICAS:
                self._create(replica)
            outcomes = [self._step(step) for step in steps]
            return End(
                outcomes=outcomes,
                active_parts={replica: sorted(self._cluster.active_parts(replica)) for replica in self._living},
                rows={replica: sorted(self._cluster.rows(replica)) for replica in self._living},
            )
        finally:
            for replica in sorted(self._killed):
                self._start(replica)
            for replica in REPLICAS:
                self._cluster.execute(replica, "DROP TABLE IF EXISTS t", {})

    def _step(self, step: Step) -> Outcome:
        before = self._log_names()
        error = 0
        match step.act:
            case Act.SQL:
                error = self._execute(step)
            case Act.SETTLE:
                self._wait(self._is_settled, "every queue is empty and every log copied")
            case Act.KILL:
                self._cluster.kill(step.replica)
                self._living.remove(step.replica)
                self._killed.add(step.replica)
                self._wait(lambda: not self._is_active(step.replica), f"the session of {step.replica} has run out")
            case Act.START:
                self._start(step.replica)
            case Act.CREATE:
                self._create(step.replica)
        new = [name for name in self._log_names() if name not in before]
        return Outcome(step, list(map(self._entry, new)), error)

    def _execute(self, step: Step) -> int:
        """The code of the error, 0 for none."""
        try:
            self._cluster.execute(step.replica, step.sql, step.settings)
        except Refused as refused:
            return refused.code
        if step.sql.startswith("DROP TABLE"):
            self._living.remove(step.replica)
        if step.sql.startswith("SYSTEM RESTART REPLICA"):
            self._wait_until_writable(step.replica)
        return 0

    def _create(self, replica: str) -> None:
        self._cluster.execute(replica, _CREATE.format(root=self._root), {})
        self._living = sorted({*self._living, replica})
        self._wait_until_writable(replica)

    def _start(self, replica: str) -> None:
        self._cluster.start(replica)
        self._killed.discard(replica)
        self._living = sorted({*self._living, replica})
        self._wait_until_writable(replica)

    def _wait_until_writable(self, replica: str) -> None:
        self._wait(lambda: self._is_active(replica), f"{replica} is active")
        self._wait(lambda: not self._cluster.is_readonly(replica), f"{replica} is not read-only")

    def _is_active(self, replica: str) -> bool:
        return self._zookeeper.exists(f"{self._root}/replicas/{replica}/is_active") is not None

    def _is_settled(self) -> bool:
        names = self._log_names()
        end = int(names[-1].removeprefix("log-")) + 1 if names else 0
        for replica in self._living:
            root = f"{self._root}/replicas/{replica}"
            pointer = int(self._zookeeper.get(f"{root}/log_pointer")[0] or 0)
            if pointer < end or self._zookeeper.get_children(f"{root}/queue"):
                return False
        return True

    def _log_names(self) -> list[str]:
        return sorted(self._zookeeper.get_children(f"{self._root}/log"))

    def _entry(self, name: str) -> LogEntry:
        return LogEntry.parse(self._zookeeper.get(f"{self._root}/log/{name}")[0].decode())

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"{type(self._cluster).__name__}: not in time: {what}"
            time.sleep(_POLL_SECONDS)


# --- the two -------------------------------------------------------------------------------------------------


class RealCluster:
    """Two servers of ClickHouse 18.16 on a ZooKeeper of their own. Raises NotInstalled."""

    def __init__(self, folder: Path, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._servers = {
            name: ClickHouseServer(name, folder / name, zookeeper.address, session_timeout_seconds=4)
            for name in REPLICAS
        }

    def up(self) -> None:
        for server in self._servers.values():
            server.start()

    def coordinator(self) -> str:
        return self._zookeeper.address

    def execute(self, replica: str, sql: str, settings: dict[str, int]) -> None:
        try:
            # OPTIMIZE and ALTER would wait for replicas that may not be able to follow.
            self._servers[replica].query(sql, {"replication_alter_partitions_sync": 0, **settings})
        except NotMeasured as problem:
            found = re.search(r"Code: ([0-9]+)", str(problem))
            raise Refused(int(found[1]) if found else -1, str(problem)) from problem

    def is_readonly(self, replica: str) -> bool:
        return self._servers[replica].query("SELECT is_readonly FROM system.replicas WHERE table = 't'") != "0"

    def active_parts(self, replica: str) -> list[str]:
        answer = self._servers[replica].query("SELECT name FROM system.parts WHERE active AND table = 't'")
        return answer.splitlines()

    def rows(self, replica: str) -> list[Row]:
        lines = self._servers[replica].query("SELECT d, k, s FROM t").splitlines()
        return [(day, int(key), text) for day, key, text in (line.split("\t") for line in lines)]

    def kill(self, replica: str) -> None:
        self._servers[replica].kill()

    def start(self, replica: str) -> None:
        self._servers[replica].start()

    def stop(self) -> None:
        for server in self._servers.values():
            server.stop()


class OurCluster:
    """Two replicas as processes on our coordinator."""

    def __init__(self, folder: Path) -> None:
        self._cluster = Cluster(ClusterFolder(folder))

    def up(self) -> None:
        self._cluster.up(replicas=len(REPLICAS), session_timeout=2.0)

    def coordinator(self) -> str:
        return self._cluster.coordinator_address()

    def execute(self, replica: str, sql: str, settings: dict[str, int]) -> None:
        if settings:
            listed = ", ".join(setting_here(name, value) for name, value in settings.items())
            sql = sql.replace(" VALUES ", f" SETTINGS {listed} VALUES ", 1)
        (statement,) = parse_statements(sql)
        try:
            with self._client(replica) as client:
                match statement:
                    case InsertValues():
                        block = statement.block(schema_of(client, statement.database, statement.table))
                        target = (statement.database, statement.table, block.schema, statement.options)
                        with client.insert(*target) as insert:
                            outcome = insert.send(block)
                        assert outcome.status in (InsertStatus.STORED, InsertStatus.DUPLICATE), outcome
                    case Optimization():
                        optimize(statement, client)
                    case _:
                        client.execute(_without_waiting(statement))
        except ClickHouseError as error:
            raise Refused(error_code(error), error.message) from error

    def is_readonly(self, replica: str) -> bool:
        with self._client(replica) as client:
            tables: list[dict[str, Any]] = client.scan("system", "replicas").to_pylist()
        return any(table["is_readonly"] for table in tables if table["table"] == "t")

    def active_parts(self, replica: str) -> list[str]:
        with self._client(replica) as client:
            parts: list[dict[str, Any]] = client.scan("system", "parts").to_pylist()
        return [part["name"] for part in parts if part["active"] and part["table"] == "t"]

    def rows(self, replica: str) -> list[Row]:
        with self._client(replica) as client:
            rows = client.scan("default", "t").to_pylist()
        return [(str(row["d"]), row["k"], _text(row["s"])) for row in rows]

    def kill(self, replica: str) -> None:
        self._cluster.kill(replica)

    def start(self, replica: str) -> None:
        self._cluster.start(replica)

    def stop(self) -> None:
        if self._cluster.folder.has_cluster():
            self._cluster.down()

    def _client(self, replica: str) -> EndpointClient:
        return EndpointClient(self._cluster.living_replicas()[replica])


def _without_waiting(command: Any) -> Any:
    """The same with `alter_sync` = 0 where there is that: the replica that is asked may have its queue stopped."""
    return replace(command, alter_sync=0) if hasattr(command, "alter_sync") else command


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


@contextlib.contextmanager
def znodes_of(cluster: TwinCluster) -> Iterator[KazooClient]:
    """A client of the cluster's coordinator."""
    client = KazooClient(cluster.coordinator())
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()
