"""A simpler tape with the same failure: as few draws as possible that are not the plainest option, which is option 0.

A tape that has ended gives option 0 for ever, so what stands after the last other draw need not be kept. Edits go
from coarse to fine: all draws of one label become plain, then the tape's end, then pieces of it, halves first; pieces
are also cut out. Every edit that keeps the failure is kept. (Delta debugging, on choices rather than on values, as
Hypothesis shrinks.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from clickhouse_sim.simulation.tape import Draw

Tapes = Iterator[list[Draw]]


class Shrinker:
    """Shrinks one tape by playing at most `budget` histories; `best` is the simplest failing tape so far."""

    def __init__(self, draws: Sequence[Draw], fails: Callable[[Sequence[Draw]], bool], budget: int) -> None:
        """`fails` plays a tape and tells whether the failure is still the same; it must be true of `draws`."""
        self.best = _without_end(draws)
        self.played = 0
        self._fails = fails
        self._budget = budget

    def run(self) -> None:
        """Go on until nothing helps any more or the budget is used up."""
        before = None
        while before != self.cost and self.played < self._budget:
            before = self.cost
            self._keep_what_fails(self._plain_labels())
            size = len(self.best) // 2
            while size >= 1 and self.played < self._budget:
                self._keep_what_fails(self._edited(size))
                size //= 2

    @property
    def cost(self) -> tuple[int, int]:
        """How many draws are not plain, and how long the tape is."""
        return _cost(self.best)

    def _keep_what_fails(self, candidates: Tapes) -> None:
        for candidate in candidates:
            if self.played >= self._budget:
                return
            candidate = _without_end(candidate)
            if _cost(candidate) < self.cost:
                self.played += 1
                if self._fails(candidate):
                    self.best = candidate

    def _plain_labels(self) -> Tapes:
        for label in sorted({draw.label for draw in self.best if draw.taken}):
            yield [draw._replace(taken=0) if draw.label == label else draw for draw in self.best]

    def _edited(self, size: int) -> Tapes:
        """Each piece of this size made plain, and cut out, the last one first; always of the best tape so far."""
        for start in range(len(self.best) // size * size, -1, -size):
            if start >= len(self.best):
                continue
            head, piece, tail = self.best[:start], self.best[start : start + size], self.best[start + size :]
            yield [*head, *(draw._replace(taken=0) for draw in piece), *tail]
            if self.best[start : start + size] == piece:
                yield head + tail


def _without_end(draws: Sequence[Draw]) -> list[Draw]:
    """The tape without the plain draws at its end, which a tape that has ended gives as well."""
    length = max((position + 1 for position, draw in enumerate(draws) if draw.taken), default=0)
    return list(draws[:length])


def _cost(draws: Sequence[Draw]) -> tuple[int, int]:
    return sum(1 for draw in draws if draw.taken), len(draws)
