"""The identities that a gateway remembers, and since when."""

from __future__ import annotations

from collections import OrderedDict
from operator import itemgetter


class WindowMemory:
    """Identities with the reading of the clock at which each was accepted, in milliseconds.

    Nothing leaves by itself: an identity is held until `forget_before` finds it too old. Asking for it does not make
    it younger.
    """

    def __init__(self) -> None:
        self._accepted_at: OrderedDict[str, float] = OrderedDict()
        self._latest: float | None = None
        self._in_order = True

    def __len__(self) -> int:
        return len(self._accepted_at)

    def __contains__(self, identity: str) -> bool:
        return identity in self._accepted_at

    def remember(self, identity: str, at_ms: float) -> None:
        """Hold an identity that is not held yet."""
        if self._latest is not None and at_ms < self._latest:
            self._in_order = False  # the clock was set back
        self._latest = at_ms
        self._accepted_at[identity] = at_ms

    def forget_before(self, at_ms: float) -> None:
        """Let go of all that was accepted at an earlier reading than this one."""
        if not self._in_order:
            self._accepted_at = OrderedDict(sorted(self._accepted_at.items(), key=itemgetter(1)))
            self._latest = next(reversed(self._accepted_at.values()), None)
            self._in_order = True
        while self._accepted_at:
            oldest = next(iter(self._accepted_at))
            if self._accepted_at[oldest] >= at_ms:
                return
            del self._accepted_at[oldest]
