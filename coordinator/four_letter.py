"""The four-letter words: short questions about a server that anybody may ask without a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

VERSION = "3.8.0-clickhouse-sim, built on 2026-01-01 00:00 UTC"


@dataclass(frozen=True, slots=True)
class ConnectionStatus:
    """One client connection. `session_id` is 0 before the handshake."""

    address: str
    session_id: int
    timeout_ms: int
    queued: int
    received: int
    sent: int
    established_ms: int


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """A server at one moment."""

    host: str
    port: int
    folder: str
    tick_ms: int
    uptime_ms: int
    zxid: int
    node_count: int
    data_size: int
    received: int
    sent: int
    outstanding: int
    connections: Sequence[ConnectionStatus]
    expiries: Mapping[int, int]  # session to milliseconds until it expires
    ephemerals: Mapping[int, Sequence[str]]
    watched_paths: Mapping[int, Sequence[str]]  # watching connection to paths, each kind of watch counted


def answer(word: str, status: ServerStatus) -> str | None:
    """The text that answers the word; None for a word that means nothing here."""
    match word:
        case "ruok":
            return "imok"
        case "isro":
            return "rw"
        case "srvr":
            return f"Zookeeper version: {VERSION}\n{_figures(status)}"
        case "stat":
            clients = "".join(f" {_client(connection)}\n" for connection in status.connections)
            return f"Zookeeper version: {VERSION}\nClients:\n{clients}\n{_figures(status)}"
        case "cons":
            return "".join(f" {_client(connection, detailed=True)}\n" for connection in status.connections) + "\n"
        case "mntr":
            return "".join(f"{key}\t{value}\n" for key, value in _monitored(status).items())
        case "dump":
            return _dump(status)
        case "envi":
            return f"Environment:\nzookeeper.version={VERSION}\nhost.name={status.host}\nuser.dir={status.folder}\n"
        case "conf":
            return "".join(f"{key}={value}\n" for key, value in _configuration(status).items())
        case "wchs":
            total = sum(map(len, status.watched_paths.values()))
            return f"{len(status.watched_paths)} connections watching {total} paths\nTotal watches:{total}\n"
    return None


def _figures(status: ServerStatus) -> str:
    return (
        f"Received: {status.received}\n"
        f"Sent: {status.sent}\n"
        f"Connections: {len(status.connections)}\n"
        f"Outstanding: {status.outstanding}\n"
        f"Zxid: {status.zxid:#x}\n"
        "Mode: standalone\n"
        f"Node count: {status.node_count}\n"
    )


def _client(connection: ConnectionStatus, *, detailed: bool = False) -> str:
    figures = f"queued={connection.queued},recved={connection.received},sent={connection.sent}"
    if detailed and connection.session_id:
        figures += f",sid={connection.session_id:#x},est={connection.established_ms},to={connection.timeout_ms}"
    return f"/{connection.address}[{1 if connection.session_id else 0}]({figures})"


def _monitored(status: ServerStatus) -> dict[str, object]:
    return {
        "zk_version": VERSION,
        "zk_server_state": "standalone",
        "zk_packets_received": status.received,
        "zk_packets_sent": status.sent,
        "zk_num_alive_connections": len(status.connections),
        "zk_outstanding_requests": status.outstanding,
        "zk_znode_count": status.node_count,
        "zk_watch_count": sum(map(len, status.watched_paths.values())),
        "zk_ephemerals_count": sum(map(len, status.ephemerals.values())),
        "zk_approximate_data_size": status.data_size,
        "zk_uptime": status.uptime_ms,
        "zk_global_sessions": len(status.expiries),
    }


def _dump(status: ServerStatus) -> str:
    lines = ["SessionTracker dump:", f"Session Sets ({len(status.expiries)})/({len(status.expiries)}):"]
    for session_id, remaining in sorted(status.expiries.items(), key=lambda item: (item[1], item[0])):
        lines += [f"1 expire in {remaining} ms:", f"\t{session_id:#x}"]
    lines += ["ephemeral nodes dump:", f"Sessions with Ephemerals ({len(status.ephemerals)}):"]
    for session_id, paths in status.ephemerals.items():
        lines += [f"{session_id:#x}:", *(f"\t{path}" for path in paths)]
    lines += ["Connections dump:", f"Connections Sets ({len(status.connections)}):"]
    lines += [f"\t{_client(connection)}" for connection in status.connections]
    return "\n".join(lines) + "\n"


def _configuration(status: ServerStatus) -> dict[str, object]:
    return {
        "clientPort": status.port,
        "dataDir": status.folder,
        "dataLogDir": status.folder,
        "tickTime": status.tick_ms,
        "minSessionTimeout": 2 * status.tick_ms,
        "maxSessionTimeout": 20 * status.tick_ms,
        "serverId": 0,
    }
