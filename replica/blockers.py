"""What an operator holds on one table with SYSTEM STOP, until SYSTEM START or the end of the process.

ClickHouse: ActionBlocker.h. A stopped action does not begin any more; what is running is refused at its commit.
"""

from __future__ import annotations

import asyncio

from replica.commands import Action
from replica.errors import Aborted

_REFUSALS = {
    Action.MERGES: "Cancelled merging parts",
    Action.FETCHES: "Replicated fetches are cancelled",
    Action.REPLICATION_QUEUES: "Replication queues are stopped",
    Action.PULLING_REPLICATION_LOG: "Log pulling is cancelled",
}


class Blockers:
    """The switches of one table; everything goes until it is stopped."""

    def __init__(self) -> None:
        self._going = {action: asyncio.Event() for action in Action}
        for going in self._going.values():
            going.set()

    def is_stopped(self, action: Action) -> bool:
        return not self._going[action].is_set()

    def stop(self, action: Action) -> None:
        self._going[action].clear()

    def start(self, action: Action) -> None:
        self._going[action].set()

    async def wait_until_going(self, action: Action) -> None:
        await self._going[action].wait()

    def check(self, action: Action) -> None:
        """Raises Aborted while the action is stopped."""
        if self.is_stopped(action):
            raise Aborted(f"{_REFUSALS[action]}: somebody said SYSTEM STOP {action}, SYSTEM START {action} ends that")
