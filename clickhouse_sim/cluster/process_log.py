"""How the processes of a cluster log: to stderr, which `up` leads into a file."""

from __future__ import annotations

import logging
import sys


def log_to_stderr() -> None:
    """One line a message, from INFO on."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("kazoo").setLevel(logging.WARNING)
