"""The folder of a cluster: what it is made of, where everything lies, and which process is whose.

cluster.json            members, ports, session timeout
lock                    held by the command that changes the cluster
pids/<member>.json      the process that runs the member (or ran it)
logs/<member>.log       what it said
<member>/               its own data, with ready.json once it serves
cuts.json               the links over which nothing passes

Pids, logs and data are those of processes; of containers their engine keeps them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from urllib.parse import unquote

from clickhouse_sim.cluster.errors import ClusterError, ClusterUnreachable, UnknownMember
from clickhouse_sim.cluster.processes import ProcessId

COORDINATOR = "coordinator"
LOOPBACK = "127.0.0.1"

Link = tuple[str, str]
"""Two members that talk with each other, in the order of their names."""


class Backend(StrEnum):
    """Who runs the members."""

    PROCESS = "process"
    DOCKER = "docker"
    COMPOSE = "compose"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class Settings:
    """What `cluster.json` holds. Whoever coordinates keeps its ports for as long as the cluster is up.

    `zookeeper` is the address of the ZooKeeper that coordinates, empty where the embedded coordinator does; so many
    `zookeeper_servers` of it are members of the cluster, none where others run it; they are ClickHouse Keepers where
    `keeper` says so. `server_settings` are those of every replica that are not the default.

    Containers carry the label of their `project`; the addresses in these settings are those within their network. Of
    replicas that run elsewhere, `endpoints` has names and addresses.
    """

    replicas: int
    session_timeout: float
    coordinator_port: int
    zookeeper: str = ""
    zookeeper_servers: int = 0
    server_settings: dict[str, str] = field(default_factory=dict)
    keeper: bool = False
    backend: Backend = Backend.PROCESS
    project: str = ""
    endpoints: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "backend", Backend(self.backend))

    @property
    def replica_names(self) -> tuple[str, ...]:
        return tuple(self.endpoints) or tuple(f"r{number}" for number in range(1, self.replicas + 1))

    @property
    def coordinator_names(self) -> tuple[str, ...]:
        """The members that coordinate."""
        if self.zookeeper:
            kind = "keeper" if self.keeper else "zk"
            return tuple(f"{kind}{number}" for number in range(1, self.zookeeper_servers + 1))
        return (COORDINATOR,)

    @property
    def members(self) -> tuple[str, ...]:
        """Those that coordinate first: they must be there before the others, and go after them."""
        return (*self.coordinator_names, *self.replica_names)

    @property
    def coordinator_address(self) -> str:
        """Where replicas ask whoever coordinates."""
        host = LOOPBACK if self.backend is Backend.PROCESS else COORDINATOR
        return self.zookeeper or f"{host}:{self.coordinator_port}"


@dataclass(frozen=True, slots=True)
class Ready:
    """What a member writes about itself once it serves: its process and its addresses by name."""

    pid: int
    addresses: dict[str, str]

    @property
    def endpoint(self) -> str:
        return self.addresses["endpoint"]


@dataclass(frozen=True, slots=True)
class ClusterFolder:
    root: Path

    def settings(self) -> Settings:
        """Raises ClusterUnreachable when there is no cluster here, ClusterError when its file is broken."""
        path = self.root / "cluster.json"
        try:
            return Settings(**json.loads(path.read_text()))
        except FileNotFoundError:
            raise ClusterUnreachable(f"there is no cluster in {self.root}: start one with chsim up") from None
        except (ValueError, TypeError, OSError) as problem:
            raise ClusterError(f"{path} cannot be read ({problem}): remove the folder, or name another") from None

    @property
    def project(self) -> str:
        """What containers of a cluster in this folder are called by, and no others on this machine."""
        return f"chsim-{hashlib.sha256(str(self.root.resolve()).encode()).hexdigest()[:8]}"

    def has_cluster(self) -> bool:
        return (self.root / "cluster.json").exists()

    def write_settings(self, settings: Settings) -> None:
        _write_json(self.root / "cluster.json", asdict(settings))

    def forget_cluster(self) -> None:
        (self.root / "cluster.json").unlink(missing_ok=True)

    def cuts(self) -> list[Link]:
        """The links that are cut, sorted."""
        try:
            return sorted((str(one), str(other)) for one, other in json.loads(self._cuts_file.read_text()))
        except FileNotFoundError:
            return []
        except (ValueError, TypeError, OSError) as problem:
            raise ClusterError(f"{self._cuts_file} cannot be read ({problem}): remove it") from None

    def write_cuts(self, cuts: Iterable[Link]) -> None:
        _write_json(self._cuts_file, sorted(cuts))

    def require_member(self, name: str) -> None:
        members = self.settings().members
        if name not in members:
            raise UnknownMember(f"the cluster in {self.root} has no member {name}: it has {', '.join(members)}")

    def require_replica(self, name: str) -> None:
        """Raises UnknownMember, also for a member that is no replica."""
        replicas = self.settings().replica_names
        if name not in replicas:
            has = f"replicas are {', '.join(replicas)}" if len(replicas) > 1 else f"the only one is {replicas[0]}"
            raise UnknownMember(f"{name} is not a replica; {has}")

    def data(self, member: str) -> Path:
        return self.root / member

    def log(self, member: str) -> Path:
        return self.root / "logs" / f"{member}.log"

    def process(self, member: str) -> ProcessId | None:
        """The living process of a member, or None."""
        try:
            process = ProcessId(**json.loads(self._pid_file(member).read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return process if process.is_alive else None

    def write_process(self, member: str, process: ProcessId) -> None:
        _write_json(self._pid_file(member), asdict(process))

    def write_ready(self, member: str, process: ProcessId, endpoint: str) -> None:
        """Say on behalf of a member that cannot do it itself that it serves."""
        _write_json(self.data(member) / "ready.json", asdict(Ready(process.pid, {"endpoint": endpoint})))

    def ready(self, member: str) -> Ready | None:
        """What the member's living process says of itself, or None when it does not run or does not serve yet."""
        process = self.process(member)
        if process is None:
            return None
        try:
            ready = Ready(**json.loads((self.data(member) / "ready.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return ready if ready.pid == process.pid else None

    def last_log_lines(self, member: str, count: int = 5) -> str:
        try:
            with self.log(member).open(errors="replace") as lines:
                return "".join(deque(lines, maxlen=count)).rstrip("\n")
        except OSError:
            return ""

    def known_members(self) -> list[str]:
        """Names to complete; none where there is no cluster."""
        try:
            return list(self.settings().members)
        except ClusterError:
            return []

    def known_tables(self) -> list[str]:
        """Names to complete: the tables of which a replica here keeps a definition, sorted."""
        definitions = self.root.glob("r*/data/metadata/default/*.json")
        return sorted({unquote(path.stem) for path in definitions})

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for a change; ClusterError when another command is changing it."""
        for part in ("logs", "pids"):
            (self.root / part).mkdir(parents=True, exist_ok=True)
        with hold(self.root / "lock", f"another chsim is changing the cluster in {self.root}: try again"):
            yield

    @property
    def _cuts_file(self) -> Path:
        return self.root / "cuts.json"

    def _pid_file(self, member: str) -> Path:
        return self.root / "pids" / f"{member}.json"


@contextmanager
def hold(path: Path, refusal: str) -> Iterator[None]:
    """Hold a lock file for as long as the block lasts; ClusterError with that message when another process does."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterError(refusal) from None
        yield


def write_ready(folder: Path, **addresses: str) -> None:
    """Called by a member's own process once it serves: `ready.json` in its data folder, whole or not at all."""
    _write_json(folder / "ready.json", asdict(Ready(os.getpid(), addresses)))


def _write_json(path: Path, value: object) -> None:
    whole = path.with_suffix(".tmp")
    whole.write_text(json.dumps(value))
    whole.replace(path)
