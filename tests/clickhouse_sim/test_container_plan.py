"""What becomes of members in containers, as far as no engine is needed to see it."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import Any

import docker
import pytest
from click.testing import CliRunner

from clickhouse_sim.cli.main import main
from clickhouse_sim.cluster import unreachable_routes as routes
from clickhouse_sim.cluster.cluster import Cluster
from clickhouse_sim.cluster.container_plan import (
    KEEPER_FILE,
    OUR_IMAGE,
    container_plan,
    keeper_configuration,
)
from clickhouse_sim.cluster.container_runtime import ContainerRuntime
from clickhouse_sim.cluster.coordination import (
    Coordination,
    EmbeddedCoordinator,
    ExistingZooKeeper,
    OwnKeeper,
    OwnZooKeeper,
    with_coordination,
)
from clickhouse_sim.cluster.errors import ClusterError, ClusterUnreachable
from clickhouse_sim.cluster.folder import Backend, ClusterFolder, Settings
from clickhouse_sim.cluster.runtime import Condition
from coordinator.server import CoordinatorServer
from replica.endpoint import Endpoint

_COMPOSE = Path(__file__).parents[2] / "compose"


def in_containers(coordination: Coordination) -> Settings:
    settings = Settings(3, 6.0, 0, backend=Backend.DOCKER, project="chsim-test")
    return with_coordination(settings, coordination)


def test_replicas_are_told_the_names_in_their_network() -> None:
    command = container_plan(in_containers(EmbeddedCoordinator()), "r2").command
    assert command[:4] == ("replica", "serve", "--name", "r2")
    assert command[command.index("--zookeeper") + 1] == "coordinator:2181"
    assert command[command.index("--listen") + 1] == "0.0.0.0:9000"
    assert command[command.index("--interserver-host") + 1] == "r2"


def test_replicas_begin_with_different_servers_of_an_ensemble() -> None:
    settings = in_containers(OwnZooKeeper(3))
    commands = [container_plan(settings, name).command for name in settings.replica_names]
    first = [command[command.index("--zookeeper") + 1].split(",")[0] for command in commands]
    assert first == ["zk1:2181", "zk2:2181", "zk3:2181"]


def test_every_zookeeper_knows_the_others() -> None:
    settings = in_containers(OwnZooKeeper(3))
    plans = [container_plan(settings, name) for name in settings.coordinator_names]
    assert [plan.environment["ZOO_MY_ID"] for plan in plans] == ["1", "2", "3"]
    assert {plan.environment["ZOO_SERVERS"] for plan in plans} == {
        "server.1=zk1:2888:3888;2181 server.2=zk2:2888:3888;2181 server.3=zk3:2888:3888;2181"
    }
    assert 2 * int(plans[0].environment["ZOO_TICK_TIME"]) <= 6000, "or the session timeout would not be granted"


def test_every_keeper_knows_the_others() -> None:
    settings = in_containers(OwnKeeper(3))
    assert settings.coordinator_names == ("keeper1", "keeper2", "keeper3")
    plan = container_plan(settings, "keeper2")
    assert plan.environment == {"KEEPER_SERVER_ID": "2"}
    assert "<hostname>keeper3</hostname>" in plan.files[KEEPER_FILE]


@pytest.mark.parametrize("kind", ["embedded", "zookeeper", "keeper"])
def test_the_folders_of_compose_name_the_same_cluster(kind: str) -> None:
    host = ClusterFolder(_COMPOSE / kind).settings()
    assert host.backend is Backend.COMPOSE
    name = "compose.yaml" if kind == "embedded" else f"compose.{kind}.yaml"
    text = (_COMPOSE / name).read_text()
    for member in host.members:
        assert f"labels: {{chsim.cluster: {host.project}, chsim.member: {member}}}" in text
        if member in host.replica_names:
            command = container_plan(host, member).command
            assert f"--zookeeper {command[command.index('--zookeeper') + 1]} " in text


def test_compose_gives_keepers_the_same_configuration() -> None:
    assert (_COMPOSE / "keeper.xml").read_text() == keeper_configuration(
        ClusterFolder(_COMPOSE / "keeper").settings()
    )


def test_what_does_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="containers only: add --backend docker"):
        Cluster(ClusterFolder(tmp_path)).up(1, coordination=OwnKeeper(1))
    with pytest.raises(ClusterError, match="leave --backend docker out"):
        in_containers(ExistingZooKeeper("127.0.0.1:2181"))


# --- where there is no engine, or not what it needs ---------------------------------------------------------------


@pytest.fixture
def no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")


@pytest.mark.usefixtures("no_engine")
def test_without_an_engine_nothing_is_started(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    result = CliRunner().invoke(main, ["up", "--backend", "docker", "--dir", str(folder)])
    assert result.exit_code == 69
    assert result.stderr == (
        "Error: no Docker engine answers (No such file or directory): start one, or name it with DOCKER_HOST; without"
        " one, chsim up runs processes\n"
    )
    assert not ClusterFolder(folder).has_cluster()


@pytest.mark.usefixtures("no_engine")
def test_what_compose_runs_is_asked_of_the_engine() -> None:
    result = CliRunner().invoke(main, ["status", "--dir", str(_COMPOSE / "embedded")])
    assert (result.exit_code, result.stdout) == (69, "")
    assert "no Docker engine answers" in result.stderr


class EngineWithout:
    """An engine that has every image but one, and makes nothing."""

    def __init__(self, missing: str) -> None:
        self.missing = missing
        self.asked: list[str] = []
        self.images = self

    def get(self, name: str) -> None:
        self.asked.append(name)
        if name == self.missing:
            raise docker.errors.ImageNotFound("no such image")


@pytest.mark.parametrize(
    ("missing", "how"),
    [
        ("clickhouse-sim", r"docker build -f compose/Dockerfile -t clickhouse-sim \. .*CHSIM_IMAGE"),
        ("zookeeper:3.8", r"docker pull zookeeper:3\.8.*CHSIM_ZOOKEEPER_IMAGE"),
    ],
)
def test_an_image_that_is_missing_is_named(
    tmp_path: Path, missing: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for image in ("CHSIM_IMAGE", "CHSIM_ZOOKEEPER_IMAGE"):
        monkeypatch.delenv(image, raising=False)
    engine = EngineWithout(missing)
    runtime = ContainerRuntime(ClusterFolder(tmp_path), in_containers(OwnZooKeeper(3)), engine)
    with pytest.raises(ClusterUnreachable, match=f"no image {missing}, so nothing was started: .*{how}"):
        runtime.prepare()


def test_an_image_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHSIM_IMAGE", "elsewhere/chsim:7")
    engine = EngineWithout("")
    ContainerRuntime(ClusterFolder(tmp_path), in_containers(EmbeddedCoordinator()), engine).prepare()
    assert engine.asked == ["elsewhere/chsim:7"]
    assert OUR_IMAGE.name == "elsewhere/chsim:7"


def test_what_compose_made_only_compose_removes() -> None:
    folder = ClusterFolder(_COMPOSE / "embedded")
    runtime = ContainerRuntime(folder, folder.settings(), EngineWithout(""))
    for act in (runtime.prepare, lambda: runtime.stop(["r1"]), lambda: runtime.clear(data=True)):
        with pytest.raises(ClusterError, match="docker compose made this cluster"):
            act()


# --- routes -------------------------------------------------------------------------------------------------------


def test_the_routes_of_ours_are_found_among_all() -> None:
    ours = routes.route_request(routes._NEW_ROUTE, 0, "172.18.0.3")
    default = routes._message(routes._NEW_ROUTE, 0, routes._ROUTE.pack(socket.AF_INET, 0, 0, 0, 254, 3, 0, 1, 0))
    of_others = bytearray(routes.route_request(routes._NEW_ROUTE, 0, "172.18.0.9"))
    of_others[routes._HEADER.size + 5] = 4  # the protocol: made by an administrator
    done = routes._message(routes._DONE, 0, b"\0\0\0\0")
    answer = default + ours + bytes(of_others) + routes.route_request(routes._NEW_ROUTE, 0, "172.18.0.4") + done
    assert list(routes.unreachable_addresses(answer)) == ["172.18.0.3", "172.18.0.4"]


def test_only_an_address_can_be_made_unreachable() -> None:
    with pytest.raises(OSError):  # noqa: PT011
        routes.route_request(routes._NEW_ROUTE, 0, "r2")


# --- elsewhere ----------------------------------------------------------------------------------------------------


def test_members_elsewhere_are_asked_and_left_alone(tmp_path: Path, toy_loop: Any, toy_cluster: Any) -> None:
    coordinator = CoordinatorServer("127.0.0.1:0", tmp_path / "elsewhere-journal", tick_ms=500)
    toy_loop.run(coordinator.start())
    folder = ClusterFolder(tmp_path / "elsewhere")

    async def opened() -> Endpoint:
        return Endpoint(toy_cluster.servers["r1"])

    endpoint = toy_loop.run(opened())
    endpoints = {"a": f"127.0.0.1:{endpoint.port}", "b": "127.0.0.1:1"}
    with folder.locked():
        settings = Settings(2, 1.0, 0, coordinator.address, backend=Backend.ELSEWHERE, endpoints=endpoints)
        folder.write_settings(settings)
    cluster = Cluster(folder)
    assert [(each.name, each.condition) for each in cluster.status()] == [
        ("zookeeper", Condition.SERVES),
        ("a", Condition.SERVES),
        ("b", Condition.STOPPED),
    ]
    assert cluster.chosen_replica("a") == ("a", endpoints["a"])
    for act in (cluster.down, cluster.heal, lambda: cluster.kill("a"), lambda: cluster.log("a", 1), cluster.up):
        with pytest.raises(ClusterError, match=r"elsewhere|is running"):
            act()
    toy_loop.run(endpoint.stop())
    toy_loop.run(coordinator.stop())


def test_a_refused_route_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = routes._message(routes._ERROR, 0, (-errno.EPERM).to_bytes(4, "little", signed=True) + bytes(16))

    class Kernel:
        def send(self, request: bytes) -> None: ...

        def recv(self, size: int) -> bytes:
            return refusal

    with pytest.raises(PermissionError):
        routes._ask(Kernel(), b"")  # type: ignore[arg-type]
