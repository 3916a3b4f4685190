"""How far local time is from UTC.

Asked of Python's zoneinfo and not of Arrow, which knows no daylight saving time after 2037.
"""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Callable

import numpy as np

_EPOCH = datetime.datetime(1970, 1, 1)

# No zone changes its offset elsewhere than at a whole quarter of an hour in the years that DateTime has, but for
# Monrovia's last half minute in 1972.
_QUARTER = 900


def offsets_at_instants(instants: np.ndarray, zone: str) -> np.ndarray:
    """Seconds that local time is ahead of UTC at instants, which are seconds since 1970."""
    return _offsets(instants, zone, datetime.datetime.fromtimestamp)


def offsets_at_local_times(local: np.ndarray, zone: str) -> np.ndarray:
    """The same at local times, given as seconds from 1970-01-01 00:00:00 on the local clock.

    A time that the clock shows twice is the earlier one, one that it skips is taken by the offset before.
    """
    return _offsets(
        local, zone, lambda seconds, tz: (_EPOCH + datetime.timedelta(seconds=seconds)).replace(tzinfo=tz)
    )


def _offsets(
    seconds: np.ndarray, zone: str, moment: Callable[[int, zoneinfo.ZoneInfo], datetime.datetime]
) -> np.ndarray:
    if zone == "UTC":
        return np.zeros(seconds.shape, np.int64)
    tz = zoneinfo.ZoneInfo(zone)
    quarters, places = np.unique(seconds // _QUARTER, return_inverse=True)
    offsets = [moment(quarter * _QUARTER, tz).utcoffset() for quarter in quarters.tolist()]
    return np.array([offset.total_seconds() for offset in offsets if offset is not None], np.int64)[places]
