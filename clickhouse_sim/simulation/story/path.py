"""The way to a broken property: out of thousands of events those that name what the evidence names.

Two steps of kinship are followed: what a client's operation or a log entry names together belongs together. So a
block leads to the parts that its insert was answered with, and these to the merges that they went into.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from clickhouse_sim.simulation.marks import Mark
from clickhouse_sim.simulation.recording import Event

_NAMES = re.compile(
    r"(?:queue|log)-\d{10}|\bblock \d+\b|#\d+(?= )|[0-9A-Za-z-]+_\d+_\d+_\d+(?:_\d+)?\b|\d+_\d{15,}_\d{15,}"
)
_KINSHIP = frozenset({Mark.ASKED, Mark.ANSWERED, Mark.UNKNOWN, Mark.LOG_WRITTEN})
_STEPS = 2
_LONGEST = 60


def path_to(evidence: str, events: Sequence[Event]) -> list[Event]:
    """The events that lead to what the evidence tells, in order; of equal ones at one place only the last."""
    names = _names(evidence)
    for _ in range(_STEPS):
        names |= _kin(names, events)
    last: dict[tuple[str, Mark, str], Event] = {}
    for event in events:
        if event.mark is not Mark.BROKEN and _names(event.what) & names:
            key = event.who, event.mark, event.what
            last.pop(key, None)
            last[key] = event
    found = sorted(last.values(), key=lambda event: event.seconds)[-_LONGEST:]
    return sorted([*found, *_faults(found, events)], key=lambda event: event.seconds)


def _kin(names: frozenset[str], events: Iterable[Event]) -> frozenset[str]:
    related = (_names(event.what) for event in events if event.mark in _KINSHIP)
    return frozenset().union(*(each for each in related if each & names))


def _faults(found: Sequence[Event], events: Iterable[Event]) -> list[Event]:
    """What the world did to those who take part, from the first of these events to the last."""
    if not found:
        return []
    who = {event.who for event in found}
    between = (event for event in events if found[0].seconds <= event.seconds <= found[-1].seconds)
    return [event for event in between if event.mark.is_fault and event.who in who and event not in found]


def _names(text: str) -> frozenset[str]:
    return frozenset(_NAMES.findall(text))
