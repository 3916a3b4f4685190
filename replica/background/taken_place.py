"""A replica's place that another session holds: since when, and what that means.

A killed server's session lives on until the service has heard nothing of it for the session timeout. So whoever finds
`is_active` there waits for that long at most, and knows afterwards that another server lives under the name.
"""

from __future__ import annotations

import math

from replica.znodes import ReplicaZnodes


class TakenPlace:
    """What one server sees of the `is_active` that is in its way."""

    def __init__(self, znodes: ReplicaZnodes) -> None:
        self._znodes = znodes
        self._owner = 0
        self._seen_since = 0.0

    def reason(self, owner: int, now: float, timeout_seconds: float) -> str:
        """Why the replica is read-only, and for how long: session `owner` holds the place at `now`, in seconds."""
        if owner != self._owner:
            self._owner, self._seen_since = owner, now
        left = self._seen_since + timeout_seconds - now
        appears = f"Replica {self._znodes.root} appears to be already active: session {owner:#x} holds its place"
        if left > 0:
            return (
                f"{appears}. If that is of a server that was killed, it ends within {math.ceil(left)} s and this one "
                f"starts then; if another server runs under the same name, stop one of them"
            )
        return (
            f"{appears}, for {math.floor(now - self._seen_since)} s now, which is longer than a session outlives its "
            f"server ({timeout_seconds:g} s): another server runs under the same name, stop one of them"
        )
