"""What holds whoever runs the members: processes with toys in them, or (marked docker) real members in containers."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from clickhouse_sim.cluster.cluster import Cluster
from clickhouse_sim.cluster.errors import ClusterError, ClusterUnreachable, UnknownMember
from clickhouse_sim.cluster.folder import COORDINATOR, Backend, ClusterFolder, Settings
from clickhouse_sim.cluster.runtime import Condition

pytestmark = pytest.mark.timeout(180)

_ROOT = str(Path(__file__).parents[2])
_TOY = """
import sys, pathlib, signal
sys.path.insert(0, sys.argv[2])
from clickhouse_sim.cluster.folder import write_ready
if sys.argv[3] == "broken":
    sys.exit("I cannot serve")
print("serves on", sys.argv[1], flush=True)
write_ready(pathlib.Path(sys.argv[1]), endpoint="127.0.0.1:1")
signal.pause()
"""


class World(Protocol):
    """A cluster that can be started, rightly or with replicas that do not come up."""

    cluster: Cluster

    def up(self, replicas: int | None = None) -> Settings: ...

    def up_broken(self, replicas: int) -> None: ...

    def leftovers(self) -> list[str]:
        """What there still is of a cluster that should be gone."""
        ...


@dataclass
class ProcessWorld:
    cluster: Cluster
    temper: list[str]

    @classmethod
    def below(cls, folder: Path) -> ProcessWorld:
        temper = ["good"]

        def command(folder: ClusterFolder, settings: Settings, member: str) -> list[str]:
            how = "good" if member == COORDINATOR else temper[0]
            return [sys.executable, "-c", _TOY, str(folder.data(member)), _ROOT, how]

        return cls(Cluster(ClusterFolder(folder), command), temper)

    def up(self, replicas: int | None = None) -> Settings:
        return self.cluster.up(replicas)

    def up_broken(self, replicas: int) -> None:
        self.temper[0] = "broken"
        try:
            self.up(replicas)
        finally:
            self.temper[0] = "good"

    def leftovers(self) -> list[str]:
        return [name for name in (COORDINATOR, "r1", "r2") if self.cluster.folder.process(name)]

    def close(self) -> None:
        for name in self.leftovers():
            if process := self.cluster.folder.process(name):
                process.send(signal.SIGKILL)


@dataclass
class ContainerWorld:
    cluster: Cluster

    def up(self, replicas: int | None = None) -> Settings:
        return self.cluster.up(replicas, 2.0, backend=Backend.DOCKER)

    def up_broken(self, replicas: int) -> None:
        self.cluster.up(replicas, 2.0, server_settings={"no_such_setting": "1"}, backend=Backend.DOCKER)

    def leftovers(self) -> list[str]:
        import docker

        client = docker.from_env()
        ours = {"label": f"chsim.cluster={self.cluster.folder.project}"}
        containers = client.containers.list(all=True, filters=ours)
        networks, volumes = client.networks.list(filters=ours), client.volumes.list(filters=ours)
        return sorted(each.name for each in (*containers, *networks, *volumes))

    def close(self) -> None:
        if self.cluster.folder.has_cluster():
            self.cluster.down(data=True)
        assert self.leftovers() == []


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    folder = tmp_path / "cluster"
    world = (
        ProcessWorld.below(folder) if request.param == "process" else ContainerWorld(Cluster(ClusterFolder(folder)))
    )
    yield world
    world.close()


def conditions(cluster: Cluster) -> dict[str, str]:
    return {state.name: state.condition.value for state in cluster.status()}


def test_members_come_and_go(world: World) -> None:
    cluster = world.cluster
    assert world.up(2).members == (COORDINATOR, "r1", "r2")
    assert set(conditions(cluster).values()) == {"serves"}
    assert list(cluster.living_replicas()) == ["r1", "r2"]

    pid = cluster.member("r1").pid
    assert cluster.kill("r1") == pid
    assert conditions(cluster) == {COORDINATOR: "serves", "r1": "stopped", "r2": "serves"}
    assert cluster.chosen_replica(None)[0] == "r2"
    again = cluster.start("r1")
    assert again.pid not in (pid, 0)
    assert cluster.chosen_replica("r1") == ("r1", again.endpoint)

    assert cluster.down() == ["r1", "r2", COORDINATOR]
    assert set(conditions(cluster).values()) == {"stopped"}
    assert cluster.down() == []
    assert world.up().replicas == 2, "the folder knows how many they were"
    assert set(conditions(cluster).values()) == {"serves"}


def test_one_after_the_other_without_up(world: World) -> None:
    cluster = world.cluster
    world.up(1)
    cluster.down()
    with pytest.raises(ClusterUnreachable, match="chsim start coordinator"):
        cluster.start("r1")
    cluster.start(COORDINATOR)
    cluster.start("r1")
    assert set(conditions(cluster).values()) == {"serves"}


def test_a_paused_member_goes_on_or_down(world: World) -> None:
    cluster = world.cluster
    world.up(2)
    pid = cluster.pause("r1")
    assert cluster.member("r1").condition is Condition.PAUSED
    with pytest.raises(ClusterError, match="chsim resume r1"):
        cluster.pause("r1")
    with pytest.raises(ClusterUnreachable, match="chsim resume r1"):
        cluster.chosen_replica("r1")
    assert cluster.resume("r1") == pid
    assert cluster.member("r1").running
    with pytest.raises(ClusterError, match="not paused"):
        cluster.resume("r1")
    cluster.pause("r1")
    cluster.pause("r2")
    cluster.kill("r2")
    assert cluster.down() == ["r1", COORDINATOR]


def test_misuse_is_told(world: World) -> None:
    cluster = world.cluster
    with pytest.raises(ClusterUnreachable, match="chsim up"):
        cluster.status()
    world.up(1)
    with pytest.raises(ClusterError, match="chsim down"):
        world.up()
    with pytest.raises(ClusterError, match="running already"):
        cluster.start("r1")
    for act in (cluster.kill, cluster.pause, cluster.start, cluster.partition):
        with pytest.raises(UnknownMember, match="coordinator, r1"):
            act("r9")
    cluster.kill("r1")
    for act in (cluster.kill, cluster.pause, cluster.resume):
        with pytest.raises(ClusterError, match="r1 is not running"):
            act("r1")
    with pytest.raises(ClusterError, match="in part"):
        world.up()
    with pytest.raises(ClusterError, match="nobody else"):
        cluster.partition("r1", "r1")


def test_members_that_do_not_come_up_leave_nothing(world: World) -> None:
    with pytest.raises(ClusterError, match=r"r\d ended while it started; the last lines"):
        world.up_broken(2)
    assert not world.cluster.folder.has_cluster()
    assert world.leftovers() == []


def test_what_a_member_wrote(world: World) -> None:
    world.up(1)
    assert any("serves on" in text for text in world.cluster.log("r1", 100))
    assert list(world.cluster.log("r1", 0)) in ([], [""])
    followed = world.cluster.log("r1", 100, follow=True)
    assert next(followed)
    followed.close()  # type: ignore[attr-defined]


def test_a_backend_is_for_life(world: World) -> None:
    settings = world.up(1)
    world.cluster.down()
    (other,) = {Backend.PROCESS, Backend.DOCKER} - {settings.backend}
    with pytest.raises(ClusterError, match=f"backend is {settings.backend}"):
        world.cluster.up(backend=other)


def test_links_are_cut_or_it_is_said_what_that_takes(world: World) -> None:
    cluster = world.cluster
    settings = world.up(2)
    if settings.backend is Backend.PROCESS:
        with pytest.raises(ClusterError, match="--backend docker"):
            cluster.partition("r1")
        assert cluster.heal() == []
        return
    assert cluster.partition("r1", "r2") == [("r1", "r2")]
    assert cluster.partition("r2", "coordinator") == [(COORDINATOR, "r2"), ("r1", "r2")]
    assert cluster.folder.cuts() == [(COORDINATOR, "r2"), ("r1", "r2")]
    assert set(conditions(cluster).values()) == {"serves"}, "clients reach them"
    assert len(cluster.heal()) == 2
    assert cluster.folder.cuts() == []
