"""The clock of a gateway that is given none."""

from __future__ import annotations

import time
from collections.abc import Callable


def steady_clock() -> Callable[[], float]:
    """Milliseconds since 1970 as they were at first, and from then on by a clock that nobody can set.

    So no correction of the wall clock makes identities old before their time.
    """
    ahead = time.time() - time.monotonic()
    monotonic = time.monotonic
    return lambda: (monotonic() + ahead) * 1000
