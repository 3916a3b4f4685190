"""The entry of `chsim`.

`chsim --help` is what people type first and most, and importing click takes longer than Python takes to start. So
that one page lies ready in a file, which `scripts/cli-reference` writes and a test compares with the commands.
"""

from __future__ import annotations

import os
import sys

HELP_PAGE = os.path.join(os.path.dirname(__file__), "help.txt")


def main() -> None:
    """Run the command that the arguments name."""
    if sys.argv[1:] in (["--help"], ["-h"]):
        with open(HELP_PAGE, encoding="utf-8") as page:
            sys.stdout.write(page.read())
        return
    from clickhouse_sim.cli.main import main as commands

    commands(prog_name="chsim")
