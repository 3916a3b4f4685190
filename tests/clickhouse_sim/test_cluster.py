"""The cluster folder and its processes, with toy members that write `ready.json` and wait."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clickhouse_sim.cluster import runtime
from clickhouse_sim.cluster.cluster import Cluster
from clickhouse_sim.cluster.errors import ClusterError, ClusterUnreachable, UnknownMember
from clickhouse_sim.cluster.folder import COORDINATOR, ClusterFolder, Settings
from clickhouse_sim.cluster.process_runtime import member_command
from clickhouse_sim.cluster.processes import ProcessId, spawn, start_of

_TOY = """
import sys, pathlib, signal
sys.path.insert(0, sys.argv[3])
from clickhouse_sim.cluster.folder import write_ready
print("here I am", flush=True)
if sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.argv[2] == "broken":
    sys.exit("I cannot serve")
if sys.argv[2] != "mute":
    write_ready(pathlib.Path(sys.argv[1]), endpoint="127.0.0.1:1")
signal.pause()
"""
_ROOT = str(Path(__file__).parents[2])


class ToyLauncher:
    """The command line of toy members; `temper` says how they behave."""

    def __init__(self) -> None:
        self.temper: dict[str, str] = {}

    def __call__(self, folder: ClusterFolder, settings: Settings, member: str) -> list[str]:
        temper = self.temper.get(member, "good")
        return [sys.executable, "-c", _TOY, str(folder.data(member)), temper, _ROOT]


@pytest.fixture
def launcher() -> ToyLauncher:
    return ToyLauncher()


@pytest.fixture
def cluster(tmp_path: Path, launcher: ToyLauncher) -> Iterator[Cluster]:
    cluster = Cluster(ClusterFolder(tmp_path / "cluster"), launcher)
    yield cluster
    for member in (COORDINATOR, "r1", "r2", "r3"):
        if process := cluster.folder.process(member):
            process.send(signal.SIGKILL)


def running(cluster: Cluster) -> list[str]:
    return [state.name for state in cluster.status() if state.running]


def test_up_kill_start_down(cluster: Cluster) -> None:
    settings = cluster.up(2)
    assert settings.replica_names == ("r1", "r2")
    assert running(cluster) == ["coordinator", "r1", "r2"]
    assert list(cluster.living_replicas()) == ["r1", "r2"]
    pid = cluster.kill("r1")
    assert start_of(pid) is None
    assert running(cluster) == ["coordinator", "r2"]
    assert cluster.chosen_replica(None) == ("r2", "127.0.0.1:1")
    assert cluster.start("r1").pid != pid
    assert running(cluster) == ["coordinator", "r1", "r2"]
    assert cluster.down() == ["r1", "r2", "coordinator"]
    assert running(cluster) == []
    assert cluster.down() == []
    assert "here I am" in cluster.folder.log("r1").read_text()


def test_a_second_up_says_that_it_runs(cluster: Cluster) -> None:
    cluster.up(1)
    with pytest.raises(ClusterError, match="chsim down"):
        cluster.up(1)
    assert running(cluster) == ["coordinator", "r1"]


def test_up_starts_the_cluster_of_the_folder_again(cluster: Cluster) -> None:
    cluster.up(2)
    cluster.down()
    with pytest.raises(ClusterError, match="2 replicas, not 3"):
        cluster.up(3)
    assert cluster.up().replicas == 2
    assert running(cluster) == ["coordinator", "r1", "r2"]


def test_up_keeps_the_session_timeout_unless_another_is_asked_for(cluster: Cluster) -> None:
    assert cluster.up(1, 2.5).session_timeout == 2.5
    cluster.down()
    assert cluster.up().session_timeout == 2.5
    cluster.down()
    assert cluster.up(session_timeout=9.0).session_timeout == 9.0


def test_up_after_a_reboot(cluster: Cluster) -> None:
    """The pid files name processes of an earlier life, one of whose pids is another process now."""
    cluster.up(1)
    cluster.down()
    cluster.folder.write_process("r1", ProcessId(os.getpid(), "another boot 17"))
    cluster.folder.write_process(COORDINATOR, ProcessId(2**22 - 1, "another boot 18"))
    assert running(cluster) == []
    cluster.up()
    assert running(cluster) == ["coordinator", "r1"]


def test_a_recycled_pid_is_never_signalled(cluster: Cluster, tmp_path: Path) -> None:
    cluster.up(1)
    cluster.kill("r1")
    bystander = spawn([sys.executable, "-c", "import signal; signal.pause()"], tmp_path / "log", {})
    cluster.folder.write_process("r1", ProcessId(bystander.pid, "another boot 17"))
    with pytest.raises(ClusterError, match="not running"):
        cluster.kill("r1")
    assert cluster.down() == ["coordinator"]
    assert bystander.is_alive
    bystander.send(signal.SIGKILL)
    assert bystander.wait_gone(10)


def test_a_member_that_does_not_come_up_takes_the_others_down(cluster: Cluster, launcher: ToyLauncher) -> None:
    launcher.temper["r2"] = "broken"
    with pytest.raises(ClusterError, match=r"r2 ended while it started(.|\n)*I cannot serve"):
        cluster.up(2)
    assert not cluster.folder.has_cluster()
    assert all(cluster.folder.process(member) is None for member in (COORDINATOR, "r1", "r2"))
    launcher.temper.clear()
    cluster.up(3)
    assert len(running(cluster)) == 4


def test_a_member_that_ignores_sigterm_is_killed(
    cluster: Cluster, launcher: ToyLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "STOP_SECONDS", 0.2)
    launcher.temper["r1"] = "stubborn"
    cluster.up(1)
    assert cluster.down() == ["r1", "coordinator"]
    assert running(cluster) == []


def test_misuse(cluster: Cluster) -> None:
    with pytest.raises(ClusterUnreachable, match="chsim up"):
        cluster.status()
    cluster.up(1)
    with pytest.raises(UnknownMember, match="coordinator, r1"):
        cluster.kill("r9")
    with pytest.raises(ClusterError, match="running already"):
        cluster.start("r1")
    cluster.kill("r1")
    with pytest.raises(ClusterError, match="not running"):
        cluster.kill("r1")
    with pytest.raises(ClusterUnreachable, match="chsim start r1"):
        cluster.chosen_replica("r1")
    with pytest.raises(ClusterUnreachable, match="no replica"):
        cluster.chosen_replica(None)
    cluster.kill(COORDINATOR)
    with pytest.raises(ClusterError, match="chsim start coordinator"):
        cluster.start("r1")


def test_only_one_command_changes_a_cluster_at_a_time(cluster: Cluster) -> None:
    with cluster.folder.locked(), pytest.raises(ClusterError, match="another chsim"):
        cluster.up(1)


def test_broken_files_are_told_or_ignored(cluster: Cluster) -> None:
    cluster.up(1)
    (cluster.folder.data("r1") / "ready.json").write_text("{")
    assert running(cluster) == ["coordinator"]
    cluster.down()
    (cluster.folder.root / "pids" / "r1.json").write_text("[1]")
    assert running(cluster) == []
    (cluster.folder.root / "cluster.json").write_text("{}")
    with pytest.raises(ClusterError, match="cannot be read"):
        cluster.status()


def test_a_stale_ready_file_is_not_believed(cluster: Cluster) -> None:
    """`ready.json` of a process that was killed says nothing about the one that is starting."""
    cluster.up(1)
    stale = (cluster.folder.data("r1") / "ready.json").read_text()
    cluster.kill("r1")
    (cluster.folder.data("r1") / "ready.json").write_text(stale)
    assert running(cluster) == ["coordinator"]
    assert cluster.start("r1").pid != json.loads(stale)["pid"]


def test_the_ready_file_of_another_process_is_not_believed(cluster: Cluster) -> None:
    cluster.up(1)
    stale = (cluster.folder.data("r1") / "ready.json").read_text()
    cluster.kill("r1")
    cluster.folder.write_process("r1", ProcessId(os.getpid(), start_of(os.getpid()) or ""))
    (cluster.folder.data("r1") / "ready.json").write_text(stale)
    assert running(cluster) == ["coordinator"]
    (cluster.folder.root / "pids" / "r1.json").unlink()


def test_a_member_that_never_serves_is_given_up(
    cluster: Cluster, launcher: ToyLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.up(1)
    cluster.kill("r1")
    launcher.temper["r1"] = "mute"
    monkeypatch.setattr(runtime, "READY_SECONDS", 0.3)
    with pytest.raises(ClusterError, match="r1 does not serve after"):
        cluster.start("r1")
    assert cluster.folder.process("r1") is None
    assert running(cluster) == ["coordinator"]


def test_members_run_in_the_same_python(tmp_path: Path) -> None:
    settings = Settings(replicas=1, session_timeout=6.0, coordinator_port=2181)
    command = member_command(ClusterFolder(tmp_path), settings, "r1")
    assert command[:6] == [sys.executable, "-m", "clickhouse_sim", "replica", "serve", "--name"]
    assert command[command.index("--zookeeper") + 1] == "127.0.0.1:2181"
    assert command[command.index("--session-timeout") + 1] == "6.0"
    coordinator = member_command(ClusterFolder(tmp_path), settings, COORDINATOR)
    assert coordinator[coordinator.index("--tick-ms") + 1] == "1500"
