"""Access control lists: who may do what to a znode, by ZooKeeper's rules.

Schemes: `world`, `ip` (IPv4 with an optional prefix length), `digest`, and `auth`, which stands for the digest
identities of the connection that uses it.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag


class Permission(IntFlag):
    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


@dataclass(frozen=True, slots=True)
class Identity:
    scheme: str
    id: str


@dataclass(frozen=True, slots=True)
class Acl:
    """One entry: `permissions` (bits, stored as given) for one identity."""

    permissions: int
    identity: Identity


ANYONE = Identity("world", "anyone")
OPEN_TO_ALL = (Acl(Permission.ALL, ANYONE),)
READ_ONLY_TO_ALL = (Acl(Permission.READ, ANYONE),)


class InvalidAcl(ValueError):
    """The list is empty, or an entry names an unknown scheme or a malformed id."""


def permits(acl: Sequence[Acl], permission: Permission, identities: Sequence[Identity]) -> bool:
    """Whether some entry grants the permission to one of the identities."""
    return any(entry.permissions & permission and _matches(entry.identity, identities) for entry in acl)


def resolve(acl: Sequence[Acl], identities: Sequence[Identity]) -> tuple[Acl, ...]:
    """The list as it is stored: `auth` replaced by the caller's digests, duplicates gone. Raises InvalidAcl."""
    entries: dict[Acl, None] = {}
    for entry in acl:
        for identity in _stored_identities(entry.identity, identities):
            entries[Acl(entry.permissions, identity)] = None
    if not entries:
        raise InvalidAcl
    return tuple(entries)


def digest_identity(credentials: bytes) -> Identity:
    """The identity behind `user:password`: `user:base64(sha1(user:password))`."""
    user = credentials.split(b":", 1)[0].decode("utf-8", "replace")
    return Identity("digest", f"{user}:{base64.b64encode(hashlib.sha1(credentials).digest()).decode()}")


def masked(acl: Sequence[Acl]) -> tuple[Acl, ...]:
    """The list as shown to one who may read the node but not administer it: digests hidden."""
    return tuple(
        Acl(entry.permissions, Identity("digest", entry.identity.id.split(":", 1)[0] + ":x"))
        if entry.identity.scheme == "digest"
        else entry
        for entry in acl
    )


def _stored_identities(identity: Identity, callers: Sequence[Identity]) -> list[Identity]:
    match identity.scheme:
        case "world" if identity.id == "anyone":
            return [identity]
        case "ip" if _network(identity.id) is not None:
            return [identity]
        case "digest" if identity.id.count(":") == 1:
            return [identity]
        case "auth":
            digests = [caller for caller in callers if caller.scheme == "digest"]
            if digests:
                return digests
    raise InvalidAcl


def _matches(wanted: Identity, identities: Sequence[Identity]) -> bool:
    if wanted == ANYONE:
        return True
    if wanted.scheme == "ip":
        network = _network(wanted.id)
        return network is not None and any(
            identity.scheme == "ip" and _address_within(identity.id, network) for identity in identities
        )
    return wanted in identities


def _network(text: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(text, strict=False)
    except ValueError:
        return None


def _address_within(address: str, network: ipaddress.IPv4Network) -> bool:
    try:
        return ipaddress.IPv4Address(address) in network
    except ValueError:
        return False
