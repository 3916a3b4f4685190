"""The rules of the house: imports only go down, the heart is pure, the outside is touched in named places only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ["coordinator", "replica", "clickhouse_sim"]  # from the bottom up

# Plain synchronous code: what it needs comes in, what it decides goes out.
HEART = [
    "coordinator/tree.py",
    "coordinator/sessions.py",
    "coordinator/watches.py",
    "coordinator/processor.py",
    "coordinator/jute.py",
    "coordinator/protocol.py",
    "replica/part_name.py",
    "replica/part_set.py",
    "replica/log_entry.py",
    "replica/queue.py",
    "replica/selection.py",
    "replica/partition.py",
    "replica/partition_id.py",
    "replica/znodes.py",
    "clickhouse_sim/ingest/gateway/errors.py",
    "clickhouse_sim/ingest/gateway/gateway.py",
    "clickhouse_sim/ingest/gateway/identity.py",
    "clickhouse_sim/ingest/gateway/ledger.py",
    "clickhouse_sim/ingest/gateway/monitor_routes.py",
    "clickhouse_sim/ingest/gateway/statistics.py",
    "clickhouse_sim/ingest/gateway/window_memory.py",
    "clickhouse_sim/ingest/gateway/windows.py",
    *(str(path.relative_to(ROOT)) for path in (ROOT / "replica" / "expression").glob("*.py")),
    *(str(path.relative_to(ROOT)) for path in (ROOT / "replica" / "schema").rglob("*.py")),
    *(str(path.relative_to(ROOT)) for path in (ROOT / "replica" / "dedup").glob("*.py")),
]
OUTSIDE = {
    *("asyncio", "time", "random", "secrets", "socket", "os", "threading", "subprocess", "uuid", "concurrent"),
    "sqlite3",
}

# The adapters of replica/ that may reach past the ports, and to what.
ADAPTERS = {
    "replica/chance.py": {"random"},
    "replica/clock.py": {"time"},
    "replica/server.py": {"uuid"},  # to write one down; its bits are drawn through the port
    "replica/storage/disk.py": {"concurrent", "os", "threading"},
    "replica/transfer/flight_client.py": {"threading"},
    "replica/transfer/flight_host.py": {"concurrent", "os", "socket", "threading"},
    "replica/transfer/flight_transfer.py": {"concurrent", "threading"},
    "replica/workers.py": {"concurrent"},
}
PORTS = {"time", "random", "secrets", "socket", "os", "threading", "subprocess", "uuid", "concurrent"}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """The top-level names of everything that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_only_go_down(package: str) -> None:
    above = set(PACKAGES[PACKAGES.index(package) + 1 :])
    climbing = {str(path.relative_to(ROOT)): up for path in modules(package) if (up := above & set(imported(path)))}
    assert climbing == {}


@pytest.mark.parametrize("module", HEART)
def test_the_heart_is_pure(module: str) -> None:
    assert set(imported(ROOT / module)) & OUTSIDE == set()


def test_replicas_reach_the_outside_through_their_ports() -> None:
    reaching = {}
    for path in modules("replica"):
        name = str(path.relative_to(ROOT))
        if past := (set(imported(path)) & PORTS) - ADAPTERS.get(name, set()):
            reaching[name] = past
    assert reaching == {}


def test_every_public_module_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in modules(package)
        if path.name != "__main__.py" and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []
