"""Whole histories of the real replica code in the simulated world."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from clickhouse_sim.simulation.history import DESTRUCTIVE, DROPPING, FORGETFUL, Plan, simulate

ROOT = Path(__file__).parent.parent.parent

# Seeds that found fetches cancelled in their rollback. What is drawn has changed since, so they are histories like
# any other now; tests/replica/test_fetch.py holds the bug itself.
REMEMBERED = (14, 172, 239)


@pytest.mark.parametrize("seed", [*range(1, 9), *REMEMBERED])
def test_every_acknowledged_block_is_on_every_replica_exactly_once(seed: int) -> None:
    report = simulate(seed)
    assert len(report.acknowledged) == 30


def test_the_faults_of_a_few_seeds_are_of_every_kind() -> None:
    seen = {kind for seed in range(1, 6) for kind in simulate(seed, Plan(blocks_per_client=4)).faults}
    assert seen == {"crash", "cut off", "expire session", "lose multi replies"}


@pytest.mark.parametrize("seed", range(1, 7))
def test_what_is_forgotten_is_not_missed(seed: int) -> None:
    """Small windows and a short log: every block is still there, and once only unless its id was forgotten."""
    report = simulate(seed, FORGETFUL)
    assert len(report.acknowledged) == 80
    assert report.trimmed_entries > 100
    assert report.forgotten_ids > 100
    assert report.stored_again < report.forgotten_ids / 10  # a retry that comes later than the window holds


def test_parts_are_rewritten_in_every_step_of_an_upgrade() -> None:
    """Blocks of several tokens meet their own retries, whichever ids are written and checked."""
    rewritten: Counter[str] = Counter()
    for seed in range(1, 7):
        report = simulate(seed, FORGETFUL)
        rewritten[" ".join(sorted(set(report.deduplication_versions.values())))] += report.rewritten_parts
    assert len(rewritten) >= 3
    assert all(rewritten.values())


@pytest.mark.parametrize("seed", range(1, 7))
def test_partitions_come_and_go_as_the_log_says(seed: int) -> None:
    report = simulate(seed, DROPPING)
    assert len(report.acknowledged) == 60
    assert report.partition_entries > 5
    assert report.forgotten_ids > 10


def test_replicas_that_are_down_for_long_are_lost_and_clone() -> None:
    assert sum(simulate(seed, FORGETFUL).lost_replicas for seed in (2, 4)) >= 2


@pytest.mark.parametrize("seed", range(1, 7))
def test_only_rows_whose_every_copy_was_destroyed_are_missing(seed: int) -> None:
    report = simulate(seed, DESTRUCTIVE)
    assert len(report.acknowledged) == 30
    assert bool(report.missing_rows) <= bool(report.lost_parts)


def test_some_parts_are_lost_for_ever_and_disks_are_lost_and_files_rot() -> None:
    reports = [simulate(seed, DESTRUCTIVE) for seed in range(7, 19)]
    assert {"lose disk", "rot"} <= {kind for report in reports for kind in report.faults}
    assert sum(report.lost_parts for report in reports) > 0


# Windows are small, replicas get lost, and a file that says what a part's checksums are rots in every copy.
@pytest.mark.parametrize("seed", [3])
def test_what_is_destroyed_while_replicas_clone(seed: int) -> None:
    assert len(simulate(seed, replace(FORGETFUL, destruction=True, faults=12)).acknowledged) == 80


def test_nothing_is_forgotten_with_the_default_windows() -> None:
    report = simulate(1)
    assert (report.lost_replicas, report.forgotten_ids, report.stored_again) == (0, 0, 0)
    assert (report.lost_parts, report.missing_rows) == (0, 0)


def test_hours_pass_in_few_callbacks() -> None:
    """The work grows with what happens, not with how long nothing does: idle replicas wait, they do not poll."""
    short = simulate(7, Plan(clients=1, blocks_per_client=3, pause_seconds=10, faults=0))
    long = simulate(7, Plan(clients=1, blocks_per_client=3, pause_seconds=3000, faults=0))
    assert long.simulated_seconds > 20 * short.simulated_seconds
    heartbeats_per_second = 4 * 3 / 10  # four sessions, each a request, a reply and two timers in ten seconds
    assert long.callbacks - short.callbacks < 8 * heartbeats_per_second * long.simulated_seconds


REPORT = """
import sys
junk = [object() for _ in range(int(sys.argv[1]))]
from clickhouse_sim.simulation.history import simulate
report = simulate(3)
print(report.trace_hash, report.simulated_seconds, report.acknowledged)
"""


def test_equal_seeds_give_equal_histories_in_other_processes() -> None:
    def output(hash_seed: str, junk: str) -> str:
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
        command = [sys.executable, "-c", REPORT, junk]
        return subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True, timeout=100
        ).stdout

    first, second = output("1", "10"), output("4711", "123457")
    assert first == second
    assert simulate(3).trace_hash == first.split()[0]
    assert simulate(4).trace_hash != first.split()[0]
