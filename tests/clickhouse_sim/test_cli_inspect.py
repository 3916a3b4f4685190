"""`chsim queue`, `log`, `parts`, `znodes`, `status` and the help of every command."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from clickhouse_sim.cli.main import main
from clickhouse_sim.cluster.cluster import Cluster
from coordinator.kazoo_client import KazooCoordinator

_GET = "format version: 4\ncreate_time: 2024-01-01 10:00:00\nsource replica: r1\nblock_id: all_123\nget\nall_0_0_0\n"
_MERGE = (
    "format version: 4\ncreate_time: 2024-01-01 10:00:01\nsource replica: r1\nblock_id: \n"
    "merge\nall_0_0_0\nall_1_1_0\ninto\nall_0_1_1\ndeduplicate: 0\n"
)
_CREATE = "CREATE TABLE t (id UInt64) ENGINE = ReplicatedMergeTree('/tables/{table}', '{replica}') ORDER BY id"


@pytest.fixture
def cluster(coordinated_cluster: Any) -> Any:
    """Table t on both replicas, with its znodes; r1's memory has one entry, r2's znodes have two."""
    coordinated_cluster.records("sql", _CREATE)
    coordinated_cluster.servers["r1"].queue = [
        {"database": "default", "table": "t", "node_name": "queue-0000000000", "type": "MERGE_PARTS", "num_tries": 2}
        | {"new_part_name": "all_0_1_1", "source_replica": "r1", "last_exception": "", "is_currently_executing": 0}
        | {"num_postponed": 3, "postpone_reason": "another merge runs"}
    ]
    znodes = {
        "/tables": "",
        "/tables/t": "",
        "/tables/t/metadata": "the metadata\n",
        "/tables/t/log": "",
        "/tables/t/log/log-0000000000": _GET,
        "/tables/t/log/log-0000000001": _MERGE,
        "/tables/t/log/log-0000000002": "nonsense",
        "/tables/t/replicas": "",
        "/tables/t/replicas/r1": "",
        "/tables/t/replicas/r1/queue": "",
        "/tables/t/replicas/r2": "",
        "/tables/t/replicas/r2/log_pointer": "2",
        "/tables/t/replicas/r2/queue": "",
        "/tables/t/replicas/r2/queue/queue-0000000000": _GET,
        "/tables/t/replicas/r2/queue/queue-0000000001": _MERGE,
    }

    _write(coordinated_cluster, znodes)
    return coordinated_cluster


def _write(cluster: Any, znodes: dict[str, str]) -> None:
    async def write() -> None:
        session = await KazooCoordinator(Cluster(cluster.folder).coordinator_address()).connect()
        for path, data in znodes.items():
            await session.create(path, data.encode())
        await session.close()

    asyncio.run(write())


def test_the_queue_of_a_living_replica_is_asked_of_it(cluster: Any) -> None:
    [entry] = cluster.records("queue", "t")
    assert entry["replica"] == "r1"
    assert entry["table"] == "default.t"
    assert (entry["type"], entry["new_part_name"]) == ("MERGE_PARTS", "all_0_1_1")
    assert (entry["num_tries"], entry["num_postponed"], entry["postpone_reason"]) == (2, 3, "another merge runs")
    assert entry["told_by"] == "replica"


def test_the_queue_of_a_dead_replica_is_read_from_znodes_and_says_so(cluster: Any) -> None:
    cluster.bury("r2")
    entries = cluster.records("queue", "t", "--replica", "r2")
    assert [(each["type"], each["new_part_name"]) for each in entries] == [
        ("GET_PART", "all_0_0_0"),
        ("MERGE_PARTS", "all_0_1_1"),
    ]
    assert {each["told_by"] for each in entries} == {"znodes"}
    assert {(each["num_tries"], each["num_postponed"], each["postpone_reason"]) for each in entries} == {(None,) * 3}
    narration = cluster.chsim("queue").stderr
    assert "r2 is not running" in narration
    assert "it has not copied yet: 1." in narration
    assert [each["replica"] for each in cluster.records("queue")] == ["r1", "r2", "r2"]


def test_queues_can_be_read_when_no_replica_lives(cluster: Any) -> None:
    cluster.bury("r1")
    cluster.bury("r2")
    assert [each["replica"] for each in cluster.records("queue", "t")] == ["r2", "r2"]


def test_the_log_is_decoded(cluster: Any) -> None:
    get, merge, broken = cluster.records("log", "t")
    assert (get["type"], get["new_part"], get["detail"]) == ("GET_PART", "all_0_0_0", "block all_123")
    assert get["create_time"] == "2024-01-01 10:00:00"
    assert (merge["type"], merge["new_part"]) == ("MERGE_PARTS", "all_0_1_1")
    assert merge["detail"] == "from all_0_0_0, all_1_1_0"
    assert broken["type"] == ""
    assert "nonsense" in broken["detail"] or "format version" in broken["detail"]


def test_a_living_replica_that_lacks_a_table_is_told(cluster: Any) -> None:
    del cluster.servers["r2"].tables["t"]
    for command in (["queue"], ["queue", "t"], ["queue", "t", "--replica", "r2"], ["parts", "t"]):
        assert "r2 has no table default.t: it is on r1." in cluster.chsim(*command).stderr, command
    assert "has no table" not in cluster.chsim("queue", "t", "--replica", "r1").stderr
    assert "has no table" not in cluster.chsim("queue", "--replica", "r1").stderr


@pytest.mark.parametrize("command", [[], ["ls"], ["get"], ["stat"], ["watch"]])
def test_a_path_that_does_not_start_with_a_slash_is_wrong_usage(cluster: Any, command: list[str]) -> None:
    result = cluster.chsim("znodes", *command, "nope")
    assert result.exit_code == 2
    assert "it starts with a slash, as /nope does" in result.stderr


def test_unknown_tables_are_told(cluster: Any) -> None:
    for command in ("queue", "log", "parts"):
        result = cluster.chsim(command, "nope")
        assert result.exit_code == 1, command
        assert "UNKNOWN_TABLE" in result.stderr


def test_parts_of_each_replica(cluster: Any) -> None:
    cluster.records("sql", "INSERT INTO t VALUES (1), (2)", "--replica", "r2")
    [part] = cluster.records("parts", "t")
    assert (part["replica"], part["table"], part["name"], part["rows"]) == ("r2", "default.t", "all_0_0_0", 2)
    assert cluster.records("parts", "--replica", "r1") == []


def test_znodes_as_deep_as_asked(cluster: Any) -> None:
    nodes = cluster.records("znodes", "/tables", "--depth", "2")
    paths = ["/tables", "/tables/t", "/tables/t/log", "/tables/t/metadata", "/tables/t/replicas"]
    assert [node["path"] for node in nodes] == paths
    assert nodes[3] == {"path": "/tables/t/metadata", "data": "the metadata\n"}
    [node] = cluster.records("znodes", "/tables/t/log/", "--depth", "0", "--stat")
    assert (node["path"], node["version"], node["num_children"]) == ("/tables/t/log", 0, 3)
    assert cluster.chsim("znodes", "/nowhere").exit_code == 1


def test_znodes_are_a_tree_for_people(cluster: Any) -> None:
    shown = cluster.chsim("znodes", "/tables", "--depth", "3", "--format", "pretty").stdout.splitlines()
    assert shown[:4] == ["/tables", "  t", "    log", "      log-0000000000  format version: 4 …"]
    assert "    metadata  the metadata" in shown
    with_stat = cluster.chsim("znodes", "/tables/t", "--depth", "1", "--stat", "--format", "pretty").stdout
    assert "  log  [v0 cv3 children 3 " in with_stat


def test_one_value_whole(cluster: Any) -> None:
    path = "/tables/t/log/log-0000000000"
    assert cluster.chsim("znodes", "get", path, "--format", "pretty").stdout == _GET
    assert cluster.records("znodes", "get", path) == [{"path": path, "data": _GET}]
    assert cluster.chsim("znodes", "get", "/nowhere").exit_code == 1


def test_one_stat(cluster: Any) -> None:
    [found] = cluster.records("znodes", "stat", "/tables/t/log")
    assert (found["version"], found["num_children"], found["data_length"]) == (0, 3, 0)
    shown = cluster.chsim("znodes", "stat", "/tables/t/log", "--format", "pretty").stdout
    assert "num_children     3" in shown.splitlines()


@pytest.mark.parametrize("form", [[], ["ls"]])
def test_ls_is_meant_without_a_subcommand(cluster: Any, form: list[str]) -> None:
    assert cluster.records("znodes", *form, "--depth", "0", "/tables") == [{"path": "/tables", "data": ""}]


def test_changes_of_a_znode_are_told_one_a_line(cluster: Any, toy_loop: Any) -> None:
    command = [
        sys.executable,
        "-m",
        "clickhouse_sim",
        "znodes",
        "watch",
        "/watched",
        "--count",
        "5",
        "--format",
        "jsonl",
    ]
    environment = {**os.environ, "CHSIM_DIR": str(cluster.folder.root)}
    root = Path(__file__).parents[2]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=root, env=environment, text=True, **pipes) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        assert "not there yet" in process.stderr.readline()

        async def connect() -> Any:
            return await KazooCoordinator(Cluster(cluster.folder).coordinator_address()).connect()

        session = toy_loop.run(connect())
        told = []
        try:
            for change in (
                lambda: session.create("/watched", b"one"),
                lambda: session.set("/watched", b"two\nlines"),
                lambda: session.create("/watched/child"),
                lambda: session.delete("/watched/child"),
                lambda: session.delete("/watched"),
            ):
                toy_loop.run(change())
                event = json.loads(process.stdout.readline())
                told.append((event["path"], event["event"], event["detail"]))
            assert process.wait(30) == 0
        finally:
            process.kill()
            toy_loop.run(session.close())
    assert told == [
        ("/watched", "created", "one"),
        ("/watched", "changed", "version 1: two"),
        ("/watched", "child added", "child"),
        ("/watched", "child removed", "child"),
        ("/watched", "deleted", ""),
    ]


def test_status_reads_the_lag_of_everyone_from_the_znodes(cluster: Any) -> None:
    """r2 has two entries in its queue, and one in the log that it has not copied: dead or alive."""
    rows = {row["name"]: row for row in cluster.records("status")}
    assert rows["r2"]["lag"] == 3
    cluster.bury("r2")
    row = cluster.records("status")[2]
    assert (row["state"], row["tables"], row["queue_size"], row["lag"]) == ("stopped", 1, 2, 3)


def test_status_tells_who_lets_znodes_pile_up(cluster: Any) -> None:
    assert "log of" not in cluster.chsim("status").stderr
    at_the_root = {"is_lost": "0"}
    entries = {f"queue/queue-{number:010d}": _GET for number in range(2, 100)}
    _write(cluster, {f"/tables/t/log/log-{number:010d}": _GET for number in range(3, 102)})
    _write(cluster, {f"/tables/t/replicas/r2/{name}": text for name, text in (at_the_root | entries).items()})
    told = cluster.chsim("status").stderr
    assert "r2 is away, and the log of /tables/t keeps 100 entries for it: start it" in told
    assert "r2 has 100 entries in its queue of /tables/t" in told
    _write(cluster, {"/tables/t/replicas/r2/is_active": "now it is there"})
    assert "r2 is away" not in cluster.chsim("status").stderr


def test_without_a_coordinator_it_is_unreachable(toy_cluster: Any) -> None:
    for command in ("log", "znodes"):
        assert toy_cluster.chsim(command).exit_code == 69


def test_status(toy_cluster: Any) -> None:
    toy_cluster.bury("r2")
    states = {state["name"]: state["state"] for state in toy_cluster.records("status")}
    assert states == {"coordinator": "stopped", "r1": "serves", "r2": "stopped"}


# --- help and usage ------------------------------------------------------------------------------------------


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            found += _commands(child, (*path, name))
    return found


@pytest.mark.parametrize(
    ("path", "command"), [pytest.param(*each, id=" ".join(("chsim", *each[0]))) for each in _commands(main)]
)
def test_every_command_has_help_with_an_example(path: tuple[str, ...], command: click.Command) -> None:
    result = CliRunner().invoke(main, [*path, "--help"])
    assert result.exit_code == 0
    usage, *rest = result.output.split("\n\n")
    assert usage.startswith("Usage:")
    assert any(" ".join(("chsim", *path)) in part for part in rest), "no example"
    assert all(option.help for option in command.params if isinstance(option, click.Option))


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["sql", "SELECT 1", "--format", "xml"],
        ["insert", "t"],
        ["insert", "t", "/no/such/file.csv"],
        ["up", "--replicas", "0"],
        ["coordinator", "serve", "--listen", "here", "--dir", "d"],
        ["replica", "serve", "--name", "r1", "--zookeeper", "localhost:99999", "--dir", "d"],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(main, arguments).exit_code == 2


def test_a_busy_port_is_one_sentence(coordinated_cluster: Any, tmp_path: Path) -> None:
    address = Cluster(coordinated_cluster.folder).coordinator_address()
    command = ["coordinator", "serve", "--listen", address, "--dir", str(tmp_path / "second")]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "clickhouse_sim", *command], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert address.split(":")[1] in done.stderr
