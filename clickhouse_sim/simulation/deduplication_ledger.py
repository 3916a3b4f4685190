"""Watches the deduplication ids of one generation from outside the faults: which are forgotten, and may they be?

An id that is forgotten lets its block in once more. So a block may be there as many times more as its id was
forgotten, and no id may be forgotten inside of the window.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from coordinator.api import Session, Stat, Watch
from replica.background.deduplication_window import window_of
from replica.dedup.hashes import HashKind
from replica.settings import MergeTreeSettings
from replica.znodes import TableZnodes


@dataclass
class _Seen:
    name: str
    stat: Stat
    part: str

    @property
    def order(self) -> tuple[int, str]:
        return self.stat.ctime, self.name


class DeduplicationLedger:
    """What has become of each id: how often it was `forgotten`, and which went `too_early`, with its part."""

    def __init__(self, table: TableZnodes, settings: MergeTreeSettings, kind: HashKind = HashKind.UNIFIED) -> None:
        self.kind = kind
        self._directory = table.deduplication_directory(kind)
        self._size, self._seconds = window_of(kind, settings)
        self._seen: dict[str, _Seen] = {}
        self._one_at_a_time = asyncio.Lock()
        self.forgotten: Counter[str] = Counter()
        self.too_early: list[tuple[str, str]] = []

    async def keep(self, session: Session) -> None:
        """Follow every change, until cancelled."""
        while True:
            watch = Watch()
            await self.look(session, watch)
            await watch.wait()

    async def look(self, session: Session, watch: Watch | None = None) -> None:
        """Note what has changed."""
        async with self._one_at_a_time:
            names = await session.children(self._directory, watch)
            found = await session.get_many([f"{self._directory}/{name}" for name in names])
            answers = zip(names, found, strict=True)
            self._note(
                {name: _Seen(name, answer[1], answer[0].decode()) for name, answer in answers if answer is not None}
            )

    def _note(self, now: dict[str, _Seen]) -> None:
        lately = [*self._seen.values(), *now.values()]
        for name, each in sorted(self._seen.items()):
            if name in now and now[name].stat.czxid == each.stat.czxid:
                continue
            # A cleaner knows an id by its name: one that was made anew it may take for the old one.
            if self._holds(each, lately) and not self.forgotten[name]:
                self.too_early.append((name, each.part))
            self.forgotten[name] += 1
        self._seen = now

    def parts(self) -> dict[str, str]:
        """The part that each id points to which is there."""
        return {name: each.part for name, each in sorted(self._seen.items())}

    def begin_anew(self) -> None:
        """All znodes of the table were removed: of the ids that were there, none counts as forgotten."""
        self._seen = {}

    @property
    def made_again(self) -> int:
        """How many times an id was made that had been forgotten before: its block came in once more."""
        return sum(times - (name not in self._seen) for name, times in self.forgotten.items())

    def outside(self) -> list[str]:
        """The ids that are there although the window does not hold them: the next cleanup is to forget them."""
        everything = list(self._seen.values())
        return sorted(each.name for each in everything if not self._holds(each, everything))

    def _holds(self, each: _Seen, others: list[_Seen]) -> bool:
        """Whether the window that has these other ids holds this one."""
        newer = {other.name for other in others if other.order > each.order}
        newest = max(other.stat.ctime for other in others)
        return len(newer) < self._size and newest - each.stat.ctime <= 1000 * self._seconds
