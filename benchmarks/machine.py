"""Which machine a table was measured on, and with which versions."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

_PACKAGES = ("pyarrow", "kazoo", "numpy", "numba", "siphash24")


def description() -> str:
    """Date, processor, cores, load before the run, Python and the packages that carry the work."""
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    load = f"load {os.getloadavg()[0]:.1f} before"
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {_processor()}, {os.cpu_count()} cores, {load}\n"
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}, {packages}"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
