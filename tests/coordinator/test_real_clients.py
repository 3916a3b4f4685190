"""Other people's clients against our server: ZooKeeper's own shell, and the ClickHouse engine."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coordinator.server import CoordinatorServer

pytestmark = pytest.mark.real


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[CoordinatorServer]:
    server = CoordinatorServer("127.0.0.1:0", tmp_path / "coordinator")
    await server.start()
    yield server
    await server.stop()


async def output(*command: str, text: str = "") -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(90):
        out, _ = await process.communicate(text.encode())
    return out.decode()


async def test_the_zookeeper_shell(server: CoordinatorServer, java_class_path: str) -> None:
    commands = [
        "create /a hello", "create -s -e /a/s- x", "ls /a", "get -w /a", "set /a bye", "getAcl /a", "sync /",
        "whoami", "getEphemerals", "getAllChildrenNumber /a", "deleteall /a", "ls /", "quit",
    ]  # fmt: skip
    shell = ("java", "-cp", java_class_path, "org.apache.zookeeper.ZooKeeperMain", "-server", server.address)
    text = await output(*shell, text="\n".join(commands) + "\n")
    for expected in (
        "Created /a\n", "Created /a/s-0000000000", "[s-0000000000]", "hello", "type:NodeDataChanged path:/a",
        "'world,'anyone", "Sync is OK", "ip: 127.0.0.1", "[/a/s-0000000000]", "[keeper, zookeeper]",
    ):  # fmt: skip
        assert expected in text


_CLICKHOUSE = """
import sys
from chdb.session import Session

session = Session(f"{sys.argv[1]}/data?config-file={sys.argv[2]}")
for query in sys.argv[3:]:
    print(str(session.query(query, "TSV")).strip(), flush=True)
session.close()
"""


async def test_the_clickhouse_engine(server: CoordinatorServer, tmp_path: Path) -> None:
    host, _, port = server.address.partition(":")
    config = tmp_path / "config.xml"
    config.write_text(
        f"<clickhouse><zookeeper><node><host>{host}</host><port>{port}</port></node></zookeeper>"
        "<keeper_map_path_prefix>/maps</keeper_map_path_prefix></clickhouse>"
    )
    text = await output(
        sys.executable, "-c", _CLICKHOUSE, str(tmp_path), str(config),
        "CREATE DATABASE d ENGINE = Atomic",
        "CREATE TABLE d.m (k UInt32, v String) ENGINE = KeeperMap('/m') PRIMARY KEY k",
        "INSERT INTO d.m SELECT number, toString(number) FROM numbers(20)",
        "ALTER TABLE d.m DELETE WHERE k < 5",
        "SELECT count(), sum(length(v)) FROM d.m",
        "CREATE TABLE d.t (a UInt32) ENGINE = ReplicatedMergeTree('/tables/t', 'r1') ORDER BY a",
        "DROP TABLE d.t SYNC",
        "DROP TABLE d.m SYNC",
        "SELECT 'done'",
    )  # fmt: skip
    assert text.split() == ["15", "25", "done"]
