"""Deduplication ids that were seen lately: a hint where to look first, never an answer.

ClickHouse mirrors the whole directory (`deduplication_hashes` cache); the hint saves the same round trips.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

MOST_IDS = 10_000


class RecentIds:
    """The znodes of at most `most` ids, those that were seen last."""

    def __init__(self, most: int = MOST_IDS) -> None:
        self._most = most
        self._paths: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._paths)

    def known(self, paths: Sequence[str]) -> list[str]:
        """Those of the znodes that were there when they were last seen, and may be gone by now."""
        return [path for path in paths if path in self._paths]

    def saw(self, path: str) -> None:
        """The znode was there just now."""
        self._paths[path] = None
        self._paths.move_to_end(path)
        while len(self._paths) > self._most:
            self._paths.popitem(last=False)

    def missed(self, path: str) -> None:
        """The znode was not there just now."""
        self._paths.pop(path, None)
