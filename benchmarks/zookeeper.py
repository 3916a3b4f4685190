"""Apache ZooKeeper as Debian installs it, one server on loopback; and the packet counters of any such service."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from types import TracebackType

from benchmarks.processes import LOOPBACK, NotInstalled, Process, free_ports

INSTALL = "apt-get install -y zookeeper default-jre-headless"
_JARS = Path("/usr/share/java")
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_CONFIG = """\
tickTime=2000
dataDir={folder}
clientPort={port}
clientPortAddress={host}
admin.enableServer=false
maxClientCnxns=0
4lw.commands.whitelist=mntr,isro
"""


class ZooKeeper:
    """A server with an empty folder of its own; `address` is `host:port`."""

    def __init__(self, folder: Path) -> None:
        """Raises NotInstalled, and NotMeasured when it does not come up."""
        if shutil.which("java") is None or not (_JARS / "zookeeper.jar").exists():
            raise NotInstalled(f"ZooKeeper is not installed here: {INSTALL}")
        folder.mkdir(parents=True)
        (port,) = free_ports(1)
        self.address = f"{LOOPBACK}:{port}"
        config = folder / "zoo.cfg"
        config.write_text(_CONFIG.format(folder=folder / "data", port=port, host=LOOPBACK))
        command = ["java", "-Xmx512m", "-cp", _class_path(), _MAIN, str(config)]
        self._process = Process(command, folder / "log")
        try:
            self._process.wait_until(lambda: word(self.address, "isro") == "rw", "ZooKeeper serves")
        except BaseException:
            self._process.stop()
            raise
        self.version = monitored(self.address)["zk_version"].partition("-")[0]

    def __enter__(self) -> ZooKeeper:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stop()


def monitored(address: str) -> dict[str, str]:
    """What `mntr` says, of any service that speaks ZooKeeper's protocol."""
    lines = (line.partition("\t") for line in word(address, "mntr").splitlines())
    return {key: value for key, _, value in lines}


def packets_received(address: str) -> int:
    """Requests of all clients so far; pings are among them."""
    return int(monitored(address)["zk_packets_received"])


def word(address: str, name: str) -> str:
    """The answer to a four-letter word; empty when nobody answers."""
    host, _, port = address.partition(":")
    answer = b""
    try:
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(name.encode())
            while chunk := connection.recv(1 << 16):
                answer += chunk
    except OSError:
        return ""
    return answer.decode()


def _class_path() -> str:
    """All of Debian's jars, with a logger that says nothing."""
    jars = [jar for jar in sorted(_JARS.glob("*.jar")) if not jar.name.startswith("slf4j-")]
    return ":".join(map(str, [*jars, _JARS / "slf4j-api.jar", _JARS / "slf4j-nop.jar"]))
