"""Many seeds on several processes, and what came of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple

from clickhouse_sim.simulation.history import PLANS
from clickhouse_sim.simulation.verdict import Verdict, judge


class Judged(NamedTuple):
    """One seed and how its history ended."""

    seed: int
    verdict: Verdict


def judge_seeds(seeds: Iterable[int], plan_name: str, jobs: int) -> Iterator[Judged]:
    """Play every seed, on `jobs` processes; the verdicts in order of the seeds."""
    play = partial(_judged, plan_name)
    if jobs == 1:
        yield from map(play, seeds)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=silence) as pool:
        try:
            yield from pool.map(play, seeds)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def silence() -> None:
    """The simulated servers' own log would drown everything else."""
    logging.disable(logging.CRITICAL)


def _judged(plan_name: str, seed: int) -> Judged:
    return Judged(seed, judge(seed, PLANS[plan_name]))
