"""The three pools of a server: fetches, merges and mutations, and everything else.

A slow merge never delays a fetch, because they never share slots (StorageReplicatedMergeTree.cpp,
`scheduleDataProcessingJob`; sizes in ServerSettings.cpp).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from replica.log_entry import EntryType
from replica.settings import ServerSettings


class Pool:
    """So many slots; whoever waits for one is woken when one is freed."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.running = 0
        self._wake_ups: list[asyncio.Event] = []

    def try_start(self) -> bool:
        """Take a slot if there is one."""
        if self.running >= self.capacity:
            return False
        self.running += 1
        return True

    def finish(self) -> None:
        """Give the slot back."""
        self.running -= 1
        for wake_up in self._wake_ups:
            wake_up.set()

    @contextmanager
    def waking_when_free(self, wake_up: asyncio.Event) -> Iterator[None]:
        """Set the event at every slot that is freed during the `with` block."""
        self._wake_ups.append(wake_up)
        try:
            yield
        finally:
            self._wake_ups.remove(wake_up)


class NoFreeSlot(Exception):
    """An attempt turned out to be work for another pool, and that one is full: its entry waits for a slot there."""


class Slot:
    """A place that was taken in a pool, for one attempt from its start to its end."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def move_to(self, pool: Pool) -> None:
        """Take a place there instead. Raises NoFreeSlot, and stays where it is."""
        if pool is self._pool:
            return
        if not pool.try_start():
            raise NoFreeSlot
        self._pool.finish()
        self._pool = pool

    def give_back(self) -> None:
        self._pool.finish()


class Pools:
    """The pools that all tables of a server share."""

    def __init__(self, settings: ServerSettings) -> None:
        self.fetches = Pool(settings.background_fetches_pool_size)
        self.merges_mutations = Pool(settings.merges_mutations_at_once)
        self.common = Pool(settings.background_common_pool_size)

    def of(self, entry_type: EntryType) -> Pool:
        """The pool whose slots entries of this type take."""
        if entry_type in (EntryType.GET_PART, EntryType.ATTACH_PART):
            return self.fetches
        if entry_type in (EntryType.MERGE_PARTS, EntryType.MUTATE_PART):
            return self.merges_mutations
        return self.common

    @contextmanager
    def waking_when_free(self, wake_up: asyncio.Event) -> Iterator[None]:
        """As `Pool.waking_when_free`, for a slot of any of them."""
        with ExitStack() as stack:
            for pool in (self.fetches, self.merges_mutations, self.common):
                stack.enter_context(pool.waking_when_free(wake_up))
            yield
