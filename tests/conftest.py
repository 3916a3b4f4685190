"""Fixtures for all packages."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_ZOOKEEPER_JARS = Path("/usr/share/java")
_ZOOKEEPER_CONFIG = """\
tickTime=200
dataDir={folder}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
maxClientCnxns=0
4lw.commands.whitelist=*
"""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _serves(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"isro")  # "null" until it serves
            return connection.recv(4) == b"rw"
    except OSError:
        return False


@pytest.fixture(scope="session")
def java_class_path() -> str:
    """Debian's jars, with a logger that says nothing."""
    jars = [jar for jar in sorted(_ZOOKEEPER_JARS.glob("*.jar")) if not jar.name.startswith("slf4j-")]
    return ":".join(map(str, [*jars, _ZOOKEEPER_JARS / "slf4j-api.jar", _ZOOKEEPER_JARS / "slf4j-nop.jar"]))


@pytest.fixture(scope="session")
def real_zookeeper(tmp_path_factory: pytest.TempPathFactory, java_class_path: str) -> Iterator[str]:
    """The address of an Apache ZooKeeper 3.8 with a tick of 200 ms, started for this test run."""
    folder = tmp_path_factory.mktemp("zookeeper")
    port = _free_port()
    config = folder / "zoo.cfg"
    config.write_text(_ZOOKEEPER_CONFIG.format(folder=folder / "data", port=port))
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    with (folder / "output").open("wb") as output:
        server = subprocess.Popen(
            ["java", "-Xmx256m", "-cp", java_class_path, main, str(config)], stdout=output, stderr=output
        )
    try:
        for _ in range(300):
            if _serves(port):
                break
            assert server.poll() is None, (folder / "output").read_text()
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()
