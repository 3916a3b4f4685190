"""Members as containers of a Docker engine, in a network of their own, each with a volume.

Nothing is kept here of what the engine knows: everything that belongs to a cluster carries its label, whether `chsim
up` made it or docker compose.
"""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from clickhouse_sim.cluster import engine, runtime, zookeeper
from clickhouse_sim.cluster.container_plan import (
    CLUSTER_LABEL,
    MEMBER_LABEL,
    OUR_IMAGE,
    ContainerPlan,
    container_plan,
)
from clickhouse_sim.cluster.engine import told_as_cluster_errors
from clickhouse_sim.cluster.errors import ClusterError
from clickhouse_sim.cluster.folder import COORDINATOR, LOOPBACK, Backend, ClusterFolder, Link, Ready, Settings
from clickhouse_sim.cluster.runtime import Condition, MemberState

_POLL_SECONDS = 0.1
_HEALTH_NANOSECONDS = 1_000_000_000
_HEALTHY_AGAIN_SECONDS = 10.0
_ROUTES = ("python3", "-m", "clickhouse_sim.cluster.unreachable_routes")


@dataclass(slots=True)
class ContainerRuntime:
    """Runs members as containers. See `Runtime`."""

    folder: ClusterFolder
    settings: Settings
    client: Any = field(default_factory=engine.connect)

    # --- from nothing to running, and back -------------------------------------------------------------------

    def prepare(self) -> None:
        """Raises ClusterUnreachable when an image is missing."""
        self._require_ours()
        images = {plan.image.name: plan.image for plan in map(self._plan, self.settings.members)}
        with told_as_cluster_errors():
            for _, image in sorted(images.items()):
                engine.require_image(self.client, image)

    def start(self, members: Sequence[str]) -> list[Ready]:
        with told_as_cluster_errors():
            try:
                for member in members:
                    (self._container(member) or self._created(member)).start()
                self._cut(self.folder.cuts())  # a new life has a new network stack, and perhaps another address
                deadline = time.monotonic() + runtime.READY_SECONDS
                return [self._wait_ready(member, deadline) for member in members]
            except BaseException:
                self._end(members)
                raise

    def stop(self, members: Sequence[str]) -> list[str]:
        self._require_ours()
        with told_as_cluster_errors():
            return self._end(members)

    def clear(self, *, data: bool) -> None:
        """Remove containers and network; with `data` the volumes."""
        self._require_ours()
        with told_as_cluster_errors():
            for container in self.client.containers.list(all=True, filters=self._ours()):
                container.remove(force=True, v=True)  # v: volumes without a name, which nobody finds again
            for network in self.client.networks.list(filters=self._ours()):
                network.remove()
            for volume in self.client.volumes.list(filters=self._ours()) if data else ():
                volume.remove()

    # --- one member ------------------------------------------------------------------------------------------

    def kill(self, member: str) -> int:
        with told_as_cluster_errors():
            container = self._existing(member)
            pid = _pid(container)
            if container.status == "paused":
                container.unpause()
            container.kill()
            container.wait(timeout=runtime.STOP_SECONDS)
            return pid

    def pause(self, member: str) -> int:
        return self._done_to(member, lambda container: container.pause())

    def resume(self, member: str) -> int:
        """The engine forgets the health of who is paused: it is waited for."""
        pid = self._done_to(member, lambda container: container.unpause())
        deadline = time.monotonic() + _HEALTHY_AGAIN_SECONDS
        while not self.state(member).running and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return pid

    def state(self, member: str) -> MemberState:
        with told_as_cluster_errors():
            container = self._container(member)
            if container is None:
                return MemberState(member, Condition.STOPPED, pid=None, endpoint="", interserver="", log="")
            endpoint = self._published(container, member)
            condition = self._condition(container, member, endpoint)
            is_there = condition in (Condition.SERVES, Condition.PAUSED)
            return MemberState(
                name=member,
                condition=condition,
                pid=_pid(container) or None,
                endpoint=endpoint if is_there else "",
                interserver="",
                log=f"docker logs {container.name}",
            )

    def log(self, member: str, lines: int, follow: bool) -> Iterator[str]:
        with told_as_cluster_errors():
            container = self._container(member)
            if container is None:
                raise ClusterError(f"{member} has no log: it has no container")
            if not follow:
                yield container.logs(tail=lines).decode(errors="replace")
                return
            for chunk in container.logs(tail=lines, stream=True, follow=True):
                yield chunk.decode(errors="replace")

    def coordinator_address(self) -> str:
        """The published ports of those that run; of all others nobody knows."""
        states = map(self.state, self.settings.coordinator_names)
        return ",".join(state.endpoint for state in states if state.endpoint)

    # --- links -----------------------------------------------------------------------------------------------

    def cut(self, links: Sequence[Link]) -> None:
        with told_as_cluster_errors():
            self._cut([*links], also=self.folder.cuts())

    def _cut(self, links: Sequence[Link], also: Sequence[Link] = ()) -> None:
        """In every running member at an end of one of these links, or of those that were cut before, let exactly the
        other ends be unreachable. That takes NET_ADMIN, which no member has: a container that lives only for this
        has it, in the member's network namespace."""
        members = sorted({member for link in (*links, *also) for member in link})
        running = {member: found for member in members if (found := self._container(member)) and _is_up(found)}
        addresses = {member: self._address(container) for member, container in running.items()}
        helpers = []
        for member, container in running.items():
            far = [one if other == member else other for one, other in links if member in (one, other)]
            unreachable = [addresses[name] for name in far if name in addresses]
            helpers.append(
                self.client.containers.run(
                    self._own_image(),
                    [*_ROUTES[1:], *unreachable],
                    entrypoint=_ROUTES[0],
                    detach=True,
                    user="0:0",
                    cap_drop=["ALL"],
                    cap_add=["NET_ADMIN"],
                    network_mode=f"container:{container.id}",
                    healthcheck={"test": ["NONE"]},
                    labels={CLUSTER_LABEL: self.settings.project},
                )
            )
        problems = [problem for helper in helpers if (problem := _outcome(helper))]
        if problems:
            raise ClusterError(f"the links could not be changed: {problems[0]}")

    def _own_image(self) -> str:
        """The one that the replicas have, whatever it is called now."""
        containers = filter(None, map(self._container, self.settings.replica_names))
        found = next(containers, None)
        return str(found.attrs["Image"]) if found else OUR_IMAGE.name

    def _address(self, container: Any) -> str:
        """In the cluster's network."""
        ours = {network.id for network in self.client.networks.list(filters=self._ours())}
        networks = container.attrs["NetworkSettings"]["Networks"].values()
        addresses = [each["IPAddress"] for each in networks if each["NetworkID"] in ours and each["IPAddress"]]
        if not addresses:
            raise ClusterError(f"{container.name} is not in the network of its cluster")
        return str(addresses[0])

    # --- containers ------------------------------------------------------------------------------------------

    def _ours(self, **labels: str) -> dict[str, list[str]]:
        """The engine's filter for what belongs to this cluster."""
        wanted = {CLUSTER_LABEL: self.settings.project, **labels}
        return {"label": [f"{name}={value}" for name, value in wanted.items()]}

    def _container(self, member: str) -> Any:
        """The member's container, or None."""
        filters = self._ours(**{MEMBER_LABEL: member})
        return next(iter(self.client.containers.list(all=True, filters=filters)), None)

    def _existing(self, member: str) -> Any:
        container = self._container(member)
        if container is None:
            raise ClusterError(f"{member} is not running")
        return container

    def _created(self, member: str) -> Any:
        """Make the member's container, and what it stands on where that is missing."""
        self._require_ours()
        plan = self._plan(member)
        engine.require_image(self.client, plan.image)
        name = f"{self.settings.project}-{member}"
        labels = {CLUSTER_LABEL: self.settings.project, MEMBER_LABEL: member}
        network = self._network()
        volume = self.client.volumes.create(name, labels=labels)
        is_our_image = plan.image is OUR_IMAGE
        container = self.client.containers.create(
            plan.image.name,
            list(plan.command) or None,
            name=name,
            hostname=member,
            labels=labels,
            environment=dict(plan.environment),
            init=True,
            ports={f"{plan.port}/tcp": (LOOPBACK, None)},
            volumes={volume.name: {"bind": plan.data, "mode": "rw"}},
            network=network.name,
            networking_config={network.name: self.client.api.create_endpoint_config(aliases=[member])},
            healthcheck={"test": [], "interval": _HEALTH_NANOSECONDS} if is_our_image else None,
        )
        if plan.files:
            container.put_archive("/", _archive(plan))
        return container

    def _network(self) -> Any:
        found = self.client.networks.list(filters=self._ours())
        return (
            found[0]
            if found
            else self.client.networks.create(
                self.settings.project, driver="bridge", labels={CLUSTER_LABEL: self.settings.project}
            )
        )

    def _plan(self, member: str) -> ContainerPlan:
        return container_plan(self.settings, member)

    def _condition(self, container: Any, member: str, endpoint: str) -> Condition:
        if container.status == "paused":
            return Condition.PAUSED
        if not _is_up(container):
            return Condition.STOPPED
        if member == COORDINATOR or member in self.settings.replica_names:
            health = container.attrs["State"].get("Health", {}).get("Status")
            return Condition.SERVES if health == "healthy" else Condition.STARTING
        return Condition.SERVES if endpoint and zookeeper.answers(endpoint) else Condition.STARTING

    def _published(self, container: Any, member: str) -> str:
        """Where the member's port is on this machine; empty when it is not."""
        found = container.ports.get(f"{self._plan(member).port}/tcp")
        return f"{LOOPBACK}:{found[0]['HostPort']}" if found else ""

    def _wait_ready(self, member: str, deadline: float) -> Ready:
        while True:
            state = self.state(member)
            if state.running:
                return Ready(state.pid or 0, {"endpoint": state.endpoint})
            if state.condition is Condition.STOPPED:
                raise ClusterError(self._with_log(member, f"{member} ended while it started"))
            if time.monotonic() >= deadline:
                raise ClusterError(
                    self._with_log(member, f"{member} does not serve after {runtime.READY_SECONDS:.0f} s")
                )
            time.sleep(_POLL_SECONDS)

    def _with_log(self, member: str, problem: str) -> str:
        container = self._existing(member)
        lines = container.logs(tail=5).decode(errors="replace").rstrip("\n")
        return f"{problem}; the last lines of its log:\n{lines}"

    def _end(self, members: Sequence[str]) -> list[str]:
        """SIGTERM to all of them (a paused one must go on to hear it), a bounded wait, then SIGKILL."""
        found = {member: self._container(member) for member in members}
        running = {member: each for member, each in found.items() if each and _is_up(each)}
        for container in running.values():
            if container.status == "paused":
                container.unpause()
            container.kill("SIGTERM")
        deadline = time.monotonic() + runtime.STOP_SECONDS
        for container in running.values():
            container.stop(timeout=max(0, round(deadline - time.monotonic())))
        return list(running)

    def _done_to(self, member: str, act: Callable[[Any], object]) -> int:
        with told_as_cluster_errors():
            container = self._existing(member)
            act(container)
            return _pid(container)

    def _require_ours(self) -> None:
        if self.settings.backend is Backend.COMPOSE:
            raise ClusterError(
                "docker compose made this cluster, and only it makes and removes containers: docker compose -f FILE"
                " up --detach --wait, or down, with the file in compose/"
            )


def _is_up(container: Any) -> bool:
    return container.status in ("running", "paused", "restarting")


def _pid(container: Any) -> int:
    """As the engine's machine knows it; 0 of one that does not run."""
    return int(container.attrs["State"]["Pid"])


def _outcome(helper: Any) -> str:
    """Wait for a container that does one thing, and remove it; what went wrong."""
    try:
        status = helper.wait(timeout=runtime.STOP_SECONDS)["StatusCode"]
        said: str = helper.logs(tail=1).decode(errors="replace").strip()
        return "" if status == 0 else said or f"status {status}"
    finally:
        helper.remove(force=True, v=True)


def _archive(plan: ContainerPlan) -> bytes:
    """The plan's files, as the engine takes them."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, text in plan.files.items():
            content = text.encode()
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size = len(content)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
