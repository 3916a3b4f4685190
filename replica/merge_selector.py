"""Which neighbouring parts are best merged next: ClickHouse's default algorithm, `Simple`.

A merge should lower the number of parts much and write little. Every run of neighbours that is *allowed* (its parts
are about equally large) gets a score, the work per part that goes away; the lowest score wins. Waiting and a large
number of parts make less balanced runs allowed too.

Source of the formulas: ClickHouse's `SimpleMergeSelector`. Its interpolation helpers are taken to be linear. Sizes
are bytes on disk, ages are seconds since the part was written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from replica.part_name import PartName
from replica.settings import MergeTreeSettings

_FIXED_COST = 5 << 20  # opening one more part costs as much as reading so many bytes

_LOWEST_BASE = 2.0
_PARTS_TO_LOWER_BASE = (10, 50)
_AGE_TO_LOWER_BASE = 10
_AGE_OF_LOWEST_BASE = (3600, 30 * 86400)  # of the smallest and of the largest merge
_LOG_SIZES_TO_LOWER_BASE = (math.log(1 + (1 << 20)), math.log(1 + (100 << 30)))

_TINY_LAST_PART = 0.01
_ALIGNED_LEFT_PART = 0.9
_ALIGNED_DOUBLINGS = 0.5
_ALIGNED_DISCOUNT = 0.75


@dataclass(frozen=True, slots=True)
class PartToMerge:
    """What the choice of a merge depends on."""

    name: PartName
    bytes: int
    age: float


PartRange = Sequence[PartToMerge]
"""Neighbouring parts of one partition, any consecutive ones of which may be merged; in the order of their blocks."""


def select_merge(
    ranges: Iterable[PartRange], max_bytes: int, settings: MergeTreeSettings, *, aggressive: bool = False
) -> list[PartToMerge] | None:
    """The consecutive parts of one range that are best merged, at most `max_bytes` in all; None if there are none.

    Of equally good choices it is the last. `aggressive` is for OPTIMIZE: hardly any balance is asked for.
    """
    base = 1 if aggressive else settings.merge_selector_base
    best: list[PartToMerge] | None = None
    best_score = math.inf
    for parts in ranges:
        for run in _runs(parts, max_bytes, settings, base):
            end = (
                _without_tiny_last_parts(parts, run)
                if settings.merge_selector_enable_heuristic_to_remove_small_parts_at_right
                else run.end
            )
            run_score = score(end - run.begin, run.bytes, parts[run.begin - 1].bytes if run.begin else 0)
            if run_score <= best_score and allowed(run, len(parts), settings, base):
                best, best_score = list(parts[run.begin : end]), run_score
    return best


class Run(NamedTuple):
    """The parts `[begin, end)` of a range: their sum, the largest of them, and the age of the youngest."""

    begin: int
    end: int
    bytes: int
    largest: int
    youngest: float


def allowed(run: Run, parts_in_range: int, settings: MergeTreeSettings, base: int) -> bool:
    """Whether the parts are balanced enough, or old enough, to be merged.

    Balanced: the sum is at least so many times the largest part, `base` times at first. Age and the number of parts
    lower that to 2; the larger the merge, the more age it takes.
    """
    force_age, count = settings.min_age_to_force_merge_seconds, run.end - run.begin
    if force_age and run.youngest >= force_age:
        return True
    if count < settings.min_parts_to_merge_at_once:
        return False
    size = _position(math.log(1 + run.bytes), *_LOG_SIZES_TO_LOWER_BASE)
    age = _position(run.youngest, _AGE_TO_LOWER_BASE, _between(*_AGE_OF_LOWEST_BASE, size))
    lowered = _between(base, _LOWEST_BASE, min(1.0, age + _position(parts_in_range, *_PARTS_TO_LOWER_BASE)))
    return (run.bytes + count * _FIXED_COST) / (run.largest + _FIXED_COST) >= lowered


def score(count: int, total: int, left: int) -> float:
    """How bad it is to merge `count` parts of `total` bytes, the part on their left having `left` bytes.

    A merge that makes a neighbour for the part on the left, of about its size, is a little better.
    """
    work = (total + _FIXED_COST * count) / (count - 1.9)
    if left > total * _ALIGNED_LEFT_PART and total:
        doublings = abs(math.log2(total / left))
        if doublings < _ALIGNED_DOUBLINGS:
            work *= _between(_ALIGNED_DISCOUNT, 1.0, doublings / _ALIGNED_DOUBLINGS)
    return work


def max_parts_to_merge(parts_in_range: int, settings: MergeTreeSettings, base: int) -> int:
    """How many parts one merge may take; 0 for any number.

    Fewer as inserts come close to being refused: many small merges then lower the number of parts sooner.
    """
    limit, refused_at = settings.max_parts_to_merge_at_once, settings.parts_to_throw_insert
    if not (settings.merge_selector_enable_heuristic_to_lower_max_parts_to_merge_at_once and base < limit):
        return limit
    exponent = settings.merge_selector_heuristic_to_lower_max_parts_to_merge_at_once_exponent
    return int(_between(base, limit, 1.0 - _position(parts_in_range, base, refused_at) ** exponent))


def _runs(parts: PartRange, max_bytes: int, settings: MergeTreeSettings, base: int) -> Iterator[Run]:
    """The runs of two and more parts, by begin and then by end, that are neither too many parts nor too large."""
    longest = max_parts_to_merge(len(parts), settings, base) or len(parts)
    for begin in range(max(0, len(parts) - settings.merge_selector_window_size), len(parts)):
        total, largest, youngest = 0, 0, math.inf
        for end in range(begin + 1, min(begin + longest, len(parts)) + 1):
            last = parts[end - 1]
            total, largest, youngest = total + last.bytes, max(largest, last.bytes), min(youngest, last.age)
            if total > max_bytes:
                break
            if end - begin >= 2:
                yield Run(begin, end, total, largest, youngest)


def _without_tiny_last_parts(parts: PartRange, run: Run) -> int:
    """Where the run ends when its last parts, tiny beside the whole, are left for a later merge of their equals."""
    end = run.end
    while end - run.begin >= 3 and parts[end - 1].bytes < run.bytes * _TINY_LAST_PART:
        end -= 1
    return end


def _between(low: float, high: float, position: float) -> float:
    return low + (high - low) * position


def _position(value: float, low: float, high: float) -> float:
    """Where the value is on the way from `low` to `high`, as 0 to 1."""
    if value <= low:
        return 0.0
    return 1.0 if value >= high else (value - low) / (high - low)
