"""Ports to listen on."""

from __future__ import annotations

import errno
import socket

from clickhouse_sim.cluster.errors import ClusterError


def free_port(host: str, port: int) -> int:
    """The port, or for 0 any, if it can be listened on at this moment. Raises ClusterError, which says what to do."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            return int(listener.getsockname()[1])
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            raise ClusterError(
                f"port {port} of {host} is taken: another process listens on it."
                " End that one, or choose another port with --listen (0 is any free one)"
            ) from None
        raise ClusterError(f"{host}:{port} cannot be listened on: {problem.strerror or problem}") from None
