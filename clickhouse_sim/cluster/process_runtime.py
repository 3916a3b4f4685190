"""Members as processes of this machine, on loopback; what they write goes into the cluster's folder."""

from __future__ import annotations

import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import clickhouse_sim
from clickhouse_sim.cluster import runtime, zookeeper
from clickhouse_sim.cluster.errors import ClusterError
from clickhouse_sim.cluster.folder import COORDINATOR, ClusterFolder, Link, Ready, Settings
from clickhouse_sim.cluster.member_command import service_arguments
from clickhouse_sim.cluster.processes import ProcessId, spawn
from clickhouse_sim.cluster.runtime import Condition, MemberState

_POLL_SECONDS = 0.02
_FOLLOW_SECONDS = 0.2

Launcher = Callable[[ClusterFolder, Settings, str], Sequence[str]]
"""The command line of a member's process."""


def member_command(folder: ClusterFolder, settings: Settings, member: str) -> list[str]:
    """How `chsim` runs a member: in the same Python as itself, or in Java."""
    if member in settings.coordinator_names and settings.zookeeper:
        return zookeeper.server_command(folder.data(member))
    arguments = service_arguments(settings, member, str(folder.data(member)))
    listen = ["--listen", settings.coordinator_address] if member == COORDINATOR else []
    return [sys.executable, "-m", "clickhouse_sim", *arguments, *listen]


@dataclass(frozen=True, slots=True)
class ProcessRuntime:
    """Runs members as processes. See `Runtime`."""

    folder: ClusterFolder
    settings: Settings
    command: Launcher = member_command

    def prepare(self) -> None:
        """Nothing must be there before; ZooKeeper servers of our own get their configuration."""
        names = self.settings.coordinator_names
        if self.settings.zookeeper and names:
            folders = [self.folder.data(name) for name in names]
            zookeeper.configure(folders, _ports(self.settings.zookeeper), self.settings.session_timeout)

    def start(self, members: Sequence[str]) -> list[Ready]:
        for member in members:
            self.folder.data(member).mkdir(parents=True, exist_ok=True)
            (self.folder.data(member) / "ready.json").unlink(missing_ok=True)
            command = self.command(self.folder, self.settings, member)
            package_root = str(Path(clickhouse_sim.__file__).parents[1])
            self.folder.write_process(
                member, spawn(command, self.folder.log(member), {"PYTHONPATH": package_root, "PYTHONUNBUFFERED": "1"})
            )
        deadline = time.monotonic() + runtime.READY_SECONDS
        try:
            return [self._wait_ready(member, deadline) for member in members]
        except BaseException:
            self.stop(members)
            raise

    def stop(self, members: Sequence[str]) -> list[str]:
        """SIGTERM to all of them (a paused one must go on to hear it), a bounded wait, then SIGKILL."""
        running = {member: process for member in members if (process := self.folder.process(member))}
        for process in running.values():
            process.send(signal.SIGTERM)
            process.send(signal.SIGCONT)
        deadline = time.monotonic() + runtime.STOP_SECONDS
        for process in running.values():
            if not process.wait_gone(max(0.0, deadline - time.monotonic())):
                process.send(signal.SIGKILL)
                process.wait_gone(runtime.STOP_SECONDS)
        return list(running)

    def clear(self, *, data: bool) -> None:
        """Processes leave nothing but data and logs, which lie in the folder. Raises ClusterError where those are to
        go: whose folder it is may remove it."""
        if data:
            raise ClusterError(f"there are no volumes: the data lie in {self.folder.root}, which can be removed")

    def kill(self, member: str) -> int:
        process = self._running(member)
        process.send(signal.SIGKILL)
        if not process.wait_gone(runtime.STOP_SECONDS):
            raise ClusterError(f"{member} (pid {process.pid}) does not go away")
        return process.pid

    def pause(self, member: str) -> int:
        process = self._running(member)
        process.send(signal.SIGSTOP)
        process.wait_paused(True, runtime.STOP_SECONDS)
        return process.pid

    def resume(self, member: str) -> int:
        process = self._running(member)
        process.send(signal.SIGCONT)
        process.wait_paused(False, runtime.STOP_SECONDS)
        return process.pid

    def cut(self, links: Sequence[Link]) -> None:
        if links:
            raise ClusterError(
                "processes on one machine have no network between them that could be cut: that takes a cluster in"
                " containers (chsim up --backend docker). Processes can be held with chsim pause"
            )

    def state(self, member: str) -> MemberState:
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

    def log(self, member: str, lines: int, follow: bool) -> Iterator[str]:
        try:
            file = self.folder.log(member).open(errors="replace")
        except FileNotFoundError:
            raise ClusterError(f"{member} has no log: it has never run") from None
        with file:
            yield from deque(file, maxlen=lines)
            while follow:
                if added := file.read():
                    yield added
                else:
                    time.sleep(_FOLLOW_SECONDS)

    def coordinator_address(self) -> str:
        """Of the embedded one what it says itself, if it serves."""
        if self.settings.zookeeper:
            return self.settings.zookeeper
        ready = self.folder.ready(COORDINATOR)
        return ready.endpoint if ready else self.settings.coordinator_address

    def _wait_ready(self, member: str, deadline: float) -> Ready:
        while True:
            ready = self.folder.ready(member)
            if ready is not None:
                return ready
            process = self.folder.process(member)
            if process is None:
                raise ClusterError(self._with_log(member, f"{member} ended while it started"))
            if time.monotonic() >= deadline:
                raise ClusterError(
                    self._with_log(member, f"{member} does not serve after {runtime.READY_SECONDS:.0f} s")
                )
            if self.settings.zookeeper and member in self.settings.coordinator_names:
                self._speak_for_zookeeper(member, process)
            time.sleep(_POLL_SECONDS)

    def _speak_for_zookeeper(self, member: str, process: ProcessId) -> None:
        """ZooKeeper writes no `ready.json`: it is asked."""
        port = _ports(self.settings.zookeeper)[self.settings.coordinator_names.index(member)]
        address = zookeeper.local_address([port])
        if zookeeper.answers(address):
            self.folder.write_ready(member, process, address)

    def _with_log(self, member: str, problem: str) -> str:
        return f"{problem}; the last lines of {self.folder.log(member)}:\n{self.folder.last_log_lines(member)}"

    def _running(self, member: str) -> ProcessId:
        """Its process. Raises ClusterError when it has gone meanwhile."""
        process = self.folder.process(member)
        if process is None:
            raise ClusterError(f"{member} is not running")
        return process


def _ports(address: str) -> list[int]:
    return [int(server.rpartition(":")[2]) for server in address.split(",")]
