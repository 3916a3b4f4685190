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


_ID, _NODE_SEQUENCE, _NO_IDENTITY = IdentitySource.ID, IdentitySource.NODE_SEQUENCE, (None, IdentitySource.NONE)


def identity_of(event: Event | None) -> tuple[str | None, IdentitySource]:
    """The identity of an event and where it stands; None if it has none.

    First `id`, if that is a non-empty string; else `nodeId::sequence`, if both are there: non-empty strings or
    numbers, of which 7, 7.0 and "7" are the same. Of null, true or an object no identity is made, since all events
    that have it would be taken for one.
    """
    if event is None:
        return _NO_IDENTITY
    identity = event.get("id")
    if identity and isinstance(identity, str):
        return identity, _ID
    node = event.get("nodeId")
    if node is None:
        node = event.get("node_id")
    sequence = event.get("sequence")
    if type(sequence) is not int or type(node) is not str or not node:  # what they nearly always are
        node, sequence = _spelled(node), _spelled(sequence)
        if node is None or sequence is None:
            return _NO_IDENTITY
    return f"{node}::{sequence}", _NODE_SEQUENCE


def _spelled(value: object) -> str | None:
    if isinstance(value, str):
        return value or None
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and isfinite(value):
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value) if isinstance(value, int) else None
