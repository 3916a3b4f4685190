"""The tape: every random decision of a run, one labelled draw after the other.

A run is a function of its tape. A seed gives an endless tape; a recorded tape gives its draws back and is blank
after its last one. By convention option 0 is the calm one (the oldest callback, the shortest delay, no fault), so
that a blank tape is the plainest run there is, and a shorter tape or smaller numbers mean a simpler story.

The numbers are the words of BLAKE2b over seed and counter rather than `random.Random`, whose documentation promises
only the floats to stay the same from one version of Python to the next; they also cost less.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import count
from typing import NamedTuple, TypeVar

T = TypeVar("T")

DrawObserver = Callable[[str, int, int], None]


class Draw(NamedTuple):
    """One decision: for what, among how many options, and which (from 0)."""

    label: str
    options: int
    taken: int


class Tape:
    """The `Chance` of a simulated run; it remembers every draw.

    `observer`, when set, is told of each draw as it is made (label, options, index). `first_mismatch` is the
    position of the first draw of a replay that was asked for under another label or with another number of options
    than the recorded one, None so far; such a draw, and what follows, reads the recorded index modulo the options,
    so that a shrinker may edit a tape freely. Nothing is raised in the middle of a run, where it could be caught.
    """

    def __init__(self, seed: int) -> None:
        """An endless tape; equal seeds give equal tapes on every machine and version of Python."""
        self.observer: DrawObserver | None = None
        self.first_mismatch: int | None = None
        self._words: Iterator[int] = _words(seed)
        self._recorded: Iterator[Draw] | None = None
        self._labels: dict[str, int] = {}
        # Three numbers a draw: the label's, how many options, which one.
        self._draws = array("Q")

    @classmethod
    def replaying(cls, draws: Iterable[Draw]) -> Tape:
        """A tape that gives these draws back; every draw after the last is option 0."""
        tape = cls(0)
        tape._recorded = iter(list(draws))
        return tape

    def choose(self, label: str, options: Sequence[T]) -> T:
        """One of the options. Raises ValueError if there are none."""
        return options[self.draw(label, len(options))]

    def draw(self, label: str, options: int) -> int:
        """A number from 0 to `options` - 1. A choice among one is none: it leaves no mark on the tape."""
        if options <= 1:
            if options < 1:
                raise ValueError(f"nothing to choose from for {label!r}")
            return 0
        # Multiply and shift: uniform up to one part in 2**64 / options.
        index = next(self._words) * options >> 64 if self._recorded is None else self._read_back(label, options)
        self._draws.append(self._labels.setdefault(label, len(self._labels)))
        self._draws.append(options)
        self._draws.append(index)
        if self.observer is not None:
            self.observer(label, options, index)
        return index

    def __len__(self) -> int:
        """How many draws were made."""
        return len(self._draws) // 3

    @property
    def draws(self) -> list[Draw]:
        """The draws made so far."""
        labels, numbers = list(self._labels), iter(self._draws)
        triples = zip(numbers, numbers, numbers, strict=True)
        return [Draw(labels[label], options, index) for label, options, index in triples]

    def to_json(self) -> str:
        """The draws made so far, for `Tape.replaying(draws_from_json(text))`."""
        return json.dumps({"labels": list(self._labels), "draws": self._draws.tolist()}, separators=(",", ":"))

    def _read_back(self, label: str, options: int) -> int:
        assert self._recorded is not None
        recorded = next(self._recorded, None)
        if recorded is None:
            return 0
        if self.first_mismatch is None and (recorded.label, recorded.options) != (label, options):
            self.first_mismatch = len(self)
        return recorded.taken % options


def draws_from_json(text: str) -> list[Draw]:
    """The draws that `Tape.to_json` wrote. Raises ValueError for anything else."""
    try:
        record = json.loads(text)
        labels, numbers = record["labels"], record["draws"]
        triples = [numbers[start : start + 3] for start in range(0, len(numbers), 3)]
        draws = [Draw(str(labels[label]), int(options), int(index)) for label, options, index in triples]
    except (KeyError, IndexError, TypeError, ValueError) as problem:
        raise ValueError(f"not a recorded tape: {problem}") from problem
    if any(not 0 <= draw.taken < draw.options for draw in draws):
        raise ValueError("not a recorded tape: a draw lies outside its options")
    return draws


def _words(seed: int) -> Iterator[int]:
    """64-bit words without end, eight to a digest."""
    for block in count():
        yield from struct.unpack("<8Q", blake2b(b"%d:%d" % (seed, block)).digest())
