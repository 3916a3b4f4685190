"""Randomness from the operating system: the real adapter of the `Chance` port."""

from __future__ import annotations

from collections.abc import Sequence
from random import SystemRandom
from typing import TypeVar

T = TypeVar("T")


class SystemChance:
    """Draws that nobody can foresee or replay; the label is for worlds that record them."""

    def __init__(self) -> None:
        self._source = SystemRandom()

    def choose(self, label: str, options: Sequence[T]) -> T:
        return self._source.choice(options)
