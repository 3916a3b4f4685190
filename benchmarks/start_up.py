"""How long the command takes to say what it can do."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.report import Row, compared, in_turns


def cli() -> list[Row]:
    """`chsim --help` beside an interpreter that does nothing."""
    ours, nothing = in_turns(
        (
            lambda: subprocess.run(
                [sys.executable, "-m", "clickhouse_sim", "--help"], capture_output=True, check=True
            ),
            lambda: subprocess.run([sys.executable, "-c", "pass"], capture_output=True, check=True),
        )
    )
    return [compared("chsim --help", ours * 1000, "python -c pass", nothing * 1000, "{:,.0f} ms", False)]
