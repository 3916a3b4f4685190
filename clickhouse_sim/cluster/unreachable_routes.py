"""Cuts a network from inside: exactly the given IPv4 addresses become unreachable, all others reachable again.

It changes the routes of the network namespace that it runs in, so it is run in one that a container lives in, by
another container with NET_ADMIN (`containers.py`). What is sent to such an address finds no host; where both ends do
so, nothing passes between them, and connections that were open starve as over a pulled cable. Linux's rtnetlink(7) is
spoken directly: images have no `ip`.

    python -m clickhouse_sim.cluster.unreachable_routes [ADDRESS ...]
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterable, Iterator

_NEW_ROUTE, _DELETE_ROUTE, _GET_ROUTE = 24, 25, 26
_ERROR, _DONE = 2, 3
_REQUEST, _ACKNOWLEDGE, _DUMP, _CREATE, _REPLACE = 0x1, 0x4, 0x300, 0x400, 0x100
_MAIN_TABLE, _UNREACHABLE, _DESTINATION = 254, 7, 1
_OURS = 201
"""The protocol of a route says who made it; from 192 on the numbers are free."""

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ROUTE = struct.Struct(
    "=BBBBBBBBI"
)  # family, bits of destination, of source, tos, table, protocol, scope, type, flags
_ATTRIBUTE = struct.Struct("=HH")


def route_request(kind: int, flags: int, address: str) -> bytes:
    """The message that asks for an unreachable route, or for its end. Raises OSError for a bad address."""
    route = _ROUTE.pack(socket.AF_INET, 32, 0, 0, _MAIN_TABLE, _OURS, 0, _UNREACHABLE, 0)
    return _message(kind, flags | _ACKNOWLEDGE, route + _attribute(_DESTINATION, socket.inet_aton(address)))


def unreachable_addresses(answer: bytes) -> Iterator[str]:
    """The addresses of the unreachable routes of ours, among all that a dump of the routes answers."""
    for kind, body in messages(answer):
        if kind != _NEW_ROUTE:
            continue
        _, bits, _, _, _, protocol, _, route_type, _ = _ROUTE.unpack_from(body)
        if (bits, protocol, route_type) == (32, _OURS, _UNREACHABLE):
            attributes = dict(_attributes(body[_ROUTE.size :]))
            yield socket.inet_ntoa(attributes[_DESTINATION])


def messages(answer: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and body of each message."""
    at = 0
    while at + _HEADER.size <= len(answer):
        length, kind, *_ = _HEADER.unpack_from(answer, at)
        yield kind, answer[at + _HEADER.size : at + length]
        at += _aligned(length)


def make_unreachable(wanted: Iterable[str]) -> None:
    """Make these addresses unreachable and no others. Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.bind((0, 0))
        known = set(_known(kernel))
        for address in sorted(known - set(wanted)):
            _ask(kernel, route_request(_DELETE_ROUTE, _REQUEST, address))
        for address in sorted(set(wanted) - known):
            _ask(kernel, route_request(_NEW_ROUTE, _REQUEST | _CREATE | _REPLACE, address))


def _known(kernel: socket.socket) -> Iterator[str]:
    kernel.send(_message(_GET_ROUTE, _REQUEST | _DUMP, _ROUTE.pack(socket.AF_INET, 0, 0, 0, 0, 0, 0, 0, 0)))
    while True:
        answer = kernel.recv(1 << 16)
        yield from unreachable_addresses(answer)
        if any(kind in (_DONE, _ERROR) for kind, _ in messages(answer)):
            return


def _ask(kernel: socket.socket, request: bytes) -> None:
    kernel.send(request)
    for kind, body in messages(kernel.recv(1 << 16)):
        if kind == _ERROR and (number := -struct.unpack_from("=i", body)[0]):
            raise OSError(number, "the kernel refuses a route")


def _message(kind: int, flags: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, 1, 0) + body


def _attribute(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value


def _attributes(body: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        yield kind, body[at + _ATTRIBUTE.size : at + length]
        at += _aligned(length)


def _aligned(length: int) -> int:
    return (length + 3) & ~3


if __name__ == "__main__":
    make_unreachable(sys.argv[1:])
