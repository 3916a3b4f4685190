"""Apache ZooKeeper as the coordination service of a cluster: an existing one, or servers of our own.

Our own are Debian's, unchanged: a Java process each, on loopback, with configuration and data in the folder of the
cluster. One server stands alone; three elect a leader and go on without one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from clickhouse_sim.cluster.errors import ClusterError
from clickhouse_sim.cluster.folder import LOOPBACK
from coordinator.api import CoordinationError, CoordinatorUnreachable, SessionLost
from replica.session import ensure_path

JARS = Path("/usr/share/java")
ANSWER_SECONDS = 5.0
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_RETRY_SECONDS = 0.2

# --- servers of our own --------------------------------------------------------------------------------------


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody has at this moment, all different."""
    with contextlib.ExitStack() as held:
        listeners = [held.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind((LOOPBACK, 0))
        return [int(listener.getsockname()[1]) for listener in listeners]


def local_address(client_ports: Sequence[int]) -> str:
    """What clients are given."""
    return ",".join(f"{LOOPBACK}:{port}" for port in client_ports)


def configure(folders: Sequence[Path], client_ports: Sequence[int], session_timeout: float) -> None:
    """Write each server's configuration into its folder; its data stay. Where they meet each other is drawn anew.

    Sessions of `session_timeout` seconds are granted, which ZooKeeper otherwise keeps between 2 and 20 ticks.
    """
    peers = [port for port in free_ports(3 * len(folders)) if port not in client_ports]
    ensemble = [
        f"server.{number}={LOOPBACK}:{quorum}:{election}"
        for number, quorum, election in zip(range(1, len(folders) + 1), peers[::2], peers[1::2], strict=False)
    ]
    tick_ms = min(2000, max(250, round(session_timeout * 1000 / 4)))
    for number, (folder, port) in enumerate(zip(folders, client_ports, strict=True), start=1):
        data = folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{number}\n")
        lines = [
            f"tickTime={tick_ms}",
            "initLimit=20",
            "syncLimit=10",
            f"maxSessionTimeout={max(20 * tick_ms, round(session_timeout * 1000))}",
            f"dataDir={_as_property(str(data))}",
            f"clientPort={port}",
            f"clientPortAddress={LOOPBACK}",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=*",
            *(ensemble if len(folders) > 1 else []),
        ]
        (folder / "zoo.cfg").write_text("\n".join([*lines, ""]))


def _as_property(text: str) -> str:
    """The text as a value in a file of Java's properties, which are ASCII with escapes."""
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(code) if 0x20 < code < 0x7F and code != ord("\\") else f"\\u{code:04x}" for code in codes)


def server_command(folder: Path) -> list[str]:
    """The command line of the server whose configuration lies in the folder; it logs to stderr.

    Raises ClusterError when Java or ZooKeeper is not installed.
    """
    java = shutil.which("java")
    # The jar itself names those that it needs, but for a logger.
    jars = [JARS / "zookeeper.jar", JARS / "slf4j-simple.jar"]
    if java is None or not all(jar.exists() for jar in jars):
        raise ClusterError(
            f"ZooKeeper is not installed (java and {jars[0]} are needed): get it with apt-get install zookeeper, or"
            " leave --coordinator out for the embedded one"
        )
    logger = "-Dorg.slf4j.simpleLogger"
    return [
        *(java, "-Xmx256m", f"{logger}.showDateTime=true", f"{logger}.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS"),
        *("-cp", ":".join(str(jar) for jar in jars), _MAIN, str(folder / "zoo.cfg")),
    ]


def answers(address: str) -> bool:
    """Whether a server takes questions at `host:port`; it may still look for the others."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS) as connection:
            connection.sendall(b"ruok")
            return connection.recv(4) == b"imok"
    except OSError:
        return False


# --- any -----------------------------------------------------------------------------------------------------


def beginning_with(address: str, index: int) -> str:
    """The same address, its servers in the same circle from another one on: so several clients share them out."""
    hosts, slash, chroot = address.partition("/")
    servers = hosts.split(",")
    start = index % len(servers)
    return ",".join([*servers[start:], *servers[:start]]) + slash + chroot


def serves(address: str) -> bool:
    """Whether a session can be had there, soon."""
    try:
        asyncio.run(_visit(address))
    except CoordinationError:
        return False
    return True


def prepare(address: str, seconds: float = 0.0) -> None:
    """See that a service answers there, and make the address's chroot where it is missing.

    Who does not answer is asked again for so many seconds. Raises CoordinationError.
    """
    hosts, slash, chroot = address.partition("/")
    deadline = time.monotonic() + seconds
    while True:
        try:
            asyncio.run(_visit(hosts, slash + chroot))
            return
        except (CoordinatorUnreachable, SessionLost):
            if time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY_SECONDS)


async def _visit(address: str, path_to_make: str = "") -> None:
    from coordinator.kazoo_client import KazooCoordinator  # here, as most commands do without it

    session = await KazooCoordinator(address, connect_timeout_seconds=ANSWER_SECONDS).connect()
    try:
        if path_to_make:
            await ensure_path(session, path_to_make)
    finally:
        await session.close()
