"""What makes two events the same one: their identity, never their payload."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import isfinite

Event = Mapping[str, object]
"""An event as it was read from JSON; `node_id` is taken where there is no `nodeId`."""


class IdentitySource(StrEnum):
    """Where an identity was found."""

    ID = "id"
    NODE_SEQUENCE = "node_sequence"
    NONE = "none"


def identity_of(event: Event | None) -> tuple[str | None, IdentitySource]:
    """The identity of an event and where it stands; None if it has none.

    First `id`, if that is a non-empty string; else `nodeId::sequence`, if both are there: non-empty strings or
    numbers, of which 7, 7.0 and "7" are the same. Of null, true or an object no identity is made, since all events
    that have it would be taken for one.
    """
    if event is None:
        return None, IdentitySource.NONE
    identity = event.get("id")
    if identity and isinstance(identity, str):
        return identity, IdentitySource.ID
    node = _spelled(event.get("nodeId", event.get("node_id")))
    if node is None:
        return None, IdentitySource.NONE
    sequence = _spelled(event.get("sequence"))
    if sequence is None:
        return None, IdentitySource.NONE
    return f"{node}::{sequence}", IdentitySource.NODE_SEQUENCE


def _spelled(value: object) -> str | None:
    if isinstance(value, str):
        return value or None
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and isfinite(value):
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value) if isinstance(value, int) else None
