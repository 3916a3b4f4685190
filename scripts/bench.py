"""Speed, side by side: what is compared runs in turns in one run on one machine, and the ratio is what counts."""

from __future__ import annotations

import logging
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROUNDS = 7
MEGABYTE = 1 << 20


def hash_kernel(table: Table) -> None:
    """The 128-bit block hash beside siphash24's 64-bit digest of the same bytes."""
    import siphash24

    from replica.dedup.siphash import siphash128

    data = bytes(range(256)) * (256 * 256)
    ours, theirs = in_turns(lambda: siphash128(data), lambda: siphash24.siphash24(data, key=bytes(16)).digest())
    size = len(data) / MEGABYTE
    row(
        table,
        "block hash, 16 MiB",
        f"{size / ours:,.0f} MB/s",
        "siphash24",
        f"{size / theirs:,.0f} MB/s",
        theirs / ours,
    )


def simulate(table: Table) -> None:
    """Simulated beside real time, over the histories of a few seeds."""
    from clickhouse_sim.simulation.history import simulate as run_history

    run_history(1)
    started = time.perf_counter()
    reports = [run_history(seed) for seed in range(1, 11)]
    real = time.perf_counter() - started
    simulated = sum(report.simulated_seconds for report in reports)
    row(
        table, "10 histories", f"{real:.1f} s", "the time that they simulate", f"{simulated:,.0f} s", simulated / real
    )
    row(table, "histories", f"{len(reports) / real:.2f} /s", "", "", None)


def cli(table: Table) -> None:
    """`chsim --help` beside an interpreter that does nothing."""
    ours, theirs = in_turns(
        lambda: subprocess.run([sys.executable, "-m", "clickhouse_sim", "--help"], capture_output=True, check=True),
        lambda: subprocess.run([sys.executable, "-c", "pass"], capture_output=True, check=True),
    )
    row(table, "chsim --help", f"{ours * 1000:.0f} ms", "python -c pass", f"{theirs * 1000:.0f} ms", ours / theirs)


BENCHES: dict[str, Callable[[Table], None]] = {"hash": hash_kernel, "simulate": simulate, "cli": cli}


def in_turns(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float]:
    """Median seconds of each, after one warm-up, run alternately."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS + 1):
        for which, work in enumerate((ours, theirs)):
            started = time.perf_counter()
            work()
            if number:
                seconds[which].append(time.perf_counter() - started)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


def row(table: Table, what: str, ours: str, beside: str, theirs: str, ratio: float | None) -> None:
    table.add_row(what, ours, beside, theirs, "" if ratio is None else f"{ratio:,.2f}")


def main() -> int:
    names = sys.argv[1:] or list(BENCHES)
    if unknown := [name for name in names if name not in BENCHES]:
        print(f"no bench {unknown[0]}: there are {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    sys.path.insert(0, str(Path(__file__).parents[1]))
    logging.disable()  # simulated servers complain as real ones do
    machine = f"{platform.machine()}, Python {platform.python_version()}, medians of {ROUNDS} rounds in turns"
    table = Table("what", "here", "beside", "there", "ratio", title=machine)
    for name in names:
        BENCHES[name](table)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
