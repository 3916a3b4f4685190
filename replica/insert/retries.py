"""How often, and how patiently, an insert tries again when the coordination service fails it."""

from __future__ import annotations

import asyncio

from replica.settings import ServerSettings


class KeeperRetries:
    """The budget of one insert: `insert_keeper_max_retries` waits, each twice as long as the one before."""

    def __init__(self, settings: ServerSettings) -> None:
        self._left = settings.insert_keeper_max_retries
        self._wait_ms = settings.insert_keeper_retry_initial_backoff_ms
        self._longest_wait_ms = settings.insert_keeper_retry_max_backoff_ms

    async def wait(self) -> bool:
        """Wait before the next try; False, at once, when the budget is used up."""
        if self._left == 0:
            return False
        self._left -= 1
        await asyncio.sleep(self._wait_ms / 1000)
        self._wait_ms = min(2 * self._wait_ms, self._longest_wait_ms)
        return True
