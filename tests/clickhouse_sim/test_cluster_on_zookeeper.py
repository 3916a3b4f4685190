"""A cluster on ZooKeeper: an existing one, which our coordinator plays where it need not be real, or its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from clickhouse_sim.cli.main import main
from clickhouse_sim.cluster import znodes, zookeeper
from clickhouse_sim.cluster.cluster import Cluster
from clickhouse_sim.cluster.coordination import ExistingZooKeeper, OwnZooKeeper
from clickhouse_sim.cluster.errors import ClusterError, ClusterUnreachable
from clickhouse_sim.cluster.folder import ClusterFolder, Settings
from clickhouse_sim.cluster.process_runtime import member_command
from coordinator.server import CoordinatorServer
from tests.clickhouse_sim.test_cluster_of_processes import Chsim

if TYPE_CHECKING:
    from tests.clickhouse_sim.conftest import ToyLoop

_ROOT = str(Path(__file__).parents[2])
_TOY = """
import sys, pathlib, signal
sys.path.insert(0, sys.argv[2])
from clickhouse_sim.cluster.folder import write_ready
write_ready(pathlib.Path(sys.argv[1]), endpoint="127.0.0.1:1")
signal.pause()
"""


def toy_command(folder: ClusterFolder, settings: Settings, member: str) -> list[str]:
    return [sys.executable, "-c", _TOY, str(folder.data(member)), _ROOT]


@pytest.fixture
def existing(tmp_path: Path, toy_loop: ToyLoop) -> Iterator[str]:
    """The address of a service that is there already."""
    server = CoordinatorServer("127.0.0.1:0", tmp_path / "journal", tick_ms=500)
    toy_loop.run(server.start())
    yield server.address
    toy_loop.run(server.stop())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(ClusterFolder(tmp_path / "cluster"), toy_command)
    yield cluster
    if cluster.folder.has_cluster():
        cluster.down()


def test_an_existing_zookeeper_is_used_and_left_alone(cluster: Cluster, existing: str) -> None:
    address = f"{existing}/some/root"
    settings = cluster.up(2, coordination=ExistingZooKeeper(address))
    assert settings.members == ("r1", "r2")
    assert cluster.coordinator_address() == address
    command = member_command(cluster.folder, settings, "r1")
    assert command[command.index("--zookeeper") + 1] == address
    assert znodes.with_session(existing, lambda session: session.children("/some")) == ["root"]
    first = cluster.status()[0]
    assert (first.name, first.running, first.pid) == ("zookeeper", True, None)
    assert cluster.down() == ["r1", "r2"]
    assert zookeeper.serves(address)
    assert cluster.up().zookeeper == address, "the folder remembers it"


def test_nothing_starts_without_an_answer(cluster: Cluster, existing: str) -> None:
    nobody = f"127.0.0.1:{zookeeper.free_ports(1)[0]}"
    with pytest.raises(ClusterUnreachable, match=f"{nobody}/x cannot be used, so nothing was started"):
        cluster.up(1, coordination=ExistingZooKeeper(f"{nobody}/x"))
    assert not cluster.folder.has_cluster()
    cluster.up(1, coordination=ExistingZooKeeper(existing))
    cluster.down()
    with pytest.raises(ClusterUnreachable):
        cluster.up(coordination=ExistingZooKeeper(nobody))
    assert cluster.folder.settings().zookeeper == existing
    assert [state.running for state in cluster.status()] == [True, False]


def test_one_server_of_several_is_enough(cluster: Cluster, existing: str) -> None:
    nobody = f"127.0.0.1:{zookeeper.free_ports(1)[0]}"
    cluster.up(1, coordination=ExistingZooKeeper(f"{nobody},{existing}/root"))
    assert cluster.status()[0].running


def test_who_coordinates_a_folder_does_not_change(cluster: Cluster, existing: str) -> None:
    cluster.up(1)
    cluster.down()
    for other in (ExistingZooKeeper(existing), OwnZooKeeper(1)):
        with pytest.raises(ClusterError, match="on the embedded coordinator, not on"):
            cluster.up(coordination=other)


def test_zookeeper_that_is_not_installed(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper, "JARS", tmp_path)
    with pytest.raises(ClusterError, match="apt-get install zookeeper"):
        Cluster(cluster.folder).up(1, coordination=OwnZooKeeper(3))
    assert not cluster.folder.has_cluster()


def test_replicas_begin_with_different_servers() -> None:
    address = "a:1,b:2,c:3/root"
    begun = [zookeeper.beginning_with(address, index) for index in range(4)]
    assert begun == [address, "b:2,c:3,a:1/root", "c:3,a:1,b:2/root", address]


def test_a_configuration_is_for_loopback_and_knows_the_others(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("zoë", "zk2", "zk3")]
    zookeeper.configure(folders, [1001, 1002, 1003], session_timeout=60.0)
    lines = [(folder / "zoo.cfg").read_text(encoding="ascii").splitlines() for folder in folders]
    assert [(folder / "data" / "myid").read_text() for folder in folders] == ["1\n", "2\n", "3\n"]
    assert f"dataDir={tmp_path}/zo\\u00eb/data" in lines[0]
    assert "clientPort=1002" in lines[1]
    ensembles = [[line for line in each if line.startswith("server.")] for each in lines]
    assert ensembles[0] == ensembles[1] == ensembles[2]
    assert len({port for line in ensembles[0] for port in line.split(":")[1:]}) == 6
    assert all("=127.0.0.1:" in line for line in ensembles[0])
    assert "clientPortAddress=127.0.0.1" in lines[0]
    assert "maxSessionTimeout=60000" in lines[0]


# --- the command line ------------------------------------------------------------------------------------------


def chsim(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), env={"CHSIM_DIR": str(folder)})


def test_up_without_an_answer_is_unreachable(tmp_path: Path) -> None:
    result = chsim(tmp_path / "cluster", "up", "--zookeeper", f"127.0.0.1:{zookeeper.free_ports(1)[0]}/root")
    assert result.exit_code == 69
    assert "nobody answers" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--zookeeper", "localhost"), "'localhost' is not host:port"),
        (("--zookeeper", "a:1,:2"), "':2' is not host:port"),
        (("--zookeeper", "a:1,b:0"), "'b:0' is not host:port"),
        (("--zookeeper", "a:1//x"), "'//x' cannot be the path of a znode"),
        (("--zookeeper", "a:1/.."), "'/..' cannot be the path of a znode"),
        (("--zookeeper", "a:1", "--coordinator", "zookeeper"), "names one that is there"),
        (("--servers", "3"), "add --coordinator zookeeper"),
        (("--coordinator", "zookeeper", "--servers", "2"), "'2' is not one of"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: tuple[str, ...], complaint: str) -> None:
    result = chsim(tmp_path / "cluster", "up", *arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert not (tmp_path / "cluster").exists()


# --- the real one ------------------------------------------------------------------------------------------------

_CREATE = (
    "CREATE TABLE t (id UInt64) ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/t', '{replica}') ORDER BY id"
)


@pytest.mark.real
@pytest.mark.timeout(240)
def test_three_servers_go_on_without_one(tmp_path: Path) -> None:
    chsim = Chsim(tmp_path / "cluster")
    options = ("--replicas", "2", "--session-timeout", "2")
    try:
        up = chsim.run("up", "--coordinator", "zookeeper", "--servers", "3", *options)
        assert up.returncode == 0, up.stderr
        assert "ZooKeeper (zk1, zk2, zk3) listens on 127.0.0.1:" in up.stderr
        chsim.records("sql", _CREATE)
        for number, name in enumerate(("zk1", "zk2", "zk3")):
            chsim.records("kill", name)
            states = {state["name"]: state["state"] for state in chsim.records("status")}
            assert [each for each, state in states.items() if state == "stopped"] == [name]
            (block,) = chsim.records("sql", f"INSERT INTO t VALUES ({number})")
            assert block["status"] == "stored"
            chsim.records("start", name)
        assert len(chsim.records("log", "t")) == 3
        assert "[main]" in (tmp_path / "cluster" / "logs" / "zk1.log").read_text()
        assert chsim.run("down").stderr.strip() == "Stopped r1, r2, zk1, zk2, zk3."
        again = chsim.run("up")
        assert again.returncode == 0, again.stderr
        (block,) = chsim.records("sql", "INSERT INTO t VALUES (1)", "--replica", "r2")
        assert block["status"] == "duplicate"
    finally:
        chsim.run("down")


@pytest.mark.real
def test_two_clusters_share_a_real_zookeeper(tmp_path: Path, real_zookeeper: str) -> None:
    clusters = [Chsim(tmp_path / name) for name in ("one", "two")]
    try:
        for number, chsim in enumerate(clusters):
            address = f"{real_zookeeper}/deep/{number}"
            up = chsim.run("up", "--replicas", "1", "--session-timeout", "2", "--zookeeper", address)
            assert up.returncode == 0, up.stderr
            chsim.records("sql", _CREATE)
            chsim.records("sql", f"INSERT INTO t VALUES ({number})")
        for number, chsim in enumerate(clusters):
            assert chsim.records("sql", "SELECT id FROM t") == [{"id": number}]
            assert len(chsim.records("log", "t")) == 1
            assert chsim.run("down").stderr.strip() == "Stopped r1."
        assert zookeeper.serves(real_zookeeper)
    finally:
        for chsim in clusters:
            chsim.run("down")
