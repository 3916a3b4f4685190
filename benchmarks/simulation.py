"""Simulated beside real time."""

from __future__ import annotations

import logging
import time

from benchmarks.report import Row
from clickhouse_sim.simulation.history import simulate

_HISTORIES = 10


def simulation() -> list[Row]:
    """The histories of a few seeds."""
    logging.disable()  # simulated servers complain as real ones do
    try:
        simulate(1)
        started = time.perf_counter()
        reports = [simulate(seed) for seed in range(1, _HISTORIES + 1)]
        real = time.perf_counter() - started
    finally:
        logging.disable(logging.NOTSET)
    simulated = sum(report.simulated_seconds for report in reports)
    title = f"{_HISTORIES} histories, {len(reports) / real:.2f} a second"
    return [Row(title, f"{simulated:,.0f} s simulated", "real time", f"{real:.1f} s", simulated / real, True)]
