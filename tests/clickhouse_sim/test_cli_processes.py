"""`chsim pause`, `resume`, `logs`, `start`, `status`, and an INSERT that waits."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clickhouse_sim.cli import cluster_status, writable
from clickhouse_sim.cluster.cluster import Cluster
from clickhouse_sim.cluster.errors import ClusterError, ClusterUnreachable
from clickhouse_sim.cluster.folder import COORDINATOR
from clickhouse_sim.cluster.processes import spawn

_ROOT = Path(__file__).parents[2]
_CREATE = "CREATE TABLE t (id UInt64) ENGINE = ReplicatedMergeTree('/tables/t', '{replica}') ORDER BY id"


@pytest.fixture
def sleeper(toy_cluster: Any, tmp_path: Path) -> Iterator[Any]:
    """The toy cluster, whose r2 is a process of its own that does nothing."""
    process = spawn([sys.executable, "-c", "import signal; signal.pause()"], tmp_path / "sleeper.log", {})
    toy_cluster.folder.write_process("r2", process)
    ready = toy_cluster.folder.data("r2") / "ready.json"
    ready.write_text(ready.read_text().replace(f'"pid": {os.getpid()}', f'"pid": {process.pid}'))
    yield toy_cluster
    process.send(signal.SIGKILL)
    assert process.wait_gone(10)


def states(cluster: Any) -> dict[str, str]:
    return {row["name"]: row["state"] for row in cluster.records("status")}


# --- pause and resume ----------------------------------------------------------------------------------------


def test_a_paused_member_is_told_and_not_asked(sleeper: Any) -> None:
    result = sleeper.chsim("pause", "r2")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "chsim resume r2" in result.stderr
    assert states(sleeper) == {"coordinator": "stopped", "r1": "serves", "r2": "paused"}
    refused = sleeper.chsim("sql", "SELECT 1", "--replica", "r2")
    assert refused.exit_code == 69
    assert "paused" in refused.stderr
    assert [row["replica"] for row in sleeper.records("sql", _CREATE)] == ["r1"]
    assert sleeper.chsim("pause", "r2").exit_code == 1
    assert sleeper.chsim("resume", "r2").exit_code == 0
    assert states(sleeper)["r2"] == "serves"
    assert sleeper.chsim("resume", "r2").exit_code == 1


def test_only_members_that_run_are_paused(toy_cluster: Any) -> None:
    assert toy_cluster.chsim("pause", "r9").exit_code == 2
    toy_cluster.bury("r2")
    assert toy_cluster.chsim("pause", "r2").exit_code == 1
    assert toy_cluster.chsim("resume", "r2").exit_code == 1


def test_a_paused_process_goes_down_by_its_own(sleeper: Any) -> None:
    """SIGTERM reaches it only once it goes on."""
    sleeper.bury("r1")
    process = sleeper.folder.process("r2")
    process.send(signal.SIGSTOP)
    while not process.is_paused:
        time.sleep(0.01)
    begun = time.monotonic()
    assert Cluster(sleeper.folder).down() == ["r2"]
    assert time.monotonic() - begun < 10, "it was not waited for and killed"


# --- status --------------------------------------------------------------------------------------------------


def test_status_tells_queue_and_why_a_table_is_read_only(toy_cluster: Any) -> None:
    toy_cluster.records("sql", _CREATE)
    toy_cluster.servers["r1"].readonly = "its session was lost"
    row = toy_cluster.records("status")[1]
    assert (row["tables"], row["queue_size"], row["lag"]) == (1, 0, None), "without a coordinator no lag is known"
    assert row["readonly"] == "t: its session was lost"
    assert row["endpoint"].startswith("127.0.0.1:")


def test_status_is_answered_although_nobody_answers(toy_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coordinator and r1 accept connections and say nothing, as a process that is stuck would."""
    monkeypatch.setattr(cluster_status, "ANSWER_SECONDS", 0.3)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        ready = toy_cluster.folder.data("r1") / "ready.json"
        ready.write_text(f'{{"pid": {os.getpid()}, "addresses": {{"endpoint": "{address}"}}}}')
        toy_cluster.folder.data(COORDINATOR).mkdir()
        toy_cluster.folder.write_process(COORDINATOR, toy_cluster.folder.process("r1"))
        (toy_cluster.folder.data(COORDINATOR) / "ready.json").write_text(ready.read_text())
        silent = "does not answer"
        assert states(toy_cluster) == {"coordinator": silent, "r1": silent, "r2": "serves"}


# --- start ---------------------------------------------------------------------------------------------------

_EARLIER_LIFE = "Replica /tables/t/replicas/r1 appears to be already active: another server, or a session"


def test_start_waits_until_the_tables_can_be_written(toy_cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    toy_cluster.records("sql", _CREATE)
    server = toy_cluster.servers["r1"]
    server.readonly = _EARLIER_LIFE
    timer = threading.Timer(0.5, lambda: setattr(server, "readonly", ""))
    timer.start()
    writable.wait_until_writable(Cluster(toy_cluster.folder), "r1")
    timer.join()
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2
    assert "default.t: the session of its earlier life has not expired yet" in told[0]
    assert told[1] == "r1 can be written."


def test_start_gives_up_at_last(toy_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writable, "_SLACK_SECONDS", 0.1)
    toy_cluster.records("sql", _CREATE)
    toy_cluster.servers["r1"].readonly = "it is broken"
    monkeypatch.setattr(writable, "_reasons", lambda address: "default.t: it is broken")
    with pytest.raises(ClusterError, match=r"still read-only: default\.t: it is broken"):
        writable.wait_until_writable(Cluster(toy_cluster.folder), "r1")


def test_start_of_one_that_dies_again_is_told(toy_cluster: Any) -> None:
    toy_cluster.bury("r1")
    with pytest.raises(ClusterUnreachable, match="chsim start r1"):
        writable.wait_until_writable(Cluster(toy_cluster.folder), "r1")


# --- an INSERT that waits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["sql", "insert"])
def test_an_insert_that_waits_says_why(
    toy_cluster: Any, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writable, "_QUIET_SECONDS", 0.1)
    monkeypatch.setattr(writable, "_LOOK_AGAIN_SECONDS", 0.1)
    toy_cluster.records("sql", _CREATE)
    server = toy_cluster.servers["r1"]
    server.readonly = "its session was lost"
    server.delay = 2.0
    (tmp_path / "t.csv").write_text("id\n1\n")
    command = ["sql", "INSERT INTO t VALUES (1)"] if how == "sql" else ["insert", "t", str(tmp_path / "t.csv")]
    recovery = threading.Timer(1.0, lambda: setattr(server, "readonly", ""))
    recovery.start()
    result = toy_cluster.chsim(*command)
    recovery.join()
    assert result.exit_code == 0
    told, *rest = result.stderr.splitlines()
    assert told.startswith("Still waiting")
    assert all(line.endswith("through r1.") for line in rest), "told once, and nothing when it is over"
    assert "r1 is read-only" in told
    assert "default.t: its session was lost" in told
    assert "chsim start coordinator" in told


def test_an_insert_that_is_merely_slow_says_nothing(toy_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writable, "_QUIET_SECONDS", 0.1)
    toy_cluster.records("sql", _CREATE)
    toy_cluster.servers["r1"].delay = 0.5
    assert toy_cluster.chsim("sql", "INSERT INTO t VALUES (1)").stderr == ""


# --- logs ----------------------------------------------------------------------------------------------------


def test_the_last_lines_of_a_log(toy_cluster: Any) -> None:
    toy_cluster.folder.log("r1").write_text("".join(f"line {number}\n" for number in range(5)))
    assert toy_cluster.chsim("logs", "r1", "-n", "2").stdout == "line 3\nline 4\n"
    assert toy_cluster.chsim("logs", "r1").stdout.count("\n") == 5
    assert toy_cluster.chsim("logs", "r2").exit_code == 1
    assert toy_cluster.chsim("logs", "r9").exit_code == 2


def test_a_log_is_followed_until_ctrl_c(toy_cluster: Any) -> None:
    log = toy_cluster.folder.log("r1")
    log.write_text("old\n")
    command = [sys.executable, "-m", "clickhouse_sim", "logs", "r1", "-f", "--dir", str(toy_cluster.folder.root)]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "old\n"
            with log.open("a") as added:
                added.write("new\n")
            assert process.stdout.readline() == "new\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
            assert process.stderr is not None
            assert process.stderr.read() == ""
        finally:
            process.kill()


# --- what cannot serve -----------------------------------------------------------------------------------------


def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "clickhouse_sim", *arguments]
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    "command",
    [["coordinator", "serve"], ["replica", "serve", "--name", "r1", "--zookeeper", "127.0.0.1:1"]],
    ids=["coordinator", "replica"],
)
def test_a_port_that_is_taken_is_named(tmp_path: Path, command: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = serve(*command, "--listen", f"127.0.0.1:{port}", "--dir", str(tmp_path / "data"))
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: port {port} of 127.0.0.1 is taken: another process listens on it.")
    assert "--listen" in done.stderr


@pytest.mark.parametrize("name", ["a/b", "..", ""])
def test_a_name_that_no_replica_can_have_is_refused_at_once(tmp_path: Path, name: str) -> None:
    folder = str(tmp_path / "data")
    done = serve("replica", "serve", "--name", name, "--zookeeper", "127.0.0.1:1", "--dir", folder)
    assert done.returncode == 2
    assert f"{name!r} cannot be a replica's name" in done.stderr


def test_a_replica_cannot_start_without_its_coordinator(toy_cluster: Any) -> None:
    toy_cluster.bury("r2")
    result = toy_cluster.chsim("start", "r2")
    assert result.exit_code == 69
    assert "chsim start coordinator" in result.stderr


def test_up_says_what_of_the_cluster_is_down(toy_cluster: Any) -> None:
    """Its coordinator does not run."""
    result = toy_cluster.chsim("up")
    assert result.exit_code == 1
    assert "r1, r2 are up, coordinator is down. Start what is down with: chsim start coordinator" in result.stderr
