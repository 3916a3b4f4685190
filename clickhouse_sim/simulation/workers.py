"""Simulated workers: a job takes a drawn time and then runs, all at once, on the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from clickhouse_sim.simulation.gate import Gate
from clickhouse_sim.simulation.trace import Trace
from replica.environment import Chance

T = TypeVar("T")

_DURATIONS = tuple(step / 1000 for step in range(1, 101))


class SimulatedWorkers:
    """Any number of jobs at a time, each done within 100 ms. A cancelled job is not run."""

    def __init__(self, owner: str, gate: Gate, chance: Chance, trace: Trace) -> None:
        self._owner = owner
        self._gate = gate
        self._chance = chance
        self._trace = trace

    async def run(self, label: str, job: Callable[[], T]) -> T:
        self._gate.check()
        await asyncio.sleep(self._chance.choose("job duration", _DURATIONS))
        self._gate.check()
        self._trace.note(self._owner, f"job {label}")
        return job()
