"""A cluster of local processes: whoever coordinates it and its replicas, started, found, killed and stopped."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

import clickhouse_sim
from clickhouse_sim.cluster import zookeeper
from clickhouse_sim.cluster.coordination import (
    Coordination,
    EmbeddedCoordinator,
    coordination_of,
    require_same,
    with_coordination,
)
from clickhouse_sim.cluster.errors import ClusterError, ClusterUnreachable
from clickhouse_sim.cluster.folder import COORDINATOR, ClusterFolder, Ready, Settings
from clickhouse_sim.cluster.processes import ProcessId, spawn
from coordinator.api import CoordinationError

DEFAULT_REPLICAS = 3
DEFAULT_SESSION_TIMEOUT = 6.0
READY_SECONDS = 60.0
STOP_SECONDS = 15.0
_POLL_SECONDS = 0.02

Launcher = Callable[[ClusterFolder, Settings, str], Sequence[str]]
"""The command line of a member's process."""


class Condition(StrEnum):
    """What a member does, as far as its process tells."""

    SERVES = "serves"
    STARTING = "starting"
    PAUSED = "paused"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class MemberState:
    """A member and its process; the addresses are empty where it does not serve (or has none)."""

    name: str
    condition: Condition
    pid: int | None
    endpoint: str
    interserver: str
    log: str

    @property
    def running(self) -> bool:
        return self.condition is Condition.SERVES


def member_command(folder: ClusterFolder, settings: Settings, member: str) -> list[str]:
    """How `chsim` runs a member: in the same Python as itself, or in Java."""
    if member in settings.coordinator_names and settings.zookeeper:
        return zookeeper.server_command(folder.data(member))
    program = [sys.executable, "-m", "clickhouse_sim"]
    data = ["--dir", str(folder.data(member))]
    if member == COORDINATOR:
        # With four ticks to the timeout, the coordinator grants it: sessions last from 2 to 20 ticks.
        tick_ms = max(10, round(settings.session_timeout * 1000 / 4))
        return [
            *(*program, "coordinator", "serve", "--listen", settings.coordinator_address, *data),
            *("--tick-ms", str(tick_ms)),
        ]
    address = zookeeper.beginning_with(settings.coordinator_address, settings.replica_names.index(member))
    return [
        *(*program, "replica", "serve", "--name", member, "--zookeeper", address, *data),
        *("--session-timeout", str(settings.session_timeout)),
        *(f"--setting={name}={value}" for name, value in sorted(settings.server_settings.items())),
    ]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster in a folder. Every change holds the folder's lock."""

    folder: ClusterFolder
    command: Launcher = member_command

    # --- changes ---------------------------------------------------------------------------------------------

    def up(
        self,
        replicas: int | None = None,
        session_timeout: float | None = None,
        coordination: Coordination | None = None,
        server_settings: Mapping[str, str] = MappingProxyType({}),
    ) -> Settings:
        """Start a new cluster, or the one whose folder this is, and return when all of it serves.

        What is not said is as it was the last time, else 3 replicas, a session timeout of 6 seconds, the embedded
        coordinator, and the server settings' defaults. Raises ClusterError when it runs already, has another number
        of replicas or is coordinated otherwise, or a member does not come up; in that case all that was started is
        stopped again. Raises ClusterUnreachable, with nothing started, when the ZooKeeper that is to be used does not
        answer.
        """
        with self.folder.locked():
            is_new = not self.folder.has_cluster()
            settings = self._settings_for(replicas, session_timeout, coordination)
            settings = replace(settings, server_settings={**settings.server_settings, **server_settings})
            running = [member for member in settings.members if self.folder.process(member)]
            if running:
                raise ClusterError(self._running_already(settings, running))
            if not settings.coordinator_names:
                _require_answer(settings.zookeeper)
            self.folder.write_settings(settings)
            try:
                self._start_coordination(settings)
                self._start(settings, settings.replica_names)
            except BaseException:
                self._stop(settings)
                if is_new:
                    self.folder.forget_cluster()
                raise
            return settings

    def start(self, member: str) -> Ready:
        """Start one member that does not run.

        Raises ClusterError, and ClusterUnreachable for a replica when nobody coordinates.
        """
        with self.folder.locked():
            self.folder.require_member(member)
            if self.folder.process(member):
                raise ClusterError(f"{member} is running already")
            settings = self.folder.settings()
            if member in settings.replica_names:
                self._require_coordination(settings, member)
            return self._start(settings, [member])[0]

    def kill(self, member: str) -> int:
        """End one member with SIGKILL, which lets it do nothing more; its pid. Raises ClusterError."""
        with self.folder.locked():
            process = self._running(member)
            process.send(signal.SIGKILL)
            if not process.wait_gone(STOP_SECONDS):
                raise ClusterError(f"{member} (pid {process.pid}) does not go away")
            return process.pid

    def pause(self, member: str) -> int:
        """Let one member do nothing until `resume`, as a long stall would (SIGSTOP); its pid. Raises ClusterError."""
        with self.folder.locked():
            process = self._running(member)
            if process.is_paused:
                raise ClusterError(f"{member} is paused already: chsim resume {member}")
            process.send(signal.SIGSTOP)
            process.wait_paused(True, STOP_SECONDS)
            return process.pid

    def resume(self, member: str) -> int:
        """Let a paused member go on (SIGCONT); its pid. Raises ClusterError."""
        with self.folder.locked():
            process = self._running(member)
            if not process.is_paused:
                raise ClusterError(f"{member} is not paused")
            process.send(signal.SIGCONT)
            process.wait_paused(False, STOP_SECONDS)
            return process.pid

    def down(self) -> list[str]:
        """Stop every member in order, the coordinator last; the names of those that ran."""
        settings = self.folder.settings()
        with self.folder.locked():
            return self._stop(settings)

    # --- questions -------------------------------------------------------------------------------------------

    def status(self) -> list[MemberState]:
        """Every member, and the ZooKeeper of others that is used, whose processes are not known here."""
        settings = self.folder.settings()
        members = [self._state(member) for member in settings.members]
        if settings.coordinator_names:
            return members
        condition = Condition.SERVES if zookeeper.serves(settings.zookeeper) else Condition.STOPPED
        foreign = MemberState("zookeeper", condition, pid=None, endpoint=settings.zookeeper, interserver="", log="")
        return [foreign, *members]

    def living_replicas(self) -> dict[str, str]:
        """Name and endpoint address of every replica that serves."""
        states = map(self._state, self.folder.settings().replica_names)
        return {state.name: state.endpoint for state in states if state.running}

    def coordinator_address(self) -> str:
        """Where the coordination service is asked. Raises ClusterUnreachable when none of its members serves."""
        settings = self.folder.settings()
        if not settings.zookeeper:
            return self._serving(COORDINATOR, "the coordinator")
        names = settings.coordinator_names
        if names and not any(self._state(name).running for name in names):
            raise ClusterUnreachable(f"no ZooKeeper server is running: start one with chsim start {names[0]}")
        return settings.zookeeper

    def chosen_replica(self, name: str | None) -> tuple[str, str]:
        """Name and endpoint of the replica of that name, or of the first one that serves.

        Raises UnknownMember, and ClusterUnreachable when it does not serve.
        """
        if name is None:
            living = self.living_replicas()
            if not living:
                raise ClusterUnreachable("no replica is running: see chsim status, or start one with chsim start r1")
            return next(iter(living.items()))
        self.folder.require_replica(name)
        return name, self._serving(name, name)

    def member(self, name: str) -> MemberState:
        """One member. Raises UnknownMember."""
        self.folder.require_member(name)
        return self._state(name)

    # --- members ---------------------------------------------------------------------------------------------

    def _settings_for(
        self, replicas: int | None, session_timeout: float | None, coordination: Coordination | None
    ) -> Settings:
        if not self.folder.has_cluster():
            new = Settings(replicas or DEFAULT_REPLICAS, session_timeout or DEFAULT_SESSION_TIMEOUT, 0)
            return with_coordination(new, coordination or EmbeddedCoordinator())
        known = self.folder.settings()
        if replicas not in (None, known.replicas):
            raise ClusterError(
                f"{self.folder.root} holds a cluster of {known.replicas} replicas, not {replicas}:"
                " leave --replicas out to start it again, or name another folder with --dir"
            )
        was = coordination_of(known)
        require_same(was, coordination or was)
        again = replace(known, session_timeout=session_timeout or known.session_timeout)
        return with_coordination(again, coordination or was)

    def _running_already(self, settings: Settings, running: list[str]) -> str:
        """Why `up` has nothing to do, or what is to be done instead."""
        down = [member for member in settings.members if member not in running]
        if not down:
            return (
                f"a cluster is running in {self.folder.root} ({', '.join(running)}):"
                " see chsim status, or stop it with chsim down"
            )
        commands = "; ".join(f"chsim start {member}" for member in down)
        return (
            f"the cluster in {self.folder.root} is running in part: {', '.join(running)} {_is_or_are(running)} up,"
            f" {', '.join(down)} {_is_or_are(down)} down. Start what is down with: {commands}"
        )

    def _start_coordination(self, settings: Settings) -> None:
        names = settings.coordinator_names
        if settings.zookeeper and names:
            folders = [self.folder.data(name) for name in names]
            zookeeper.configure(folders, _ports(settings.zookeeper), settings.session_timeout)
        self._start(settings, names)
        if settings.zookeeper and names:
            zookeeper.prepare(settings.zookeeper, READY_SECONDS)  # all of them run, but have they found each other?

    def _require_coordination(self, settings: Settings, replica: str) -> None:
        names = settings.coordinator_names
        if names and not any(self.folder.process(name) for name in names):
            who = (
                "ZooKeeper, none of whose servers runs"
                if settings.zookeeper
                else "the coordinator, which is not running"
            )
            raise ClusterUnreachable(f"{replica} needs {who}: chsim start {names[0]}")

    def _start(self, settings: Settings, members: Sequence[str]) -> list[Ready]:
        """Start the members' processes together; what they say once they serve. If one does not, all are ended."""
        for member in members:
            self.folder.data(member).mkdir(parents=True, exist_ok=True)
            (self.folder.data(member) / "ready.json").unlink(missing_ok=True)
            command = self.command(self.folder, settings, member)
            package_root = str(Path(clickhouse_sim.__file__).parents[1])
            self.folder.write_process(
                member, spawn(command, self.folder.log(member), {"PYTHONPATH": package_root, "PYTHONUNBUFFERED": "1"})
            )
        deadline = time.monotonic() + READY_SECONDS
        try:
            return [self._wait_ready(settings, member, deadline) for member in members]
        except BaseException:
            self._end(members)
            raise

    def _wait_ready(self, settings: Settings, member: str, deadline: float) -> Ready:
        while True:
            ready = self.folder.ready(member)
            if ready is not None:
                return ready
            process = self.folder.process(member)
            if process is None:
                raise ClusterError(self._with_log(member, f"{member} ended while it started"))
            if time.monotonic() >= deadline:
                raise ClusterError(self._with_log(member, f"{member} does not serve after {READY_SECONDS:.0f} s"))
            if settings.zookeeper and member in settings.coordinator_names:
                self._speak_for_zookeeper(settings, member, process)
            time.sleep(_POLL_SECONDS)

    def _speak_for_zookeeper(self, settings: Settings, member: str, process: ProcessId) -> None:
        """ZooKeeper writes no `ready.json`: it is asked."""
        port = _ports(settings.zookeeper)[settings.coordinator_names.index(member)]
        if zookeeper.answers(port):
            self.folder.write_ready(member, process, zookeeper.local_address([port]))

    def _with_log(self, member: str, problem: str) -> str:
        return f"{problem}; the last lines of {self.folder.log(member)}:\n{self.folder.last_log_lines(member)}"

    def _stop(self, settings: Settings) -> list[str]:
        """End all replicas together, after them whoever coordinates; the names of those that ran."""
        return self._end(settings.replica_names) + self._end(settings.coordinator_names)

    def _end(self, members: Sequence[str]) -> list[str]:
        """SIGTERM to all of them (a paused one must go on to hear it), a bounded wait, then SIGKILL."""
        running = {member: process for member in members if (process := self.folder.process(member))}
        for process in running.values():
            process.send(signal.SIGTERM)
            process.send(signal.SIGCONT)
        deadline = time.monotonic() + STOP_SECONDS
        for process in running.values():
            if not process.wait_gone(max(0.0, deadline - time.monotonic())):
                process.send(signal.SIGKILL)
                process.wait_gone(STOP_SECONDS)
        return list(running)

    def _running(self, member: str) -> ProcessId:
        """Its process. Raises UnknownMember, and ClusterError when there is none."""
        self.folder.require_member(member)
        process = self.folder.process(member)
        if process is None:
            raise ClusterError(f"{member} is not running")
        return process

    def _serving(self, member: str, called: str) -> str:
        """Its endpoint. Raises ClusterUnreachable when it does not serve."""
        state = self._state(member)
        match state.condition:
            case Condition.SERVES:
                return state.endpoint
            case Condition.PAUSED:
                raise ClusterUnreachable(f"{called} is paused: let it go on with chsim resume {member}")
            case Condition.STARTING:
                raise ClusterUnreachable(f"{called} is starting: try again")
        raise ClusterUnreachable(f"{called} is not running: start it with chsim start {member}")

    def _state(self, member: str) -> MemberState:
        process, ready = self.folder.process(member), self.folder.ready(member)
        if process is None:
            condition = Condition.STOPPED
        elif process.is_paused:
            condition = Condition.PAUSED
        else:
            condition = Condition.STARTING if ready is None else Condition.SERVES
        addresses = ready.addresses if ready else {}
        return MemberState(
            name=member,
            condition=condition,
            pid=process.pid if process else None,
            endpoint=addresses.get("endpoint", ""),
            interserver=addresses.get("interserver", ""),
            log=str(self.folder.log(member)),
        )


def _require_answer(address: str) -> None:
    """Raises ClusterUnreachable."""
    try:
        zookeeper.prepare(address)
    except CoordinationError as problem:
        raise ClusterUnreachable(
            f"The ZooKeeper at {address} cannot be used, so nothing was started: {problem}"
        ) from None


def _is_or_are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _ports(address: str) -> list[int]:
    return [int(server.rpartition(":")[2]) for server in address.split(",")]
