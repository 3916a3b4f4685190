"""A cluster: whoever coordinates it and its replicas, started, found, killed, cut off and stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from clickhouse_sim.cluster import runtime, zookeeper
from clickhouse_sim.cluster.coordination import (
    Coordination,
    EmbeddedCoordinator,
    coordination_of,
    require_same,
    with_coordination,
)
from clickhouse_sim.cluster.errors import ClusterError, ClusterUnreachable
from clickhouse_sim.cluster.folder import COORDINATOR, Backend, ClusterFolder, Link, Ready, Settings
from clickhouse_sim.cluster.process_runtime import Launcher, ProcessRuntime, member_command
from clickhouse_sim.cluster.runtime import Condition, MemberState, Runtime
from coordinator.api import CoordinationError

DEFAULT_REPLICAS = 3
DEFAULT_SESSION_TIMEOUT = 6.0


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
        backend: Backend | None = None,
    ) -> Settings:
        """Start a new cluster, or the one whose folder this is, and return when all of it serves.

        What is not said is as it was the last time, else 3 replicas, a session timeout of 6 seconds, the embedded
        coordinator, processes, and the server settings' defaults. Raises ClusterError when it runs already, has
        another number of replicas, is coordinated or run otherwise, or a member does not come up; in that case all
        that was started is stopped again. Raises ClusterUnreachable, with nothing started, when the ZooKeeper that is
        to be used does not answer, or what runs the members is not there.
        """
        with self.folder.locked():
            is_new = not self.folder.has_cluster()
            settings = self._settings_for(replicas, session_timeout, coordination, backend)
            settings = replace(settings, server_settings={**settings.server_settings, **server_settings})
            members = self._runtime(settings)
            running = [name for name in settings.members if _runs(members.state(name))]
            if running:
                raise ClusterError(self._running_already(settings, running))
            if not settings.coordinator_names:
                _require_answer(settings.zookeeper)
            members.prepare()
            self.folder.write_settings(settings)
            try:
                members.start(settings.coordinator_names)
                if settings.coordinator_names and settings.zookeeper:
                    # All of them run, but have they found each other?
                    zookeeper.prepare(members.coordinator_address(), runtime.READY_SECONDS)
                members.start(settings.replica_names)
            except BaseException:
                _stop(settings, members)
                members.clear(data=is_new and settings.backend is Backend.DOCKER)
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
            settings = self.folder.settings()
            members = self._runtime(settings)
            if _runs(members.state(member)):
                raise ClusterError(f"{member} is running already")
            if member in settings.replica_names:
                _require_coordination(settings, members, member)
            return members.start([member])[0]

    def kill(self, member: str) -> int:
        """End one member with SIGKILL, which lets it do nothing more; its pid. Raises ClusterError."""
        with self.folder.locked():
            return self._with_running(member).kill(member)

    def pause(self, member: str) -> int:
        """Let one member do nothing until `resume`, as a long stall would; its pid. Raises ClusterError."""
        with self.folder.locked():
            members = self._with_running(member)
            if members.state(member).condition is Condition.PAUSED:
                raise ClusterError(f"{member} is paused already: chsim resume {member}")
            return members.pause(member)

    def resume(self, member: str) -> int:
        """Let a paused member go on; its pid. Raises ClusterError."""
        with self.folder.locked():
            members = self._with_running(member)
            if members.state(member).condition is not Condition.PAUSED:
                raise ClusterError(f"{member} is not paused")
            return members.resume(member)

    def partition(self, member: str, other: str | None = None) -> list[Link]:
        """Let nothing pass between two members any more, or between one and all others, until `heal`; the links that
        are cut now. Clients still reach both.

        `coordinator` is whoever coordinates, all servers of an ensemble. It stays so when members go and come back.
        Raises UnknownMember, and ClusterError where members run that cannot be cut off.
        """
        with self.folder.locked():
            settings = self.folder.settings()
            one = _named(settings, self.folder, member)
            others = _named(settings, self.folder, other) if other else settings.members
            added = {_link(end, far) for end in one for far in others if far not in one}
            if not added:
                raise ClusterError(f"{member} has nobody else to be cut off from")
            before = self.folder.cuts()
            cuts = sorted({*before, *added})
            self._runtime(settings).cut(cuts)
            self.folder.write_cuts(cuts)
            return cuts

    def heal(self) -> list[Link]:
        """Let everything pass again; the links that were cut."""
        with self.folder.locked():
            members = self._runtime(self.folder.settings())
            cuts = self.folder.cuts()
            members.cut([])
            self.folder.write_cuts([])
            return cuts

    def down(self, *, data: bool = False) -> list[str]:
        """Stop every member in order, the coordinator last; the names of those that ran. Links heal.

        With `data`, remove the volumes of containers as well, and forget the cluster. Raises ClusterError, with
        nothing stopped, where there are none.
        """
        settings = self.folder.settings()
        with self.folder.locked():
            members = self._runtime(settings)
            if data and settings.backend is Backend.PROCESS:
                raise ClusterError(f"there are no volumes to remove: the data lie in {self.folder.root}")
            stopped = _stop(settings, members)
            members.clear(data=data)
            self.folder.write_cuts([])
            if data:
                self.folder.forget_cluster()
            return stopped

    # --- questions -------------------------------------------------------------------------------------------

    def status(self) -> list[MemberState]:
        """Every member, and the ZooKeeper of others that is used, whose processes are not known here."""
        settings = self.folder.settings()
        states = list(map(self._runtime(settings).state, settings.members))
        if settings.coordinator_names:
            return states
        condition = Condition.SERVES if zookeeper.serves(settings.zookeeper) else Condition.STOPPED
        foreign = MemberState("zookeeper", condition, pid=None, endpoint=settings.zookeeper, interserver="", log="")
        return [foreign, *states]

    def living_replicas(self) -> dict[str, str]:
        """Name and endpoint address of every replica that serves."""
        settings = self.folder.settings()
        states = map(self._runtime(settings).state, settings.replica_names)
        return {state.name: state.endpoint for state in states if state.running}

    def coordinator_address(self) -> str:
        """Where the coordination service is asked. Raises ClusterUnreachable when none of its members serves."""
        settings = self.folder.settings()
        members = self._runtime(settings)
        if settings.coordinator_names == (COORDINATOR,):
            return _serving(members.state(COORDINATOR), "the coordinator")
        names = settings.coordinator_names
        if names and not any(members.state(name).running for name in names):
            raise ClusterUnreachable(f"none of {', '.join(names)} is running: start one with chsim start {names[0]}")
        return members.coordinator_address()

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
        return name, _serving(self.member(name), name)

    def member(self, name: str) -> MemberState:
        """One member. Raises UnknownMember."""
        self.folder.require_member(name)
        return self._runtime(self.folder.settings()).state(name)

    def log(self, name: str, lines: int, *, follow: bool = False) -> Iterator[str]:
        """The last lines of what a member wrote, and with `follow` what it adds. Raises UnknownMember, and
        ClusterError when it has never run."""
        self.folder.require_member(name)
        return self._runtime(self.folder.settings()).log(name, lines, follow)

    # --- how -------------------------------------------------------------------------------------------------

    def _runtime(self, settings: Settings) -> Runtime:
        match settings.backend:
            case Backend.PROCESS:
                return ProcessRuntime(self.folder, settings, self.command)
            case Backend.ELSEWHERE:
                from clickhouse_sim.cluster.elsewhere_runtime import ElsewhereRuntime

                return ElsewhereRuntime(settings)
        from clickhouse_sim.cluster.container_runtime import ContainerRuntime  # the engine's client takes its time

        return ContainerRuntime(self.folder, settings)

    def _with_running(self, member: str) -> Runtime:
        """What runs the member. Raises UnknownMember, and ClusterError when it does not run."""
        self.folder.require_member(member)
        members = self._runtime(self.folder.settings())
        if not _runs(members.state(member)):
            raise ClusterError(f"{member} is not running")
        return members

    def _settings_for(
        self,
        replicas: int | None,
        session_timeout: float | None,
        coordination: Coordination | None,
        backend: Backend | None,
    ) -> Settings:
        if not self.folder.has_cluster():
            new = Settings(
                *(replicas or DEFAULT_REPLICAS, session_timeout or DEFAULT_SESSION_TIMEOUT, 0),
                backend=backend or Backend.PROCESS,
                project=self.folder.project,
            )
            return with_coordination(new, coordination or EmbeddedCoordinator())
        known = self.folder.settings()
        if replicas not in (None, known.replicas):
            raise ClusterError(
                f"{self.folder.root} holds a cluster of {known.replicas} replicas, not {replicas}:"
                " leave --replicas out to start it again, or name another folder with --dir"
            )
        if backend not in (None, known.backend):
            raise ClusterError(
                f"{self.folder.root} holds a cluster whose backend is {known.backend}, not {backend}:"
                " leave --backend out to start it again, or name another folder with --dir"
            )
        was = coordination_of(known)
        require_same(was, coordination or was)
        again = replace(known, session_timeout=session_timeout or known.session_timeout)
        if known.backend is not Backend.PROCESS:
            return again  # names in a network of their own stay as they are
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


def _runs(state: MemberState) -> bool:
    return state.condition is not Condition.STOPPED


def _stop(settings: Settings, members: Runtime) -> list[str]:
    """End all replicas together, after them whoever coordinates; the names of those that ran."""
    return members.stop(settings.replica_names) + members.stop(settings.coordinator_names)


def _serving(state: MemberState, called: str) -> str:
    """Its endpoint. Raises ClusterUnreachable when it does not serve."""
    match state.condition:
        case Condition.SERVES:
            return state.endpoint
        case Condition.PAUSED:
            raise ClusterUnreachable(f"{called} is paused: let it go on with chsim resume {state.name}")
        case Condition.STARTING:
            raise ClusterUnreachable(f"{called} is starting: try again")
    raise ClusterUnreachable(f"{called} is not running: start it with chsim start {state.name}")


def _require_coordination(settings: Settings, members: Runtime, replica: str) -> None:
    names = settings.coordinator_names
    if names and not any(_runs(members.state(name)) for name in names):
        ensemble = "Keeper" if settings.keeper else "ZooKeeper"
        who = (
            f"{ensemble}, none of whose servers runs"
            if settings.zookeeper
            else "the coordinator, which is not running"
        )
        raise ClusterUnreachable(f"{replica} needs {who}: chsim start {names[0]}")


def _named(settings: Settings, folder: ClusterFolder, name: str) -> tuple[str, ...]:
    """The members that are meant. Raises UnknownMember."""
    if name == COORDINATOR and settings.coordinator_names:
        return settings.coordinator_names
    folder.require_member(name)
    return (name,)


def _link(one: str, other: str) -> Link:
    first, last = sorted((one, other))
    return first, last


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
