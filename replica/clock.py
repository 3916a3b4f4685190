"""The wall clock of the machine: the real adapter of the `Clock` port."""

from __future__ import annotations

import time


class WallClock:
    """Seconds since 1970, as the operating system knows them; may jump when somebody sets the clock."""

    def now(self) -> float:
        return time.time()
